"""Check of configs: every `_target_` exists, and its function or class takes the given arguments."""

import importlib
import inspect
import typing
from collections.abc import Mapping
from typing import Any

from ringyard.checks import require, shown, suggest
from ringyard.errors import ConfigurationError

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
