"""Training by several processes: the first leads, with the run's folder; the others do as it says."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from ringyard.mdp.presets import setting_of
from ringyard.mdp.setting import Setting
from ringyard_agents.config.compose import plain
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.constraint import Constrained, Constraint
from ringyard_agents.learning.environments import worlds_of
from ringyard_agents.learning.learner import Learner, world_of
from ringyard_agents.learning.process_group import Hardware, ProcessGroup, equip

__all__ = [
    "EnoughError",
    "follow",
    "lead",
    "settings_of",
    "tell",
]


class EnoughError(Exception):
    """Learning gets no better."""


def settings_of(
    learner: Learner, worlds: Mapping[str, DictConfig], num_workloads: int, seed: int
) -> dict[str, Setting]:
    """The worlds as the learner reads them, with so many workloads of a seed."""
    return {
        label: world_of(learner, setting_of(world, num_workloads, seed)) for label, world in worlds.items()
    }


def lead(peers: ProcessGroup, config: DictConfig, learner: Learner, constraint: Constraint | None) -> None:
    """Tell the other processes what is learnt, and from where."""
    if peers.size > 1:
        peers.from_first((plain(config), constraint, learner.state()))


def tell(peers: ProcessGroup, constraint: Constraint | None, enough: bool) -> None:
    """Between two rounds: what the constraint's price is now, and whether learning ends.

    Raises:
        EnoughError: it does.
    """
    if peers.size > 1:
        peers.from_first((None if constraint is None else constraint.price, enough))
    if enough:
        raise EnoughError


def follow(hardware: Hardware) -> None:
    """Learn as the first process says, until it says that it is enough."""
    told: tuple[dict[str, Any], Constraint | None, Checkpoint] | None = hardware.peers.from_first(None)
    assert told is not None
    given, constraint, state = told
    config = OmegaConf.create(given)
    learner: Learner = instantiate(config.agent, _convert_="all")
    equip(learner, hardware)
    if isinstance(learner, Constrained):
        learner.constraint = constraint
    settings = settings_of(learner, worlds_of(config), config.num_workloads, config.seed)
    learner.setup(settings, config.seed, state)

    def between_rounds(measured: Mapping[str, float]) -> None:
        said: tuple[float | None, bool] | None = hardware.peers.from_first(None)
        assert said is not None
        price, enough = said
        if constraint is not None and price is not None:
            constraint.price = price
        if enough:
            raise EnoughError

    with suppress(EnoughError):
        learner.learn(config.total_decisions, between_rounds)
