"""Observations: a compiled function that writes one float32 row per cluster, and named blocks of the row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Float32Vector, FloatVector, Record, Records1, f4, kernel, slot
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions.space import ActionKind
from ringyard.mdp.episode import Episode
from ringyard.observability import Observability, check_reads
from ringyard.state.arrays import State


class ItemAxis(StrEnum):
    """The items of a block, each with a row of features."""

    WAITING = "V"
    PLACEMENT = "V x T"
    RUNNING = "R"
    LIVE = "N"
    SERVER = "S"
    CLUSTER = "1"

    def axes(self, cluster: Cluster, actions: ActionKind) -> tuple[int, ...]:
        """The axes of the items: (V,), (V, T), (R,), (N,), (S,), and () for the one cluster.

        Raises:
            ConfigurationError: these actions have no such items.
        """
        there = {ItemAxis.SERVER: (cluster.num_servers,), ItemAxis.CLUSTER: (), **actions.items}
        if self not in there:
            raise ConfigurationError(
                f"the observation shows items {self} ({self.name.lower()}), {type(actions).__name__} has"
                f" {', '.join(actions.items)}; expected observation=live_jobs with action=scores, and another"
                " observation with other actions"
            )
        return there[self]


@dataclass(frozen=True)
class Feature:
    """One number of an item: `gpus: Annotated[f4, Feature("log2(GPUs)", "GPUs")]`.

    Attributes:
        meaning: how it is computed; s(x, c) stands for x / (x + c).
        unit: of what is measured, before it is scaled; "" for shares, ranks and flags.
        name: of the field.
    """

    meaning: str
    unit: str = ""
    name: str = ""


@dataclass(frozen=True)
class Block:
    """Features of all items of one kind, one item after the other.

    Attributes:
        name: in the observation's Dict; one that ends in `_mask` is 0 or 1.
        each: what an item is.
        record: of one item; each field is an `f4` with a `Feature`.
    """

    name: str
    each: ItemAxis
    record: type[Record]

    @property
    def features(self) -> tuple[Feature, ...]:
        """Of one item, in the order of the fields."""
        fields = self.record.__annotations__.items()
        return tuple(replace(kind.__metadata__[1], name=name) for name, kind in fields)

    @property
    def is_mask(self) -> bool:
        """Whether it says which items there are."""
        return self.name.endswith("_mask")

    @property
    def _last_axis(self) -> tuple[int, ...]:
        return (len(self.features),) if len(self.features) > 1 else ()

    def shape(self, cluster: Cluster, actions: ActionKind) -> tuple[int, ...]:
        """Axes of its items, then one of its features, unless it has only one: (V, 12), (V, T, 3), (V,)."""
        return *self.each.axes(cluster, actions), *self._last_axis

    @property
    def label(self) -> str:
        """Its shape in letters: V x 12."""
        items = () if self.each is ItemAxis.CLUSTER else (self.each.value,)
        return " x ".join(map(str, (*items, *self._last_axis)))

    @property
    def low(self) -> float:
        """The least value."""
        return 0.0 if self.is_mask else -10.0


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
        parameters: [parameters] numbers that `write` reads.

    Raises:
        ObservabilityError: `write` reads more of jobs than `knows` names.
    """

    write: Observe
    blocks: tuple[Block, ...]
    flat: bool
    observability: Observability
    parameters: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def __post_init__(self) -> None:
        check_reads(self.write, self.observability, "the observation")

    def size(self, cluster: Cluster, actions: ActionKind) -> int:
        """Length of the row."""
        return sum(self.lengths(cluster, actions).values())

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

    def lengths(self, cluster: Cluster, actions: ActionKind) -> dict[str, int]:
        """{block: how many numbers of the row}, in the order of the row."""
        return {block.name: math.prod(block.shape(cluster, actions)) for block in self.blocks}


class Present(Record):
    """One number of a mask block: whether there is an item."""

    present: Annotated[f4, Feature("1 if the slot holds a job")]


@kernel
def mark_present(mask: Records1[Present], count: int) -> None:
    """Mark the first items as present."""
    for i in range(count):
        mask[i].present = 1.0


@kernel
def squash(value: float, scale: float) -> float:
    """Value / (value + scale): 0 at 0, 1/2 at `scale`, 1 at infinity."""
    return value / (value + scale)


def feature_table(blocks: Sequence[Block]) -> str:
    """A Markdown table with a row for each feature.

    Args:
        blocks: in the order written.
    """
    rows = ["| block | # | feature | meaning | unit before scaling |", "|---|---|---|---|---|"]
    for block in blocks:
        label = f"{block.name} [{block.label}]"
        for number, feature in enumerate(block.features):
            rows.append(f"| {label} | {number} | {feature.name} | {feature.meaning} | {feature.unit} |")
            label = ""
    return "\n".join(rows).replace("|  |", "| |") + "\n"
