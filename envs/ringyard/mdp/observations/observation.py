"""Observations: compiled functions that write one float32 row per cluster, split into named blocks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Float32Vector, FloatVector, slot
from ringyard.mdp.actions import Actions
from ringyard.mdp.episode import Episode
from ringyard.state.arrays import State

__all__ = ["Blocks", "Observation", "Observe"]

#: (cluster, actions) -> {block name: length}, in the order written
Blocks = Callable[[Cluster, Actions], dict[str, int]]


@slot
class Observe(Protocol):
    """Writes what an agent sees of one cluster."""

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
    """A compiled writer and the names of the blocks it writes.

    Attributes:
        write: fills `Observe`.
        blocks: names and lengths of what it writes; a name ending in `_mask` is 0 or 1. Blocks are
            one-dimensional, as Stable-Baselines3 wants them.
        flat: give the row as one Box instead of a Dict of its blocks.
        parameters: [parameters] what `write` reads.
    """

    write: Observe
    blocks: Blocks
    flat: bool
    parameters: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def size(self, cluster: Cluster, actions: Actions) -> int:
        """Length of the row."""
        return sum(self.blocks(cluster, actions).values())

    def space(self, cluster: Cluster, actions: Actions) -> spaces.Space[Any]:
        """The observation space of one cluster."""
        if self.flat:
            return spaces.Box(-10.0, 10.0, (self.size(cluster, actions),), np.float32)
        return spaces.Dict(
            {
                name: spaces.Box(0.0 if name.endswith("_mask") else -10.0, 10.0, (length,), np.float32)
                for name, length in self.blocks(cluster, actions).items()
            }
        )

    def split(self, rows: NDArray[np.float32], cluster: Cluster, actions: Actions) -> Any:
        """Rows [..., size] as the space has them: unchanged if flat, else a dict of windows on them."""
        if self.flat:
            return rows
        blocks = {}
        begin = 0
        for name, length in self.blocks(cluster, actions).items():
            blocks[name] = rows[..., begin : begin + length]
            begin += length
        return blocks
