"""Speeds of jobs that run alone on consolidated GPUs, in any shape, as profiling would measure them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import FloatCube, FloatMatrix, FloatVector, IntVector, Records1, kernel
from ringyard.performance import PerformanceModel
from ringyard.performance.model import Physics
from ringyard.sim.engine.co_location import PlacementContext, isolated_contexts, seconds_in_context
from ringyard.sim.engine.setup import slowness_table
from ringyard.sim.engine.shape import asked_shape, override_shape, set_shape
from ringyard.sim.view import SchedulingView, unrestricted
from ringyard.state.gpu_effects import min_slowness, slowness_on
from ringyard.state.records import Job, JobKind


class IsolatedJobs(NamedTuple):
    """Jobs to profile, and the GPUs that they would run on."""

    jobs: Records1[Job]  #: [jobs + 1] job records. The last row is scratch.
    cluster: Cluster  #: servers and GPUs
    slowness: FloatCube  #: `State.slowness` of the cluster's GPU types
    physics: Physics  #: performance model

    @classmethod
    def of_view(cls, view: SchedulingView) -> Self:
        """Return the jobs of a running simulation.

        Raises:
            ObservabilityError: SPEEDS is not declared.
        """
        view.check("isolated_speeds")
        state, b, physics, _ = unrestricted(view)
        return cls(state.jobs[b], view.cluster, state.slowness, physics)

    @classmethod
    def of_records(cls, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel) -> Self:
        """Return `jobs`, [jobs] records or copies, with a `cluster` and a `performance` model."""
        with_scratch = Job.zeros(len(jobs) + 1)
        with_scratch[:-1] = jobs
        return cls(with_scratch, cluster, slowness_table(cluster), performance.physics)

    def on_type(self, gpu_type: str) -> Self:
        """Return the jobs on the servers of one of `Cluster.distinct_gpu_types`."""
        full = self.cluster
        here = [s for s, kind in enumerate(full.gpu_types) if kind == gpu_type]
        gpus = tuple(full.gpus_per_server[s] for s in here)
        storage = full.storage_bytes_per_second and tuple(full.storage_bytes_per_second[s] for s in here)
        part = Cluster(gpus, (gpu_type,) * len(here), storage_bytes_per_second=storage)
        return self._replace(cluster=part, slowness=slowness_table(part))


@kernel
def _write_isolated_seconds(
    jobs: Records1[Job],
    slowness: FloatCube,
    rows: IntVector,
    shapes: FloatMatrix,
    places: Records1[PlacementContext],
    gpu_type: int,
    physics: Physics,
    out: FloatVector,
) -> None:
    """Write seconds per base iteration of job rows[i] in shapes[i] (`override_shape`) to out[i].

    `places[i]` is its context on `gpu_type`, -1: the job's fastest. Others are as in `IsolatedJobs`.
    """
    scratch = jobs[len(jobs) - 1]
    for i in range(len(rows)):
        if i == 0 or rows[i] != rows[i - 1]:
            jobs[len(jobs) - 1] = jobs[rows[i]]
        set_shape(scratch, override_shape(asked_shape(scratch), shapes[i], True))
        scratch.straggler = 1.0
        if gpu_type < 0:
            places[i].gpu_speed = 1.0 / min_slowness(slowness, scratch)
        else:
            places[i].gpu_speed = 1.0 / slowness_on(slowness, scratch, gpu_type)
        out[i] = seconds_in_context(scratch, rows[i], places[i], physics)


def isolated_iteration_seconds(
    source: SchedulingView | IsolatedJobs,
    rows: NDArray[np.int64],
    num_gpus: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    cores_per_worker: ArrayLike | None = None,
    parameter_servers: ArrayLike | None = None,
    cores_per_server_task: ArrayLike | None = None,
    gpu_type: int | None = None,
    num_servers: ArrayLike | None = None,
    ram_per_worker: ArrayLike | None = None,
    storage_readers: ArrayLike | None = None,
    plan: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Return [queries] seconds per iteration of the base batch of jobs that run alone.

    Arguments that are None are as the job asks. Those from `num_gpus` on are [queries] or one number.

    Args:
        source: a running simulation, or jobs outside of one.
        rows: [queries] rows of GPU jobs.
        num_gpus: number of GPUs, at least 1.
        batch_size: global batch in samples.
        cores_per_worker: CPU cores of each worker.
        parameter_servers: number of parameter servers.
        cores_per_server_task: CPU cores of each parameter server.
        gpu_type: one position in `Cluster.distinct_gpu_types`. None: the fastest type for each job.
        num_servers: servers spanned. None: the fewest that hold so many GPUs.
        ram_per_worker: bytes of main memory of each worker.
        storage_readers: workers that read from storage on each of its servers. None: only the job's own.
        plan: execution plan. None: the plan asked for on as many GPUs as asked, else the fastest.

    Raises:
        ObservabilityError: SPEEDS is not declared.
    """
    profiled = source if isinstance(source, IsolatedJobs) else IsolatedJobs.of_view(source)
    jobs, cluster, slowness, physics = profiled

    servers = parameter_servers, cores_per_server_task, None
    named = (num_gpus, batch_size, cores_per_worker, *servers, ram_per_worker, plan, None)
    shapes = np.full((len(rows), len(named)), np.nan)
    for column, value in enumerate(named):
        if value is not None:
            shapes[:, column] = value
    sizes = jobs["asked_gpus"][rows] if num_gpus is None else shapes[:, 0]
    spans = None if num_servers is None else np.asarray(num_servers, dtype=np.int64)
    places = isolated_contexts(cluster, sizes.astype(np.int64), spans, storage_readers)
    out = np.zeros(len(rows))
    kind = -1 if gpu_type is None else gpu_type
    _write_isolated_seconds(jobs, slowness, rows.astype(np.int64), shapes, places, kind, physics, out)
    return out


class BatchRule(StrEnum):
    """The global batch of a job on n GPUs, within the job's range and the GPUs' memory.

    ASKED: what the job asks for, on as many GPUs as can hold it. PER_GPU: the asked batch per GPU, times n.
    GOODPUT: the one of 16 geometric sizes with most progress per second. THROUGHPUT: the one with most
    samples per second.
    """

    ASKED = "asked"
    PER_GPU = "per_gpu"
    GOODPUT = "goodput"
    THROUGHPUT = "throughput"


CANDIDATES = 16  #: batches tried by GOODPUT and THROUGHPUT, geometric between the limits (Pollux tries 50)


@dataclass(frozen=True)
class SpeedTable:
    """Profiles of some jobs for each number of GPUs."""

    rows: NDArray[np.int64]  #: [n] job rows
    #: [n, sizes + 1] base iterations per second on g GPUs. 0 where the job cannot run so.
    speed: NDArray[np.float64]
    batch: NDArray[np.float64]  #: [n, sizes + 1] global batch in samples
    samples: NDArray[np.float64]  #: [n, sizes + 1] samples per second
    place: NDArray[np.int64]  #: [jobs] row of this table for each job row, -1 if it has none

    @property
    def sizes(self) -> int:
        """Largest number of GPUs in the table."""
        return self.speed.shape[1] - 1

    def speeds_of(self, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return [jobs, sizes + 1] speeds of the job rows `jobs`."""
        return self.speed[self.place[jobs]]

    def min_size_speeds_of(self, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return [jobs] speeds of the job rows `jobs` on the fewest GPUs that each can run on."""
        speed = self.speeds_of(jobs)
        return speed[np.arange(len(jobs)), np.argmax(speed > 0, axis=1)]

    def batch_of(self, job: int, num_gpus: int) -> float:
        """Return the global batch of `job` on `num_gpus` GPUs, in samples."""
        return float(self.batch[self.place[job], num_gpus])


_Columns = Records1[Job] | Mapping[str, NDArray[Any]]  #: records, or a mapping of their columns

#: columns that must be declared
_MEMORY = ("sample_memory_bytes", "fixed_memory_bytes")
_COLUMNS_READ = ("base_batch", "asked_gpus", *_MEMORY, "min_gpus", "noise_scale")


def _memory_limit(jobs: _Columns, cluster: Cluster) -> NDArray[np.float64]:
    """Return [n] samples per worker that fit all GPU types, at least what the job asks for."""
    least = float(cluster.gpu_memory_bytes.min())
    asked = jobs["base_batch"] / jobs["asked_gpus"]
    each = jobs["sample_memory_bytes"]
    with np.errstate(divide="ignore"):
        fits = np.where(each > 0, (least - jobs["fixed_memory_bytes"]) / each, np.inf)
    return np.maximum(np.floor(fits), asked)


def _fewest(jobs: _Columns, cluster: Cluster) -> NDArray[np.int64]:
    hold = np.ceil(jobs["base_batch"] / _memory_limit(jobs, cluster) - 1e-9)
    return np.maximum(jobs["min_gpus"], hold).astype(np.int64)


def fewest_gpus(view: SchedulingView, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [n] fewest GPUs on which jobs can run with their asked batch, by their range and GPU memory.

    Args:
        view: any moment of the simulation.
        rows: [n] rows of GPU jobs.
    """
    seen = view.select(rows)
    return _fewest({name: seen.column(name) for name in _COLUMNS_READ[:-1]}, view.cluster)


def _candidates(
    jobs: Records1[Job], gpus: NDArray[np.int64], high: NDArray[np.float64], rule: BatchRule
) -> NDArray[np.float64]:
    """Return [queries, batches] global batches to try for jobs [queries] on `gpus` GPUs, at most `high`."""
    low, asked = jobs["min_batch"][:, None], jobs["base_batch"][:, None]
    high = high[:, None]
    if rule is BatchRule.ASKED:
        return np.clip(asked, low, high)
    if rule is BatchRule.PER_GPU:
        return np.clip(asked / jobs["asked_gpus"][:, None] * gpus[:, None], low, high)
    geometric = low * (high / low) ** np.linspace(0.0, 1.0, CANDIDATES)
    return np.concatenate([np.clip(geometric, low, high), np.clip(asked, low, high)], axis=1)


def _seconds(
    profiled: IsolatedJobs,
    rows: NDArray[np.int64],
    gpus: NDArray[np.int64],
    tried: NDArray[np.float64],
    plan: int | None,
) -> NDArray[np.float64]:
    """Return [queries, batches] seconds per base iteration, infinite where a batch repeats."""
    fresh = np.ones(tried.shape, np.bool_)
    fresh[:, 1:] = tried[:, 1:] != tried[:, :-1]
    which = np.nonzero(fresh)[0]
    seconds = np.full(tried.shape, np.inf)
    seconds[fresh] = isolated_iteration_seconds(profiled, rows[which], gpus[which], tried[fresh], plan=plan)
    return seconds


def _samples(
    jobs: Records1[Job], tried: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return [queries, batches] processed samples per second."""
    noise, base = jobs["noise_scale"][:, None], jobs["base_batch"][:, None]
    with np.errstate(invalid="ignore"):
        worth = np.where(np.isinf(noise), 1.0, (noise + base) / (noise + tried))  # statistical efficiency
    return base / seconds / worth


def speed_table(
    source: SchedulingView | IsolatedJobs,
    rule: BatchRule,
    max_gpus: int | None = None,
    plan: int | None = None,
) -> SpeedTable:
    """Return the profiles of all GPU jobs of the workload. They do not change, so that one table is enough.

    Args:
        source: any moment of a simulation, or jobs outside of one.
        rule: the batch on n GPUs.
        max_gpus: largest number of GPUs profiled. Sizes that jobs ask for are always included. None: the
            largest that any job may use.
        plan: execution plan, as in `isolated_iteration_seconds`.
    """
    if isinstance(source, SchedulingView):
        for name in _COLUMNS_READ:
            source.check(name)
        kind, profiled = source.column("kind"), IsolatedJobs.of_view(source)
    else:
        kind, profiled = source.jobs["kind"][:-1], source
    rows, cluster = np.flatnonzero(kind != JobKind.CPU_ONLY), profiled.cluster
    records = profiled.jobs[rows]
    limit = min(int(records["max_gpus"].max(initial=1)), cluster.num_gpus)
    if max_gpus is not None:
        limit = min(limit, max(max_gpus, int(records["asked_gpus"].max(initial=1))))
    place = np.full(len(kind), -1)
    place[rows] = np.arange(len(rows))
    every = np.arange(limit + 1)
    held = _memory_limit(records, cluster)[:, None] * np.maximum(every, 1)
    high = np.minimum(records["max_batch"][:, None], held)
    possible = (every >= records["min_gpus"][:, None]) & (every <= records["max_gpus"][:, None])
    possible &= (high >= records["min_batch"][:, None]) & (every > 0)
    if rule is BatchRule.ASKED:
        possible &= every >= _fewest(records, cluster)[:, None]
    which, gpus = np.nonzero(possible)  # [queries]
    asking = records[which]
    tried = _candidates(asking, gpus, high[possible], rule)
    seconds = _seconds(profiled, rows[which], gpus, tried, plan)
    speeds, samples = 1.0 / seconds, _samples(asking, tried, seconds)
    best = np.argmax(samples if rule is BatchRule.THROUGHPUT else speeds, axis=1)[:, None]

    def chosen(values: NDArray[np.float64]) -> NDArray[np.float64]:
        table = np.zeros(possible.shape)
        table[possible] = np.take_along_axis(values, best, axis=1)[:, 0]
        return table

    return SpeedTable(rows, chosen(speeds), chosen(tried), chosen(samples), place)
