"""Whether the cluster can hold an allocation: every refusal says what, got, expected and what to do."""

from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Bytes, NonNegativeInt, Positive, require, shown
from ringyard.cluster import Cluster
from ringyard.compiled import Int32Vector, kernel, linked_kernel, to_int
from ringyard.errors import ConfigurationError, PlacementError
from ringyard.placement.availability import parameter_servers_on, sort_ascending, total_demand
from ringyard.resources import NUM_RESOURCES, RESOURCES
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.allocation import collect_places, held_on_server
from ringyard.sim.engine.shape import Shape, amount_per_worker, gpu_memory_needed
from ringyard.state.arrays import State
from ringyard.state.records import DOWN, UNLIMITED_CORES, Job, JobKind, JobStatus, free_on

# what places can be short of
FITS, MEMORY, FIRST_RESOURCE = 0, 1, 2  # FIRST_RESOURCE + r: resource r

#: {what a shape says of a job, and an allocation may: its type}; records have it under the same name
SHAPE_FIELDS: dict[str, type] = {
    name: kind for name, kind in get_type_hints(Shape).items() if name != "num_gpus"
}


class Shortfall(NamedTuple):
    """Why places do not do.

    Attributes:
        what: FITS (nothing is short), MEMORY, or FIRST_RESOURCE + a position in `RESOURCES`.
        where: GPU short of memory, or server short of the resource.
        needed: bytes, or units of the resource.
        there: the same, free for the job.
    """

    what: int
    where: int
    needed: int
    there: int


@kernel
def _server_shortfall(
    state: State, b: int, j: int, s: int, shape: Shape, workers: int, tasks: int
) -> Shortfall:
    job = state.jobs[b, j]
    for r in range(NUM_RESOURCES):
        per_worker = amount_per_worker(job, shape, r)
        needed = total_demand(r, workers, per_worker, tasks, shape.cores_per_server_task)
        if needed > 0:
            free = free_on(state.servers[b, s], r) + held_on_server(state, b, j, s, r)
            if needed > free:
                return Shortfall(to_int(FIRST_RESOURCE + r), to_int(s), to_int(needed), to_int(free))
    return Shortfall(FITS, to_int(s), 0, 0)


@kernel
def _memory_shortfall(state: State, b: int, j: int, g: int, needed: int) -> Shortfall:
    free = state.gpus[b, g].free_memory_bytes
    per_gpu = state.clusters[b].jobs_per_gpu
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        if state.slots[b, i].job == j:
            free += state.jobs[b, j].gpu_memory_bytes
    return Shortfall(MEMORY if needed > free else FITS, to_int(g), to_int(needed), to_int(free))


@linked_kernel
def find_shortfall(state: State, b: int, j: int, shape: Shape, places: Int32Vector) -> Shortfall:
    """Whether job j could have this shape on these places, its own given back.

    Args:
        places: GPUs up and with a free slot (sorted in place), or the server of a CPU-only job.
        (others): as in `lifecycle.apply_allocation`.
    """
    job = state.jobs[b, j]
    if job.kind == JobKind.CPU_ONLY:
        return _server_shortfall(state, b, j, places[0], shape, 1, 0)
    sort_ascending(places, shape.num_gpus)
    memory = gpu_memory_needed(job, shape)
    servers = 0
    for i in range(shape.num_gpus):
        short = _memory_shortfall(state, b, j, places[i], memory)
        if short.what != FITS:
            return short
        if i == 0 or state.gpus[b, places[i]].server != state.gpus[b, places[i - 1]].server:
            servers += 1
    rank = 0
    workers = 0
    for i in range(shape.num_gpus):
        s = state.gpus[b, places[i]].server
        workers += 1
        if i + 1 == shape.num_gpus or state.gpus[b, places[i + 1]].server != s:
            tasks = parameter_servers_on(shape.parameter_servers, servers, rank)
            short = _server_shortfall(state, b, j, s, shape, workers, tasks)
            if short.what != FITS:
                return short
            rank += 1
            workers = 0
    return Shortfall(FITS, 0, 0, 0)


def requested_shape(state: State, b: int, allocation: Allocation) -> tuple[Shape, NDArray[np.int32]]:
    """(shape, places) of an allocation that gives its job places. Fields left open stay as the job has them.

    Returns:
        The shape, and [GPUs] ids or [1] the server of a CPU-only job.
    """
    job = state.jobs[b, allocation.job]
    places = allocation.gpu_ids
    if job["kind"] == JobKind.CPU_ONLY and allocation.server is not None:
        places = (allocation.server,)

    def given(name: str, kind: type) -> Any:
        value = getattr(allocation, name)
        return kind(job[name] if value is None else value)

    shape = Shape(len(allocation.gpu_ids), *(given(name, kind) for name, kind in SHAPE_FIELDS.items()))
    return shape, np.array(places, dtype=np.int32)


def current_allocation(state: State, b: int, j: int) -> Allocation:
    """What job j holds, with nothing left open; () GPUs and no server if it does not run."""
    job = state.jobs[b, j]
    server = int(job["server"])
    shape = {name: kind(job[name]) for name, kind in SHAPE_FIELDS.items()}
    gpu_ids = tuple(gpus_of(state, b, j).tolist())
    return Allocation(j, gpu_ids, server=server if server >= 0 else None, **shape)


#: {what an allocation may leave open: what it may be}
_OPTIONAL_FIELDS = {
    name: Positive if kind is float else NonNegativeInt | None for name, kind in SHAPE_FIELDS.items()
}
_OPTIONAL_FIELDS |= {"server": NonNegativeInt | None, "ram_per_worker": Bytes}


def _check_numbers(allocation: Allocation) -> None:
    """Raise PlacementError for what is no number, or none that records could hold."""
    if not isinstance(allocation, Allocation):
        raise PlacementError(f"an allocation is {shown(allocation)}; expected an Allocation")
    _check_field(allocation, "job", allocation.job, NonNegativeInt)
    for gpu in allocation.gpu_ids:
        _check_field(allocation, "gpu_ids", gpu, NonNegativeInt)
    for name, annotation in _OPTIONAL_FIELDS.items():
        value = getattr(allocation, name)
        if value is not None:
            _check_field(allocation, name, value, annotation)


def _check_field(allocation: Allocation, name: str, value: Any, annotation: object) -> None:
    if type(value) is int and 0 <= value < UNLIMITED_CORES and annotation is not Positive:
        return  # a quick look first
    if type(value) is float and 0 < value < np.inf and annotation is Positive:
        return
    try:
        require(name, value, annotation)
    except ConfigurationError as error:
        raise PlacementError(f"the allocation of job {shown(allocation.job)}: {error}") from None


def _status_name(status: int) -> str:
    return JobStatus(status).name.lower()


def validate_allocation(
    state: State, b: int, cluster: Cluster, allocation: Allocation
) -> tuple[Shape, NDArray[np.int32]] | None:
    """(shape, places) of an allocation, as `requested_shape`; None: it stops or rejects its job.

    Raises:
        PlacementError: it cannot be carried out now.
    """
    _check_numbers(allocation)
    j = allocation.job
    num_jobs = int(state.clusters["num_jobs"][b])
    if not 0 <= j < num_jobs:
        raise PlacementError(f"there is no job {j}; expected a row in 0..{num_jobs - 1}")
    job = state.jobs[b, j]
    status = int(job["status"])
    if status not in (JobStatus.WAITING, JobStatus.RUNNING):
        raise PlacementError(f"job {j} is {_status_name(status)}; only waiting or running jobs take GPUs")
    if allocation.reject:
        if status != JobStatus.WAITING or allocation.gpu_ids or allocation.server is not None:
            raise PlacementError(
                f"job {j} is {_status_name(status)}; only waiting jobs are rejected, without places"
            )
        return None
    if allocation.preempts:
        if status != JobStatus.RUNNING:
            raise PlacementError(f"job {j} waits already; an empty allocation stops a running job")
        return None
    shape, places = requested_shape(state, b, allocation)
    _check_shape(job, j, shape, cluster)
    if job["kind"] == JobKind.CPU_ONLY:
        _check_cpu_job(state, b, cluster, j, allocation)
    else:
        _check_gpus(state, b, cluster, j, allocation)
    _check_capacity(state, b, cluster, j, shape, places)
    return shape, places


def _check_shape(job: Job, j: int, shape: Shape, cluster: Cluster) -> None:
    kind = int(job["kind"])
    low, high = float(job["min_batch"]), float(job["max_batch"])
    if not low <= shape.batch_size <= high:
        raise PlacementError(
            f"job {j} is given a batch of {shape.batch_size:g} samples; expected {low:g} to {high:g}"
        )
    cores, servers, server_cores = (
        shape.cores_per_worker,
        shape.parameter_servers,
        shape.cores_per_server_task,
    )
    cap = shape.memory_bandwidth_cap
    if not 0 < cap <= 1:
        raise PlacementError(f"job {j} is given a memory bandwidth cap of {cap}; expected in (0, 1]")
    if cap < 1 and kind != JobKind.CPU_ONLY:
        raise PlacementError(f"job {j} runs on GPUs; memory bandwidth is capped for CPU-only jobs, got {cap}")
    for number in (cores, server_cores):
        if not 0 <= number < UNLIMITED_CORES:
            raise PlacementError(
                f"job {j} is given {cores} and {server_cores} cores; expected 0 or more each"
            )
    for number, asked in ((cores, "asked_cores"), (server_cores, "asked_cores_per_server_task")):
        if number < 1 and kind != JobKind.CPU_ONLY and job[asked] > 0:
            raise PlacementError(
                f"job {j} is given {number} cores where it asks for {int(job[asked])}; expected 1 or more:"
                " 0 is for jobs whose cores are not counted"
            )
    if kind == JobKind.CPU_ONLY and cores < 1:
        raise PlacementError(f"CPU-only job {j} is given {cores} cores; expected 1 or more")
    if kind == JobKind.PARAMETER_SERVER and servers < 1:
        raise PlacementError(f"job {j} is given {servers} parameter servers; expected 1 or more")
    if kind != JobKind.PARAMETER_SERVER and servers != 0:
        raise PlacementError(f"job {j} is given {servers} parameter servers; it is a ring, it takes none")
    for one in RESOURCES:
        if not one.can_change or getattr(cluster, one.capacity):
            continue
        given = getattr(shape, one.per_worker)
        given += getattr(shape, one.per_server_task) if one.per_server_task else 0
        if given > 0:
            raise PlacementError(
                f"job {j} is given {one.name}, which this cluster does not count; set cluster.{one.capacity}"
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
    if max(gpus) >= cluster.num_gpus:
        raise PlacementError(f"there is no GPU {max(gpus)}; expected 0..{cluster.num_gpus - 1}")
    places = np.array(gpus)
    for gpu in places[state.gpus["num_jobs"][b, places] >= per_gpu].tolist():
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


def _check_capacity(
    state: State, b: int, cluster: Cluster, j: int, shape: Shape, places: NDArray[np.int32]
) -> None:
    what, where, needed, there = find_shortfall(state, b, j, shape, places)
    if what == MEMORY:
        raise PlacementError(
            f"job {j} needs {needed:.3g} bytes on each GPU, GPU {where} has {there:.3g} free;"
            " use a smaller batch, more GPUs, other neighbours or another GPU type"
        )
    if what >= FIRST_RESOURCE:
        one = RESOURCES[what - FIRST_RESOURCE]
        in_all = getattr(cluster, one.capacity)[where]
        raise PlacementError(
            f"job {j} needs {needed:,} {one.unit}{one.name} on server {where}, which has {there:,} of"
            f" {in_all:,} free; give a worker fewer {one.unit}{one.name}, or another server"
        )


def gpus_of(state: State, b: int, j: int) -> NDArray[np.int64]:
    """[workers] GPUs that job j holds, ascending."""
    if state.jobs["kind"][b, j] == JobKind.CPU_ONLY:
        return np.zeros(0, np.int64)
    return state.place_scratch[b, : collect_places(state, b, j, state.place_scratch[b])].astype(np.int64)
