"""Warnings that agents are compared outside of what they were trained on."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from ringyard_agents.config.compose import SchedulerEntry, to_plain
from ringyard_agents.config.environments import compose_environments
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.evaluation.notes import NOTES
from ringyard_agents.shipped_agents import ZOO_PREFIX, agent_path

#: groups of the environment that are compared, and settings that choose jobs and are no property of them
_GROUPS = ("cluster", "workload", "performance", "restart", "failures")
_OTHER_JOBS = ("workload.path", "workload.part")
#: differences that a note names; it counts more
_MAX_NAMED = 4
_NUMBERS = (int, float)


def training_range_notes(entries: Mapping[str, SchedulerEntry], environment: Mapping[str, Any]) -> list[str]:
    """Return a note for each agent that had no environment such as this one in its training.

    A number is inside of the training range if it lies between the smallest and the largest of the
    environments that the agent was trained in. All else must be as in that one of them which is most alike.
    Hydra must be initialised. Agents that do not say how they were trained (a model.zip) have no note.

    Args:
        entries: {label: entry} of the schedulers to compare.
        environment: {config group: config} of the environment.
    """
    notes = []
    settings = _settings_of(environment)
    for label, entry in entries.items():
        known = [_settings_of(one) for one in _training_environments(entry)] if entry.is_agent else []
        if not known:
            continue
        differences = min((_differences(settings, one, known) for one in known), key=len)
        if differences:
            few = len(differences) <= _MAX_NAMED
            what = "; ".join(differences) if few else f"{len(differences)} settings are not those of training"
            notes.append(NOTES["training_range"].format(label=label, what=what))
    return notes


def _training_environments(entry: SchedulerEntry) -> list[Mapping[str, Any]]:
    file = agent_path(entry.checkpoint)
    config: Any = None
    if entry.checkpoint.startswith(ZOO_PREFIX):
        record = file.with_suffix(".json")
        if record.is_file():
            words = shlex.split(read_plain(record)["training"]["command"])[2:]
            config = hydra.compose("train", [word for word in words if word != "seed=SEED"])
    else:
        described = (file if file.is_dir() else file.parent) / "config.yaml"
        if described.is_file():
            config = OmegaConf.load(described)
    if not isinstance(config, DictConfig) or "environments" not in config:
        return []
    return [to_plain(one) for one in compose_environments(config, config["environments"]).values()]


def _settings_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
        inner = dict(enumerate(value)) if isinstance(value, list | tuple) else value
        if isinstance(inner, Mapping):
            for key, one in inner.items():
                yield from leaves(one, f"{name}.{key}")
        elif not name.startswith(_OTHER_JOBS):
            yield name, inner

    return {name: one for group in _GROUPS for name, one in leaves(environment[group], group)}


def _differences(settings: dict[str, Any], trained: dict[str, Any], known: list[dict[str, Any]]) -> list[str]:
    """Say what of `settings` is another than in `trained`, and outside of the range of all the `known`."""
    found = []
    for name in dict.fromkeys([*settings, *trained]):
        value, usual = settings.get(name), trained.get(name)
        if value == usual:
            continue
        numbers = [one[name] for one in known if type(one.get(name)) in _NUMBERS]
        if type(value) not in _NUMBERS or not numbers:
            found.append(f"{name} is {_text(value)} (trained: {_text(usual)})")
        elif not min(numbers) <= value <= max(numbers):
            ends = " to ".join(_text(one) for one in sorted({min(numbers), max(numbers)}))
            found.append(f"{name} is {_text(value)} (trained: {ends})")
    return found


def _text(value: Any) -> str:
    return f"{value:,g}" if type(value) in _NUMBERS else "none" if value is None else str(value)
