"""`Scores`: actions that give each job a score, which an allocator turns into allocations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from gymnasium import spaces

from ringyard.allocator import Allocator, JobUtilities, job_utilities
from ringyard.checks import Positive, PositiveInt, checked, shown
from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.mdp.actions.space import ActionKind
from ringyard.observability import Observability
from ringyard.performance import PerformanceModel
from ringyard.sim.speeds import IsolatedJobs
from ringyard.state.records import Job


@checked("action")
@dataclass(frozen=True)
class Scores(ActionKind):
    """Action space `Box(-1, 1, (num_jobs,))`: a score for each job that waits or runs.

    Score i belongs to the i-th such job in the order of the job table. Jobs beyond the last score have score
    0. Scores without a job do nothing, and the mask marks the scores with a job. A score of 0 leaves a job's
    weight as the allocator's estimate has it. Higher scores raise it. The allocation is carried out at once,
    and time passes to the next decision.

    With T `type_scores` the space is `Box(-1, 1, ((1 + T) * num_jobs,))`: the scores of the jobs, then their
    scores for the first GPU type, for the second, and so on. When the allocator chooses a GPU type for a job,
    it multiplies the job's speed on each type by exp(score). Other decisions use true speeds.

    Raises:
        ConfigurationError: an argument out of its range, or an unknown or repeated GPU type.

    Args:
        num_jobs: N, jobs that get a score.
        allocator: rule that turns scores into starts, preemptions, migrations and resizes.
        round_seconds: seconds between decisions. None: a decision at every event with a job in the system.
        type_scores: GPU types for which jobs get scores. Types that the cluster lacks have no effect.
    """

    num_jobs: PositiveInt = 128
    allocator: Allocator = field(default_factory=Allocator)
    round_seconds: Positive | None = None
    type_scores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = tuple(self.type_scores)
        object.__setattr__(self, "type_scores", kinds)  # yaml files give a list
        if len(set(kinds)) < len(kinds) or not set(kinds) <= set(GPU_MEMORY_BYTES):
            raise ConfigurationError(
                f"action.type_scores is {shown(kinds)}; expected GPU types, each once, of"
                f" {', '.join(GPU_MEMORY_BYTES)}"
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
    def observability(self) -> Observability:
        """What the allocator reads of jobs."""
        return self.allocator.observability

    @property
    def mask_size(self) -> int:
        """Length of a cluster's mask: `num_jobs`."""
        return self.num_jobs

    def utilities(self, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel) -> JobUtilities:
        """Return the utility of `jobs` by number of GPUs on the `cluster`, given the `performance` model."""
        return job_utilities(IsolatedJobs.of_records(jobs, cluster, performance), self.allocator.size_power)
