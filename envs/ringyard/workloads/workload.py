"""Interface of workloads (random generator in, job table out) and models for jobs that name none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import NonNegative, Positive, PositiveInt, Weights, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import model_id


class Workload(Protocol):
    """A distribution over job tables."""

    @property
    def num_jobs(self) -> int:
        """Most jobs a table can have."""
        ...

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw one episode's jobs, the first at time 0; equal generators give equal tables."""
        ...


class GeneratorBatch:
    """Several generators behind one interface: each draws the numbers of its own table's jobs.

    Parts of a workload that draw jobs independently declare it by `draws_per_job = True`.

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


def draw_tables(
    workload: Workload, cluster: Cluster, generators: Sequence[np.random.Generator]
) -> tuple[JobTable, list[int]]:
    """Draw a table for each generator, as `sample` does.

    A workload with `sample_batch(cluster, generators)` draws them in one pass (tables of `num_jobs` jobs
    one after the other), or returns None if it cannot.

    Args:
        workload: to draw from.
        cluster: for the jobs.
        generators: one for each table.

    Returns:
        The tables one after the other, and the number of jobs of each.
    """
    together = getattr(workload, "sample_batch", None)
    whole = None if together is None else together(cluster, generators)
    if whole is not None:
        return whole, [workload.num_jobs] * len(generators)
    tables = [workload.sample(cluster, one) for one in generators]
    return JobTable.concatenate(tables), [len(table) for table in tables]


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


class CostAssignment(Protocol):
    """Costs per iteration for jobs that have none."""

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """Return the same jobs with costs per iteration."""
        ...


_ADA_SRSF_MODELS = {"vgg16": 1.0, "resnet50": 1.0, "inception_v3": 1.0, "lstm": 1.0}


@checked("models")
@dataclass(frozen=True)
class ModelMix:
    """Models drawn from weights that depend on a job's GPU count.

    Attributes:
        by_gpus: {smallest GPU count: {model: weight}}; a job uses the largest key not above its count.
            Default: the four models of Ada-SRSF's public simulator, equally likely at every size.
        draws_per_job: see `GeneratorBatch`.
    """

    draws_per_job = True
    by_gpus: Mapping[PositiveInt, Weights] = field(default_factory=lambda: {1: _ADA_SRSF_MODELS})

    def __post_init__(self) -> None:
        if 1 not in self.by_gpus:
            raise ConfigurationError(f"models.by_gpus has keys {sorted(self.by_gpus)}; expected one to be 1")
        for weights in self.by_gpus.values():
            for name in weights:
                model_id(name)

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """Return the same jobs, each with a model."""
        draws = rng.random(len(jobs))
        ids = np.zeros(len(jobs), dtype=np.int64)
        for gpus in sorted(self.by_gpus):
            weights = self.by_gpus[gpus]
            chosen = np.array([model_id(name) for name in weights])
            edges = np.cumsum(list(weights.values())) / sum(weights.values())
            here = jobs.num_gpus >= gpus
            ids[here] = chosen[np.searchsorted(edges, draws[here], side="right").clip(max=len(chosen) - 1)]
        return jobs.with_models(ids)


@checked("models")
@dataclass(frozen=True)
class UniformCosts:
    """Costs drawn uniformly, for papers that print ranges instead of models.

    Attributes:
        compute_seconds: (low, high) of the GPU seconds of one iteration.
        gradient_bytes: (low, high) of the gradient size.
        draws_per_job: see `GeneratorBatch`.
    """

    draws_per_job = True
    compute_seconds: Annotated[tuple[Positive, Positive], "ascending"]
    gradient_bytes: Annotated[tuple[NonNegative, NonNegative], "ascending"]

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """Return the same jobs, each with its own costs."""
        return replace(
            jobs,
            compute_seconds=rng.uniform(self.compute_seconds[0], self.compute_seconds[1], len(jobs)),
            gradient_bytes=rng.uniform(self.gradient_bytes[0], self.gradient_bytes[1], len(jobs)),
        )
