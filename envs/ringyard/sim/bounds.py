"""Lower bounds no schedule can beat: how far from the best possible a result is at most."""

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatCube, FloatVector, IntVector, Records1, kernel, whole
from ringyard.performance.elastic import progress_per_iteration
from ringyard.sim.engine.physics import Physics, iteration_seconds
from ringyard.sim.engine.shape import Shape, ask, set_shape
from ringyard.sim.metrics import Window, measured_rows
from ringyard.sim.simulator import Simulator
from ringyard.state.on_gpus import least_slowness
from ringyard.state.records import Job, JobKind

__all__ = ["LowerBounds", "bounds_of", "fastest_alone", "lower_bounds"]

_CPU_ONLY = int(JobKind.CPU_ONLY)
_PARAMETER_SERVER = int(JobKind.PARAMETER_SERVER)
_MOST_PARAMETER_SERVERS = 10  # more would be slower or no faster by any published fit (AITurbo's limit)


@dataclass(frozen=True)
class LowerBounds:
    """Bounds for any schedule of a job table, in seconds.

    Jobs with an acceptable completion time may be blocked, and means are over those that are not: the bounds
    take the choice of blocked jobs that gives the least mean.

    Attributes:
        isolated_mean_jct: every job alone, at its fastest feasible allocation, from its arrival on.
        pooled_mean_jct: preemptive shortest-remaining-first of the jobs' GPU seconds on one machine as
            fast as all GPUs together.
        makespan: max of (latest possible end of any job, total GPU seconds / GPUs after the first arrival).
    """

    isolated_mean_jct: float
    pooled_mean_jct: float
    makespan: float

    @property
    def mean_jct(self) -> float:
        """The larger of the two bounds on mean completion time."""
        return max(self.isolated_mean_jct, self.pooled_mean_jct)


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
) -> LowerBounds:
    """Bounds for jobs sorted by submit time.

    Args:
        submit_seconds: [jobs] ascending.
        fastest_seconds: [jobs] shortest possible run time.
        gpu_seconds: [jobs] fewest GPU seconds it can take.
        total_gpus: of the cluster, times the jobs that may share one.
        blockable: [jobs] whether a schedule may do without the job; None: none.
    """
    work = gpu_seconds / total_gpus
    maybe = np.zeros(len(work), np.bool_) if blockable is None else blockable
    sure = ~maybe
    ends = submit_seconds + np.where(sure, fastest_seconds, 0.0)
    alone = fastest_seconds[sure].mean() if sure.any() else 0.0
    return LowerBounds(
        isolated_mean_jct=_least_mean(alone, sure, fastest_seconds),
        pooled_mean_jct=_least_mean(_srpt_mean(submit_seconds[sure], work[sure]), sure, fastest_seconds),
        makespan=max(float(ends.max() - submit_seconds[0]), float(work[sure].sum())),
    )


def _least_mean(mean: float, sure: NDArray[np.bool_], seconds: NDArray[np.float64]) -> float:
    """The mean over the sure jobs, or over them and the shortest of the others if that is less."""
    count, others = int(sure.sum()), np.sort(seconds[~sure])
    counts = count + np.arange(len(others) + 1)
    totals = mean * count + np.concatenate([[0.0], np.cumsum(others)])
    first = 0 if count else 1
    return float((totals[first:] / counts[first:]).min())


@kernel
def _best_seconds(job: Job, j: int, num_servers: int, physics: Physics) -> float:
    """Seconds per iteration alone with its GPUs and batch and the parameter servers it likes best."""
    job.num_servers = num_servers
    job.contenders = 1.0 if num_servers > 1 else 0.0
    best = iteration_seconds(job, j, physics)
    if job.kind == _PARAMETER_SERVER:
        for servers in range(1, _MOST_PARAMETER_SERVERS + 1):
            job.parameter_servers = servers
            best = min(best, iteration_seconds(job, j, physics))
    return best


@kernel
def _best_over_batches(
    job: Job, j: int, gpus: int, num_servers: int, cores: int, slowness: FloatCube, physics: Physics
) -> float:
    """No more than the seconds per base iteration with any batch of the job's range.

    Batches are tried in steps of 1 %; one between two steps takes as long as the lower at least and is
    worth as much as the upper at most.
    """
    best = np.inf
    batch = job.min_batch
    while True:
        set_shape(job, Shape(gpus, batch, cores, whole(job.parameter_servers), 0, 1.0, 0))
        job.gpu_speed = 1.0 / least_slowness(slowness, job)
        seconds = _best_seconds(job, j, num_servers, physics)
        last = batch >= job.max_batch
        batch = min(batch * 1.01, job.max_batch)
        best = min(best, seconds / progress_per_iteration(job.noise_scale, job.base_batch, batch))
        if last:
            return best


@kernel
def _fastest(
    jobs: Records1[Job],
    fewest_servers: IntVector,
    most_cores: int,
    slowness: FloatCube,
    physics: Physics,
    seconds: FloatVector,
    work: FloatVector,
) -> None:
    """Over each job's range of GPUs, of those there are: least seconds and GPU seconds per base iteration."""
    num_gpus = len(fewest_servers) - 1
    for j in range(len(jobs)):
        job = jobs[j]
        cores = most_cores if job.kind == _CPU_ONLY else 0
        seconds[j] = np.inf
        work[j] = np.inf
        for gpus in range(job.min_gpus, min(job.max_gpus, num_gpus) + 1):
            best = _best_over_batches(job, j, gpus, fewest_servers[gpus], cores, slowness, physics)
            seconds[j] = min(seconds[j], best)
            work[j] = min(work[j], best * gpus)
        ask(job)


def fastest_alone(sim: Simulator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[jobs] least seconds and least GPU seconds of each job, whatever it is given.

    A job that its user withdraws may take no work at all.
    """
    jobs = sim.state.jobs[0, : len(sim.jobs)].copy()
    cluster = sim.cluster
    servers = cluster.fewest_servers(np.arange(cluster.num_gpus + 1))
    jobs["storage_seconds_per_byte"] = 0.0
    most_cores = max(cluster.cores_per_server, default=1)
    seconds, work = np.zeros(len(jobs)), np.zeros(len(jobs))
    _fastest(jobs, servers, most_cores, sim.state.slowness, sim.physics, seconds, work)
    seconds = np.minimum(seconds * jobs["total_iterations"], jobs["isolated_seconds"])
    work = np.minimum(work * jobs["total_iterations"], jobs["isolated_seconds"] * jobs["asked_gpus"])
    patience = jobs["cancel_seconds"] - jobs["submit_seconds"]
    return np.minimum(seconds, patience), np.where(np.isfinite(patience), 0.0, work)


def bounds_of(sim: Simulator, measured: Window = (0.0, 1.0)) -> LowerBounds:
    """Bounds for the jobs of a simulation, run or not.

    Args:
        sim: of the jobs.
        measured: shares of the jobs between which they count (`sim.metrics.measured_rows`). Bounds of their
            means are of these jobs alone, as if the others were not there: what those cost them makes the
            bounds looser, never wrong. The makespan's is of all jobs.

    Raises:
        ConfigurationError: no such shares, or no job is between them.
    """
    submit, blockable = sim.jobs.submit_seconds, np.isfinite(sim.jobs.acceptable_jct)
    seconds, work = fastest_alone(sim)
    gpus = sim.cluster.num_gpus * sim.cluster.jobs_per_gpu

    def of(rows: slice) -> LowerBounds:
        return lower_bounds(submit[rows], seconds[rows], work[rows], gpus, blockable[rows])

    whole = of(slice(None))
    return replace(of(measured_rows(len(sim.jobs), measured)), makespan=whole.makespan)
