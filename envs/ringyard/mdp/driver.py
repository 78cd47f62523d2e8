"""Action drivers: the compiled step, validation and decoding of each kind of actions."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import Rates
from ringyard.mdp.actions import ActionKind, Actions, Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import Episode
from ringyard.mdp.step_discrete import DiscreteDriver
from ringyard.mdp.step_scores import ScoresDriver
from ringyard.performance.model import Physics
from ringyard.sim.allocation import Allocation
from ringyard.state.arrays import State

__all__ = ["ActionDriver", "driver_of"]


class ActionDriver(Protocol):
    """The part of a `ClusterBatch` that depends on the kind of its actions.

    Attributes:
        kernel: brings clusters to their next decision; how many are stalled.
        all_valid: (masks, playing, actions, clusters) -> whether these clusters are in an episode and their
            actions in the space and not masked; a kernel.
        config: what clusters share, as the kernel reads it.
        least_per_thread: clusters below which another thread costs more than it saves.
    """

    kernel: Any
    all_valid: Any
    config: Any
    least_per_thread: int

    def episode(self, state: State) -> Episode:
        """Arrays for the clusters of a state."""
        ...

    def null_actions(self, num_clusters: int) -> NDArray[Any]:
        """[num_clusters, ...] actions that are not read."""
        ...

    def replace_invalid(
        self, masks: NDArray[np.bool_], actions: NDArray[Any], clusters: NDArray[np.int64]
    ) -> Any:
        """[clusters] replace masked actions in place, if the setting says so; which were masked.

        Raises:
            ActionError: outside the space, or masked.
        """
        ...

    def with_rates(self, episode: Episode, b: int, rates: Rates | None) -> Episode:
        """The episode of which cluster b has the jobs whose rates these are."""
        ...

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        """What an action of cluster b gives to jobs, in order; nothing is carried out."""
        ...


def driver_of(setting: EnvConfig) -> ActionDriver:
    """The driver of an environment's actions.

    Raises:
        TypeError: there is none for this kind.
    """
    actions: ActionKind = setting.actions
    if isinstance(actions, Actions):
        return DiscreteDriver(setting, actions)
    if isinstance(actions, Scores):
        return ScoresDriver(setting, actions)
    raise TypeError(f"there is no driver for {type(actions).__name__}; expected Actions or Scores")
