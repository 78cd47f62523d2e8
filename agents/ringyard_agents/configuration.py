"""From Hydra configs to objects."""

from typing import Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from ringyard.errors import ConfigurationError
from ringyard.mdp.setting import Setting

__all__ = ["WORLD", "instantiate_setting", "plain", "scheduler_config"]


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


def instantiate_setting(config: DictConfig, num_workloads: int, workload_seed: int) -> Setting:
    """The decision process of a training config."""
    return Setting(
        cluster=instantiate(config.cluster, _convert_="all"),
        workload=instantiate(config.workload, _convert_="all"),
        performance=instantiate(config.performance),
        restart=instantiate(config.restart),
        failures=instantiate(config.failures),
        observation=instantiate(config.observation),
        actions=instantiate(config.action, _convert_="all"),
        reward=instantiate(config.reward),
        limit_seconds=config.limit_seconds,
        num_workloads=num_workloads,
        workload_seed=workload_seed,
    )
