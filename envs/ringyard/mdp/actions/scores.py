"""`Scores` of jobs and `Weights` of jobs' features: numbers that an allocator turns into allocations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from gymnasium import spaces

from ringyard.allocator import Allocator, JobUtilities, job_utilities
from ringyard.checks import NonNegative, Positive, PositiveInt, checked, shown
from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.mdp.actions.space import ActionKind
from ringyard.mdp.job_features import JobFeatures
from ringyard.observability import Observability
from ringyard.performance import PerformanceModel
from ringyard.performance.execution_plans import PLAN_CLASSES
from ringyard.sim.speeds import IsolatedJobs
from ringyard.state.records import Job


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
