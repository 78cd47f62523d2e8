"""The environments of a training run: its own, and those of the setting `environments`."""

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
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, plain_groups
from ringyard_agents.config.safe_load import check_plain

OWN = "own"  #: label of the environment that the run's own settings describe

#: groups that are the same in all environments of a run, because the agent is made for them
_SHARED = ("observation", "action", "reward", "cost")

#: groups and settings that the overrides of another environment may change
_CHANGEABLE = (*ENVIRONMENT_GROUPS, "limit_seconds", "experiment", "debug")


def compose_environments(
    own: Mapping[str, Any], others: Sequence[Any], check: Callable[[Any], None] | None = None
) -> dict[str, DictConfig]:
    """Return {label: config} of all environments of a run. Hydra must be initialised.

    `own` describes the run's own environment. `others` are names of experiments, or {label: [override, ...]}
    in words of the command line. `check` may refuse each composed config. Observation, action and reward are
    those of the run in every environment; overrides of them are an error.
    """
    simulated = {name: own[name] for name in (*ENVIRONMENT_GROUPS, *_SHARED, "limit_seconds")}
    configs = {OWN: simulated}
    for entry in others:
        label, overrides = _parse_entry(entry)
        if label in configs:
            raise ConfigurationError(
                f"environments has {label!r} twice; expected a label of its own for each environment:"
                " {label: [experiment=..., ...]}"
            )
        configs[label] = {**simulated, **_compose_overrides(label, overrides)}
        if check is not None:
            check(configs[label])
    return {label: OmegaConf.create(config) for label, config in configs.items()}


def _parse_entry(entry: Any) -> tuple[str, list[str]]:
    """Return (label, overrides) of an entry of the setting `environments`."""
    given = {entry: [f"experiment={entry}"]} if isinstance(entry, str) else entry
    if isinstance(given, Mapping) and len(given) == 1:
        [(label, overrides)] = given.items()
        words = isinstance(overrides, list) and all(isinstance(word, str) for word in overrides)
        if words and isinstance(label, str) and label and label.isprintable() and "/" not in label:
            return label, overrides
    raise ConfigurationError(
        f"environments has {shown(entry)}; expected the name of an experiment, or {{label: [override, ...]}},"
        " such as {large: ['experiment=elastic', 'cluster.num_servers=64']}"
    )


def _compose_overrides(label: str, overrides: list[str]) -> dict[str, Any]:
    """Compose `ENVIRONMENT_GROUPS` and `limit_seconds` of another environment."""
    try:
        for word in overrides:
            override = OverridesParser.create().parse_override(word)
            if re.split("[./]", override.package or override.key_or_group)[0] not in _CHANGEABLE:
                raise ConfigurationError(
                    f"environments: {label}: {word} does not change what is simulated; expected a setting of"
                    f" {', '.join(_CHANGEABLE)}: all other settings are the same in every environment"
                )
            check_plain(override.value())  # an escaped interpolation is one once the word is read
        other = hydra.compose("train", overrides)
        return {"limit_seconds": other.limit_seconds, **plain_groups(other)}
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(f"environments: {label}: {' '.join(str(error).split())}") from error
