"""From Hydra configs to objects."""

from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.trust import Trust

__all__ = ["WORLD", "label_of", "plain", "scheduler_config", "scheduler_names"]


#: config groups that make up a simulated world
WORLD = ("cluster", "workload", "performance", "restart", "failures")


def label_of(entry: str) -> str:
    """What an entry of `schedulers=[...]` is called in tables: an agent's name, else the entry itself."""
    return entry.partition(":")[0]


def scheduler_config(entry: str, trust: Trust = ()) -> DictConfig:
    """The resolved config of an entry of `schedulers=[...]`; Hydra must be initialised.

    Args:
        entry: `name` or `name@placement` of conf/scheduler, or `name:checkpoint` of a trained agent.
        trust: classes of the user's own that an agent may name.

    Raises:
        MissingConfigException: no such placement (from Hydra).
        ConfigurationError: no such scheduler, or a placement for one that has its own.
    """
    if ":" in entry:
        name, _, checkpoint = entry.partition(":")
        config = hydra.compose("entry", ["scheduler=learned/agent"]).scheduler
        config.name, config.checkpoint, config.trust = name, checkpoint, trust
        return config
    name, at, placement = entry.partition("@")
    if name not in scheduler_names() or bool(at) != bool(placement):
        raise ConfigurationError(
            f"schedulers has {entry!r}; expected {', '.join(scheduler_names())}, one of them @placement, or"
            " a trained agent as name:run_folder, for instance mine:runs/quickstart"
        )
    config = hydra.compose("entry", [f"scheduler={name}"] + ([f"placement={placement}"] if placement else []))
    OmegaConf.resolve(config)
    if placement and config.scheduler.get("placement") != config.placement:
        raise ConfigurationError(f"{entry}: {name} brings its own placement; write {name}")
    return config.scheduler


def scheduler_names() -> list[str]:
    """The leaves of conf/scheduler and of RINGYARD_CONF, without what is learned."""
    return list(config_files("scheduler"))


def plain(config: Any) -> Any:
    """Resolved containers, to be pickled or saved."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
