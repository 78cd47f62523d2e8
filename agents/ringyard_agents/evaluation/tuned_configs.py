"""Tuned configurations: the placement rule and options that `ringyard tune` found for each scheduler."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ringyard.checks import shown
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.observability import Observability
from ringyard_agents.config.compose import SchedulerEntry, require_placement, scheduler_config, to_plain
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.evaluation.evaluate import build_object
from ringyard_agents.evaluation.notes import NOTES
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_baselines.scheduler import Capabilities, Scheduler

#: flags that show how long a job will run, or a prediction of it
_DURATION_FLAGS = Observability.DURATIONS | Observability.PREDICTIONS

_RECORD_KEY = "found_in"  #: key of the environment and the command of the tuning; older files lack it


class _TriedConfig(BaseModel):
    """A configuration of a scheduler that was tried."""

    model_config = ConfigDict(frozen=True, strict=True)

    scheduler: str  #: `name` or `name@rule`
    options: dict[str, Any]  #: options that replace those of the scheduler's yaml
    workloads: Annotated[int, Field(ge=1)]  #: number of workloads that it ran on

    @classmethod
    def of(cls, entry: SchedulerEntry, workloads: int, **found: Any) -> Self:
        """Make a record of an entry that ran on a number of workloads. `found` are fields of the subclass."""
        return cls(scheduler=entry.scheduler, options=dict(entry.options), workloads=workloads, **found)

    @property
    def entry(self) -> SchedulerEntry:
        """The configuration as an entry of a command. Its label names the placement rule."""
        return SchedulerEntry(self.scheduler, self.scheduler, self.options)


class AlternativeConfig(_TriedConfig):
    """A configuration that was tried and is not the best."""

    #: mean of the metric / mean of the best on the same workloads - 1. Infinite if the best is 0.
    change: Annotated[float, Field(ge=-1)]


class TunedScheduler(_TriedConfig):
    """The best configuration of a scheduler, with the others that were tried."""

    mean: Annotated[float, Field(allow_inf_nan=False)]  #: mean of the metric on the workloads that chose it
    #: other configurations: those that ran on as many workloads, the best first, then those that were
    #: dropped after fewer. A file has only its `alternatives`.
    others: list[AlternativeConfig] = []


_FILE_SCHEMA = TypeAdapter(dict[str, TunedScheduler])


class _TuningRecord(BaseModel):
    """Where a file was tuned: digest of the environment's configs, and the command line."""

    environment: str = Field(alias="world")  # files keep the former name of the key
    command: str


def _environment_digest(environment: Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits that are equal for equal configs, whatever references they name."""

    def played(config: Any) -> Any:
        if not isinstance(config, Mapping):
            return config
        references = ("source", "wire_source", "wire_bytes_per_second")
        return {key: played(value) for key, value in config.items() if key not in references}

    return hashlib.sha256(json.dumps(played(environment), sort_keys=True).encode()).hexdigest()[:12]


def format_options(entry: SchedulerEntry) -> str:
    """Return the options of an entry as `name=value, ...`; "" without options."""
    return ", ".join(f"{name}={value}" for name, value in entry.options.items())


def read_tuned(name: str) -> dict[str, TunedScheduler]:
    """Return {scheduler: tuned configuration} of a file of `ringyard tune`, or of a name in conf/tuned."""
    return _read_file(name)[1]


def environment_mismatch_notes(name: str, environment: Mapping[str, Any]) -> list[str]:
    """Return a note if a file (see `read_tuned`) was tuned in another environment."""
    record = _read_file(name)[0]
    if record is None or record.environment == _environment_digest(environment):
        return []
    return [NOTES["tuned_elsewhere"].format(name=name, command=record.command)]


def tuned_name_for(environment: Mapping[str, Any]) -> str | None:
    """Return the name of the file in conf/tuned that was tuned in an environment, if there is one."""
    digest = _environment_digest(environment)
    for name in config_files("tuned"):
        record = _read_file(name)[0]
        if record is not None and record.environment == digest:
            return name
    return None


def _read_file(name: str) -> tuple[_TuningRecord | None, dict[str, TunedScheduler]]:
    """Return (where the file was tuned, if it says so; {scheduler: its tuned configuration})."""
    shipped = config_files("tuned")
    file = shipped[name] if name in shipped else Path(name).expanduser()
    if not file.is_file():
        raise ConfigurationError(
            f"tuning is {name!r}; expected a file that `ringyard tune` wrote, or one of {', '.join(shipped)}"
        )
    try:
        content = read_plain(file)
        record = content.pop(_RECORD_KEY, None) if isinstance(content, dict) else None
        found = _FILE_SCHEMA.validate_python(content)
        for scheduler, best in found.items():
            name_in_file, _, rule = best.scheduler.partition("@")
            if name_in_file != scheduler:
                expected = f"{scheduler} or {scheduler}@rule"
                raise ConfigurationError(f"{scheduler}.scheduler is {best.scheduler!r}; expected {expected}")
            if rule:
                require_placement(f"{scheduler}.scheduler", rule)
        return None if record is None else _TuningRecord.model_validate(record), found
    except (ConfigurationError, ValidationError) as error:
        text = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "it"
            expected = first["msg"].replace("Input should be", "expected")
            text = f"{where} is {shown(first['input'])}; {expected}"
        problem = f"tuning is {name!r}, which is not a file of `ringyard tune`: {text}"
        raise ConfigurationError(f"{problem}; write one with `ringyard tune output=FILE`") from error


def write_tuned(
    file: Path,
    tuned: Mapping[str, TunedScheduler],
    environment: Mapping[str, Any],
    command: str,
    comment: str,
) -> None:
    """Write the file that `read_tuned` reads. `comment` is one line about metric and workloads."""
    content: dict[str, Any] = {_RECORD_KEY: {"world": _environment_digest(environment), "command": command}}
    for name, best in tuned.items():
        content[name] = best.model_dump(exclude_defaults=True) | {"mean": round(best.mean, 6)}
        for other in content[name].get("others", ()):
            other["change"] = round(other["change"], 5)
    with atomic_write(file) as partial:
        text = yaml.safe_dump(content, sort_keys=False, width=1000)
        partial.write_text(f"# {command}: {comment}\n{text}")


def alternatives(best: TunedScheduler) -> list[AlternativeConfig]:
    """Return the configurations that a file keeps beside the best. Hydra must be initialised.

    Agents are compared with schedulers of their own `capability_class`. So where the best configuration sees
    durations or preempts jobs, the file also keeps the best that does not.
    """
    seen, found = [capability_class(build_scheduler(best.entry))], []
    for one in best.others:
        if has_explicit_config(one.entry):
            sees_durations, only_starts = capability_class(build_scheduler(one.entry))
            if not any(before[0] <= sees_durations and before[1] >= only_starts for before in seen):
                seen.append((sees_durations, only_starts))
                found.append(one)
    return found


def has_explicit_config(entry: SchedulerEntry) -> bool:
    """Return whether an entry names a placement rule or options. If not, it runs with the defaults."""
    return bool(entry.options) or "@" in entry.scheduler


def capability_class(scheduler: Scheduler) -> tuple[bool, bool]:
    """Return whether a scheduler sees durations or predictions of them, and whether it only starts jobs."""
    return bool(scheduler.total_observability & _DURATION_FLAGS), scheduler.capabilities == Capabilities.START


def build_scheduler(entry: SchedulerEntry) -> Scheduler:
    """Build the scheduler of an entry. Hydra must be initialised."""
    return build_object(to_plain(scheduler_config(entry)))


def with_tuned_options(
    entries: Mapping[str, SchedulerEntry], tuned: Mapping[str, TunedScheduler]
) -> dict[str, SchedulerEntry]:
    """Replace entries without a rule and options by their tuned ones, labelled by their rule."""
    found: dict[str, SchedulerEntry] = {}
    for entry in entries.values():
        default = entry.label == entry.scheduler == entry.name and not entry.options
        chosen = tuned[entry.name].entry if default and entry.name in tuned else entry
        if chosen.label in found:
            raise ConfigurationError(
                f"schedulers has {chosen.label} twice: once by name, and once as the tuned configuration of"
                f" {entry.name}; leave one out"
            )
        found[chosen.label] = chosen
    return found
