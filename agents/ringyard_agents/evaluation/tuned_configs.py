"""Each scheduler at its best: the rule and options that suit it, as `ringyard tune` found them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml

from ringyard.checks import Count, require
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.information import Information
from ringyard_agents.config.compose import Entry, plain, require_rule, scheduler_config
from ringyard_agents.evaluation.evaluate import build
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_baselines.scheduler import Powers, Scheduler

__all__ = [
    "Best",
    "Setting",
    "TunedConfig",
    "alternatives",
    "at_best",
    "class_of",
    "format_options",
    "found_elsewhere",
    "read_best",
    "says_how",
    "tuned_for",
    "write_best",
]

#: to know how long a job will run, or a guess of it
_HOW_LONG = Information.DURATIONS | Information.PREDICTIONS

#: {field: what it may be} of a file
_ENTRY_FIELDS = {"scheduler": str, "options": Mapping[str, object], "workloads": Count}
_BEST_FIELDS = {**_ENTRY_FIELDS, "mean": float}
_OTHER_FIELDS = {**_ENTRY_FIELDS, "change": Annotated[float, "[-1, inf]"]}

#: where a file says in which world, and by which command, its schedulers were tuned; older ones do not
_FOUND_IN = "found_in"
_SETTING_FIELDS = {"world": str, "command": str}

#: safe, and in C where libyaml is there: files are long
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Setting:
    """Where schedulers were tuned.

    Attributes:
        world: configs.
        command: as it was called.
    """

    world: Mapping[str, Any]
    command: str

    @property
    def digest(self) -> str:
        """Equal for equal worlds, 12 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.world, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class TunedConfig:
    """What was tried besides the best.

    Attributes:
        entry: rule and options.
        workloads: how many it ran.
        change: its mean of the metric over that of the best on the same workloads, minus 1; infinite beside a
            best of 0 (nothing blocked).
    """

    entry: Entry
    workloads: int
    change: float


@dataclass(frozen=True)
class Best:
    """A scheduler at its best.

    Attributes:
        entry: rule and options; the label names the rule.
        workloads: tuning workloads that chose it.
        mean: of the metric on them.
        others: what else was tried, the best first; of a file, what `competitors` may take instead.
    """

    entry: Entry
    workloads: int
    mean: float
    others: tuple[TunedConfig, ...]


def format_options(entry: Entry) -> str:
    """`name=value, ...`; "" without options."""
    return ", ".join(f"{name}={value}" for name, value in entry.options.items())


def read_best(given: str) -> dict[str, Best]:
    """{scheduler: its best}.

    Args:
        given: a file that `ringyard tune` wrote, or the name of one in conf/tuned.

    Raises:
        ConfigurationError: there is none, or it says something else.
    """
    return _content(given)[1]


def found_elsewhere(given: str, world: Mapping[str, Any]) -> list[str]:
    """What to say if a file was not tuned in this world; a file that does not say where is taken to be.

    Args:
        given: as of `read_best`.
        world: configs.

    Raises:
        ConfigurationError: as there.
    """
    found = _content(given)[0]
    if found is None or found["world"] == Setting(world, "").digest:
        return []
    return [f"best={given} was found in another setting ({found['command']})"]


def tuned_for(world: Mapping[str, Any]) -> str | None:
    """The leaf of conf/tuned that says it was found in this world, or None.

    Args:
        world: configs.

    Raises:
        ConfigurationError: a leaf is not as `ringyard tune` writes it.
    """
    digest = Setting(world, "").digest
    for name in config_files("tuned"):
        found = _content(name)[0]
        if found is not None and found["world"] == digest:
            return name
    return None


def _content(given: str) -> tuple[Mapping[str, str] | None, dict[str, Best]]:
    """(where it was found, if it says so; {scheduler: its best})."""
    shipped = config_files("tuned")
    file = shipped[given] if given in shipped else Path(given).expanduser()
    if not file.is_file():
        raise ConfigurationError(
            f"best is {given!r}; expected a file that `ringyard tune` wrote, or one of {', '.join(shipped)}"
        )
    try:
        content = yaml.load(file.read_text(), _LOADER)
        if content is None:
            raise ConfigurationError("it is empty; expected {scheduler: what was found}")
        require("it", content, Mapping[str, Mapping[str, object]])
        setting = content.pop(_FOUND_IN, None)
        if setting is not None:
            _require_fields(_FOUND_IN, setting, _SETTING_FIELDS)
        return setting, {name: _read(name, row) for name, row in content.items()}
    except (ConfigurationError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f"best is {given!r}, which is not as `ringyard tune` writes it: {error}; write one with `ringyard"
            " tune output=FILE`"
        ) from error


def _read(name: str, row: Mapping[str, Any]) -> Best:
    _require_fields(name, row, _BEST_FIELDS)
    entry = _entry(row)
    if entry.name != name:
        raise ConfigurationError(f"{name}.scheduler is {entry.scheduler!r}; expected {name} or {name}@rule")
    if "@" in entry.scheduler:
        require_rule(f"{name}.scheduler", entry.scheduler.partition("@")[2])
    others = []
    rows = row.get("others", [])
    require(f"{name}.others", rows, Sequence[Mapping[str, object]])
    for number, one in enumerate(rows):
        _require_fields(f"{name}.others[{number}]", one, _OTHER_FIELDS)
        others.append(TunedConfig(_entry(one), one["workloads"], one["change"]))
    return Best(entry, row["workloads"], row["mean"], tuple(others))


def _require_fields(where: str, row: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    for key, annotation in fields.items():
        if key not in row:
            raise ConfigurationError(f"{where} has no {key}; expected {', '.join(fields)}")
        require(f"{where}.{key}", row[key], annotation)


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(row["scheduler"], row["scheduler"], row["options"])


def _row(entry: Entry, workloads: int) -> dict[str, Any]:
    return {"scheduler": entry.scheduler, "options": dict(entry.options), "workloads": workloads}


def _other(tried: TunedConfig) -> dict[str, Any]:
    return {**_row(tried.entry, tried.workloads), "change": round(tried.change, 5)}


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice: files are read by people, too."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True


def write_best(file: Path, found: Mapping[str, Best], setting: Setting, comment: str) -> None:
    """What `read_best` reads.

    Args:
        file: to write.
        found: {scheduler: its best}.
        setting: where it was found.
        comment: one line, by what.
    """
    content: dict[str, Any] = {_FOUND_IN: {"world": setting.digest, "command": setting.command}}
    content |= {
        name: {
            **_row(best.entry, best.workloads),
            "mean": round(best.mean, 6),
            **({"others": others} if (others := [_other(one) for one in best.others]) else {}),
        }
        for name, best in found.items()
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as partial:
        text = yaml.dump(content, Dumper=_Plain, sort_keys=False, width=1000)
        partial.write_text(f"# {setting.command}: {comment}\n{text}")


def alternatives(best: Best) -> tuple[TunedConfig, ...]:
    """The other configurations that `competitors` may take in place of the best; Hydra must be initialised.

    These are the first that are not told how long jobs will run where all better ones are, or that only start
    jobs where all better ones preempt.

    Args:
        best: a scheduler with everything that was tried, the best first.

    Raises:
        RingyardError: a configuration cannot be built.
    """
    seen, found = [class_of(_built(best.entry))], []
    for one in best.others:
        if says_how(one.entry):
            told, only_starts = class_of(_built(one.entry))
            if not any(before[0] <= told and before[1] >= only_starts for before in seen):
                seen.append((told, only_starts))
                found.append(one)
    return tuple(found)


def says_how(entry: Entry) -> bool:
    """Whether it names a rule or options; one that does not stands for the scheduler at its best."""
    return bool(entry.options) or "@" in entry.scheduler


def class_of(scheduler: Scheduler) -> tuple[bool, bool]:
    """Whether it is told how long jobs will run, and whether it only starts jobs."""
    return bool(scheduler.knows & _HOW_LONG), scheduler.may == Powers.STARTS


def _built(entry: Entry) -> Scheduler:
    return build(plain(scheduler_config(entry)))


def at_best(entries: Mapping[str, Entry], best: Mapping[str, Best]) -> dict[str, Entry]:
    """{label: entry} where schedulers that name neither rule nor options take those of `best`.

    Raises:
        ConfigurationError: two entries get one label.
    """
    found: dict[str, Entry] = {}
    for entry in entries.values():
        plain = entry.label == entry.scheduler == entry.name and not entry.options
        chosen = best[entry.name].entry if plain and entry.name in best else entry
        if chosen.label in found:
            raise ConfigurationError(
                f"schedulers has {chosen.label} twice: named, and as {entry.name} at its best; leave one out"
            )
        found[chosen.label] = chosen
    return found
