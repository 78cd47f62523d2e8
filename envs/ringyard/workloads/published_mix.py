"""The 160-job mix of SJF-BCO and Ada-SRSF (a scaled-down Microsoft trace)."""

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from ringyard.checks import Amount, Count, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.workloads.assignment import Assignment

#: (jobs, GPUs): SJF-BCO technical report section 7; Ada-SRSF's public simulator, "microsoft-160"
MIX = ((80, 1), (14, 2), (26, 4), (30, 8), (8, 16), (2, 32))


@checked("workload")
@dataclass(frozen=True)
class PublishedMix:
    """160 jobs: 80 x 1, 14 x 2, 26 x 4, 30 x 8, 8 x 16 and 2 x 32 GPUs, in random order.

    Attributes:
        iterations: (low, high) of the uniform whole number of training iterations.
        arrival_seconds: arrivals are uniform over this time; 0 submits all at once.
        models: costs per iteration.
    """

    iterations: Annotated[tuple[Count, Count], "ascending"]
    arrival_seconds: Amount
    models: Assignment
    num_jobs: int = field(default=sum(count for count, _ in MIX), init=False)

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """One episode's jobs; durations follow from the iterations."""
        sizes = rng.permutation(np.repeat([gpus for _, gpus in MIX], [count for count, _ in MIX]))
        iterations = rng.integers(self.iterations[0], self.iterations[1], self.num_jobs, endpoint=True)
        submit = np.sort(rng.uniform(0.0, self.arrival_seconds, self.num_jobs))
        jobs = JobTable.from_columns(submit - submit[0], sizes, np.ones(self.num_jobs))
        jobs = replace(
            jobs,
            iterations=iterations.astype(np.float64),
            duration_seconds=np.full(self.num_jobs, np.nan),
        )
        return self.models.assign(jobs, rng)
