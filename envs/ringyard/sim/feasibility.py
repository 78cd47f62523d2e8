"""Feasibility of allocations: whether the cluster can hold one now, and an error that says why not."""

from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Bytes, NonNegativeInt, Positive, require, shown
from ringyard.cluster import Cluster
from ringyard.compiled import Int32Vector, kernel, linked_kernel, to_int
from ringyard.errors import ConfigurationError, PlacementError
from ringyard.jobs import MOST_PARAMETER_SERVERS
from ringyard.performance.plan_table import FASTEST, PlanTable
from ringyard.placement.availability import parameter_servers_on, sort_ascending, total_demand
from ringyard.resources import NUM_RESOURCES, RESOURCES
from ringyard.sim.allocation import Allocation, LinkShare
from ringyard.sim.engine.allocation import collect_places, held_on_server
from ringyard.sim.engine.shape import Shape, amount_per_worker, gpu_memory_needed
from ringyard.state.arrays import State
from ringyard.state.records import DOWN, UNLIMITED_CORES, Job, JobKind, JobStatus, free_on

#: values of `Shortfall.cause`. FIRST_RESOURCE + r stands for resource r
FITS, MEMORY, FIRST_RESOURCE = 0, 1, 2

#: {field: type} of a `Shape`, except for num_gpus. Allocations and job records have fields of these names
_HINTS = get_type_hints(Shape)
SHAPE_FIELDS: dict[str, type] = {name: _HINTS[name] for name in _HINTS if name != "num_gpus"}
shape_values = attrgetter(*SHAPE_FIELDS)

_SHAPE_RECORD = Job.dtype[list(SHAPE_FIELDS)]  #: the part of a job's record that is its shape


class Shortfall(NamedTuple):
    """What a set of places has too little of for a job."""

    cause: int  #: FITS (nothing is short), MEMORY (of a GPU), or FIRST_RESOURCE + position in `RESOURCES`
    place: int  #: id of the GPU short of memory, or of the server short of the resource
    needed: int  #: bytes, or units of the resource
    available: int  #: the same, free for the job


@kernel
def _server_shortfall(
    state: State, b: int, j: int, s: int, shape: Shape, workers: int, tasks: int
) -> Shortfall:
    """Return what server `s` is short of if job `j`, moved there, puts `workers` and `tasks` on it."""
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
    """Return whether GPU `g` is short of memory for `needed` bytes of job `j` of cluster `b` of `state`."""
    free = state.gpus[b, g].free_memory_bytes
    per_gpu = state.clusters[b].jobs_per_gpu
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        if state.slots[b, i].job == j:
            free += state.jobs[b, j].gpu_memory_bytes
    return Shortfall(MEMORY if needed > free else FITS, to_int(g), to_int(needed), to_int(free))


@linked_kernel
def find_shortfall(state: State, b: int, j: int, shape: Shape, places: Int32Vector) -> Shortfall:
    """Return what is too little for job `j` of cluster `b` of `state` to have `shape` on `places`.

    What the job holds now counts as free. `places` are GPUs that are up and have a free slot, which are
    sorted in place, or the server of a CPU-only job.
    """
    job = state.jobs[b, j]
    if job.kind == JobKind.CPU_ONLY:
        return _server_shortfall(state, b, j, places[0], shape, 1, 0)
    sort_ascending(places, shape.num_gpus)
    memory = gpu_memory_needed(job, shape)
    servers = 0
    for i in range(shape.num_gpus):
        short = _memory_shortfall(state, b, j, places[i], memory)
        if short.cause != FITS:
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
            if short.cause != FITS:
                return short
            rank += 1
            workers = 0
    return Shortfall(FITS, 0, 0, 0)


def requested_shape(state: State, b: int, allocation: Allocation) -> tuple[Shape, NDArray[np.int32]]:
    """Return the shape that an allocation asks for, else as the job has it, and [GPUs] ids or [1] server."""
    job: Any = state.jobs[b, allocation.job]
    cpu_only = allocation.server is not None and int(job["kind"]) == JobKind.CPU_ONLY
    places = (allocation.server,) if cpu_only else allocation.gpu_ids
    present = job.view(_SHAPE_RECORD).item()
    planned = allocation.plan is None and int(job["plan_model"]) >= 0
    if planned and len(allocation.gpu_ids) != int(job["num_gpus"]):
        allocation = replace(allocation, plan=FASTEST)
    given = zip(SHAPE_FIELDS.values(), shape_values(allocation), present, strict=True)
    values = [own if value is None else kind(value) for kind, value, own in given]
    return Shape(len(allocation.gpu_ids), *values), np.array(places, dtype=np.int32)


def current_allocation(state: State, b: int, j: int) -> Allocation:
    """Return what job `j` of cluster `b` of `state` holds. No GPUs and no server if it does not run."""
    job: Any = state.jobs[b, j]
    server = int(job["server"])
    shape = dict(zip(SHAPE_FIELDS, job.view(_SHAPE_RECORD).item(), strict=True))
    gpu_ids = tuple(gpus_of(state, b, j).tolist())
    return Allocation(j, gpu_ids, server=server if server >= 0 else None, **shape)


#: {field of an allocation that may be None: annotation of its values}
_OPTIONAL_FIELDS = {n: Positive if k is float else NonNegativeInt | None for n, k in SHAPE_FIELDS.items()}
_OPTIONAL_FIELDS |= {"server": NonNegativeInt | None, "ram_per_worker": Bytes, "link_share": LinkShare}
_optional_values = attrgetter(*_OPTIONAL_FIELDS)
_REAL_FIELDS = {name for name, kind in SHAPE_FIELDS.items() if kind is float}


def _check_numbers(allocation: Allocation) -> None:
    """Raise PlacementError unless the fields of an allocation are numbers that records can hold."""
    if not isinstance(allocation, Allocation):
        raise PlacementError(f"allocations contains {shown(allocation)}; expected an Allocation")
    _check_field(allocation, "job", allocation.job, NonNegativeInt)
    gpus = allocation.gpu_ids
    if gpus and (set(map(type, gpus)) != {int} or min(gpus) < 0 or max(gpus) >= UNLIMITED_CORES):
        for gpu in gpus:
            _check_field(allocation, "gpu_ids", gpu, NonNegativeInt)
    for (name, annotation), value in zip(_OPTIONAL_FIELDS.items(), _optional_values(allocation), strict=True):
        if value is not None:
            _check_field(allocation, name, value, annotation)


def _check_field(allocation: Allocation, name: str, value: Any, annotation: object) -> None:
    if type(value) is int and 0 <= value < UNLIMITED_CORES and name not in _REAL_FIELDS:
        return  # most values: `require` takes longer
    if type(value) is float and 0 < value < np.inf and annotation is Positive:
        return
    try:
        require(name, value, annotation)
    except ConfigurationError as error:
        raise PlacementError(f"the allocation of job {shown(allocation.job)}: {error}") from None


def validate_allocation(
    state: State, b: int, cluster: Cluster, allocation: Allocation, plans: PlanTable | None = None
) -> tuple[Shape, NDArray[np.int32]] | None:
    """Return an allocation's (shape, places), None if it preempts or rejects, or raise a PlacementError.

    `plans` are those of the performance model.
    """
    _check_numbers(allocation)
    j = allocation.job
    num_jobs = int(state.clusters["num_jobs"][b])
    if not 0 <= j < num_jobs:
        raise PlacementError(f"there is no job {j}; expected a row in 0..{num_jobs - 1}")
    job = state.jobs[b, j]
    status = int(job["status"])
    if status not in (JobStatus.WAITING, JobStatus.RUNNING):
        raise PlacementError(
            f"job {j} is {JobStatus(status).name.lower()}; expected a waiting or running job"
        )
    if allocation.reject:
        if status != JobStatus.WAITING or allocation.gpu_ids or allocation.server is not None:
            raise PlacementError(
                f"job {j} is {JobStatus(status).name.lower()}; expected a waiting job, and no gpu_ids or"
                " server, with reject=True"
            )
        return None
    if allocation.preempts:
        if status != JobStatus.RUNNING:
            expected = "a running job: an empty allocation preempts it"
            raise PlacementError(f"job {j} is waiting; expected {expected}")
        return None
    shape, places = requested_shape(state, b, allocation)
    _check_shape(job, j, shape, cluster)
    if int(job["kind"]) == JobKind.CPU_ONLY:
        if allocation.gpu_ids:
            raise PlacementError(
                f"CPU-only job {j} is given gpu_ids {allocation.gpu_ids}; expected server and no gpu_ids"
            )
        server = allocation.server
        if server is None or not 0 <= server < cluster.num_servers:
            raise PlacementError(f"there is no server {server}; expected 0..{cluster.num_servers - 1}")
        if not state.servers["up"][b, server]:
            raise PlacementError(
                f"job {j} is given server {server}, which is down; choose another or wait for its repair"
            )
    else:
        _check_gpus(state, b, cluster, j, allocation)
    if plans is not None:
        _check_plan(job, j, shape, plans)
    elif shape.plan != FASTEST:
        raise PlacementError(f"job {j} is given plan {shape.plan}; expected none: it has no execution plans")
    _check_capacity(state, b, cluster, j, shape, places)
    return shape, places


def _check_plan(job: Job, j: int, shape: Shape, plans: PlanTable) -> None:
    model, number, gpus = int(job["plan_model"]), shape.plan, shape.num_gpus
    if number > len(plans.models[model].plans) or not plans.fits[plans.row(model, number), gpus]:
        fit = ", ".join(plans.names(model, gpus)) or "none"
        raise PlacementError(
            f"job {j} ({plans.models[model].name}) is given plan {number} on {gpus} GPUs; expected one that"
            f" divides them and fits their memory: {fit}, or 0, the fastest"
        )


def _given(j: int, given: str, expected: str) -> PlacementError:
    return PlacementError(f"job {j} is given {given}; expected {expected}")


def _check_shape(job: Job, j: int, shape: Shape, cluster: Cluster) -> None:
    kind = int(job["kind"])
    low, high = float(job["min_batch"]), float(job["max_batch"])
    if not low <= shape.batch_size <= high:
        raise _given(j, f"a batch of {shape.batch_size:g} samples", f"{low:g} to {high:g}")
    cores, server_cores = shape.cores_per_worker, shape.cores_per_server_task
    servers, cap = shape.parameter_servers, shape.memory_bandwidth_cap
    if not 0 < cap <= 1:
        raise PlacementError(f"job {j} has memory_bandwidth_cap {cap}; expected a number in (0, 1]")
    if cap < 1 and kind != JobKind.CPU_ONLY:
        problem = f"job {j} uses GPUs and has memory_bandwidth_cap {cap}"
        raise PlacementError(f"{problem}; expected 1: caps are for CPU-only jobs")
    if not 0 <= min(cores, server_cores) <= max(cores, server_cores) < UNLIMITED_CORES:
        raise _given(j, f"{cores} and {server_cores} cores", "0 or more each")
    for number, asked in ((cores, "asked_cores"), (server_cores, "asked_cores_per_server_task")):
        if number < 1 and kind != JobKind.CPU_ONLY and job[asked] > 0:
            raise _given(j, f"{number} cores and asks for {int(job[asked])}", "1 or more")
    if kind == JobKind.CPU_ONLY and cores < 1:
        raise PlacementError(f"CPU-only job {j} is given {cores} cores; expected 1 or more")
    if kind == JobKind.PARAMETER_SERVER and not 1 <= servers <= MOST_PARAMETER_SERVERS:
        raise _given(j, f"{servers} parameter servers", f"1 to {MOST_PARAMETER_SERVERS}")
    if kind != JobKind.PARAMETER_SERVER and servers != 0:
        raise _given(j, f"{servers} parameter servers", "none: it trains by all-reduce")
    for one in RESOURCES:
        if not one.can_change or getattr(cluster, one.capacity):
            continue
        given = getattr(shape, one.per_worker)
        given += getattr(shape, one.per_server_task) if one.per_server_task else 0
        if given > 0:
            problem = f"job {j} is given {one.name}, but cluster.{one.capacity} is not set"
            raise PlacementError(f"{problem}; set it, or leave {one.per_worker} open")


def _check_gpus(state: State, b: int, cluster: Cluster, j: int, allocation: Allocation) -> None:
    gpus = allocation.gpu_ids
    job = state.jobs[b, j]
    low, high = int(job["min_gpus"]), int(job["max_gpus"])
    if allocation.server is not None:
        raise PlacementError(f"job {j} uses GPUs and is given server {allocation.server}; expected gpu_ids")
    if not low <= len(gpus) <= high:
        asked = f"{low} GPUs" if low == high else f"{low} to {high} GPUs"
        raise _given(j, f"{len(gpus)} GPUs", asked)
    if len(set(gpus)) != len(gpus):
        raise PlacementError(f"the allocation of job {j} names a GPU twice: {gpus}")
    per_gpu = cluster.jobs_per_gpu
    if max(gpus) >= cluster.num_gpus:
        raise PlacementError(f"there is no GPU {max(gpus)}; expected 0..{cluster.num_gpus - 1}")
    places = np.array(gpus)
    full = places[state.gpus["num_jobs"][b, places] >= per_gpu]
    own = (state.slots["job"][b].reshape(-1, per_gpu)[full] == j).any(axis=1)
    for gpu in full[~own].tolist():
        server = int(cluster.server_of_gpu[gpu])
        if state.gpus["num_jobs"][b, gpu] >= DOWN:
            raise PlacementError(f"job {j} is given GPU {gpu} of server {server}, which is down")
        held = ", ".join(map(str, state.slots["job"][b, gpu * per_gpu : (gpu + 1) * per_gpu].tolist()))
        free = int(state.servers["free_gpus"][b, server])
        raise PlacementError(
            f"job {j} is given GPU {gpu}, held by job {held} (server {server} has {free} free GPUs)"
            "; preempt that job first, or choose another GPU"
        )


def _check_capacity(
    state: State, b: int, cluster: Cluster, j: int, shape: Shape, places: NDArray[np.int32]
) -> None:
    cause, place, needed, available = find_shortfall(state, b, j, shape, places)
    if cause == MEMORY:
        raise PlacementError(
            f"job {j} needs {needed:.3g} bytes on each GPU, but GPU {place} has {available:.3g} free"
            "; use a smaller batch, more GPUs, other neighbours or another GPU type"
        )
    if cause >= FIRST_RESOURCE:
        one = RESOURCES[cause - FIRST_RESOURCE]
        total = getattr(cluster, one.capacity)[place]
        raise PlacementError(
            f"job {j} needs {needed:,} {one.unit}{one.name} on server {place}, but {available:,} of {total:,}"
            f" are free; give each worker fewer {one.unit}{one.name}, or choose another server"
        )


def gpus_of(state: State, b: int, j: int) -> NDArray[np.int64]:
    """Return the [workers] ids of the GPUs that job `j` of cluster `b` of `state` holds, ascending."""
    if int(state.jobs["kind"][b, j]) == JobKind.CPU_ONLY:
        return np.zeros(0, np.int64)
    return state.place_scratch[b, : collect_places(state, b, j, state.place_scratch[b])].astype(np.int64)
