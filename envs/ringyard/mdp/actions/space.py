"""Kinds of actions, and the discrete one: start a job, change or preempt a running one, or wait."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, Self

from gymnasium import spaces

from ringyard.allocator import JobUtilities
from ringyard.checks import PositiveInt, checked
from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.errors import ConfigurationError
from ringyard.observability import Observability
from ringyard.performance import PerformanceModel
from ringyard.placement import PlacementRule, least_contended, pack
from ringyard.state.records import Job

#: which waiting jobs come first
QueueOrder = Literal["submit", "duration", "work", "gpus"]
#: times what a job asks for or has
Factor = Annotated[float, "(0, 1e6]"]

# what an option does with a job's GPUs
PLACED, IN_PLACE, STOP, REJECT = 0, 1, 2, 3


class ActionKind(ABC):
    """A kind of actions, as environments and observations use it.

    Attributes:
        queue_order: order of the waiting jobs.
        round_seconds: seconds between decisions; None: decisions come with events.
    """

    queue_order: QueueOrder = "submit"
    round_seconds: float | None = None

    @property
    @abstractmethod
    def space(self) -> spaces.Space[Any]:
        """Action space of one cluster."""

    @property
    @abstractmethod
    def items(self) -> Mapping[str, tuple[int, ...]]:
        """{what an observation may have a block of (`ItemAxis`): axes of those that can be acted on}."""

    @property
    @abstractmethod
    def observability(self) -> Observability:
        """What carrying out actions reads of jobs, besides sizes and speeds."""

    @property
    @abstractmethod
    def mask_size(self) -> int:
        """Length of a cluster's mask."""

    def refusing(self, masked: bool) -> Self:
        """A copy in which masked actions are errors (True) or replaced (False), if there are any."""
        return self

    def utilities(
        self, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel
    ) -> JobUtilities | None:
        """Speeds of prepared jobs by number of GPUs, made once for a job table; None if they are not used."""
        return None


@checked("action")
@dataclass(frozen=True)
class Template:
    """How to start a waiting job: where, and with how much of what it asks for.

    A scaled template is masked for jobs to which it would give exactly what they ask for.

    Attributes:
        placement: the rule that finds GPUs (a CPU-only job gets its server by `placement.room.cpu_server`).
        gpu_factor: GPUs / asked, rounded and held within the job's range.
        batch_factor: global batch / asked, held within the job's range.
        core_factor: cores per worker / asked, rounded up, at least 1.
    """

    placement: PlacementRule
    gpu_factor: Factor = 1.0
    batch_factor: Factor = 1.0
    core_factor: Factor = 1.0

    @property
    def name(self) -> str:
        """The rule's name and what is scaled."""
        factors = {"gpus": self.gpu_factor, "batch": self.batch_factor, "cores": self.core_factor}
        scaled = [f"{what}x{value:g}" for what, value in factors.items() if value != 1.0]
        return " ".join([self.placement.name, *scaled])


@checked("action")
@dataclass(frozen=True)
class Reject(Template):
    """A template that does not start a waiting job but sends it away, blocked (admission control)."""

    placement: PlacementRule = field(default_factory=pack)

    @property
    def name(self) -> str:
        """What it does."""
        return "reject"


@checked("action")
@dataclass(frozen=True)
class Adjustment:
    """How to change a running job; masked where it would change nothing or does not fit.

    Attributes:
        placement: move it where this rule finds GPUs; None: it keeps its GPUs.
        gpu_factor: GPUs / present, rounded and held within the job's range; needs `placement` unless 1.
        batch_factor: global batch / present, held within the job's range.
        core_factor: cores per worker / present, rounded (up if above 1), at least 1.
        bandwidth_cap: new cap of a CPU-only job's memory bandwidth, in (0, 1]; None keeps it.
    """

    placement: PlacementRule | None = None
    gpu_factor: Factor = 1.0
    batch_factor: Factor = 1.0
    core_factor: Factor = 1.0
    bandwidth_cap: Annotated[float, "(0, 1]"] | None = None

    def __post_init__(self) -> None:
        if self.placement is None and self.gpu_factor != 1.0:
            raise ConfigurationError(
                f"an adjustment with gpu_factor {self.gpu_factor} needs a placement rule for the new GPUs"
            )


@checked("action")
@dataclass(frozen=True)
class Actions(ActionKind):
    """The action space: `Discrete(num_waiting x templates + num_running x adjustments + 1)`.

    Action i * T + t starts visible job i by template t; action V * T + r * A + a changes running slot r
    by adjustment a (with `preemptive`, adjustment 0 stops it); the last action waits for the next decision
    point.

    Attributes:
        num_waiting: V, visible waiting jobs.
        num_running: R, visible running jobs.
        templates: T ways to start a job; a bare placement rule gives a job what it asks for.
        preemptive: offer stop actions.
        adjustments: further ways to change a running job.
        on_invalid: what a masked action does: "raise" an ActionError, or "wait" (or the first valid
            action where waiting is masked too) and set info["invalid_action"].
        queue_order: which waiting jobs are visible first: by "submit" time, "duration", "work" (GPU
            seconds) or "gpus"; ties by row. "duration" and "work" are predicted ones; jobs
            that are not predictable when they are submitted come last.
    """

    num_waiting: PositiveInt = 16
    num_running: PositiveInt = 16
    templates: Annotated[Sequence[PlacementRule | Template], "not empty"] = field(
        default_factory=lambda: (pack(), least_contended())
    )
    preemptive: bool = False
    adjustments: Sequence[Adjustment] = ()
    on_invalid: Literal["raise", "wait"] = "wait"
    queue_order: QueueOrder = "submit"

    @property
    def starts(self) -> tuple[Template, ...]:
        """[T] the templates, none of them a bare rule."""
        return tuple(one if isinstance(one, Template) else Template(one) for one in self.templates)

    @property
    def observability(self) -> Observability:
        """What its placement rules read of jobs, besides sizes and speeds."""
        options: tuple[Template | Adjustment, ...] = (*self.starts, *self.adjustments)
        rules = (option.placement for option in options)
        return reduce(or_, (rule.observability for rule in rules if rule is not None), Observability.NOTHING)

    @property
    def num_starts(self) -> int:
        """V x T, the start actions."""
        return self.num_waiting * len(self.templates)

    @property
    def num_adjustments(self) -> int:
        """A, ways to change a running job, stopping included."""
        return len(self.adjustments) + int(self.preemptive)

    @property
    def wait(self) -> int:
        """The action that waits."""
        return self.mask_size - 1

    @property
    def space(self) -> spaces.Discrete:
        """Space of the action numbers."""
        return spaces.Discrete(self.mask_size)

    @property
    def items(self) -> Mapping[str, tuple[int, ...]]:
        """V visible waiting jobs, V x T starts, R running jobs."""
        starts = (self.num_waiting, len(self.templates))
        return {"V": (self.num_waiting,), "V x T": starts, "R": (self.num_running,)}

    @property
    def mask_size(self) -> int:
        """Number of actions."""
        return self.num_starts + self.num_running * self.num_adjustments + 1

    def refusing(self, masked: bool) -> Self:
        """A copy with `on_invalid` "raise" (True) or "wait" (False)."""
        return replace(self, on_invalid="raise" if masked else "wait")
