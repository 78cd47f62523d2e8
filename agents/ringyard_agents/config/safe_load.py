"""Reading of files that another person may have made, and the classes that they may name.

Hydra imports and calls any `_target_`, and OmegaConf resolves any `${...}`. A config from a file may name
only classes and functions that Ringyard's own `conf/` uses in the same way, and those that the user trusts on
the command line. It has no interpolations.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ringyard.checks import shown
from ringyard.config_folder import config_folder
from ringyard.errors import CheckpointError, ConfigurationError

Trust = bool | str | Sequence[str]  #: full names of trusted classes and functions, or True for all

_GET_CLASS = "hydra.utils.get_class"

#: limits of a file: bytes, levels, and values, which aliases of YAML could multiply
_MAX_BYTES, _MAX_DEPTH, _MAX_VALUES = 1 << 22, 50, 100_000

#: usual arguments of Stable-Baselines3 networks, named by `get_class`
_LAYERS_AND_OPTIMISERS = frozenset(
    [f"torch.nn.{name}" for name in ("ELU", "GELU", "LeakyReLU", "ReLU", "SiLU", "Tanh")]
    + [f"torch.optim.{name}" for name in ("Adam", "AdamW", "RMSprop", "SGD")]
)


#: (class or function, "call", "prepare" (`_partial_`) or "look up" (`get_class`), key). The key is "" for a
#: call. Its arguments are checked. Those of a later call are unknown.
_TargetUse = tuple[str, str, str]


def config_nodes(config: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield (key, node) of a config and all nodes inside. Items of a list have the list's key."""
    if depth > _MAX_DEPTH:
        raise ConfigurationError(f"it is nested deeper than {_MAX_DEPTH} levels")
    yield key, config
    if isinstance(config, Mapping):
        for name, one in config.items():
            yield from config_nodes(one, str(name), depth + 1)
    elif isinstance(config, list | tuple):
        for one in config:
            yield from config_nodes(one, key, depth + 1)


def _use(key: str, node: dict[str, Any]) -> _TargetUse:
    target = str(node["_target_"])
    if target == _GET_CLASS and set(node) == {"_target_", "path"}:
        return str(node["path"]), "look up", key
    return (target, "prepare", key) if "_partial_" in node else (target, "call", "")


@cache
def _uses_in_conf(groups: tuple[str, ...]) -> frozenset[_TargetUse]:
    """Collect the uses of classes and functions in some groups of conf/."""
    files = (file for group in groups for file in sorted((config_folder() / group).rglob("*.yaml")))
    nodes = (found for file in files for found in config_nodes(yaml.safe_load(file.read_text())))
    return frozenset(_use(key, node) for key, node in nodes if isinstance(node, dict) and "_target_" in node)


def training_groups() -> list[str]:
    """Return the groups of conf/ from which the config of a training run may take classes."""
    return sorted(one.name for one in config_folder().iterdir() if one.is_dir() and one.name != "scheduler")


def check_plain(content: Any, max_values: int = _MAX_VALUES) -> None:
    """Refuse an interpolation `${...}` in plain containers, more than `max_values`, or too deep a nesting.

    OmegaConf would resolve it, and a resolver such as `oc.create` makes a config that calls any function.
    """
    for number, (key, node) in enumerate(config_nodes(content), 1):
        if number > max_values:
            raise ConfigurationError(f"it has more than {max_values:,} values")
        for text in (key, node):
            if isinstance(text, str) and "${" in text:
                raise ConfigurationError(f"it has {shown(text)}; expected values without interpolations")


def read_plain(file: Path, interpolations: bool = False) -> Any:
    """Read a JSON or YAML file that another person may have made, if not too large. Reading it runs no code.

    Texts may have `interpolations` if they are words of a command line, only compared or shown.
    """
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"it has more than {_MAX_BYTES:,} bytes")
        text = file.read_text()
        # The loader in C ends the process if the content is nested deep.
        content = json.loads(text) if file.suffix == ".json" else yaml.load(text, yaml.SafeLoader)
        if not interpolations:
            check_plain(content)
        return content
    except Exception as error:  # tags of YAML such as `!!bool maybe` raise anything
        raise ConfigurationError(f"{file} cannot be read: {' '.join(str(error).split())}") from error


def check_classes(config: Any, groups: Sequence[str], trust: Trust, where: str) -> None:
    """Refuse classes that neither `groups` of conf/ use in the same way nor `trust` names; import none."""
    if trust is True:
        return
    trusted = frozenset([trust] if isinstance(trust, str) else trust or ())
    try:
        check_plain(config)
    except ConfigurationError as error:
        raise CheckpointError(f"{where} is damaged: {error}") from error
    for key, node in config_nodes(config):
        if not isinstance(node, dict) or "_target_" not in node:
            continue
        use = name, action, _ = _use(key, node)
        is_layer = action == "look up" and name in _LAYERS_AND_OPTIMISERS
        known = is_layer or use in _uses_in_conf(tuple(groups)) or name in trusted
        if not known or "_args_" in node:
            raise CheckpointError(
                f"{where} would {action} {name}, which no config of Ringyard does"
                f"; if you trust it, add trust=[{name}]"
            )
