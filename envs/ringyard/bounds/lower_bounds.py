"""Lower bounds on mean JCT and makespan: how far from the optimum a schedule can be at most."""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.bounds.lagrangian import total_jct_bound
from ringyard.bounds.options import JobOptions, job_options
from ringyard.sim.metrics import Window, measured_rows
from ringyard.sim.simulator import Simulator


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds for any schedule of a job table, in seconds.

    Jobs with an acceptable completion time may be blocked, and means are over the others. The bounds assume
    the choice of blocked jobs with the least mean.
    """

    isolated_mean_jct: float  #: mean of every job isolated, at its fastest allocation, from its arrival on
    #: preemptive shortest-remaining-processing-time (SRPT) of the jobs' GPU seconds on one machine as
    #: fast as all GPUs together
    pooled_mean_jct: float
    dual_mean_jct: float  #: bound with both limits, by Lagrangian duality (`ringyard.bounds.lagrangian`)
    #: from the first arrival to the latest of these: the earliest possible end of each job, and the end
    #: of all jobs from some arrival on if no GPU idles from then on
    makespan: float

    @property
    def mean_jct(self) -> float:
        """The largest of the bounds on mean completion time."""
        return max(self.isolated_mean_jct, self.pooled_mean_jct, self.dual_mean_jct)


def _srpt_mean(submit: NDArray[np.float64], size: NDArray[np.float64]) -> float:
    """Mean JCT of preemptive shortest-remaining-processing-time on one machine."""
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


def _mean_with_blocking(mean: float, required: NDArray[np.bool_], seconds: NDArray[np.float64]) -> float:
    """Mean over the `required` jobs, or over them and the shortest of the others if that is less."""
    if not len(seconds):  # all jobs ran before time 0
        return float("nan")
    count, others = int(required.sum()), np.sort(seconds[~required])
    counts = count + np.arange(len(others) + 1)
    totals = mean * count + np.concatenate([[0.0], np.cumsum(others)])
    first = 0 if count else 1
    return float((totals[first:] / counts[first:]).min())


def _departure_seconds(sim: Simulator) -> NDArray[np.float64]:
    """[jobs] time at which each job leaves, finished or not. inf: none."""
    return sim.state.jobs["cancel_seconds"][0, : len(sim.jobs)].copy()


def isolated_bounds(
    sim: Simulator, options: JobOptions | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least run time and the least GPU seconds of each job of a simulation, in any allocation.

    A GPU that n jobs share counts 1/n. A job that its user withdraws may need no GPU seconds at all.

    Args:
        sim: simulation of the jobs, run or not.
        options: of the jobs. None: `job_options(sim)`.

    Returns:
        [jobs] seconds, and [jobs] GPU seconds.
    """
    options = job_options(sim) if options is None else options
    departure = _departure_seconds(sim)
    seconds = np.minimum(options.least(1.0 / options.rate), departure - sim.jobs.submit_seconds)
    return seconds, np.where(np.isfinite(departure), 0.0, options.least(options.gpus / options.rate))


def simulation_bounds(sim: Simulator, measured: Window = (0.0, 1.0)) -> LowerBounds:
    """Return lower bounds for the jobs of a simulation.

    Args:
        sim: simulation of the jobs, run or not.
        measured: only jobs between these shares in order of arrival count in means, as in
            `sim.metrics.measured_rows`. Bounds on their means ignore the other jobs, which keeps them valid.
            The bound on makespan is of all jobs.

    Raises:
        ConfigurationError: shares out of their range, or no job between them.
    """
    rows = np.arange(len(sim.jobs))[measured_rows(sim.jobs, measured)]
    submit, options = sim.jobs.submit_seconds, job_options(sim)
    seconds, gpu_seconds = isolated_bounds(sim, options)
    work = gpu_seconds / sim.cluster.num_gpus
    required = ~np.isfinite(sim.jobs.acceptable_jct)  # [jobs] a schedule may block the others
    kept = rows[required[rows]]
    means = (0.0, 0.0, 0.0)
    if len(kept):
        cluster, leaves = sim.cluster, _departure_seconds(sim)[kept]
        kinds = cluster.distinct_gpu_types
        columns = [kinds.index(kind) for kind in cluster.gpu_types] or [0] * cluster.num_servers
        # [types + 1] GPUs of each type, then CPU cores (0 if the cluster does not count them)
        capacity = np.append(np.bincount(columns, cluster.gpus_per_server), sum(cluster.cores_per_server))
        total = total_jct_bound(submit[kept], leaves, options.rows(kept), capacity)
        means = (float(seconds[kept].mean()), _srpt_mean(submit[kept], work[kept]), total / len(kept))
    isolated, pooled, dual = (_mean_with_blocking(mean, required[rows], seconds[rows]) for mean in means)
    ends = submit + np.where(required, seconds, 0.0)
    to_come = np.cumsum(np.where(required, work, 0.0)[::-1])[::-1]
    makespan = float(np.maximum(ends, submit + to_come).max() - submit[0])
    return LowerBounds(isolated, pooled, dual, makespan)
