"""Types of the settings of each command. Groups are checked against the functions that they call."""

import functools
import operator
import re
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import yaml
from omegaconf import DictConfig, OmegaConf

from ringyard.checks import Positive, PositiveInt, require
from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError, ConfigurationWarning
from ringyard.renamed import explain_renamed
from ringyard.sim.metrics import Window
from ringyard_agents.config.hydra_messages import setting_paths
from ringyard_agents.config.target_validation import check_targets

#: range of the seeds of random generators
Seed = Annotated[int, "[0, 4294967295]"]
Group = Mapping[str, object]

#: groups of what an agent observes, does and is rewarded for
_AGENT_GROUPS = ("action", "observation", "reward", "cost")

#: fields of Metrics that are minimised
_JctMetric = Literal["mean_jct", "median_jct", "p95_jct", "p99_jct", "makespan", "mean_queueing"]
_RatioMetric = Literal["mean_slowdown", "mean_fairness", "worst_fairness", "blocking_rate"]

#: {kind in conf/settings.yaml: annotation}
KINDS: Mapping[str, Any] = {
    "bool": bool,
    "cost": Literal["cost"],
    "count": PositiveInt,
    "entries": Sequence[str | Group],
    "group": Group,
    "metric": Literal[_JctMetric, _RatioMetric],
    "null": None,
    "options": Mapping[str, Mapping[str, Sequence[object]]],
    "positive": Positive,
    "seed": Seed,
    "some_texts": Annotated[Sequence[str], "not empty"],
    "text": str,
    "texts": Sequence[str],
    "trust": bool | str | Sequence[str],
    "window": Window,
}


def _annotation(kind: str | list[str | None]) -> Any:
    """Return the annotation of a setting's kind."""
    if isinstance(kind, list):
        values: Any = Literal[tuple(one for one in kind if one is not None)]
        return values | None if None in kind else values
    found: list[Any] = []
    for one in kind.split(" or "):
        word, _, numbers = one.partition(" ")
        number: Any = {"whole": int, "number": float}.get(word)
        found.append(Annotated[number, numbers] if number else KINDS[word])
    return functools.reduce(operator.or_, found)


_READ = yaml.safe_load((config_folder() / "settings.yaml").read_text())
_COMMON = _READ.pop("common")
#: {command: {setting of conf/<command>.yaml: annotation}}
SETTINGS: dict[str, dict[str, Any]] = {
    command: {name: _annotation(kind) for name, kind in (_COMMON | own).items()}
    for command, own in _READ.items()
}


def check_settings(command: str, config: DictConfig) -> None:
    """Check a composed config against `SETTINGS`."""
    for path in setting_paths(OmegaConf.to_container(config, resolve=False)):
        if renamed := explain_renamed("settings", path):
            raise ConfigurationError(renamed)
    # an experiment may have settings of several commands
    known = {path.partition(".")[0] for settings in SETTINGS.values() for path in settings}
    known |= {"name", "experiment", "form", "debug", "sweep", *_PER_SCHEDULER_FORMS}
    for name in map(str, config):
        if name not in known and (near := get_close_matches(name, known, 1, 0.85)):
            raise ConfigurationError(f"there is no setting {name}; expected {near[0]}")
    for name, annotation in SETTINGS[command].items():
        part, _, key = name.rpartition(".")
        around = OmegaConf.select(config, part) if part else config
        if not isinstance(around, DictConfig) or key not in around:
            raise ConfigurationError(f"{name} is missing; give {name}=...")
        value = around[key]
        is_container = OmegaConf.is_config(value)
        require(name, OmegaConf.to_container(value, resolve=True) if is_container else value, annotation)


def check_groups(command: str, config: DictConfig) -> None:
    """Check the arguments in all groups of a config before anything is called."""
    for name, group in OmegaConf.to_container(config, resolve=False).items():  # type: ignore[union-attr]
        check_targets(str(name), group)
    if "schedulers" not in SETTINGS[command]:
        return
    for group, form in _PER_SCHEDULER_FORMS.items():
        if group in config:
            raise ConfigurationError(
                f"`ringyard {command}` has no {group}, since it runs several schedulers; expected {form}"
            )


def warn_unused_settings(command: str, words: Sequence[str]) -> None:
    """Warn of overrides of action, observation and reward in a command that trains no agent."""
    has_model = any(".zip" in word for word in words)  # reads the observation and does the action
    used = ("action", "observation") if has_model else ()
    groups = {word: re.split("[.=@]", word.lstrip("+~"))[0] for word in words}
    unused = [word for word, group in groups.items() if group in _AGENT_GROUPS and group not in used]
    if command != "train" and unused:
        found = f"{' '.join(unused)} has no effect on `ringyard {command}`"
        why = "schedulers do not use it, and agents use what they were trained with"
        text = f"{found}: {why}; give it to `ringyard train`"
        warnings.warn(text, ConfigurationWarning, stacklevel=2)


#: {group of one scheduler: how `schedulers` sets it for several}
_PER_SCHEDULER_FORMS = {
    "scheduler": '"schedulers=[fifo, {mine: {scheduler: sjf@pack, options: {reserve_unplaced: true}}}]"',
    "placement": "schedulers=[fifo@pack, sjf@pack]",
}
