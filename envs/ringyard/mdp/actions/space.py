"""`ActionKind`, the interface of action spaces, `Actions`, the discrete one, `Scores` and `Weights`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, Self

import numpy as np
from gymnasium import spaces

from ringyard.allocator import Allocator, JobUtilities, job_utilities
from ringyard.checks import NonNegative, Positive, PositiveInt, checked, shown
from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.mdp.job_features import JobFeatures
from ringyard.observability import Observability
from ringyard.performance import PerformanceModel
from ringyard.performance.execution_plans import PLAN_CLASSES
from ringyard.placement import PlacementRule, least_contended, pack
from ringyard.sim.allocation import LinkShare
from ringyard.sim.speeds import IsolatedJobs
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


@dataclass(frozen=True, kw_only=True)
class AllocatorActions(ActionKind):
    """Action spaces of numbers from -1 to 1 that become scores of jobs, which an allocator carries out."""

    #: rule that turns scores into starts, preemptions, migrations and resizes
    allocator: Allocator = field(default_factory=Allocator)
    #: seconds between decisions. None: a decision at every event with a job in the system.
    round_seconds: Positive | None = None
    #: added to the score of each running job, so that another job preempts it only with a score that is
    #: higher by this. Without it small noise in the scores leads to many preemptions.
    running_bonus: NonNegative = 0.0

    @property
    def observability(self) -> Observability:
        """What the allocator reads of jobs."""
        return self.allocator.observability

    def utilities(self, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel) -> JobUtilities:
        """Return the utility of `jobs` by number of GPUs on the `cluster`, given the `performance` model."""
        return job_utilities(IsolatedJobs.of_records(jobs, cluster, performance), self.allocator.size_power)


@checked("action")
@dataclass(frozen=True)
class Scores(AllocatorActions):
    """Action space `Box(-1, 1, (num_jobs,))`: a score for each job that waits or runs.

    Score i belongs to the i-th such job in the order of the job table. Jobs beyond the last score have score
    0. Scores without a job do nothing, and the mask marks the scores with a job. A score of 0 leaves a job's
    weight as the allocator's estimate has it. Higher scores raise it. The allocation is carried out at once,
    and time passes to the next decision.

    With T `type_scores` the space is `Box(-1, 1, ((1 + T) * num_jobs,))`: the scores of the jobs, then their
    scores for the first GPU type, for the second, and so on. When the allocator chooses a GPU type for a job,
    it multiplies the job's speed on each type by exp(score). Other decisions use true speeds. Classes of
    execution plans have scores in the same way: a job that starts or changes its GPUs runs in its fastest
    plan, unless the fastest of a class has a higher speed x exp(score). Plans that do not fit are left out.

    Raises:
        ConfigurationError: an argument out of its range, or an unknown or repeated type.

    Args:
        num_jobs: N, jobs that get a score.
        allocator, round_seconds, running_bonus: see `AllocatorActions`.
        type_scores: GPU types and classes of plans (`ringyard.performance.execution_plans.PLAN_CLASSES`) for
            which jobs get scores. Types that the cluster or its jobs lack have no effect.
    """

    num_jobs: PositiveInt = 128
    type_scores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = tuple(self.type_scores)
        object.__setattr__(self, "type_scores", kinds)  # yaml files give a list
        known = (*GPU_MEMORY_BYTES, *PLAN_CLASSES)
        if len(set(kinds)) < len(kinds) or not set(kinds) <= set(known):
            raise ConfigurationError(
                f"action.type_scores is {shown(kinds)}; expected GPU types or classes of plans, each once, of"
                f" {', '.join(known)}"
            )

    @property
    def space(self) -> spaces.Box:
        """Action space of one cluster."""
        return spaces.Box(-1.0, 1.0, ((1 + len(self.type_scores)) * self.num_jobs,), np.float32)

    @property
    def items(self) -> Mapping[str, tuple[int, ...]]:
        """{"N": (num_jobs,)}."""
        return {"N": (self.num_jobs,)}

    @property
    def mask_size(self) -> int:
        """Length of a cluster's mask: `num_jobs`."""
        return self.num_jobs


@checked("action")
@dataclass(frozen=True, kw_only=True)
class Weights(AllocatorActions):
    """Action space `Box(-1, 1, (weights,))`: a weight for each of a few features of jobs.

    The score of a job that waits or runs is `scale` x the sum of weight x feature, less the mean of these
    sums over all such jobs. All of them have a score. The allocator carries the scores out as with `Scores`.

    Args:
        features: features of `live_jobs` (docs/observations.md) that the weights are for, in order.
        scale: factor of the weights. Assumption: 0.17, with which the noise of an untrained Gaussian policy
            changes the order of few jobs.
        allocator, round_seconds, running_bonus: see `AllocatorActions`.

    Raises:
        ConfigurationError: an argument out of its range, or an unknown or repeated feature.
    """

    features: tuple[str, ...] = ("time_left", "gpus", "running", "attained_service", "age", "speedup")
    scale: Positive = 0.17

    def __post_init__(self) -> None:
        names = tuple(self.features)
        object.__setattr__(self, "features", names)  # yaml files give a list
        known = tuple(JobFeatures.__annotations__)
        if not names or len(set(names)) < len(names) or not set(names) <= set(known):
            raise ConfigurationError(
                f"action.features is {shown(names)}; expected features of jobs, each once, of"
                f" {', '.join(known)}"
            )

    @property
    def space(self) -> spaces.Box:
        """Action space of one cluster."""
        return spaces.Box(-1.0, 1.0, (len(self.features),), np.float32)

    @property
    def items(self) -> Mapping[str, tuple[int, ...]]:
        """{"all N": ()}: one summary of all live jobs."""
        return {"all N": ()}

    @property
    def observability(self) -> Observability:
        """What the allocator and the features read of jobs."""
        predicted = {"time_left", "time_left_rank", "predictable", "restart"} & set(self.features)
        return self.allocator.observability | (
            Observability.PREDICTIONS if predicted else Observability.NOTHING
        )

    @property
    def mask_size(self) -> int:
        """Length of a cluster's mask, in which every weight is valid."""
        return len(self.features)
