"""Actions that score jobs; an allocator turns the scores into allocations."""

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
    """The action space: `Box(-1, 1, (num_jobs,))`, a score for each live job, waiting or running.

    Score i belongs to the i-th live job in the order of the job table. Live jobs beyond the last score have
    score 0. Scores without a job do nothing, and the mask marks those with a job. At 0 a job matters as much
    as the allocator says, above 0 more. An action is carried out at once, and time passes to the next
    decision.

    With T `type_scores` the space is `Box(-1, 1, ((1 + T) x num_jobs,))`. N scores for the first GPU type
    follow the N scores of the jobs, then N for the second, and so on. When the allocator chooses a GPU type
    for a job, it multiplies the job's speed on each type by exp(score). Other decisions use true speeds.

    Attributes:
        num_jobs: N, live jobs that get a score.
        allocator: turns scores into starts, preemptions, migrations and resizes.
        round_seconds: decide every this many seconds; None: at every event with a live job.
        type_scores: GPU types for which jobs get scores of their own. Types that a cluster lacks do nothing.

    Raises:
        ConfigurationError: an argument out of its range, or what is no GPU type of ours.
    """

    num_jobs: PositiveInt = 128
    allocator: Allocator = field(default_factory=Allocator)
    round_seconds: Positive | None = None
    type_scores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = tuple(self.type_scores)
        object.__setattr__(self, "type_scores", kinds)  # a list, from a file
        if len(set(kinds)) < len(kinds) or not set(kinds) <= set(GPU_MEMORY_BYTES):
            raise ConfigurationError(
                f"action.type_scores is {shown(kinds)}; expected GPU types, each once, of"
                f" {', '.join(GPU_MEMORY_BYTES)}"
            )

    @property
    def space(self) -> spaces.Box:
        """Space of [(1 + T) N] scores."""
        return spaces.Box(-1.0, 1.0, ((1 + len(self.type_scores)) * self.num_jobs,), np.float32)

    @property
    def items(self) -> Mapping[str, tuple[int, ...]]:
        """N live jobs."""
        return {"N": (self.num_jobs,)}

    @property
    def observability(self) -> Observability:
        """What the allocator goes by."""
        return self.allocator.observability

    @property
    def mask_size(self) -> int:
        """One entry for each job that gets a score."""
        return self.num_jobs

    def utilities(self, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel) -> JobUtilities:
        """What the allocator goes by."""
        return job_utilities(IsolatedJobs.of_records(jobs, cluster, performance), self.allocator.size_power)
