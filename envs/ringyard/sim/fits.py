"""Whether the cluster can hold an allocation: every refusal says what, got, expected and what to do."""

from typing import NamedTuple

import numpy as np

from ringyard.cluster import Cluster
from ringyard.errors import PlacementError
from ringyard.sim.allocation import Allocation
from ringyard.state.arrays import State
from ringyard.state.records import DOWN, JobKind, JobStatus

__all__ = ["Shape", "check_allocation", "shape_of"]


class Shape(NamedTuple):
    """An allocation with nothing left open.

    Attributes:
        places: GPU ids, or the server of a CPU-only job.
        batch_size: global, samples.
        cores: cores per worker, parameter servers, cores of each, memory bandwidth cap.
    """

    places: tuple[int, ...]
    batch_size: float
    cores: tuple[int, int, int, float]


def shape_of(state: State, b: int, allocation: Allocation) -> Shape:
    """What the job would hold: what the allocation leaves open stays as the job's record has it."""
    job = state.jobs[b, allocation.job]

    def given(value: float | None, name: str) -> float:
        return float(job[name]) if value is None else value

    places = allocation.gpu_ids
    if job["kind"] == JobKind.CPU_ONLY and allocation.server is not None:
        places = (allocation.server,)
    return Shape(
        places,
        given(allocation.batch_size, "batch_size"),
        (
            int(given(allocation.cores_per_worker, "cores_per_worker")),
            int(given(allocation.parameter_servers, "parameter_servers")),
            int(given(allocation.cores_per_server_task, "cores_per_server_task")),
            float(given(allocation.memory_bandwidth_cap, "memory_bandwidth_cap")),
        ),
    )


def check_allocation(state: State, b: int, cluster: Cluster, allocation: Allocation) -> None:
    """Raise PlacementError unless the allocation can be carried out now."""
    j = allocation.job
    num_jobs = int(state.clusters["num_jobs"][b])
    if not 0 <= j < num_jobs:
        raise PlacementError(f"there is no job {j}; expected a row in 0..{num_jobs - 1}")
    job = state.jobs[b, j]
    status = JobStatus(int(job["status"]))
    if status not in (JobStatus.WAITING, JobStatus.RUNNING):
        raise PlacementError(f"job {j} is {status.name.lower()}; only waiting or running jobs take GPUs")
    if allocation.reject:
        if status is not JobStatus.WAITING or allocation.gpu_ids or allocation.server is not None:
            raise PlacementError(
                f"job {j} is {status.name.lower()}; only waiting jobs are rejected, without places"
            )
        return
    if allocation.stops:
        if status is not JobStatus.RUNNING:
            raise PlacementError(f"job {j} waits already; an empty allocation stops a running job")
        return
    shape = shape_of(state, b, allocation)
    _check_shape(job, j, shape, cluster)
    if job["kind"] == JobKind.CPU_ONLY:
        _check_cpu_job(state, b, cluster, j, allocation)
    else:
        _check_gpus(state, b, cluster, j, allocation)
    _check_room(state, b, cluster, j, shape)


def _check_shape(job: np.void, j: int, shape: Shape, cluster: Cluster) -> None:
    low, high = float(job["min_batch"]), float(job["max_batch"])
    if not low <= shape.batch_size <= high:
        raise PlacementError(
            f"job {j} is given a batch of {shape.batch_size:g} samples; expected {low:g} to {high:g}"
        )
    cores, servers, server_cores, cap = shape.cores
    if not 0 < cap <= 1:
        raise PlacementError(f"job {j} is given a memory bandwidth cap of {cap}; expected in (0, 1]")
    if cap < 1 and job["kind"] != JobKind.CPU_ONLY:
        raise PlacementError(f"job {j} runs on GPUs; memory bandwidth is capped for CPU-only jobs, got {cap}")
    if cores < 0 or server_cores < 0:
        raise PlacementError(f"job {j} is given {cores} and {server_cores} cores; expected 0 or more")
    if job["kind"] == JobKind.CPU_ONLY and cores < 1:
        raise PlacementError(f"CPU-only job {j} is given {cores} cores; expected 1 or more")
    if job["kind"] == JobKind.PARAMETER_SERVER and servers < 1:
        raise PlacementError(f"job {j} is given {servers} parameter servers; expected 1 or more")
    if job["kind"] != JobKind.PARAMETER_SERVER and servers > 0:
        raise PlacementError(f"job {j} is given {servers} parameter servers; it is a ring, it takes none")
    if not cluster.cores_per_server and job["kind"] != JobKind.CPU_ONLY and cores + server_cores > 0:
        raise PlacementError(
            f"job {j} is given cores, which this cluster does not count; set cluster.cores_per_server"
        )


def _check_cpu_job(state: State, b: int, cluster: Cluster, j: int, allocation: Allocation) -> None:
    if allocation.gpu_ids:
        raise PlacementError(f"job {j} is CPU-only; give it a server and no GPUs, got {allocation.gpu_ids}")
    server = allocation.server
    if server is None or not 0 <= server < cluster.num_servers:
        raise PlacementError(f"there is no server {server}; expected 0..{cluster.num_servers - 1}")
    if not state.servers["up"][b, server]:
        raise PlacementError(f"job {j} asks for server {server}, which is down; wait for its repair")


def _check_gpus(state: State, b: int, cluster: Cluster, j: int, allocation: Allocation) -> None:
    gpus = allocation.gpu_ids
    job = state.jobs[b, j]
    low, high = int(job["min_gpus"]), int(job["max_gpus"])
    if allocation.server is not None:
        raise PlacementError(f"job {j} runs on GPUs; name gpu_ids, not server {allocation.server}")
    if not low <= len(gpus) <= high:
        asked = f"{low} GPUs" if low == high else f"{low} to {high} GPUs"
        raise PlacementError(f"job {j} asks for {asked}, the allocation names {len(gpus)}")
    if len(set(gpus)) != len(gpus):
        raise PlacementError(f"the allocation of job {j} names a GPU twice: {gpus}")
    per_gpu = cluster.jobs_per_gpu
    for gpu in gpus:
        if not 0 <= gpu < cluster.num_gpus:
            raise PlacementError(f"there is no GPU {gpu}; expected 0..{cluster.num_gpus - 1}")
        server = int(cluster.server_of_gpu[gpu])
        if state.gpus["num_jobs"][b, gpu] >= DOWN:
            raise PlacementError(f"job {j} asks for GPU {gpu} of server {server}, which is down")
        holders = [int(k) for k in state.slots["job"][b, gpu * per_gpu : (gpu + 1) * per_gpu] if k >= 0]
        if j not in holders and len(holders) == per_gpu:
            free = int(state.servers["free_gpus"][b, server])
            held = ", ".join(map(str, holders))
            raise PlacementError(
                f"job {j} asks for GPU {gpu}, held by job {held} (server {server} has {free} free);"
                " preempt first or choose another"
            )


def _check_room(state: State, b: int, cluster: Cluster, j: int, shape: Shape) -> None:
    """Memory and cores, with what the job holds now given back."""
    job = state.jobs[b, j]
    places = np.array(shape.places)
    cpu_only = job["kind"] == JobKind.CPU_ONLY
    if not cpu_only:
        memory = float(job["fixed_memory_bytes"])
        memory += float(job["sample_memory_bytes"]) * shape.batch_size / len(places)
        held = np.isin(places, gpus_of(state, b, j, cluster.jobs_per_gpu))
        free = state.gpus["free_memory_bytes"][b, places] + held * int(job["gpu_memory_bytes"])
        if (np.ceil(memory) > free).any():
            worst = int(places[np.argmin(free)])
            raise PlacementError(
                f"job {j} needs {memory:.3g} bytes on each GPU, GPU {worst} has {int(free.min()):.3g} free;"
                " use a smaller batch, more GPUs, other neighbours or another GPU type"
            )
    if not cluster.cores_per_server:
        return
    servers = places if cpu_only else cluster.server_of_gpu[np.sort(places)]
    need = core_demand(servers, shape.cores, cluster.num_servers)
    spare = state.servers["free_cores"][b] + held_cores(state, b, j, cluster)
    if (need > spare).any():
        s = int(np.flatnonzero(need > spare)[0])
        raise PlacementError(
            f"job {j} needs {need[s]} cores on server {s}, which has {spare[s]} of"
            f" {cluster.cores_per_server[s]} free; give fewer cores per worker or another server"
        )


def gpus_of(state: State, b: int, j: int, jobs_per_gpu: int) -> np.ndarray:
    """[workers] GPUs that job j holds, ascending."""
    return np.flatnonzero(state.slots["job"][b] == j) // jobs_per_gpu


def core_demand(servers: np.ndarray, cores: tuple[int, int, int, float], num_servers: int) -> np.ndarray:
    """[servers] cores taken on each by workers on `servers` [workers, ascending] and parameter servers."""
    demand = np.bincount(servers, minlength=num_servers) * cores[0]
    distinct = np.unique(servers)
    if not len(distinct):
        return demand
    tasks = np.full(len(distinct), cores[1] // len(distinct))
    tasks[: cores[1] % len(distinct)] += 1
    demand[distinct] += tasks * cores[2]
    return demand


def held_cores(state: State, b: int, j: int, cluster: Cluster) -> np.ndarray:
    """[servers] cores that job j holds now."""
    job = state.jobs[b, j]
    if job["status"] != JobStatus.RUNNING:
        return np.zeros(cluster.num_servers, dtype=np.int64)
    if job["kind"] == JobKind.CPU_ONLY:
        servers = np.array([job["server"]] if job["server"] >= 0 else [], dtype=np.int64)
    else:
        servers = cluster.server_of_gpu[gpus_of(state, b, j, cluster.jobs_per_gpu)]
    cores = (
        int(job["cores_per_worker"]),
        int(job["parameter_servers"]),
        int(job["cores_per_server_task"]),
        1.0,
    )
    return core_demand(servers, cores, cluster.num_servers)
