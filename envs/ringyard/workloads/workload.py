"""What every workload is: a way to draw a job table from a generator."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Positive, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable


class Workload(Protocol):
    """A distribution over job tables."""

    @property
    def num_jobs(self) -> int:
        """Most jobs a table can have."""
        ...

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """One episode's jobs, the first at time 0; equal generators give equal tables."""
        ...


class EachOf:
    """Generators of several tables as if they were one: each draws the numbers of its own table's jobs.

    For parts of workloads that draw the jobs of a table independently, and say so by `by_job = True`.

    Args:
        generators: one for each table.
    """

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self._generators = generators

    def _draw(self, size: int, draw: Callable[[np.random.Generator, int], NDArray[Any]]) -> NDArray[Any]:
        count = size // len(self._generators)
        return np.concatenate([draw(one, count) for one in self._generators])

    def random(self, size: int) -> NDArray[np.float64]:
        """[jobs of all tables] uniform in [0, 1)."""
        return self._draw(size, lambda one, count: one.random(count))

    def uniform(self, low: float, high: float, size: int) -> NDArray[np.float64]:
        """[jobs of all tables] uniform in [low, high)."""
        return self._draw(size, lambda one, count: one.uniform(low, high, count))

    def lognormal(self, mean: float, sigma: float, size: int) -> NDArray[np.float64]:
        """[jobs of all tables] exp(Normal(mean, sigma))."""
        return self._draw(size, lambda one, count: one.lognormal(mean, sigma, count))


def draw_together(
    workload: Workload, cluster: Cluster, generators: Sequence[np.random.Generator]
) -> tuple[JobTable, list[int]]:
    """(tables one after the other, jobs of each): what `sample` gives for each generator.

    In little more time than for one where the workload has `sample_together(cluster, generators)`, which
    gives them so, each of `num_jobs` jobs; or None, if they cannot be drawn together.
    """
    together = getattr(workload, "sample_together", None)
    whole = None if together is None else together(cluster, generators)
    if whole is not None:
        return whole, [workload.num_jobs] * len(generators)
    tables = [workload.sample(cluster, one) for one in generators]
    return JobTable.one_after_the_other(tables), [len(table) for table in tables]


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
