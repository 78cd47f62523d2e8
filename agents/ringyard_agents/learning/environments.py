"""The environments that a training run learns in: its own, and others of experiments or overrides."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ringyard.checks import shown
from ringyard.errors import ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import build_env_config
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.learning.learner import Learner, world_of

#: label of the environment of the run's own settings
OWN = "own"

#: groups that are the run's in every environment, because the agent is made for them
_SHARED = ("observation", "action", "reward")

#: groups and settings that overrides of other environments may change
_OF_WORLDS = (*ENVIRONMENT_GROUPS, "limit_seconds", "experiment", "debug")


def environments_of(
    own: Mapping[str, Any], others: Sequence[Any], check: Callable[[Any], None] | None = None
) -> dict[str, DictConfig]:
    """{label: config} of the run's own environment `own` and of others; Hydra must be initialised.

    Observation, action and reward are those of the run everywhere.

    Args:
        own: plain config of the run.
        others: entries of `worlds`: names of experiments, or {label: [override, ...]} with the words of a
            command line.
        check: raises an error for a config that is not allowed.

    Raises:
        ConfigurationError: an entry that is neither, two with one label, or overrides that do not fit or
            change observation, action or reward.
    """
    parts = {name: own[name] for name in (*ENVIRONMENT_GROUPS, *_SHARED, "limit_seconds")}
    environments = {OWN: parts}
    for given in others:
        label, overrides = _read(given)
        if label in environments:
            raise ConfigurationError(
                f"worlds has {label!r} twice; expected labels that differ, {{label: [experiment=..., ...]}}"
            )
        environments[label] = {**parts, **_composed(label, overrides)}
        if check is not None:
            check(environments[label])
    return {label: OmegaConf.create(one) for label, one in environments.items()}


def settings_of(
    learner: Learner, environments: Mapping[str, DictConfig], num_workloads: int, seed: int
) -> dict[str, EnvConfig]:
    """{label: environment} as a learner reads them, with so many workloads of a seed."""
    return {
        label: world_of(learner, build_env_config(one, num_workloads, seed))
        for label, one in environments.items()
    }


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


def _composed(label: str, overrides: list[str]) -> dict[str, Any]:
    """The simulated parts of another environment."""
    try:
        for word in overrides:
            override = OverridesParser.create().parse_override(word)
            if re.split("[./]", override.package or override.key_or_group)[0] not in _OF_WORLDS:
                raise ConfigurationError(
                    f"worlds: {label}: {word} is about no part of a world; expected {', '.join(_OF_WORLDS)}:"
                    " the rest is the run's own everywhere"
                )
        other = hydra.compose("train", overrides)
        return {
            "limit_seconds": other.limit_seconds,
            **{name: to_plain(other[name]) for name in ENVIRONMENT_GROUPS},
        }
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(f"worlds: {label}: {' '.join(str(error).split())}") from error
