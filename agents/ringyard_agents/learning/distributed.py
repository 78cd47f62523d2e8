"""Training by several processes: the first leads, with the run's folder; the others do as it says."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from hydra.utils import instantiate
from omegaconf import OmegaConf

from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.constraint import Constrained, Constraint
from ringyard_agents.learning.environments import settings_of
from ringyard_agents.learning.learner import Learner
from ringyard_agents.learning.process_group import Hardware, ProcessGroup, equip

__all__ = ["EnoughError", "Training", "follow", "tell"]


class EnoughError(Exception):
    """Learning gets no better."""


class Training(NamedTuple):
    """What every process of a training has to know.

    Attributes:
        agent: plain config of the learner.
        environments: {label: plain config}.
        num_workloads: job tables in each environment.
        seed: of the training.
        total_decisions: to learn from.
        constraint: what the agent has to keep; None: nothing.
        state: of the learner.
    """

    agent: dict[str, Any]
    environments: dict[str, Any]
    num_workloads: int
    seed: int
    total_decisions: int
    constraint: Constraint | None
    state: Checkpoint


def tell(group: ProcessGroup, constraint: Constraint | None, enough: bool) -> None:
    """Between two rounds: what the constraint's price is now, and whether learning ends.

    Raises:
        EnoughError: it does.
    """
    if group.size > 1:
        group.from_first((None if constraint is None else constraint.price, enough))
    if enough:
        raise EnoughError


def follow(hardware: Hardware) -> None:
    """Learn the `Training` that the first process gives, until it says that it is enough."""
    told: Training | None = hardware.peers.from_first(None)
    assert told is not None
    learner: Learner = instantiate(told.agent, _convert_="all")
    equip(learner, hardware)
    constraint = told.constraint
    if isinstance(learner, Constrained):
        learner.constraint = constraint
    environments = {label: OmegaConf.create(one) for label, one in told.environments.items()}
    learner.setup(settings_of(learner, environments, told.num_workloads, told.seed), told.seed, told.state)

    def between_rounds(measured: Mapping[str, float]) -> None:
        said: tuple[float | None, bool] | None = hardware.peers.from_first(None)
        assert said is not None
        price, enough = said
        if constraint is not None and price is not None:
            constraint.price = price
        if enough:
            raise EnoughError

    with suppress(EnoughError):
        learner.learn(told.total_decisions, between_rounds)
