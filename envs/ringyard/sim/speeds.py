"""Speeds of jobs alone on consolidated GPUs, in any shape, as profiling runs would measure them."""

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
    """Jobs whose speed alone is asked for, and the GPUs they would run on.

    Attributes:
        jobs: [jobs + 1] `Job`, the last row is scratch.
        cluster: its servers.
        slowness: `State.slowness` of its GPU types.
        physics: performance model.
    """

    jobs: Records1[Job]
    cluster: Cluster
    slowness: FloatCube
    physics: Physics

    @classmethod
    def of_view(cls, view: SchedulingView) -> Self:
        """The jobs of a running simulation.

        Raises:
            ObservabilityError: the view's reader did not declare to know speeds.
        """
        view.check("isolated_speeds")
        state, b, physics, _ = unrestricted(view)
        return cls(state.jobs[b], view.cluster, state.slowness, physics)

    @classmethod
    def of_records(cls, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel) -> Self:
        """Jobs that no simulation has, as `prepare_jobs` gives them, or copies of those of one."""
        with_scratch = Job.zeros(len(jobs) + 1)
        with_scratch[:-1] = jobs
        return cls(with_scratch, cluster, slowness_table(cluster), performance.physics)


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
    """Seconds per base iteration of job rows[i] in place places[i], into out[i].

    It has the shape that shapes[i] names, on GPUs of the type; -1: of the job's fastest.
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
    asked: SchedulingView | IsolatedJobs,
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
) -> NDArray[np.float64]:
    """[queries] seconds per iteration of the base batch, alone; None: as the job asks.

    Args:
        asked: the present moment, or jobs of no simulation.
        rows: [queries] rows of GPU jobs.
        num_gpus: [queries] or one number, at least 1, as all that follow.
        batch_size: global, samples.
        cores_per_worker: CPU cores of each worker.
        parameter_servers: of parameter-server jobs.
        cores_per_server_task: cores of each of them.
        gpu_type: position in `Cluster.distinct_gpu_types`; None: the job's fastest.
        num_servers: servers spanned; None: the fewest that hold so many GPUs.
        ram_per_worker: bytes of main memory of each worker.
        storage_readers: workers that read from storage on each of its servers; None: its own.

    Raises:
        ObservabilityError: the view's reader did not declare to know speeds.
    """
    jobs, cluster, slowness, physics = (
        asked if isinstance(asked, IsolatedJobs) else IsolatedJobs.of_view(asked)
    )

    named = (
        num_gpus,
        batch_size,
        cores_per_worker,
        parameter_servers,
        cores_per_server_task,
        None,
        ram_per_worker,
    )
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
    """The global batch of a job on n GPUs, always within the job's range and the GPUs' memory.

    ASKED: what the job asks for, on as many GPUs as can hold it. PER_GPU: the asked batch of each GPU,
    times n. GOODPUT: the one of 16 geometric sizes with most progress per second. THROUGHPUT: the one with
    most samples per second.
    """

    ASKED = "asked"
    PER_GPU = "per_gpu"
    GOODPUT = "goodput"
    THROUGHPUT = "throughput"


#: batch sizes tried by GOODPUT and THROUGHPUT, geometric between the limits (Pollux tries 50)
CANDIDATES = 16


@dataclass(frozen=True)
class SpeedTable:
    """What profiling would show, for some jobs and every number of GPUs.

    Attributes:
        rows: [n] job rows.
        speed: [n, sizes + 1] base iterations per second on g GPUs; 0 where the job cannot run so.
        batch: [n, sizes + 1] global batch there, samples.
        samples: [n, sizes + 1] samples per second there.
        place: [jobs] position of each job row in `rows`, -1 if it is not there.
    """

    rows: NDArray[np.int64]
    speed: NDArray[np.float64]
    batch: NDArray[np.float64]
    samples: NDArray[np.float64]
    place: NDArray[np.int64]

    @property
    def sizes(self) -> int:
        """Largest number of GPUs in the table."""
        return self.speed.shape[1] - 1

    def speeds_of(self, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """[jobs, sizes + 1] speeds of these job rows."""
        return self.speed[self.place[jobs]]

    def min_size_speeds_of(self, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """[jobs] speed of these job rows on the fewest GPUs that each can run on."""
        speed = self.speeds_of(jobs)
        return speed[np.arange(len(jobs)), np.argmax(speed > 0, axis=1)]

    def batch_of(self, job: int, num_gpus: int) -> float:
        """Global batch of a job on so many GPUs."""
        return float(self.batch[self.place[job], num_gpus])


#: [n] by name: records, or their columns that are asked for
_Columns = Records1[Job] | Mapping[str, NDArray[Any]]

#: columns that a view's reader must know
_COLUMNS_READ = (
    "base_batch",
    "asked_gpus",
    "sample_memory_bytes",
    "fixed_memory_bytes",
    "min_gpus",
    "noise_scale",
)


def _memory_limit(jobs: _Columns, cluster: Cluster) -> NDArray[np.float64]:
    """[n] samples of one worker that fit every GPU type, and at least those the job asks for."""
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
    """[n] fewest GPUs on which jobs can run with the batch they ask for (their own limit and the memory's).

    Args:
        view: any moment.
        rows: [n] rows of GPU jobs.
    """
    seen = view.select(rows)
    return _fewest({name: seen.column(name) for name in _COLUMNS_READ[:-1]}, view.cluster)


def _candidates(
    jobs: Records1[Job], gpus: NDArray[np.int64], high: NDArray[np.float64], rule: BatchRule
) -> NDArray[np.float64]:
    """[queries, batches] global batches to be tried for jobs [queries] on so many GPUs, `high` at most."""
    low, asked = jobs["min_batch"][:, None], jobs["base_batch"][:, None]
    high = high[:, None]
    if rule is BatchRule.ASKED:
        return np.clip(asked, low, high)
    if rule is BatchRule.PER_GPU:
        return np.clip(asked / jobs["asked_gpus"][:, None] * gpus[:, None], low, high)
    geometric = low * (high / low) ** np.linspace(0.0, 1.0, CANDIDATES)
    return np.concatenate([np.clip(geometric, low, high), np.clip(asked, low, high)], axis=1)


def _seconds(
    profiled: IsolatedJobs, rows: NDArray[np.int64], gpus: NDArray[np.int64], tried: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[queries, batches] seconds per base iteration; infinite for a batch that is the one before."""
    fresh = np.ones(tried.shape, np.bool_)
    fresh[:, 1:] = tried[:, 1:] != tried[:, :-1]
    which = np.nonzero(fresh)[0]
    seconds = np.full(tried.shape, np.inf)
    seconds[fresh] = isolated_iteration_seconds(profiled, rows[which], gpus[which], tried[fresh])
    return seconds


def _samples(
    jobs: Records1[Job], tried: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[queries, batches] samples per second."""
    noise, base = jobs["noise_scale"][:, None], jobs["base_batch"][:, None]
    with np.errstate(invalid="ignore"):
        worth = np.where(np.isinf(noise), 1.0, (noise + base) / (noise + tried))  # effective per sample
    samples: NDArray[np.float64] = base / seconds / worth
    return samples


def speed_table(
    asked_of: SchedulingView | IsolatedJobs, rule: BatchRule, most: int | None = None
) -> SpeedTable:
    """The table of every GPU job of the workload; it holds whatever happens, so that one is enough.

    Args:
        asked_of: any moment, or jobs of no simulation.
        rule: the batch on n GPUs.
        most: largest number of GPUs considered; None: the largest any job may use.
    """
    if isinstance(asked_of, SchedulingView):
        for name in _COLUMNS_READ:
            asked_of.check(name)
        kind, profiled = asked_of.column("kind"), IsolatedJobs.of_view(asked_of)
    else:
        kind, profiled = asked_of.jobs["kind"][:-1], asked_of
    rows, cluster = np.flatnonzero(kind != JobKind.CPU_ONLY), profiled.cluster
    records = profiled.jobs[rows]
    limit = min(int(records["max_gpus"].max(initial=1)), cluster.num_gpus)
    if most is not None:  # sizes that jobs ask for stay possible
        limit = min(limit, max(most, int(records["asked_gpus"].max(initial=1))))
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
    seconds = _seconds(profiled, rows[which], gpus, tried)
    speeds, samples = 1.0 / seconds, _samples(asking, tried, seconds)
    best = np.argmax(samples if rule is BatchRule.THROUGHPUT else speeds, axis=1)[:, None]

    def chosen(values: NDArray[np.float64]) -> NDArray[np.float64]:
        table = np.zeros(possible.shape)
        table[possible] = np.take_along_axis(values, best, axis=1)[:, 0]
        return table

    return SpeedTable(rows, chosen(speeds), chosen(tried), chosen(samples), place)
