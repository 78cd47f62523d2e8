"""What a config calls: every `_target_`, held to the arguments that its function or class takes."""

import difflib
import importlib
import inspect
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from ringyard.checks import require, shown
from ringyard.errors import ConfigurationError

_PACKAGES = ("ringyard", "ringyard_baselines", "ringyard_agents")
_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def check_targets(where: str, config: Any) -> None:
    """Check the names of all arguments in a config, and of Ringyard's own functions the values as well.

    Args:
        where: name of the config for messages: agent, workload.models ...
        config: plain data of a group, interpolations as they are.

    Raises:
        ConfigurationError: names the first function that does not exist, or the first argument that it does
            not take or that is missing.
    """
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
    except (TypeError, ValueError):  # it is written in C and says itself what is wrong
        return
    given = {str(name): value for name, value in config.items() if not str(name).startswith("_")}
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known):
        names = [one.name for one in known if one.kind in _NAMED_KINDS]
        for name in given:
            if name not in names:
                raise ConfigurationError(
                    f"{where}.{name} is {shown(given[name])}, but {target} takes no {name}; expected"
                    f" {suggest(name, names)}"
                )
    if target.partition(".")[0] in _PACKAGES:
        _check_values(where, called, given)
    if config.get("_partial_") is True or "_args_" in config:
        return
    for one in known:
        if one.kind in _NAMED_KINDS and one.default is one.empty and one.name not in given:
            raise ConfigurationError(f"{where}.{one.name} is missing; give +{where}.{one.name}=...")


def _check_values(where: str, called: Any, given: Mapping[str, Any]) -> None:
    """Hold what is written out to annotations; what is called, or stands elsewhere, is not known yet."""
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
    """The function or class that Hydra calls: of a function and a module of one name, the function."""
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
            raise  # a library that it needs, which is said in other words
        raise ConfigurationError(
            f"{where}._target_ is {shown(target)}, which cannot be found; expected package.module.name of a"
            " function or class, where Python finds packages (PYTHONPATH)"
        ) from error
    if not callable(called):
        raise ConfigurationError(f"{where}._target_ is {shown(target)}; expected a function or class")
    return called


def suggest(name: str, known: Iterable[str]) -> str:
    """Names to try instead, the one that is most like it first."""
    names = list(known)
    alike = difflib.get_close_matches(name, names, n=1)
    rest = ", ".join(one for one in names if one not in alike)
    if not alike:
        return f"one of {rest}" if rest else "none"
    return f"{alike[0]}, or one of {rest}" if rest else alike[0]
