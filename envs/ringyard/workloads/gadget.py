"""GADGET's jobs: more work than its horizon holds, worth something long before they end."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from ringyard.checks import Count, Positive, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable


@checked("workload")
@dataclass(frozen=True)
class GadgetJobs:
    """Elastic jobs that are withdrawn, wherever they are, when the last slot ends.

    FOUND (GADGET, arXiv 2202.01158): 200 slots; F_i in [1000, 6000]; sizes of 1 to 10 workers for schedulers
    that keep them. Assumed: F_i are worker slots, draws are uniform, arrivals uniform over the slots (the
    paper's are of a Google trace), a worker is a GPU, fewer workers are slower in proportion.

    Attributes:
        num_jobs: per episode.
        slots: until the end.
        slot_seconds: length of one (the paper's slots have none).
        worker_slots: (low, high) of a job's work.
        workers: most that a job may have, and asks for: 1 to this many.
    """

    num_jobs: Count = 100
    slots: Count = 200
    slot_seconds: Positive = 300.0
    worker_slots: Annotated[tuple[Count, Count], "ascending"] = (1000, 6000)
    workers: Count = 10

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """One episode's jobs; the first arrives at 0."""
        end = self.slots * self.slot_seconds
        submit = np.sort(rng.uniform(0.0, end, self.num_jobs))
        workers = rng.integers(1, min(self.workers, cluster.num_gpus), self.num_jobs, endpoint=True)
        work = rng.integers(self.worker_slots[0], self.worker_slots[1], self.num_jobs, endpoint=True)
        jobs = JobTable.from_columns(submit - submit[0], workers, work / workers * self.slot_seconds)
        return replace(
            jobs,
            min_gpus=np.ones(self.num_jobs, dtype=np.int64),
            cancel_seconds=np.full(self.num_jobs, end),
        )
