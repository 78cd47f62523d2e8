"""Observations: a compiled function that writes one float32 row per cluster, and the blocks of the row."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Float32Vector, FloatVector, slot
from ringyard.information import Information, check_reads
from ringyard.mdp.actions.kind import ActionKind
from ringyard.mdp.episode import Episode
from ringyard.mdp.observations.blocks import Block
from ringyard.state.arrays import State

__all__ = ["Observation", "Observe"]


@slot
class Observe(Protocol):
    """Writes what an agent sees of one cluster.

    The function promises values from -10 to 10, as the space says, and to write the whole row, nothing else.
    Values and indices are checked each time, in functions of others (with RINGYARD_CHECK=1 in all).
    """

    def __call__(
        self,
        state: State,
        episode: Episode,
        b: int,
        num_running: int,
        parameters: FloatVector,
        out: Float32Vector,
    ) -> None:
        """Fill the row `out` [size] of cluster b; num_running is how many running slots are shown."""


@dataclass(frozen=True)
class Observation:
    """A compiled writer and the blocks it writes.

    Attributes:
        write: fills `Observe`.
        blocks: what it writes, in order.
        flat: give the row as one Box instead of a Dict of its blocks.
        knows: what it shows of jobs, besides arrivals and the present.
        parameters: [parameters] what `write` reads.

    Raises:
        InformationError: `write` reads more of jobs than `knows` names.
    """

    write: Observe
    blocks: tuple[Block, ...]
    flat: bool
    knows: Information
    parameters: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def __post_init__(self) -> None:
        check_reads(self.write, self.knows, "the observation")

    def size(self, cluster: Cluster, actions: ActionKind) -> int:
        """Length of the row."""
        return sum(block.length(cluster, actions) for block in self.blocks)

    def space(self, cluster: Cluster, actions: ActionKind) -> spaces.Space[Any]:
        """The observation space of one cluster."""
        if self.flat:
            return spaces.Box(-10.0, 10.0, (self.size(cluster, actions),), np.float32)
        return spaces.Dict(
            {
                block.name: spaces.Box(block.low, 10.0, block.shape(cluster, actions), np.float32)
                for block in self.blocks
            }
        )

    def names(self, cluster: Cluster, actions: ActionKind) -> dict[str, dict[str, tuple[Any, ...]]]:
        """{block: its shape, and the names of its features}, in the order of the row: what metadata say."""
        return {
            block.name: {
                "shape": block.shape(cluster, actions),
                "features": tuple(feature.name for feature in block.features),
            }
            for block in self.blocks
        }

    def windows(self, cluster: Cluster, actions: ActionKind) -> dict[str, slice]:
        """{block: where it stands in the row}."""
        windows: dict[str, slice] = {}
        begin = 0
        for block in self.blocks:
            end = begin + block.length(cluster, actions)
            windows[block.name] = slice(begin, end)
            begin = end
        return windows
