"""What every workload is: a way to draw a job table from a generator."""

from typing import Protocol

import numpy as np

from ringyard.checks import Positive, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable

__all__ = ["Workload", "scale_to_load"]


class Workload(Protocol):
    """A distribution over job tables."""

    @property
    def num_jobs(self) -> int:
        """Most jobs a table can have."""
        ...

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """One episode's jobs, the first at time 0; equal generators give equal tables."""
        ...


@checked("workload")
def scale_to_load(jobs: JobTable, cluster: Cluster, load: Positive) -> JobTable:
    """Stretch arrivals until the jobs' GPU seconds fill `load` of the cluster while they arrive.

    Args:
        jobs: with durations.
        cluster: gives the GPUs.
        load: GPU seconds / (GPUs x time between the first and the last arrival), above 0.

    Raises:
        ConfigurationError: load not above 0.
    """
    span = float(jobs.submit_seconds[-1] - jobs.submit_seconds[0])
    if span == 0:
        return jobs
    wanted = float((jobs.num_gpus * jobs.duration_seconds).sum()) / (load * cluster.num_gpus)
    return jobs.shifted((jobs.submit_seconds - jobs.submit_seconds[0]) * (wanted / span))
