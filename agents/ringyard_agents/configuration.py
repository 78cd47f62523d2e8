"""From Hydra configs to objects."""

from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from ringyard.errors import ConfigurationError

__all__ = ["WORLD", "plain", "scheduler_config"]


#: config groups that make up a simulated world
WORLD = ("cluster", "workload", "performance", "restart", "failures")


def scheduler_config(entry: str, checkpoint: str | None) -> DictConfig:
    """The resolved config of `name` or `name@placement`; Hydra must be initialised.

    Args:
        entry: as in `schedulers=[...]`.
        checkpoint: the agent, for entries that have one.

    Raises:
        MissingConfigException: no such scheduler or placement (from Hydra).
        ConfigurationError: a placement for a scheduler that has its own.
    """
    name, _, placement = entry.partition("@")
    overrides = [f"scheduler={name}"] + ([f"placement={placement}"] if placement else [])
    config = hydra.compose("entry", overrides)
    if "checkpoint" in config.scheduler:
        config.scheduler.checkpoint = checkpoint
    OmegaConf.resolve(config)
    if placement and config.scheduler.get("placement") != config.placement:
        raise ConfigurationError(f"{entry}: {name} brings its own placement; write {name}")
    return config.scheduler


def plain(config: Any) -> Any:
    """Resolved containers, to be pickled or saved."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
