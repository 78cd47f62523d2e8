"""Which classes a file may name: a file that somebody gave you decides nothing about what is run.

Configs in run folders and in agents name classes by Hydra's `_target_`, which would import and call anything.
They may name what Ringyard's own `conf/` names, in the way it does; what else they name is named by the user,
on the command line, or refused.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import yaml

from ringyard.config_folder import config_folder
from ringyard.errors import CheckpointError

__all__ = ["Trust", "check_classes"]

#: True: everything; else the full names of classes and functions of yours, besides Ringyard's own
Trust = bool | str | Sequence[str]

_GET_CLASS = "hydra.utils.get_class"

#: what networks of Stable-Baselines3 are often given, by `get_class`
_LAYERS_AND_OPTIMISERS = frozenset(
    [f"torch.nn.{name}" for name in ("ELU", "GELU", "LeakyReLU", "ReLU", "SiLU", "Tanh")]
    + [f"torch.optim.{name}" for name in ("Adam", "AdamW", "RMSprop", "SGD")]
)


def _nodes(config: Any) -> Iterator[Any]:
    """A config, and all that is inside."""
    yield config
    inside = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    for one in inside:
        yield from _nodes(one)


def _call(node: dict[str, Any]) -> tuple[str, bool]:
    """(what a node calls, whether it is only prepared); a class that is only looked up is prepared."""
    target = str(node["_target_"])
    if target == _GET_CLASS and set(node) == {"_target_", "path"}:
        return str(node["path"]), True
    return target, node.get("_partial_", False) is True


@cache
def _shipped(groups: tuple[str, ...]) -> frozenset[tuple[str, bool]]:
    """What the leaves of some groups of conf/ call."""
    files = (file for group in groups for file in sorted((config_folder() / group).rglob("*.yaml")))
    nodes = (node for file in files for node in _nodes(yaml.safe_load(file.read_text())))
    return frozenset(_call(node) for node in nodes if isinstance(node, dict) and "_target_" in node)


def check_classes(config: Any, groups: Sequence[str], trust: Trust, where: str) -> None:
    """Look at all that a config from a file would import or call, before anything does.

    Args:
        config: plain containers.
        groups: of conf/, whose classes and functions it may name.
        trust: what else it may name.
        where: the file, for the error.

    Raises:
        CheckpointError: it names something else, or calls what may only be prepared.
    """
    if trust is True:
        return
    theirs = frozenset([trust] if isinstance(trust, str) else trust or ())
    for node in _nodes(config):
        if isinstance(node, str) and "${" in node:
            raise CheckpointError(f"{where} has {node!r}; expected plain values, without interpolations")
        if not isinstance(node, dict) or "_target_" not in node:
            continue
        name, prepared = _call(node)
        known = (name, prepared) in _shipped(tuple(groups)) or (prepared and name in _LAYERS_AND_OPTIMISERS)
        if "_args_" in node or not (known or name in theirs):
            raise CheckpointError(
                f"{where} would run {name}, which is not Ringyard's own; if you know and trust it, say so:"
                f" trust=[{name}]"
            )
