"""The environments that a training run learns in: its own, and others of experiments or overrides."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ringyard.checks import shown
from ringyard.errors import ConfigurationError
from ringyard_agents.config.compose import WORLD, plain
from ringyard_agents.config.safe_load import check_classes, groups_of_runs

__all__ = [
    "OWN",
    "worlds_of",
]


#: what curves call the world of the run's own settings beside others
OWN = "own"

#: what the agent is made for, so that it is the run's in every world
_SHARED = ("observation", "action", "reward")

#: what the words of another world may be about
_OF_WORLDS = (*WORLD, "limit_seconds", "experiment", "debug")


def worlds_of(config: DictConfig) -> dict[str, DictConfig]:
    """{label: config} of the run's own world, called `OWN`, and of `worlds`; Hydra must be initialised.

    Observation, action and reward are those of the run everywhere.

    Args:
        config: of `ringyard train`; an entry of its `worlds` is the name of an experiment, or
            {label: [override, ...]} with the words of a command line.

    Raises:
        ConfigurationError: an entry that is neither, two of one label, or overrides that do not fit or are
            about what is the run's own everywhere.
        CheckpointError: a run that goes on, whose overrides name classes that are not trusted.
    """
    worlds = {OWN: config}
    for given in plain(config.worlds):
        label, overrides = _read(given)
        if label in worlds:
            raise ConfigurationError(
                f"worlds has {label!r} twice; expected labels that differ, {{label: [experiment=..., ...]}}"
            )
        worlds[label] = _composed(label, overrides, config)
    return worlds


def _read(given: Any) -> tuple[str, list[str]]:
    """(label, overrides) of an entry of `worlds`."""
    if isinstance(given, str):
        given = {given: [f"experiment={given}"]}
    if isinstance(given, Mapping) and len(given) == 1:
        [(label, overrides)] = given.items()
        words = isinstance(overrides, list) and all(isinstance(one, str) for one in overrides)
        if words and isinstance(label, str) and label and label.isprintable() and "/" not in label:
            return label, overrides
    raise ConfigurationError(
        f"worlds has {shown(given)}; expected the name of an experiment, or {{label: [override, ...]}} such"
        " as {large: ['experiment=elastic', 'cluster.num_servers=64']}"
    )


def _require_of_worlds(label: str, word: str) -> None:
    """Raise a ConfigurationError for a word that a world would ignore."""
    override = OverridesParser.create().parse_override(word)
    about = re.split("[./]", override.package or override.key_or_group)[0]
    if about not in _OF_WORLDS:
        raise ConfigurationError(
            f"worlds: {label}: {word} is about no part of a world; expected {', '.join(_OF_WORLDS)}: the rest"
            " is the run's own everywhere"
        )


def _composed(label: str, overrides: list[str], config: DictConfig) -> DictConfig:
    """What is simulated in another world, and what the agent sees, does and is told as in this one."""
    try:
        for word in overrides:
            _require_of_worlds(label, word)
        other = hydra.compose("train", overrides)
        parts = {"limit_seconds": other.limit_seconds, **{name: plain(other[name]) for name in WORLD}}
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(f"worlds: {label}: {' '.join(str(error).split())}") from error
    if config.resume is not None:
        check_classes(parts, groups_of_runs(), config.trust, str(Path(config.resume) / "config.yaml"))
    return OmegaConf.create({**parts, **{name: plain(config[name]) for name in _SHARED}})
