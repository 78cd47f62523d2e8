"""What agents may decide by, of whatever kind: what environments, banks and observations ask of it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.allocator import Rates
from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.information import Information
from ringyard.performance import PerformanceModel
from ringyard.state.records import Job

__all__ = ["ActionKind", "QueueOrder"]

#: which waiting jobs come first
QueueOrder = Literal["submit", "duration", "work", "gpus"]


class ActionKind(ABC):
    """A kind of actions, with what can be set of it; `ringyard.mdp.batch` says how a batch plays each.

    Attributes:
        queue_order: of the waiting jobs.
        round_seconds: decisions come every so many seconds; None: with events.
        goes_by_rates: it has `rates`.
    """

    queue_order: QueueOrder = "submit"
    round_seconds: float | None = None
    goes_by_rates = False

    @property
    @abstractmethod
    def space(self) -> spaces.Space[Any]:
        """Of one cluster's action."""

    @property
    @abstractmethod
    def items(self) -> Mapping[str, int]:
        """{what an observation may have a block of (`Each`): how many of them can be acted on}."""

    @property
    @abstractmethod
    def takes(self) -> Information:
        """What carrying out actions goes by, besides sizes and speeds."""

    @property
    @abstractmethod
    def idle_mask(self) -> NDArray[np.bool_]:
        """[mask] of a cluster whose episode is over."""

    def refusing(self, masked: bool) -> Self:
        """The same; masked actions are errors, or are replaced (where there are any)."""
        return self

    def rates(self, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel) -> Rates | None:
        """How fast prepared jobs are on so many GPUs, if that is gone by; made once for a job table."""
        return None

    @abstractmethod
    def one_given(self, action: Any) -> NDArray[Any]:
        """[1, ...] what the caller of one cluster hands in, a fresh array.

        Raises:
            ActionError: not of the space.
        """

    @abstractmethod
    def given(self, actions: Any, num_envs: int) -> NDArray[Any]:
        """[num_envs, ...] what the caller of several clusters hands in, a fresh array.

        Raises:
            ActionError: another shape or kind of numbers; whether they are in the space is not looked at.
        """
