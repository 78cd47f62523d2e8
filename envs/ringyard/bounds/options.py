"""Options of each job: how fast it can run at best with which resources, for the lower bounds.

Whatever a running job holds at some moment of a schedule, one of its options is no slower and uses no more:

* GPU types: the slowest of its GPUs sets the pace. An option as fast as on one type uses GPUs of any type on
  which the job is as fast at some batch of its range. Where gangs split their batch by speed, every type
  counts as the fastest.
* Sharing: beside n - 1 other jobs on its fullest GPU, a worker is slowed by at least n - 1 times the least
  interference of any model of the workload. Each of its GPUs counts at least 1/n, so that the jobs on a GPU
  use no more than the GPU together.
* Servers: any number that can hold the GPUs. Rings share no links.
* Cores: a job that asks for none has what it wants. The workers on its fullest server share that server's.
* Batch: its whole range (`_best_of_batches`).
* Execution plan: the fastest, on the best split over its servers.
* Parameter servers: up to 64, with any number of cores; neither counts as used.
* Memory bandwidth (except a CPU-only job's own), storage, RAM, GPU memory, stragglers, restarts and failures
  are ignored, because they only slow jobs or forbid something.

Assumption: more cores, fewer neighbours and an unshared link slow no job. It holds for all performance models
of this package.
"""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import FloatCube, FloatMatrix, FloatVector, IntVector, Records1, bundle, kernel, to_int
from ringyard.jobs import MOST_PARAMETER_SERVERS
from ringyard.performance.model import Physics, iteration_seconds, progress_per_iteration
from ringyard.performance.plan_table import FASTEST
from ringyard.restart import constant
from ringyard.sim.engine.prepare import prepare_jobs
from ringyard.sim.engine.shape import Shape, set_shape
from ringyard.sim.simulator import Simulator
from ringyard.state.arrays import State
from ringyard.state.gpu_effects import slowness_on
from ringyard.state.records import Job, JobKind

_COARSE_STEP, _FINE_STEP = 1.15, 1.01  # ratios between batches tried
_MOST_KNOWN = 10_000  # number of jobs with options that are kept for other workloads
_COLUMNS = 4
_RATE, _TYPES, _GPUS, _CORES = range(_COLUMNS)

#: fields in which jobs may differ and still have options of equal speed per iteration
_FIELDS_WITHOUT_EFFECT = (
    *("submit_seconds", "total_iterations", "remaining_iterations", "remaining_at_last_stop", "run_seconds"),
    *("isolated_seconds", "row", "demand_class", "outcome", "predictable", "predictable_from", "graph"),
    *("prediction_factor", "loss_curve", "loss_noise", "cancel_seconds", "blocked_seconds"),
    *("attained_service", "deadline_seconds"),
)


@bundle
class JobOptions:
    """Options of jobs."""

    #: [jobs + 1] row of each job's first option. A job's options are sorted by rate, slowest first.
    first: IntVector
    rate: FloatVector  #: [options] share of all its work that the job does per second
    types: IntVector  #: [options] set of GPU types, bit t for type t, any of which it may use. 0: no GPUs.
    gpus: FloatVector  #: [options] GPUs used. A GPU shared by n jobs counts 1/n.
    cores: FloatVector  #: [options] CPU cores used

    def rows(self, jobs: NDArray[np.int64]) -> "JobOptions":
        """Return the options of some `jobs` [n], in this order."""
        counts = np.diff(self.first)[jobs]
        kept = np.concatenate([np.arange(self.first[j], self.first[j + 1]) for j in jobs.tolist()] or [jobs])
        columns = (self.rate[kept], self.types[kept], self.gpus[kept], self.cores[kept])
        return JobOptions(np.cumsum([0, *counts]), *columns)

    def least(self, values: FloatVector) -> NDArray[np.float64]:
        """[jobs] least of the `values` [options] of each job's options."""
        return np.minimum.reduceat(values, self.first[:-1]) if len(values) else values


@bundle
class _Limits:
    """Limits of the cluster, and scratch of one search."""

    fewest_servers: IntVector  #: [GPUs + 1] fewest servers that can hold so many GPUs
    most_servers: int  #: servers of the cluster
    most_cores: int  #: most cores of a server
    counts_cores: bool  #: whether the cluster counts cores
    most_bandwidth: float  #: largest memory bandwidth of a server, bytes per second
    jobs_per_gpu: int  #: most jobs on a GPU
    slowness: FloatCube  #: `State.slowness`
    excess: FloatMatrix  #: [models + 1, GPU types] least relative extra time beside one neighbour
    scan: FloatMatrix  #: [points, 2] batches tried, and seconds of an iteration at each


class _RunShape(NamedTuple):
    """How a job runs."""

    gpus: int  #: number of GPUs
    cores: int  #: cores of each worker. 0: not counted.
    gpu_type: int  #: type of the slowest GPU
    excess: float  #: relative extra time because of neighbours


@kernel
def _parameter_server_seconds(job: Job, j: int, most_cores: int, physics: Physics) -> float:
    """Least seconds of an iteration with any number of parameter servers and cores.

    Seconds are monotonic in the cores of each (`parameter_server.step_seconds`).
    """
    best = np.inf
    for choice in range(3):
        job.cores_per_server_task = (0, 1, most_cores)[choice]
        for servers in range(1, MOST_PARAMETER_SERVERS + 1):
            job.parameter_servers = servers
            best = min(best, iteration_seconds(job, j, physics))
    return best


@kernel
def _seconds(job: Job, j: int, run: _RunShape, batch: float, limits: _Limits, physics: Physics) -> float:
    """Least seconds of an iteration with this `batch`. inf: no server has so many cores."""
    set_shape(job, Shape(run.gpus, batch, run.cores, to_int(job.parameter_servers), 0, 1.0, 0, FASTEST, 1.0))
    job.gpu_speed = 1.0 / slowness_on(limits.slowness, job, run.gpu_type)
    job.sharing_slowdown = 1.0 + run.excess
    best = np.inf
    for servers in range(limits.fewest_servers[run.gpus], min(run.gpus, limits.most_servers) + 1):
        if -(-run.gpus // servers) * run.cores > limits.most_cores:
            continue
        job.num_servers = servers
        job.contenders = 1.0 if servers > 1 else 0.0
        if job.kind == JobKind.PARAMETER_SERVER:
            best = min(best, _parameter_server_seconds(job, j, limits.most_cores, physics))
        else:
            best = min(best, iteration_seconds(job, j, physics))
    return best


@kernel
def _best_of_batches(job: Job, j: int, run: _RunShape, limits: _Limits, physics: Physics) -> float:
    """Lower bound on the seconds per base iteration with any batch of the job's range.

    A batch between two others takes at least as long as the smaller and makes at most the progress of the
    larger. So batches are tried in coarse steps, then in fine ones between points that may have the best.
    """
    points = 0
    batch = job.min_batch
    best = np.inf
    while True:
        seconds = _seconds(job, j, run, batch, limits, physics)
        limits.scan[points, 0] = batch
        limits.scan[points, 1] = seconds
        best = min(best, seconds / progress_per_iteration(job.noise_scale, job.base_batch, batch))
        points += 1
        if batch >= job.max_batch:
            break
        batch = min(batch * _COARSE_STEP, job.max_batch)
    for point in range(points - 1):
        batch = limits.scan[point, 0]
        seconds = limits.scan[point, 1]
        above = limits.scan[point + 1, 0]
        if seconds / progress_per_iteration(job.noise_scale, job.base_batch, above) >= best:
            continue
        while batch < above:
            batch = min(batch * _FINE_STEP, above)
            best = min(best, seconds / progress_per_iteration(job.noise_scale, job.base_batch, batch))
            seconds = _seconds(job, j, run, batch, limits, physics)
    return best


@kernel
def _add(out: FloatMatrix, begin: int, count: int, rate: float, types: int, gpus: float, cores: float) -> int:
    """Append an option unless one since row `begin` is as fast and uses no more. Return the new count."""
    for o in range(begin, count):
        less = out[o, _GPUS] <= gpus and out[o, _CORES] <= cores
        if less and out[o, _RATE] >= rate and out[o, _TYPES] == types:
            return count
    out[count, _RATE] = rate
    out[count, _TYPES] = types
    out[count, _GPUS] = gpus
    out[count, _CORES] = cores
    return count + 1


@kernel
def _types_as_fast(job: Job, run: _RunShape, limits: _Limits) -> int:
    """Set of GPU types on which the job is at least as fast as on that of the `run`, at some batch.

    The ends of the range suffice: the difference is linear in the fixed share, which falls with the batch.
    """
    found = 0
    for end in range(2):
        batch = job.min_batch if end == 0 else job.max_batch
        servers = to_int(job.parameter_servers)
        set_shape(job, Shape(run.gpus, batch, run.cores, servers, 0, 1.0, 0, FASTEST, 1.0))
        slowness = slowness_on(limits.slowness, job, run.gpu_type)
        for other in range(limits.slowness.shape[1]):
            if slowness_on(limits.slowness, job, other) <= slowness:
                found |= 1 << other
    return found


@kernel
def _write_cpu_job_options(job: Job, j: int, limits: _Limits, physics: Physics, out: FloatMatrix) -> int:
    """Write options of a CPU-only job to `out`, rates in base iterations per second. Return their number."""
    count = 0
    for cores in range(1, limits.most_cores + 1):
        job.cores_per_worker = cores
        job.num_servers = 1
        job.bandwidth_slowdown = max(1.0, float(job.memory_bandwidth) * cores / limits.most_bandwidth)
        count = _add(out, 0, count, 1.0 / iteration_seconds(job, j, physics), 0, 0.0, float(cores))
    return count


@kernel
def _write_options(jobs: Records1[Job], j: int, limits: _Limits, physics: Physics, out: FloatMatrix) -> int:
    """Write options of job `j` to `out`, with rates in base iterations per second. Return their number."""
    job = jobs[j]
    if job.kind == JobKind.CPU_ONLY:
        return _write_cpu_job_options(job, j, limits, physics, out)
    counts = limits.counts_cores and job.asked_cores > 0
    most_gpus = min(to_int(job.max_gpus), len(limits.fewest_servers) - 1)
    count = 0
    for gpu_type in range(limits.slowness.shape[1]):
        for neighbours in range(limits.jobs_per_gpu):
            begin = count
            for gpus in range(job.min_gpus, most_gpus + 1):
                types = _types_as_fast(job, _RunShape(gpus, 0, gpu_type, 0.0), limits)
                least = np.inf  # relative extra time beside one neighbour
                for other in range(limits.slowness.shape[1]):
                    if (types >> other) & 1:
                        least = min(least, limits.excess[job.model, other])
                excess = neighbours * least
                taken = gpus / (neighbours + 1.0)
                best = _best_of_batches(job, j, _RunShape(gpus, 0, gpu_type, excess), limits, physics)
                if not counts:
                    count = _add(out, begin, count, 1.0 / best, types, taken, 0.0)
                for cores in range(1, limits.most_cores + 1 if counts else 1):
                    run = _RunShape(gpus, cores, gpu_type, excess)
                    seconds = _best_of_batches(job, j, run, limits, physics)
                    if seconds == np.inf:
                        break
                    count = _add(out, begin, count, 1.0 / seconds, types, taken, float(gpus * cores))
                    if seconds <= best:
                        break
    return count


def _least_excess(state: State, models: NDArray[np.int32], jobs_per_gpu: int) -> NDArray[np.float64]:
    """[models + 1, GPU types] least relative extra time beside a worker of any of these `models`."""
    rows, types = state.slowness.shape[:2]
    if jobs_per_gpu == 1 or not len(models):
        return np.zeros((rows, types))
    if state.pairwise_excess.shape[0] > 0:
        found = np.repeat(state.pairwise_excess[:, models].min(axis=1)[:, None], types, axis=1)
    elif state.sharing_table.shape[1] > 0:
        table = state.sharing_table.reshape(rows, types, -1, 3)
        known = np.isfinite(table[..., :1])
        sensitivity, pressure = np.moveaxis(np.where(known, table[..., 1:], np.inf).min(axis=2), -1, 0)
        found = sensitivity * pressure[models].min(axis=0)
    else:
        found = np.zeros((rows, types))
    return found * (1.0 - 1e-9)  # sums of excesses are rounded (`gpu_effects.summable`)


@functools.lru_cache(maxsize=4)
def _known_options(physics: Physics, limits: tuple[bytes, ...]) -> dict[bytes, NDArray[np.float64]]:
    """Return {record of a job: its options} as found so far, also in other workloads, in equal conditions."""
    return {}


def job_options(sim: Simulator) -> JobOptions:
    """Return the options of the jobs of a simulation, run or not."""
    jobs = prepare_jobs(sim.jobs, sim.cluster, sim.performance, constant(0.0))
    iterations = jobs["remaining_iterations"].copy()
    for name in _FIELDS_WITHOUT_EFFECT:
        jobs[name] = 0
    cluster: Cluster = sim.cluster
    on_gpus = np.unique(jobs["model"][jobs["kind"] != JobKind.CPU_ONLY])
    batches = float((jobs["max_batch"] / jobs["min_batch"]).max())
    slowness = sim.state.slowness
    if jobs["balances_batch"].any():
        slowness = np.broadcast_to(np.nanmin(slowness, axis=1, keepdims=True), slowness.shape).copy()
    limits = _Limits(
        fewest_servers=cluster.fewest_servers(np.arange(cluster.num_gpus + 1)),
        most_servers=cluster.num_servers,
        most_cores=max(cluster.cores_per_server, default=1),
        counts_cores=bool(cluster.cores_per_server),
        most_bandwidth=max(cluster.memory_bandwidth_bytes_per_second, default=np.inf),
        jobs_per_gpu=cluster.jobs_per_gpu,
        slowness=slowness,
        excess=_least_excess(sim.state, on_gpus, cluster.jobs_per_gpu),
        scan=np.zeros((int(np.log(batches) / np.log(_COARSE_STEP)) + 3, 2)),
    )
    sizes = int(np.minimum(jobs["max_gpus"] - jobs["min_gpus"], sim.cluster.num_gpus).max()) + 1
    most_runs = limits.slowness.shape[1] * limits.jobs_per_gpu * sizes
    out = np.zeros((max(most_runs, 1) * limits.most_cores, _COLUMNS))
    conditions = [getattr(limits, name) for name in _Limits.__annotations__ if name != "scan"]
    known = _known_options(sim.physics, tuple(np.asarray(one).tobytes() for one in conditions))
    if len(known) > _MOST_KNOWN:
        known.clear()
    tables = []
    alike = np.asarray(jobs)
    for j in range(len(jobs)):
        key = alike[j].tobytes()
        if key not in known:
            count = _write_options(jobs, j, limits, sim.physics, out)
            known[key] = out[:count][np.argsort(out[:count, _RATE], kind="stable")].copy()
        tables.append(known[key])
    lengths = [len(table) for table in tables]
    options = np.concatenate(tables)
    return JobOptions(
        np.cumsum([0, *lengths]),
        options[:, _RATE] / np.repeat(np.maximum(iterations, 1e-100), lengths),  # there are jobs without work
        options[:, _TYPES].astype(np.int64),
        options[:, _GPUS].copy(),
        options[:, _CORES].copy(),
    )
