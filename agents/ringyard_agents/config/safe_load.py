"""The classes that configs in run folders and agents' files may name.

Hydra's `_target_` would import and call anything. A config from a file may name what Ringyard's own `conf/`
names, in the same way, and what the user trusts on the command line.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from ringyard.config_folder import config_folder
from ringyard.errors import CheckpointError

#: True: everything; else the full names of classes and functions of yours, besides Ringyard's own
Trust = bool | str | Sequence[str]

_GET_CLASS = "hydra.utils.get_class"

#: what networks of Stable-Baselines3 are often given, by `get_class`
_LAYERS_AND_OPTIMISERS = frozenset(
    [f"torch.nn.{name}" for name in ("ELU", "GELU", "LeakyReLU", "ReLU", "SiLU", "Tanh")]
    + [f"torch.optim.{name}" for name in ("Adam", "AdamW", "RMSprop", "SGD")]
)


#: (class or function, "call", "prepare" (`_partial_`) or "look up" (`get_class`), key of what is not called
#: here: the arguments of a call are checked, those of a later call are not known)
_TargetUse = tuple[str, str, str]


def _nodes(config: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(key, node) of a config and all that is inside; what is in a list has the list's key."""
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
    """What the leaves of some groups of conf/ do."""
    files = (file for group in groups for file in sorted((config_folder() / group).rglob("*.yaml")))
    nodes = (found for file in files for found in _nodes(yaml.safe_load(file.read_text())))
    return frozenset(_use(key, node) for key, node in nodes if isinstance(node, dict) and "_target_" in node)


def training_groups() -> list[str]:
    """The groups of conf/ that the config of a training run may take classes from."""
    return sorted(one.name for one in config_folder().iterdir() if one.is_dir() and one.name != "scheduler")


def find_interpolation(content: Any) -> str | None:
    """The first text with `${...}`, which OmegaConf would resolve, in plain containers; None without one.

    A resolver such as `oc.create` can make a text into a config that calls any function.
    """
    texts = (text for key, node in _nodes(content) for text in (key, node) if isinstance(text, str))
    return next((text for text in texts if "${" in text), None)


def check_classes(config: Any, groups: Sequence[str], trust: Trust, where: str) -> None:
    """Look at all that a config from a file would import or call, before anything does.

    Args:
        config: plain containers.
        groups: of conf/, whose classes and functions it may name.
        trust: what else it may name.
        where: the file, for the error.

    Raises:
        CheckpointError: it names something else, or does something else with it than conf/ does.
    """
    if trust is True:
        return
    theirs = frozenset([trust] if isinstance(trust, str) else trust or ())
    if text := find_interpolation(config):
        raise CheckpointError(f"{where} has {text!r}; expected plain values, without interpolations")
    for key, node in _nodes(config):
        if not isinstance(node, dict) or "_target_" not in node:
            continue
        use = name, how, _ = _use(key, node)
        plain = how == "look up" and name in _LAYERS_AND_OPTIMISERS
        known = plain or use in _uses_in_conf(tuple(groups)) or name in theirs
        if not known or "_args_" in node:
            raise CheckpointError(
                f"{where} would {how} {name} as Ringyard's own configs do nowhere; if you know and"
                f" trust it, say so: trust=[{name}]"
            )
