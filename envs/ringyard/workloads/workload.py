"""The protocol of workloads, and models for jobs of traces that name none.

An own workload is a class with `num_jobs` and `sample`:

    class TwoJobs:
        num_jobs = 2

        def sample(self, cluster, rng):
            return JobTable.from_columns([0.0, 10.0], [1, 2], rng.uniform(60.0, 600.0, 2))

A yaml in conf/workload, or in a folder that RINGYARD_CONF names, with `TwoJobs` as `_target_` gives it a name
for the command line.
"""

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
        """Largest number of jobs of a table."""

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode.

        Args:
            cluster: cluster on which they will run. All of them must fit it when it is idle.
            rng: the only source of randomness. Equal generators must give equal tables.

        Returns:
            Jobs in order of submission, the first at 0 s.
        """


class GeneratorBatch:
    """Several random generators behind the interface of one. Each draws the numbers of one table's jobs.

    It has the methods of `numpy.random.Generator` with the number of draws as last argument. Parts of a
    workload that draw one number per job declare it by `draws_per_job = True`.
    """

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self._generators = generators

    def __getattr__(self, name: str) -> Callable[..., NDArray[Any]]:
        def draw(*arguments: Any) -> NDArray[Any]:
            *options, size = arguments
            count = size // len(self._generators)
            return np.concatenate([getattr(one, name)(*options, count) for one in self._generators])

        return draw


def draw_tables(
    workload: Workload, cluster: Cluster, generators: Sequence[np.random.Generator]
) -> tuple[JobTable, list[int]]:
    """Draw a table for each generator, as `Workload.sample` does. Return them joined, and their lengths.

    A workload may have a faster `sample_batch(cluster, generators)`. It returns all tables, `num_jobs` jobs
    each, one after the other, or None if it cannot draw them together.
    """
    together = getattr(workload, "sample_batch", None)
    whole = None if together is None else together(cluster, generators)
    if whole is not None:
        return whole, [workload.num_jobs] * len(generators)
    tables = [workload.sample(cluster, one) for one in generators]
    return JobTable.concatenate(tables), [len(table) for table in tables]


@checked("workload")
def scale_to_load(jobs: JobTable, cluster: Cluster, load: Positive) -> JobTable:
    """Stretch the arrivals of jobs to an offered load.

    Args:
        jobs: jobs with durations.
        cluster: gives the number of GPUs.
        load: GPU seconds / (GPUs x seconds between the first and the last arrival), above 0.

    Raises:
        ConfigurationError: load not above 0.
    """
    span = float(jobs.submit_seconds[-1] - jobs.submit_seconds[0])
    if span == 0:
        return jobs
    wanted = float((jobs.num_gpus * jobs.duration_seconds).sum()) / (load * cluster.num_gpus)
    return jobs.shifted((jobs.submit_seconds - jobs.submit_seconds[0]) * (wanted / span))


class CostAssignment(Protocol):
    """Adds costs per iteration (compute seconds, gradient bytes) to jobs that have none."""

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """Return the same `jobs` with costs per iteration, drawn from `rng`."""


_ADA_SRSF_MODELS = {"vgg16": 1.0, "resnet50": 1.0, "inception_v3": 1.0, "lstm": 1.0}


@checked("models")
@dataclass(frozen=True)
class ModelMix:
    """Models drawn by weights that depend on a job's number of GPUs."""

    draws_per_job = True  # see `GeneratorBatch`
    #: {least GPUs: {model: weight}}. A job uses the largest key not above its GPUs. Default: the four
    #: models of Ada-SRSF's public simulator, equally likely at every size.
    by_gpus: Mapping[PositiveInt, Weights] = field(default_factory=lambda: {1: _ADA_SRSF_MODELS})

    def __post_init__(self) -> None:
        if 1 not in self.by_gpus:
            raise ConfigurationError(f"models.by_gpus has keys {sorted(self.by_gpus)}; expected one to be 1")
        for weights in self.by_gpus.values():
            for name in weights:
                model_id(name)

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """Return the same `jobs`, each with a model drawn from `rng`."""
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
    """Costs drawn uniformly, for papers that state ranges instead of models."""

    draws_per_job = True  # see `GeneratorBatch`
    #: (low, high) compute seconds of one iteration, above 0
    compute_seconds: Annotated[tuple[Positive, Positive], "ascending"]
    #: (low, high) bytes of the gradients, at least 0
    gradient_bytes: Annotated[tuple[NonNegative, NonNegative], "ascending"]

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """Return the same `jobs`, each with costs drawn from `rng`."""
        seconds = rng.uniform(self.compute_seconds[0], self.compute_seconds[1], len(jobs))
        gradients = rng.uniform(self.gradient_bytes[0], self.gradient_bytes[1], len(jobs))
        return replace(jobs, compute_seconds=seconds, gradient_bytes=gradients)
