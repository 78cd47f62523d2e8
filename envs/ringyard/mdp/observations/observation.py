"""`Observation`: a compiled function that writes a float32 row for each cluster, and its blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Float32Vector, FloatVector, Record, Records1, f4, interface, kernel
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions.space import ActionKind
from ringyard.mdp.episode import Episode
from ringyard.mdp.job_features import Feature
from ringyard.observability import Observability, check_reads
from ringyard.state.arrays import State
from ringyard.state.operations import DEPENDENCIES, OPERATIONS


class ItemAxis(StrEnum):
    """Kind of items of a block. The value is the shape of the items in letters."""

    WAITING = "V"
    PLACEMENT = "V x T"
    RUNNING = "R"
    LIVE = "N"
    SERVER = "S"
    SUMMARY = "all N"
    OPERATION = "O"
    DEPENDENCY = "D"
    CLUSTER = "1"

    def axes(self, cluster: Cluster, actions: ActionKind) -> tuple[int, ...]:
        """Return the axes of the items of `cluster` and `actions`, such as (V,), (V, T), (S,) or ().

        Raises:
            ConfigurationError: the action space has no such items.
        """
        known = {ItemAxis.SERVER: (cluster.num_servers,), ItemAxis.CLUSTER: (), **actions.items}
        known |= {ItemAxis.OPERATION: (OPERATIONS,), ItemAxis.DEPENDENCY: (DEPENDENCIES,)}
        if self not in known:
            raise ConfigurationError(
                f"the observation has a block of items {self} ({self.name.lower()}), the actions"
                f" {type(actions).__name__} have {', '.join(actions.items)}; expected observation=live_jobs"
                " with action=scores, live_job_summary with action=weights, and another one otherwise"
            )
        return known[self]


@dataclass(frozen=True)
class Block:
    """Features of all items of one kind, item by item."""

    name: str  #: key in the observation's Dict. Names of blocks with values 0 and 1 end in `_mask`.
    axis: ItemAxis  #: kind of its items
    record: type[Record]  #: features of one item. Each field is an `f4` with a `Feature`.

    @property
    def features(self) -> tuple[Feature, ...]:
        """Features of one item, in the order of the fields."""
        fields = self.record.__annotations__.items()
        return tuple(replace(kind.__metadata__[1], name=name) for name, kind in fields)

    @property
    def is_mask(self) -> bool:
        """Whether the block marks the rows that hold an item."""
        return self.name.endswith("_mask")

    @property
    def _last_axis(self) -> tuple[int, ...]:
        return (len(self.features),) if len(self.features) > 1 else ()

    def shape(self, cluster: Cluster, actions: ActionKind) -> tuple[int, ...]:
        """Return the shape, given `cluster` and `actions`: (V, T, 3), or (V,) for a single feature."""
        return *self.axis.axes(cluster, actions), *self._last_axis

    @property
    def label(self) -> str:
        """Shape in letters, such as `V x 12`."""
        single = self.axis in (ItemAxis.CLUSTER, ItemAxis.SUMMARY)
        items = () if single else (self.axis.value,)
        return " x ".join(map(str, (*items, *self._last_axis)))


@interface
class Observe(Protocol):
    """Interface of a compiled function that writes the observation of one cluster.

    It writes the whole row, with values in [-10, 10], and nothing else. Values and indices of user functions
    are checked in every call, those of this package with RINGYARD_CHECK=1.
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
        """Write the row `out` [size] of cluster `b`.

        Args:
            state: simulation arrays.
            episode: arrays of the decision process.
            b: cluster.
            num_running: R, running slots to show.
            parameters: [parameters] of the observation.
            out: output: [size] the row.
        """


@dataclass(frozen=True)
class Observation:
    """What an agent sees: a compiled writer and the blocks that it writes.

    Raises:
        ObservabilityError: `write` reads more of jobs than `observability` declares.
    """

    write: Observe  #: compiled function that implements `Observe`
    blocks: tuple[Block, ...]  #: blocks of the row, in order
    flat: bool  #: whether the observation is the row as one Box, instead of a Dict of blocks
    observability: Observability  #: what it shows of jobs, besides arrivals and the present
    #: [parameters] numbers that `write` reads
    parameters: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    #: whether `AllocationPlan.seconds_left` has the estimates of the present when `write` is called
    estimates: bool = False

    def __post_init__(self) -> None:
        check_reads(self.write, self.observability, "the observation")

    def size(self, cluster: Cluster, actions: ActionKind) -> int:
        """Return the length of the row, given the `cluster` and the `actions`."""
        return sum(self.lengths(cluster, actions).values())

    def space(self, cluster: Cluster, actions: ActionKind) -> spaces.Space[Any]:
        """Return the observation space of one cluster, given the `cluster` and the `actions`.

        Blocks are vectors, since libraries such as Stable-Baselines3 take arrays with more axes for images.
        """
        lengths = self.lengths(cluster, actions)
        boxes = []  # a list, because Gymnasium sorts the keys of mappings, and flattens in their order
        for block in self.blocks:
            low = 0.0 if block.is_mask else -10.0
            boxes.append((block.name, spaces.Box(low, 10.0, (lengths[block.name],), np.float32)))
        blocks = spaces.Dict(boxes)
        return spaces.flatten_space(blocks) if self.flat else blocks

    def names(self, cluster: Cluster, actions: ActionKind) -> dict[str, dict[str, tuple[Any, ...]]]:
        """Return `env.metadata["blocks"]`, {block: shape, feature names}, given `cluster` and `actions`."""
        shapes = {block.name: block.shape(cluster, actions) for block in self.blocks}
        features = {block.name: tuple(one.name for one in block.features) for block in self.blocks}
        return {name: {"shape": shape, "features": features[name]} for name, shape in shapes.items()}

    def lengths(self, cluster: Cluster, actions: ActionKind) -> dict[str, int]:
        """Return {block: length in the row} in the order of the row, given `cluster` and `actions`."""
        return {block.name: math.prod(block.shape(cluster, actions)) for block in self.blocks}


class Present(Record):
    """Record of a mask block."""

    present: Annotated[f4, Feature("1 if the slot holds a job")]


@kernel
def mark_present(mask: Records1[Present], count: int) -> None:
    """Mark the first `count` items of `mask` as present."""
    for i in range(count):
        mask[i].present = 1.0


def feature_table(blocks: Sequence[Block]) -> str:
    """Return a Markdown table with a row for each feature of the blocks."""
    rows = ["| block | # | feature | meaning | unit before scaling |", "|---|---|---|---|---|"]
    for block in blocks:
        label = f"{block.name} [{block.label}]"
        for number, feature in enumerate(block.features):
            rows.append(f"| {label} | {number} | {feature.name} | {feature.meaning} | {feature.unit} |")
            label = ""
    return "\n".join(rows).replace("|  |", "| |") + "\n"
