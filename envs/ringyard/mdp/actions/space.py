"""`ActionKind`, the interface of action spaces, and `Actions`, the discrete one."""

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
from ringyard.sim.allocation import LinkShare
from ringyard.state.records import Job

#: order of the waiting jobs, see `Actions.queue_order`
QueueOrder = Literal["submit", "duration", "work", "gpus"]
#: factor on what a job asks for or holds
Factor = Annotated[float, "(0, 1e6]"]

# what a template or an adjustment does: place the job, change it on its GPUs, preempt it, reject it
PLACE, IN_PLACE, PREEMPT, REJECT = 0, 1, 2, 3


class ActionKind(ABC):
    """Interface of an action space, for environments and observations."""

    queue_order: QueueOrder = "submit"  #: order of the waiting jobs, see `Actions.queue_order`
    round_seconds: float | None = None  #: seconds between decisions. None: decisions come with events.

    @property
    @abstractmethod
    def space(self) -> spaces.Space[Any]:
        """Action space of one cluster."""

    @property
    @abstractmethod
    def items(self) -> Mapping[str, tuple[int, ...]]:
        """{value of an `ItemAxis`: axes of the items that actions refer to}."""

    @property
    @abstractmethod
    def observability(self) -> Observability:
        """What carrying out an action reads of jobs, besides sizes and speeds."""

    @property
    @abstractmethod
    def mask_size(self) -> int:
        """Length of a cluster's mask."""

    def with_raise_on_invalid(self, raises: bool) -> Self:
        """Return a copy in which masked actions raise an error if `raises`, or else are replaced."""
        return self

    def utilities(
        self, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel
    ) -> JobUtilities | None:
        """Return the utility of prepared jobs by number of GPUs, or None if the actions do not use it."""
        return None


@checked("action")
@dataclass(frozen=True)
class Template:
    """A way to start a waiting job.

    A template with a factor other than 1 is masked for jobs that it would start exactly as they ask.
    """

    placement: PlacementRule  #: rule that finds GPUs. `availability.find_cpu_server` places CPU-only jobs.
    gpu_factor: Factor = 1.0  #: GPUs over those asked for, rounded and clipped to the job's range
    batch_factor: Factor = 1.0  #: global batch over that asked for, clipped to the job's range
    core_factor: Factor = 1.0  #: cores per worker over those asked for, rounded up, at least 1
    #: execution plan of a job that has some: "asked" for, or fastest on other GPUs, or always the "fastest".
    #: This template is masked for jobs that ask for their fastest.
    plan: Literal["asked", "fastest"] = "asked"

    @property
    def name(self) -> str:
        """Name of the placement rule, factors other than 1 and the fastest plan, such as `pack gpusx2`."""
        factors = {"gpus": self.gpu_factor, "batch": self.batch_factor, "cores": self.core_factor}
        scaled = [f"{quantity}x{value:g}" for quantity, value in factors.items() if value != 1.0]
        return " ".join([self.placement.name, *scaled, *(["fastest"] if self.plan == "fastest" else [])])


@checked("action")
@dataclass(frozen=True)
class Reject(Template):
    """A template that rejects a waiting job, which counts as blocked (admission control)."""

    placement: PlacementRule = field(default_factory=pack)

    @property
    def name(self) -> str:
        """`reject`."""
        return "reject"


@checked("action")
@dataclass(frozen=True)
class Adjustment:
    """A way to change a running job, masked where it would change nothing or does not fit.

    Raises:
        ConfigurationError: a factor out of range, or `gpu_factor` without `placement`.
    """

    placement: PlacementRule | None = None  #: rule that finds the new GPUs. None: the job keeps its GPUs.
    #: GPUs over the present ones, rounded and clipped to the job's range. Needs `placement` unless 1.
    gpu_factor: Factor = 1.0
    batch_factor: Factor = 1.0  #: global batch over the present one, clipped to the job's range
    core_factor: Factor = 1.0  #: cores per worker over the present ones, rounded (up if above 1), at least 1
    #: new cap of a CPU-only job's memory bandwidth, in (0, 1]. None keeps the cap.
    bandwidth_cap: Annotated[float, "(0, 1]"] | None = None
    #: new `Allocation.link_share` of a job that spans servers. None keeps the share.
    link_share: LinkShare | None = None

    def __post_init__(self) -> None:
        if self.placement is None and self.gpu_factor != 1.0:
            raise ConfigurationError(
                f"action.gpu_factor of an adjustment is {self.gpu_factor} without a placement"
                "; expected placement=RULE, which finds the new GPUs"
            )


@checked("action")
@dataclass(frozen=True)
class Actions(ActionKind):
    """Action space `Discrete(V * T + R * A + 1)`: start a waiting job, adjust a running one, or wait.

    Action `i * T + t` starts visible job i with template t. Action `V * T + r * A + a` applies adjustment a
    to running slot r, where adjustment 0 preempts the job if `preemptive`. The last action waits for the
    next event.

    Attributes:
        num_waiting: V, visible waiting jobs.
        num_running: R, visible running jobs.
        templates: T ways to start a job. A placement rule alone starts jobs as they ask.
        preemptive: whether running jobs can be preempted.
        adjustments: other ways to change a running job. A counts them and the preemption.
        on_invalid: what a masked action does. "raise": an `ActionError`. "wait": wait (or take the first
            valid action if waiting is masked, too) and set `info["invalid_action"]`.
        may_wait: whether waiting is valid while a visible job can start. If False and a template rejects
            jobs, each job is decided when it arrives.
        queue_order: order in which waiting jobs become visible: by "submit" time, "duration", "work" (GPU
            seconds) or "gpus", ascending, ties by row. "duration" and "work" are predictions. Jobs that are
            not predictable when they are submitted come last.

    Raises:
        ConfigurationError: no template, or an argument out of its range.
    """

    num_waiting: PositiveInt = 16
    num_running: PositiveInt = 16
    templates: Annotated[Sequence[PlacementRule | Template], "not empty"] = field(
        default_factory=lambda: (pack(), least_contended())
    )
    preemptive: bool = False
    adjustments: Sequence[Adjustment] = ()
    on_invalid: Literal["raise", "wait"] = "wait"
    may_wait: bool = True
    queue_order: QueueOrder = "submit"

    @property
    def starts(self) -> tuple[Template, ...]:
        """[T] templates, with placement rules converted to `Template`."""
        return tuple(one if isinstance(one, Template) else Template(one) for one in self.templates)

    @property
    def observability(self) -> Observability:
        """What the placement rules read of jobs, besides sizes and speeds."""
        options: tuple[Template | Adjustment, ...] = (*self.starts, *self.adjustments)
        rules = (option.placement for option in options)
        return reduce(or_, (rule.observability for rule in rules if rule is not None), Observability.NOTHING)

    @property
    def num_starts(self) -> int:
        """V * T, the number of start actions."""
        return self.num_waiting * len(self.templates)

    @property
    def num_adjustments(self) -> int:
        """A, the number of ways to change a running job, preemption included."""
        return len(self.adjustments) + int(self.preemptive)

    @property
    def wait(self) -> int:
        """Number of the action that waits."""
        return self.mask_size - 1

    @property
    def space(self) -> spaces.Discrete:
        """Action space of one cluster."""
        return spaces.Discrete(self.mask_size)

    @property
    def items(self) -> Mapping[str, tuple[int, ...]]:
        """{"V": visible waiting jobs, "V x T": start actions, "R": visible running jobs}."""
        starts = (self.num_waiting, len(self.templates))
        return {"V": (self.num_waiting,), "V x T": starts, "R": (self.num_running,)}

    @property
    def mask_size(self) -> int:
        """Number of actions."""
        return self.num_starts + self.num_running * self.num_adjustments + 1

    def with_raise_on_invalid(self, raises: bool) -> Self:
        """Return a copy with `on_invalid` "raise" if `raises`, else "wait"."""
        return replace(self, on_invalid="raise" if raises else "wait")
