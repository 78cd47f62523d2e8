"""Lower bounds no schedule can beat: how far from the best possible a result is at most."""

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ringyard.bounds.lagrangian import total_jct_bound
from ringyard.bounds.options import JobOptions, job_options
from ringyard.cluster import Cluster
from ringyard.sim.metrics import Window, measured_rows
from ringyard.sim.simulator import Simulator


@dataclass(frozen=True)
class LowerBounds:
    """Bounds for any schedule of a job table, in seconds.

    What a job can do at best, and what it takes then: `ringyard.bounds.options`. Jobs with an acceptable
    completion time may be blocked, and means are over those that are not: the bounds take the choice of
    blocked jobs that gives the least mean.

    Attributes:
        isolated_mean_jct: every job alone, at its fastest feasible allocation, from its arrival on.
        pooled_mean_jct: preemptive shortest-remaining-first of the jobs' GPU seconds on one machine as
            fast as all GPUs together.
        dual_mean_jct: no job is faster than alone, capacity is shared (`ringyard.bounds.lagrangian`).
        makespan: from the first arrival to the latest possible end of any job, or of all jobs from some
            arrival on if no GPU idles from then on.
    """

    isolated_mean_jct: float
    pooled_mean_jct: float
    dual_mean_jct: float
    makespan: float

    @property
    def mean_jct(self) -> float:
        """The largest of the bounds on mean completion time."""
        return max(self.isolated_mean_jct, self.pooled_mean_jct, self.dual_mean_jct)


def _srpt_mean(submit: NDArray[np.float64], size: NDArray[np.float64]) -> float:
    """Mean completion time of preemptive shortest remaining processing time on one machine; 0 of none."""
    if not len(submit):
        return 0.0
    queue: list[float] = []
    total = 0.0
    now = 0.0
    for arrival, work in zip(submit.tolist(), size.tolist(), strict=True):
        while queue and now + queue[0] <= arrival:
            now += heapq.heappop(queue)
            total += now
        if queue:
            heapq.heapreplace(queue, queue[0] - (arrival - now))
        now = arrival
        heapq.heappush(queue, work)
    while queue:
        now += heapq.heappop(queue)
        total += now
    return (total - float(submit.sum())) / len(submit)


def lower_bounds(
    submit_seconds: NDArray[np.float64],
    fastest_seconds: NDArray[np.float64],
    gpu_seconds: NDArray[np.float64],
    total_gpus: int,
    blockable: NDArray[np.bool_] | None = None,
    priced_mean: float = 0.0,
) -> LowerBounds:
    """Bounds for jobs sorted by submit time.

    Args:
        submit_seconds: [jobs] ascending.
        fastest_seconds: [jobs] shortest possible run time.
        gpu_seconds: [jobs] fewest GPU seconds it can take.
        total_gpus: of the cluster.
        blockable: [jobs] whether a schedule may do without the job; None: none.
        priced_mean: the bound by prices of the jobs that are not blockable; 0: not known.
    """
    work = gpu_seconds / total_gpus
    maybe = np.zeros(len(work), np.bool_) if blockable is None else blockable
    sure = ~maybe
    alone = fastest_seconds[sure].mean() if sure.any() else 0.0
    pooled = _srpt_mean(submit_seconds[sure], work[sure])
    isolated_mean, pooled_mean, priced_mean = (
        _mean_with_blocking(mean, sure, fastest_seconds) for mean in (alone, pooled, priced_mean)
    )
    makespan = _makespan_bound(submit_seconds, fastest_seconds, work, sure)
    return LowerBounds(isolated_mean, pooled_mean, priced_mean, makespan)


def _makespan_bound(
    submit: NDArray[np.float64],
    fastest: NDArray[np.float64],
    work: NDArray[np.float64],
    sure: NDArray[np.bool_],
) -> float:
    ends = submit + np.where(sure, fastest, 0.0)
    to_come = np.cumsum(np.where(sure, work, 0.0)[::-1])[::-1]
    return float(np.maximum(ends, submit + to_come).max() - submit[0])


def _mean_with_blocking(mean: float, sure: NDArray[np.bool_], seconds: NDArray[np.float64]) -> float:
    """The mean over the sure jobs, or over them and the shortest of the others if that is less."""
    count, others = int(sure.sum()), np.sort(seconds[~sure])
    counts = count + np.arange(len(others) + 1)
    totals = mean * count + np.concatenate([[0.0], np.cumsum(others)])
    first = 0 if count else 1
    return float((totals[first:] / counts[first:]).min())


def _departure_seconds(sim: Simulator) -> NDArray[np.float64]:
    """[jobs] when each leaves at the latest, done or not; inf: never."""
    leaves: NDArray[np.float64] = sim.state.jobs["cancel_seconds"][0, : len(sim.jobs)].copy()
    return leaves


def _isolated_bounds(sim: Simulator, options: JobOptions) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """As `isolated_bounds`, by options that are known."""
    leaves = _departure_seconds(sim)
    seconds = np.minimum(options.least(1.0 / options.rate), leaves - sim.jobs.submit_seconds)
    return seconds, np.where(np.isfinite(leaves), 0.0, options.least(options.gpus / options.rate))


def isolated_bounds(sim: Simulator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[jobs] least seconds and least GPU seconds of each job, whatever it is given.

    Of a GPU that n jobs share, 1/n counts. A job that its user withdraws may take no work at all.
    """
    return _isolated_bounds(sim, job_options(sim))


def _capacity_of(cluster: Cluster) -> NDArray[np.float64]:
    """[types + 1] GPUs of each type, then CPU cores, 0 if the cluster does not count them."""
    kinds = cluster.distinct_gpu_types
    columns = [kinds.index(kind) for kind in cluster.gpu_types] or [0] * cluster.num_servers
    return np.append(np.bincount(columns, cluster.gpus_per_server), float(sum(cluster.cores_per_server)))


def simulation_bounds(sim: Simulator, measured: Window = (0.0, 1.0)) -> LowerBounds:
    """Bounds for the jobs of a simulation, run or not.

    Args:
        sim: of the jobs.
        measured: shares of the jobs between which they count (`sim.metrics.measured_rows`). Bounds of their
            means are of these jobs alone, as if the others were not there: what those cost them makes the
            bounds looser, never wrong. The makespan's is of all jobs.

    Raises:
        ConfigurationError: no such shares, or no job is between them.
    """
    rows = np.arange(len(sim.jobs))[measured_rows(len(sim.jobs), measured)]
    submit, blockable = sim.jobs.submit_seconds, np.isfinite(sim.jobs.acceptable_jct)
    options, gpus = job_options(sim), sim.cluster.num_gpus
    seconds, work = _isolated_bounds(sim, options)
    sure = rows[~blockable[rows]]
    total = 0.0
    if len(sure):
        leaves = _departure_seconds(sim)
        total = total_jct_bound(submit[sure], leaves[sure], options.rows(sure), _capacity_of(sim.cluster))
    mean = total / max(len(sure), 1)
    found = lower_bounds(submit[rows], seconds[rows], work[rows], gpus, blockable[rows], mean)
    return replace(found, makespan=_makespan_bound(submit, seconds, work / gpus, ~blockable))
