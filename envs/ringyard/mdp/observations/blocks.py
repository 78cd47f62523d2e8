"""What an observation is made of: named blocks of features, from which lengths and tables follow."""

from dataclasses import dataclass
from enum import StrEnum

from ringyard.cluster import Cluster
from ringyard.mdp.actions.space import Actions

__all__ = ["Block", "Each", "Feature"]


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
