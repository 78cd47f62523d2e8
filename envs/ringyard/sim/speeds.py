"""Speeds of jobs by number of GPUs, as profiling runs alone on consolidated GPUs would show them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


#: [n] by name: records, or their columns that are asked for
_Columns = Records1[Job] | Mapping[str, NDArray[Any]]

#: columns that a view's reader must know
_READ = ("base_batch", "asked_gpus", "sample_memory_bytes", "fixed_memory_bytes", "min_gpus", "noise_scale")


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
    seen = view.of(rows)
    return _fewest({name: seen.column(name) for name in _READ[:-1]}, view.cluster)


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
    profiled: Profiled, rows: NDArray[np.int64], gpus: NDArray[np.int64], tried: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[queries, batches] seconds per base iteration; infinite for a batch that is the one before."""
    fresh = np.ones(tried.shape, np.bool_)
    fresh[:, 1:] = tried[:, 1:] != tried[:, :-1]
    which = np.nonzero(fresh)[0]
    seconds = np.full(tried.shape, np.inf)
    seconds[fresh] = solo_seconds(profiled, rows[which], gpus[which], tried[fresh])
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
