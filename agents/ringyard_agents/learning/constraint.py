"""A metric that an agent has to keep low while it learns something else, and the price of using it up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.metrics import Metrics
from ringyard_agents.learning.episodes import Episodes

__all__ = ["Constrained", "Constraint"]

#: what an episode in which no job was served, so that there is no metric, uses of a bound: assumption
_UNSERVED = 2.0


@dataclass
class Constraint:
    """The mean of a metric is at most a bound: by Lagrange, with a price that rises while it is not.

    What is used of the bound is the metric over the bound; where no job was served it is twice the bound.

    Attributes:
        metric: field of `Metrics`; less is better.
        most: {label: bound} of each world.
        step: at each evaluation the price grows by this times (what is used - 1), which may be negative.
        price: of using the bound once, in mean sizes of the returns of a round's episodes; never below 0.
    """

    metric: str
    most: Mapping[str, float]
    step: float
    price: float = 0.0

    def adjust(self, used: float) -> None:
        """Set the price by what an evaluation used of the bound."""
        self.price = max(0.0, self.price + self.step * (used - 1.0))

    def used(self, label: str, metrics: Sequence[Metrics]) -> NDArray[np.float64]:
        """[episodes] what each used of a world's bound.

        Args:
            label: of the world.
            metrics: [episodes] of episodes that have ended.
        """
        shares = np.array([float(getattr(one, self.metric)) for one in metrics]) / self.most[label]
        return np.where(np.isnan(shares), _UNSERVED, shares)

    def charge(self, label: str, played: Episodes, metrics: Sequence[Metrics], usual: float) -> Episodes:
        """The same episodes, whose last rewards have paid for what they used of a world's bound.

        Args:
            label: of the world.
            played: in it.
            metrics: [clusters] of the episodes.
            usual: mean size of the round's returns in that world.
        """
        used = self.used(label, metrics)
        rewards = played.rewards.copy()
        last = len(rewards) - 1 - np.argmax(played.valid[::-1], axis=0)
        rewards[last, np.arange(len(used))] -= self.price * usual * used
        return played._replace(rewards=rewards)


@runtime_checkable
class Constrained(Protocol):
    """A learner that can keep a constraint.

    Attributes:
        constraint: whose price its episodes pay, to be set before it learns; None: nothing.
    """

    constraint: Constraint | None
