"""Check of the classes that configs in run folders and agent files may load.

Hydra imports and calls any `_target_`. A config from a file may name only classes and functions that
Ringyard's own `conf/` uses in the same way, and those that the user trusts on the command line.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from ringyard.config_folder import config_folder
from ringyard.errors import CheckpointError

#: full names of trusted classes and functions, or True for all
Trust = bool | str | Sequence[str]

_GET_CLASS = "hydra.utils.get_class"

#: usual arguments of Stable-Baselines3 networks, named by `get_class`
_LAYERS_AND_OPTIMISERS = frozenset(
    [f"torch.nn.{name}" for name in ("ELU", "GELU", "LeakyReLU", "ReLU", "SiLU", "Tanh")]
    + [f"torch.optim.{name}" for name in ("Adam", "AdamW", "RMSprop", "SGD")]
)


#: (class or function, "call", "prepare" (`_partial_`) or "look up" (`get_class`), key). The key is "" for a
#: call. Its arguments are checked. Those of a later call are unknown.
_TargetUse = tuple[str, str, str]


def _nodes(config: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, node) of a config and all nodes inside. Items of a list have the list's key."""
    yield key, config
    if isinstance(config, Mapping):
        for name, one in config.items():
            yield from _nodes(one, str(name))
    elif isinstance(config, list | tuple):
        for one in config:
            yield from _nodes(one, key)


def _use(key: str, node: dict[str, Any]) -> _TargetUse:
    target = str(node["_target_"])
    if target == _GET_CLASS and set(node) == {"_target_", "path"}:
        return str(node["path"]), "look up", key
    return (target, "prepare", key) if "_partial_" in node else (target, "call", "")


@cache
def _uses_in_conf(groups: tuple[str, ...]) -> frozenset[_TargetUse]:
    """Collect the uses of classes and functions in some groups of conf/."""
    files = (file for group in groups for file in sorted((config_folder() / group).rglob("*.yaml")))
    nodes = (found for file in files for found in _nodes(yaml.safe_load(file.read_text())))
    return frozenset(_use(key, node) for key, node in nodes if isinstance(node, dict) and "_target_" in node)


def training_groups() -> list[str]:
    """Return the groups of conf/ from which the config of a training run may take classes."""
    return sorted(one.name for one in config_folder().iterdir() if one.is_dir() and one.name != "scheduler")


def find_interpolation(content: Any) -> str | None:
    """The first text with `${...}`, which OmegaConf would resolve, in plain containers; None without one.

    A resolver such as `oc.create` can make a text into a config that calls any function.
    """
    texts = (text for key, node in _nodes(content) for text in (key, node) if isinstance(text, str))
    return next((text for text in texts if "${" in text), None)


def check_classes(config: Any, groups: Sequence[str], trust: Trust, where: str) -> None:
    """Check all classes that a config from a file names, before they are imported.

    Args:
        config: plain containers.
        groups: groups of conf/ from which it may take classes.
        trust: further classes that it may name.
        where: file, for the error.

    Raises:
        CheckpointError: the config names another class, or uses it in another way than conf/ does.
    """
    if trust is True:
        return
    trusted = frozenset([trust] if isinstance(trust, str) else trust or ())
    if text := find_interpolation(config):
        raise CheckpointError(f"{where} has {text!r}; expected plain values, without interpolations")
    for key, node in _nodes(config):
        if not isinstance(node, dict) or "_target_" not in node:
            continue
        use = name, action, _ = _use(key, node)
        is_layer = action == "look up" and name in _LAYERS_AND_OPTIMISERS
        known = is_layer or use in _uses_in_conf(tuple(groups)) or name in trusted
        if not known or "_args_" in node:
            raise CheckpointError(
                f"{where} would {action} {name}, which no config of Ringyard does; if you trust it, add"
                f" trust=[{name}]"
            )
