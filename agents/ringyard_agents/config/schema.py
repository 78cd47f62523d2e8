"""Types of the settings of each command. Groups are checked against the functions that they call.

Every `_target_` must exist, and its function or class must take the given arguments.
"""

import functools
import importlib
import inspect
import operator
import re
import typing
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import yaml
from omegaconf import DictConfig, OmegaConf

from ringyard.checks import Positive, PositiveInt, require, shown, suggest
from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError, ConfigurationWarning
from ringyard.renamed import explain_renamed
from ringyard.sim.metrics import Window
from ringyard_agents.config.hydra_messages import setting_paths

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


_PACKAGES = ("ringyard", "ringyard_baselines", "ringyard_agents")
_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def check_targets(where: str, config: Any) -> None:
    """Check all arguments in a plain config (`where`, such as workload.models), and values of ours."""
    if isinstance(config, list):
        for position, one in enumerate(config):
            check_targets(f"{where}[{position}]", one)
    if isinstance(config, Mapping):
        if isinstance(config.get("_target_"), str):
            _check_target(where, config["_target_"], config)
        for name, one in config.items():
            check_targets(f"{where}.{name}", one)


def _check_target(where: str, target: str, config: Mapping[Any, Any]) -> None:
    called = _resolve_target(where, target)
    try:
        known = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # a C function without a signature checks its arguments itself
        return
    given = {str(name): value for name, value in config.items() if not str(name).startswith("_")}
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known):
        names = [one.name for one in known if one.kind in _NAMED_KINDS]
        for name in given:
            if name not in names:
                raise ConfigurationError(
                    f"{where}.{name} is {shown(given[name])}, but {target} takes no {name}"
                    f"; expected {suggest(name, names)}"
                )
    if target.partition(".")[0] in _PACKAGES:
        _check_values(where, called, given)
    if config.get("_partial_") is True or "_args_" in config:
        return
    for one in known:
        if one.kind in _NAMED_KINDS and one.default is one.empty and one.name not in given:
            raise ConfigurationError(f"{where}.{one.name} is missing; give +{where}.{one.name}=...")


def _check_values(where: str, called: Any, given: Mapping[str, Any]) -> None:
    """Check literal values against the annotations. Results of calls and interpolations are unknown."""
    function = called.__init__ if inspect.isclass(called) else called
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        return
    for name, value in given.items():
        if name in hints and _is_literal(value):
            require(f"{where}.{name}", value, hints[name])


def _is_literal(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "_target_" not in value and all(map(_is_literal, value.values()))
    if isinstance(value, list):
        return all(map(_is_literal, value))
    return not (isinstance(value, str) and ("${" in value or value == "???"))


def _resolve_target(where: str, target: str) -> Any:
    """Import the function or class that Hydra would call. A function precedes a module of its name."""
    try:
        path, *rest = target.split(".")
        called = importlib.import_module(path)
        for name in rest:
            path = f"{path}.{name}"
            if not hasattr(called, name):
                importlib.import_module(path)
            called = getattr(called, name)
    except (ValueError, AttributeError, ModuleNotFoundError) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and not f"{target}.".startswith(f"{missing}."):
            raise  # a library that the module imports is missing, which is another error
        raise ConfigurationError(
            f"{where}._target_ is {shown(target)}, which cannot be found; expected package.module.name of a"
            " function or class that Python can import (PYTHONPATH)"
        ) from error
    if not callable(called):
        raise ConfigurationError(f"{where}._target_ is {shown(target)}; expected a function or class")
    return called
