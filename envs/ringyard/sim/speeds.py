"""Speeds of jobs by number of GPUs, as profiling runs alone on consolidated GPUs would show them."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.sim.solo import Profiled, solo_seconds
from ringyard.sim.view import SchedulingView
from ringyard.state.records import Job, JobKind

__all__ = ["BatchRule", "SpeedTable", "fewest_gpus", "speed_table"]


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

    def of(self, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """[jobs, sizes + 1] speeds of these job rows."""
        return self.speed[self.place[jobs]]

    def least_of(self, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """[jobs] speed of these job rows on the fewest GPUs that each can run on."""
        speed = self.of(jobs)
        return speed[np.arange(len(jobs)), np.argmax(speed > 0, axis=1)]

    def allowed_of(self, jobs: NDArray[np.int64]) -> NDArray[np.int64]:
        """[jobs, sizes + 1] largest number of GPUs not above the index on which the job can run."""
        sizes = np.where(self.of(jobs) > 0, np.arange(self.sizes + 1), 0)
        return np.ascontiguousarray(np.maximum.accumulate(sizes, axis=1))

    def batch_of(self, job: int, num_gpus: int) -> float:
        """Global batch of a job on so many GPUs."""
        return float(self.batch[self.place[job], num_gpus])


#: columns that a view's reader must know
_READ = ("base_batch", "asked_gpus", "sample_memory_bytes", "fixed_memory_bytes", "min_gpus", "noise_scale")


def _memory_limit(jobs: Records1[Job], cluster: Cluster) -> NDArray[np.float64]:
    """[n] samples of one worker that fit every GPU type, and at least those the job asks for."""
    least = float(cluster.gpu_memory_bytes.min())
    asked = jobs["base_batch"] / jobs["asked_gpus"]
    each = jobs["sample_memory_bytes"]
    with np.errstate(divide="ignore"):
        fits = np.where(each > 0, (least - jobs["fixed_memory_bytes"]) / each, np.inf)
    return np.maximum(np.floor(fits), asked)


def _fewest(jobs: Records1[Job], cluster: Cluster) -> NDArray[np.int64]:
    hold = np.ceil(jobs["base_batch"] / _memory_limit(jobs, cluster) - 1e-9)
    return np.maximum(jobs["min_gpus"], hold).astype(np.int64)


def fewest_gpus(view: SchedulingView, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n] fewest GPUs on which jobs can run with the batch they ask for (their own limit and the memory's).

    Args:
        view: any moment.
        rows: [n] rows of GPU jobs.
    """
    for name in _READ[:-1]:
        view.check(name)
    return _fewest(view.records(rows), view.cluster)


def speed_table(asked_of: SchedulingView | Profiled, rule: BatchRule, most: int | None = None) -> SpeedTable:
    """The table of every GPU job of the workload; it holds whatever happens, so that one is enough.

    Args:
        asked_of: any moment, or jobs of no simulation.
        rule: the batch on n GPUs.
        most: largest number of GPUs considered; None: the largest any job may use.
    """
    if isinstance(asked_of, SchedulingView):
        for name in _READ:
            asked_of.check(name)
        kind, profiled = asked_of.column("kind"), Profiled.seen(asked_of)
    else:
        kind, profiled = asked_of.jobs["kind"][:-1], asked_of
    rows, cluster = np.flatnonzero(kind != JobKind.CPU_ONLY), profiled.cluster
    records = profiled.jobs[rows]
    limit = min(int(records["max_gpus"].max(initial=1)), cluster.num_gpus)
    if most is not None:  # sizes that jobs ask for stay possible
        limit = min(limit, max(most, int(records["asked_gpus"].max(initial=1))))
    gpus = np.arange(1, limit + 1)
    place = np.full(len(kind), -1)
    place[rows] = np.arange(len(rows))
    low = records["min_batch"][:, None]
    asked = records["base_batch"][:, None]
    high = np.minimum(records["max_batch"][:, None], _memory_limit(records, cluster)[:, None] * gpus[None, :])
    possible = (gpus >= records["min_gpus"][:, None]) & (gpus <= records["max_gpus"][:, None])
    possible &= high >= low
    high = np.maximum(high, low)
    if rule is BatchRule.ASKED:
        possible &= gpus >= _fewest(records, cluster)[:, None]
        tried = np.clip(asked, low, high)[..., None]
    elif rule is BatchRule.PER_GPU:
        tried = np.clip(asked / records["asked_gpus"][:, None] * gpus, low, high)[..., None]
    else:
        steps = np.linspace(0.0, 1.0, CANDIDATES)
        geometric = low[..., None] * (high / low)[..., None] ** steps
        geometric = np.clip(geometric, low[..., None], high[..., None])
        tried = np.concatenate([geometric, np.clip(asked, low, high)[..., None]], axis=2)
    shape = tried.shape
    queries = np.broadcast_to(rows[:, None, None], shape).reshape(-1)
    sizes = np.broadcast_to(gpus[None, :, None], shape).reshape(-1)
    seconds = solo_seconds(profiled, queries, sizes, tried.reshape(-1)).reshape(shape)
    noise, base = records["noise_scale"], records["base_batch"]
    with np.errstate(invalid="ignore"):
        worth = (noise + base)[:, None, None] / (noise[:, None, None] + tried)
    worth = np.where(np.isinf(noise)[:, None, None], 1.0, worth)  # effective per processed sample
    samples = asked[..., None] / seconds / worth
    best = np.argmax(samples if rule is BatchRule.THROUGHPUT else 1.0 / seconds, axis=2)[..., None]

    def chosen(values: NDArray[np.float64]) -> NDArray[np.float64]:
        picked = np.where(possible, np.take_along_axis(values, best, axis=2)[..., 0], 0.0)
        return np.pad(picked, ((0, 0), (1, 0)))

    return SpeedTable(rows, chosen(1.0 / seconds), chosen(tried), chosen(samples), place)
