"""The placement rule and options that suit each scheduler, as `ringyard tune` found them."""

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
from ringyard_agents.config.safe_load import find_interpolation
from ringyard_agents.evaluation.evaluate import build_object
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_baselines.scheduler import Capabilities, Scheduler

#: flags that show how long a job will run, or a prediction of it
_DURATION_FLAGS = Observability.DURATIONS | Observability.PREDICTIONS

#: where a file says in which world, and by which command, its schedulers were tuned; older ones do not
_RECORD_KEY = "found_in"

#: safe, and in C where libyaml is there: files are long
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _TriedConfig(BaseModel):
    """A scheduler with a placement rule and options, as it was tried.

    Attributes:
        scheduler: `name` or `name@rule`.
        options: replace those of the scheduler's yaml.
        workloads: on how many it ran.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    scheduler: str
    options: dict[str, Any]
    workloads: Annotated[int, Field(ge=1)]

    @classmethod
    def of(cls, entry: SchedulerEntry, workloads: int, **found: Any) -> Self:
        """What was found of an entry; `found` are the fields of its own kind."""
        return cls(scheduler=entry.scheduler, options=dict(entry.options), workloads=workloads, **found)

    @property
    def entry(self) -> SchedulerEntry:
        """As commands run it; its label names the rule."""
        return SchedulerEntry(self.scheduler, self.scheduler, self.options)


class AlternativeConfig(_TriedConfig):
    """A configuration that was tried besides the best.

    Attributes:
        change: its mean of the metric over that of the best on the same workloads, minus 1; infinite beside a
            best of 0 (nothing blocked).
    """

    change: Annotated[float, Field(ge=-1)]


class TunedScheduler(_TriedConfig):
    """A scheduler at its best.

    Attributes:
        mean: of the metric on the workloads that chose it.
        others: what else was tried, the best first; of a file, the `alternatives`.
    """

    mean: Annotated[float, Field(allow_inf_nan=False)]
    others: list[AlternativeConfig] = []


_FILE_SCHEMA = TypeAdapter(dict[str, TunedScheduler])


class _TuningRecord(BaseModel):
    """Digest of the configs of the world where schedulers were tuned, and the command as it was called."""

    world: str
    command: str


def _environment_digest(world: Mapping[str, Any]) -> str:
    """12 hexadecimal digits, equal for equal worlds."""
    return hashlib.sha256(json.dumps(world, sort_keys=True).encode()).hexdigest()[:12]


def format_options(entry: SchedulerEntry) -> str:
    """`name=value, ...`; "" without options."""
    return ", ".join(f"{name}={value}" for name, value in entry.options.items())


def read_tuned(given: str) -> dict[str, TunedScheduler]:
    """Read {scheduler: its best} from a file of `ringyard tune`, or from the one of that name in conf/tuned.

    Raises:
        ConfigurationError: there is none, or it says something else.
    """
    return _read_file(given)[1]


def environment_mismatch_notes(given: str, world: Mapping[str, Any]) -> list[str]:
    """A note if a file was tuned in another environment; none if the file does not say where.

    Args:
        given: as of `read_tuned`.
        world: configs of the environment.

    Raises:
        ConfigurationError: as there.
    """
    found = _read_file(given)[0]
    if found is None or found.world == _environment_digest(world):
        return []
    return [f"tuning={given} was found in another configuration ({found.command})"]


def tuned_name_for(world: Mapping[str, Any]) -> str | None:
    """The name of the file in conf/tuned that was found in the environment of these configs, or None.

    Raises:
        ConfigurationError: a leaf is not as `ringyard tune` writes it.
    """
    digest = _environment_digest(world)
    for name in config_files("tuned"):
        found = _read_file(name)[0]
        if found is not None and found.world == digest:
            return name
    return None


def _read_file(given: str) -> tuple[_TuningRecord | None, dict[str, TunedScheduler]]:
    """(where it was found, if it says so; {scheduler: its best})."""
    shipped = config_files("tuned")
    file = shipped[given] if given in shipped else Path(given).expanduser()
    if not file.is_file():
        raise ConfigurationError(
            f"best is {given!r}; expected a file that `ringyard tune` wrote, or one of {', '.join(shipped)}"
        )
    try:
        content = yaml.load(file.read_text(), _LOADER)
        if text := find_interpolation(content):
            raise ConfigurationError(f"it has {text!r}; expected plain values, without interpolations")
        setting = content.pop(_RECORD_KEY, None) if isinstance(content, dict) else None
        found = _FILE_SCHEMA.validate_python(content)
        for name, best in found.items():
            _require_scheduler(name, best.scheduler)
        return None if setting is None else _TuningRecord.model_validate(setting), found
    except (ConfigurationError, RecursionError, UnicodeError, ValidationError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f"best is {given!r}, which is not as `ringyard tune` writes it: {_error_text(error)}; write one"
            " with `ringyard tune output=FILE`"
        ) from error


def _error_text(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "it"
    return f"{where} is {shown(first['input'])}; {first['msg'].replace('Input should be', 'expected')}"


def _require_scheduler(name: str, scheduler: str) -> None:
    named, _, rule = scheduler.partition("@")
    if named != name:
        raise ConfigurationError(f"{name}.scheduler is {scheduler!r}; expected {name} or {name}@rule")
    if rule:
        require_placement(f"{name}.scheduler", rule)


def write_tuned(
    file: Path, found: Mapping[str, TunedScheduler], world: Mapping[str, Any], command: str, comment: str
) -> None:
    """Write what `read_tuned` reads.

    Args:
        file: to write.
        found: {scheduler: its best}.
        world: configs of where it was found.
        command: that found it, as it was called.
        comment: one line, by what.
    """
    content: dict[str, Any] = {_RECORD_KEY: {"world": _environment_digest(world), "command": command}}
    for name, best in found.items():
        content[name] = best.model_dump(exclude_defaults=True) | {"mean": round(best.mean, 6)}
        for other in content[name].get("others", ()):
            other["change"] = round(other["change"], 5)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as partial:
        text = yaml.safe_dump(content, sort_keys=False, width=1000)
        partial.write_text(f"# {command}: {comment}\n{text}")


def alternatives(best: TunedScheduler) -> list[AlternativeConfig]:
    """Configurations that are worth keeping beside the best; Hydra must be initialised.

    These are the first that do not see how long jobs will run where all better ones do, or that only start
    jobs where all better ones preempt: an agent is compared with schedulers of its own class.

    Raises:
        RingyardError: a configuration cannot be built.
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
    """Whether an entry names a rule or options; others stand for the scheduler at its best."""
    return bool(entry.options) or "@" in entry.scheduler


def capability_class(scheduler: Scheduler) -> tuple[bool, bool]:
    """(whether it sees how long jobs will run, or a prediction; whether it only starts jobs)."""
    return bool(scheduler.total_observability & _DURATION_FLAGS), scheduler.capabilities == Capabilities.START


def build_scheduler(entry: SchedulerEntry) -> Scheduler:
    """The scheduler of an entry; Hydra must be initialised."""
    return build_object(to_plain(scheduler_config(entry)))


def with_tuned_options(
    entries: Mapping[str, SchedulerEntry], best: Mapping[str, TunedScheduler]
) -> dict[str, SchedulerEntry]:
    """{label: entry} where schedulers that name neither rule nor options take those of `best`.

    Args:
        entries: {label: entry} as users write them.
        best: {scheduler: its best}.

    Raises:
        ConfigurationError: two entries get one label.
    """
    found: dict[str, SchedulerEntry] = {}
    for entry in entries.values():
        plain = entry.label == entry.scheduler == entry.name and not entry.options
        chosen = best[entry.name].entry if plain and entry.name in best else entry
        if chosen.label in found:
            raise ConfigurationError(
                f"schedulers has {chosen.label} twice: named, and as {entry.name} at its best; leave one out"
            )
        found[chosen.label] = chosen
    return found
