"""What an observation is made of: named blocks of features, from which lengths, spaces and tables follow."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from gymnasium import spaces

from ringyard.cluster import Cluster
from ringyard.compiled.functions import CompiledFunction
from ringyard.mdp.actions.space import Actions

__all__ = ["Block", "Each", "Feature", "Observation"]


class Each(StrEnum):
    """What a block holds one item of features for."""

    WAITING = "V"
    PLACEMENT = "V x T"
    RUNNING = "R"
    SERVER = "S"
    CLUSTER = "1"

    def items(self, cluster: Cluster, actions: Actions) -> int:
        """V visible waiting jobs, V x T with each template, R running slots, S servers, or one cluster."""
        if self is Each.WAITING:
            return actions.num_waiting
        if self is Each.PLACEMENT:
            return actions.num_starts
        if self is Each.RUNNING:
            return actions.num_running
        return cluster.num_servers if self is Each.SERVER else 1


@dataclass(frozen=True)
class Feature:
    """One number of an item.

    Attributes:
        name: a word for it.
        meaning: how it is computed; s(x, c) stands for x / (x + c).
        unit: of what is measured, before it is scaled; "" for shares, ranks and flags.
    """

    name: str
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Block:
    """Features of all items of one kind, one item after the other.

    Attributes:
        name: in the observation's Dict; one that ends in `_mask` is 0 or 1.
        each: what an item is.
        features: of one item, in the order written.
    """

    name: str
    each: Each
    features: tuple[Feature, ...]

    def length(self, cluster: Cluster, actions: Actions) -> int:
        """Items x features."""
        return self.each.items(cluster, actions) * len(self.features)

    @property
    def low(self) -> float:
        """The least value."""
        return 0.0 if self.name.endswith("_mask") else -10.0


@dataclass(frozen=True)
class Observation:
    """A compiled writer and the blocks it writes.

    Attributes:
        write: compiled function of signature `ringyard.mdp.observations.queue.OBSERVE`.
        blocks: what it writes, in order. Each is one-dimensional in the space, as Stable-Baselines3 wants.
        flat: give the row as one Box instead of a Dict of its blocks.
    """

    write: CompiledFunction
    blocks: tuple[Block, ...]
    flat: bool

    def size(self, cluster: Cluster, actions: Actions) -> int:
        """Length of the row."""
        return sum(block.length(cluster, actions) for block in self.blocks)

    def space(self, cluster: Cluster, actions: Actions) -> spaces.Space[Any]:
        """The observation space of one cluster."""
        if self.flat:
            return spaces.Box(-10.0, 10.0, (self.size(cluster, actions),), np.float32)
        return spaces.Dict(
            {
                block.name: spaces.Box(block.low, 10.0, (block.length(cluster, actions),), np.float32)
                for block in self.blocks
            }
        )

    def windows(self, cluster: Cluster, actions: Actions) -> dict[str, slice]:
        """{block: where it stands in the row}."""
        windows: dict[str, slice] = {}
        begin = 0
        for block in self.blocks:
            end = begin + block.length(cluster, actions)
            windows[block.name] = slice(begin, end)
            begin = end
        return windows
