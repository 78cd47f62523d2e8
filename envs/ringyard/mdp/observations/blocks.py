"""What an observation is made of: named blocks of features, from which lengths and tables follow."""

from dataclasses import dataclass, replace
from enum import StrEnum

from ringyard.cluster import Cluster
from ringyard.compiled import Record
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions.kind import ActionKind

__all__ = ["Block", "Each", "Feature"]


class Each(StrEnum):
    """What a block holds one item of features for."""

    WAITING = "V"
    PLACEMENT = "V x T"
    RUNNING = "R"
    LIVE = "N"
    SERVER = "S"
    CLUSTER = "1"

    def items(self, cluster: Cluster, actions: ActionKind) -> int:
        """V visible waiting jobs, V x T with each template, R running slots, N live jobs, S servers, or 1.

        Raises:
            ConfigurationError: these actions have no such items.
        """
        there = {Each.SERVER: cluster.num_servers, Each.CLUSTER: 1, **actions.items}
        if self not in there:
            raise ConfigurationError(
                f"the observation shows items {self} ({self.name.lower()}), {type(actions).__name__} has"
                f" {', '.join(actions.items)}; expected observation=live_jobs with action=scores, and another"
                " observation with other actions"
            )
        return there[self]

    def axes(self, cluster: Cluster, actions: ActionKind) -> tuple[int, ...]:
        """The axes of the items: (V,), (V, T), (R,), (N,), (S,), and () for the one cluster."""
        items = self.items(cluster, actions)
        if self is Each.CLUSTER:
            return ()
        if self is Each.PLACEMENT:
            waiting = Each.WAITING.items(cluster, actions)
            return waiting, items // waiting
        return (items,)


@dataclass(frozen=True)
class Feature:
    """What one number of an item says: `gpus: Annotated[f4, Feature("log2(GPUs)", "GPUs")]`.

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
    each: Each
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

    def length(self, cluster: Cluster, actions: ActionKind) -> int:
        """Items x features."""
        return self.each.items(cluster, actions) * len(self.features)

    @property
    def _last_axis(self) -> tuple[int, ...]:
        return (len(self.features),) if len(self.features) > 1 else ()

    def shape(self, cluster: Cluster, actions: ActionKind) -> tuple[int, ...]:
        """Axes of its items, then one of its features, unless it has only one: (V, 12), (V, T, 3), (V,)."""
        return *self.each.axes(cluster, actions), *self._last_axis

    @property
    def label(self) -> str:
        """Its shape in letters: V x 12."""
        items = () if self.each is Each.CLUSTER else (self.each.value,)
        return " x ".join(map(str, (*items, *self._last_axis)))

    @property
    def low(self) -> float:
        """The least value."""
        return 0.0 if self.is_mask else -10.0
