"""Feasibility of allocations: whether the cluster can hold one now, and an error that says why not."""

from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Bytes, NonNegativeInt, Positive, require, shown
from ringyard.cluster import Cluster
from ringyard.compiled import FloatVector, Int32Vector, entry_point, kernel, linked_kernel, to_int
from ringyard.errors import ConfigurationError, PlacementError
from ringyard.jobs import MOST_PARAMETER_SERVERS
from ringyard.performance.model import Physics
from ringyard.performance.plan_table import FASTEST, PlanTable
from ringyard.placement.availability import parameter_servers_on, sort_ascending, total_demand
from ringyard.resources import CORES, NUM_RESOURCES, RESOURCES
from ringyard.sim.allocation import Allocation, LinkShare
from ringyard.sim.engine.allocation import collect_places, held_on_server
from ringyard.sim.engine.lifecycle import apply_allocation, end_job, preempt
from ringyard.sim.engine.livelock import count_step
from ringyard.sim.engine.shape import (
    Shape,
    amount_per_worker,
    current_shape,
    gpu_memory_needed,
    override_shape,
)
from ringyard.state.arrays import State
from ringyard.state.records import (
    DOWN,
    UNLIMITED_CORES,
    Job,
    JobKind,
    JobOutcome,
    JobStatus,
    free_on,
    total_on,
)

#: values of `Request.kind`
PLACE, PREEMPT, REJECT = range(3)

#: values of `Shortfall.cause`
FITS, MEMORY, NO_JOB, NOT_LIVE, NOT_TO_REJECT, NOT_RUNNING, NO_PLANS, LIVELOCK = range(8)
BATCH, CAP, CAP_ON_GPUS, FEW_CORES, FEW_SERVER_CORES, SERVERS, NO_SERVERS = range(8, 15)
NUM_GPUS, TWICE, NO_GPU, GPU_DOWN, GPU_HELD = range(15, 20)
NO_GPUS_NEEDED, NO_SERVER_NEEDED, NO_SERVER, SERVER_DOWN, FIRST_RESOURCE = range(20, 25)
#: FIRST_RESOURCE + r: too little of resource r. FIRST_UNCOUNTED + r: the cluster does not count it
FIRST_UNCOUNTED = FIRST_RESOURCE + NUM_RESOURCES

#: {cause: text of the error}
_REFUSALS = {
    MEMORY: "job {j} needs {needed:.3g} bytes on each GPU, but GPU {place} has {available:.3g} free; use a"
    " smaller batch, more GPUs, other neighbours or another GPU type",
    NO_JOB: "there is no job {j}; expected a row in 0..{last_job}",
    NOT_LIVE: "job {j} is {status}; expected a waiting or running job",
    NOT_TO_REJECT: "job {j} is {status}; expected a waiting job, and no gpu_ids or server, with reject=True",
    NOT_RUNNING: "job {j} is waiting; expected a running job: an empty allocation preempts it",
    NO_PLANS: "job {j} is given plan {shape.plan}; expected none: it has no execution plans",
    BATCH: "job {j} is given a batch of {shape.batch_size:g} samples; expected {job[min_batch]:g} to"
    " {job[max_batch]:g}",
    CAP: "job {j} has memory_bandwidth_cap {shape.memory_bandwidth_cap}; expected a number in (0, 1]",
    CAP_ON_GPUS: "job {j} uses GPUs and has memory_bandwidth_cap {shape.memory_bandwidth_cap}; expected 1:"
    " caps are for CPU-only jobs",
    FEW_CORES: "job {j} is given {shape.cores_per_worker} cores and asks for {job[asked_cores]}; expected 1"
    " or more",
    FEW_SERVER_CORES: "job {j} is given {shape.cores_per_server_task} cores and asks for"
    " {job[asked_cores_per_server_task]}; expected 1 or more",
    SERVERS: "job {j} is given {shape.parameter_servers} parameter servers; expected 1 to "
    + str(MOST_PARAMETER_SERVERS),
    NO_SERVERS: "job {j} is given {shape.parameter_servers} parameter servers; expected none: it trains by"
    " all-reduce",
    NUM_GPUS: "job {j} is given {shape.num_gpus} GPUs; expected {gpus}",
    TWICE: "the allocation of job {j} names a GPU twice: {allocation.gpu_ids}",
    NO_GPU: "there is no GPU {place}; expected 0..{last_gpu}",
    GPU_DOWN: "job {j} is given GPU {place} of server {server}, which is down",
    GPU_HELD: "job {j} is given GPU {place}, held by job {held} (server {server} has {free} free GPUs);"
    " preempt that job first, or choose another GPU",
    NO_GPUS_NEEDED: "CPU-only job {j} is given gpu_ids {allocation.gpu_ids}; expected server and no gpu_ids",
    NO_SERVER_NEEDED: "job {j} uses GPUs and is given server {allocation.server}; expected gpu_ids",
    NO_SERVER: "there is no server {allocation.server}; expected 0..{last_server}",
    SERVER_DOWN: "job {j} is given server {allocation.server}, which is down; choose another or wait for its"
    " repair",
}
_TOO_LITTLE = (
    "job {j} needs {needed:,} {resource.unit}{resource.name} on server {place}, but {available:,} of"
    " {total:,} are free; give each worker fewer {resource.unit}{resource.name}, or choose another server"
)
_NAMES_UNCOUNTED = (
    "job {j} is given {resource.name}, but cluster.{resource.capacity} is not set; set it, or leave"
    " {resource.per_worker} open"
)

_CAN_CHANGE = tuple(one.can_change for one in RESOURCES)
_UNCOUNTED = tuple(one.unlimited for one in RESOURCES)  #: of a server, if the cluster does not count it

#: {field: type} of a `Shape`, except for num_gpus. Allocations and job records have fields of these names
_HINTS = get_type_hints(Shape)
SHAPE_FIELDS: dict[str, type] = {name: _HINTS[name] for name in _HINTS if name != "num_gpus"}
shape_values = attrgetter(*SHAPE_FIELDS)

_SHAPE_RECORD = Job.dtype[list(SHAPE_FIELDS)]  #: the part of a job's record that is its shape


class Shortfall(NamedTuple):
    """What keeps a job from an allocation, such as what its places have too little of."""

    cause: int  #: FITS (nothing), or one of the other causes
    place: int  #: id of the GPU, or of the server short of the resource
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


_NO_OVERRIDES, _NO_PLACES = np.zeros(0), np.zeros(0, np.int32)  # what preempts or rejects has no shape


class Request(NamedTuple):
    """An allocation as kernels read it."""

    job: int  #: row
    kind: int  #: PLACE, PREEMPT or REJECT
    overrides: FloatVector  #: [9] as those of `override_shape`, [0] without places
    places: Int32Vector  #: GPU ids, which kernels sort, or without GPUs [1] the server, or [0] nothing
    server: int  #: -1: none is named


@kernel
def requested_shape(state: State, b: int, request: Request) -> Shape:
    """Return the shape that a request for cluster `b` of `state` leads to: what it leaves open stays."""
    return override_shape(current_shape(state.jobs[b, request.job]), request.overrides, True)


@kernel
def _problem_of_request(state: State, b: int, request: Request, job: Job, shape: Shape) -> int:
    """Return what is wrong with a request for `job` to have `shape`, whatever its places hold, or FITS."""
    cpu_only, has_servers = job.kind == JobKind.CPU_ONLY, job.kind == JobKind.PARAMETER_SERVER
    cores, server_cores = shape.cores_per_worker, shape.cores_per_server_task
    if not job.min_batch <= shape.batch_size <= job.max_batch:
        return BATCH
    if not 0.0 < shape.memory_bandwidth_cap <= 1.0:
        return CAP
    if shape.memory_bandwidth_cap < 1.0 and not cpu_only:
        return CAP_ON_GPUS
    if cores < 1 and (cpu_only or job.asked_cores > 0):
        return FEW_CORES
    if server_cores < 1 and not cpu_only and job.asked_cores_per_server_task > 0:
        return FEW_SERVER_CORES
    if has_servers and not 1 <= shape.parameter_servers <= MOST_PARAMETER_SERVERS:
        return SERVERS
    if shape.parameter_servers != 0 and not has_servers:
        return NO_SERVERS
    for r in range(NUM_RESOURCES):
        if _CAN_CHANGE[r] and total_on(state.servers[b, 0], r) >= _UNCOUNTED[r]:
            if amount_per_worker(job, shape, r) + (server_cores if r == CORES else 0) > 0:
                return to_int(FIRST_UNCOUNTED + r)
    if not cpu_only and request.server >= 0:
        return NO_SERVER_NEEDED
    if not cpu_only:
        return FITS if job.min_gpus <= shape.num_gpus <= job.max_gpus else NUM_GPUS
    if shape.num_gpus > 0:
        return NO_GPUS_NEEDED
    if not 0 <= request.server < state.servers.shape[1]:
        return NO_SERVER
    return FITS if state.servers[b, request.server].up != 0 else SERVER_DOWN


@kernel
def _problem_of_gpus(state: State, b: int, j: int, gpus: Int32Vector) -> Shortfall:
    """Return what is wrong with `gpus`, which are sorted in place, whatever the job needs there."""
    count, per_gpu = len(gpus), state.clusters[b].jobs_per_gpu
    sort_ascending(gpus, count)
    for i in range(1, count):
        if gpus[i] == gpus[i - 1]:
            return Shortfall(TWICE, to_int(gpus[i]), 0, 0)
    if gpus[count - 1] >= state.gpus.shape[1]:
        return Shortfall(NO_GPU, to_int(gpus[count - 1]), 0, 0)
    for g in gpus:
        if state.gpus[b, g].num_jobs >= DOWN:
            return Shortfall(GPU_DOWN, to_int(g), 0, 0)
        room = state.gpus[b, g].num_jobs < per_gpu
        for k in range(g * per_gpu, (g + 1) * per_gpu):
            room = room or state.slots[b, k].job == j
        if not room:
            return Shortfall(GPU_HELD, to_int(g), 0, 0)
    return Shortfall(FITS, 0, 0, 0)


@linked_kernel
def find_problem(state: State, b: int, request: Request) -> Shortfall:
    """Return why cluster `b` of `state` cannot carry out a request now, with the cause FITS if it can."""
    j, kind, places = request.job, request.kind, request.places
    if not 0 <= j < state.clusters[b].num_jobs:
        return Shortfall(NO_JOB, 0, 0, 0)
    job = state.jobs[b, j]
    waits = job.status == JobStatus.WAITING
    if not waits and job.status != JobStatus.RUNNING:
        return Shortfall(NOT_LIVE, 0, 0, 0)
    if kind == REJECT:
        return Shortfall(FITS if waits and len(places) == 0 else NOT_TO_REJECT, 0, 0, 0)
    if kind == PREEMPT:
        return Shortfall(NOT_RUNNING if waits else FITS, 0, 0, 0)
    shape = requested_shape(state, b, request)
    cause = _problem_of_request(state, b, request, job, shape)
    if cause != FITS:
        return Shortfall(cause, 0, 0, 0)
    if job.kind != JobKind.CPU_ONLY:
        found = _problem_of_gpus(state, b, j, places)
        if found.cause != FITS:
            return found
    if shape.plan != FASTEST and job.plan_model < 0:
        return Shortfall(NO_PLANS, 0, 0, 0)
    return find_shortfall(state, b, j, shape, places)


@linked_kernel
def carry_out(state: State, b: int, request: Request, physics: Physics) -> int:
    """Carry out a request in cluster `b` of `state`. `physics` sets new rates.

    Returns why it is not done: a cause of `Shortfall`, LIVELOCK, or FITS if it is done.
    """
    cause = find_problem(state, b, request).cause
    if cause != FITS:
        return cause
    if not count_step(state, b, state.clusters[b].now):
        return LIVELOCK
    if request.kind == PREEMPT:
        preempt(state, b, request.job, physics)
    elif request.kind == REJECT:
        end_job(state, b, request.job, to_int(JobOutcome.BLOCKED), physics)
    else:
        shape = requested_shape(state, b, request)
        apply_allocation(state, b, request.job, shape, request.places, physics)
    return FITS


def current_allocation(state: State, b: int, j: int) -> Allocation:
    """Return what job `j` of cluster `b` of `state` holds. No GPUs and no server if it does not run."""
    job: Any = state.jobs[b, j]
    server = int(job["server"])
    shape = dict(zip(SHAPE_FIELDS, job.view(_SHAPE_RECORD).item(), strict=True))
    gpu_ids = tuple(gpus_of(state, b, j).tolist())
    return Allocation(j, gpu_ids, server=server if server >= 0 else None, **shape)


_Cores = Annotated[int, f"[0, {UNLIMITED_CORES - 1}]"]

#: {field of an allocation that may be None: annotation of its values}
_OPTIONAL_FIELDS = {n: Positive if k is float else NonNegativeInt | None for n, k in SHAPE_FIELDS.items()}
_OPTIONAL_FIELDS |= {"server": NonNegativeInt | None, "ram_per_worker": Bytes, "link_share": LinkShare}
_OPTIONAL_FIELDS |= dict.fromkeys(("cores_per_worker", "cores_per_server_task"), _Cores)
_optional_values = attrgetter(*_OPTIONAL_FIELDS)
_NONE_GIVEN = (None,) * len(_OPTIONAL_FIELDS)
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
    values = _optional_values(allocation)
    if values != _NONE_GIVEN:
        for (name, annotation), value in zip(_OPTIONAL_FIELDS.items(), values, strict=True):
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


def read_request(allocation: Allocation) -> Request:
    """Return an allocation as kernels read it, or raise PlacementError for what is no number."""
    _check_numbers(allocation)
    gpus, server = allocation.gpu_ids, allocation.server
    if not gpus and server is None:
        kind = REJECT if allocation.reject else PREEMPT
        return Request(int(allocation.job), kind, _NO_OVERRIDES, _NO_PLACES, -1)
    kind = REJECT if allocation.reject else PLACE
    overrides = np.array((len(gpus), *shape_values(allocation)), np.float64)  # None becomes NaN
    places = np.array(gpus if server is None or gpus else (server,), np.int32)
    return Request(int(allocation.job), kind, overrides, places, -1 if server is None else int(server))


def _check_plan(state: State, b: int, allocation: Allocation, plans: PlanTable) -> None:
    job, gpus = state.jobs[b, allocation.job], len(allocation.gpu_ids)
    present = int(job["plan"]) if gpus == int(job["num_gpus"]) else FASTEST
    model, number = int(job["plan_model"]), present if allocation.plan is None else allocation.plan
    if number > len(plans.models[model].plans) or not plans.fits[plans.row(model, number), gpus]:
        fit = ", ".join(plans.names(model, gpus)) or "none"
        raise PlacementError(
            f"job {allocation.job} ({plans.models[model].name}) is given plan {number} on {gpus} GPUs;"
            f" expected one that divides them and fits their memory: {fit}, or 0, the fastest"
        )


def check_allocation(
    state: State, b: int, cluster: Cluster, allocation: Allocation, plans: PlanTable | None = None
) -> Request:
    """Return an allocation as kernels read it, or raise a PlacementError that says why it cannot be.

    `plans` are those of the performance model.
    """
    request = read_request(allocation)
    found = find_problem(state, b, request)
    if found.cause != FITS:
        raise PlacementError(_refusal(state, b, cluster, allocation, request, found))
    if plans is not None and request.kind == PLACE:
        _check_plan(state, b, allocation, plans)
    return request


def _refusal(
    state: State, b: int, cluster: Cluster, allocation: Allocation, request: Request, found: Shortfall
) -> str:
    cause, place = found.cause, found.place
    known: dict[str, Any] = {"j": request.job, "allocation": allocation, **found._asdict()}
    known |= {"last_job": int(state.clusters["num_jobs"][b]) - 1, "last_gpu": cluster.num_gpus - 1}
    known |= {"last_server": cluster.num_servers - 1}
    if cause != NO_JOB:
        job: Any = state.jobs[b, request.job]
        low, high = int(job["min_gpus"]), int(job["max_gpus"])
        known |= {"job": job, "status": JobStatus(int(job["status"])).name.lower()}
        known |= {"gpus": f"{low} GPUs" if low == high else f"{low} to {high} GPUs"}
        known |= {"shape": requested_shape(state, b, request)} if request.kind == PLACE else {}
    if cause in (GPU_DOWN, GPU_HELD):
        jobs = state.slots["job"][b].reshape(-1, cluster.jobs_per_gpu)[place].tolist()
        server = int(cluster.server_of_gpu[place])
        known |= {"server": server, "free": int(state.servers["free_gpus"][b, server])}
        known |= {"held": ", ".join(map(str, jobs))}
    if cause < FIRST_RESOURCE:
        return _REFUSALS[cause].format(**known)
    one = RESOURCES[(cause - FIRST_RESOURCE) % NUM_RESOURCES]
    if cause >= FIRST_UNCOUNTED:
        return _NAMES_UNCOUNTED.format(resource=one, **known)
    return _TOO_LITTLE.format(resource=one, total=getattr(cluster, one.capacity)[place], **known)


def gpus_of(state: State, b: int, j: int) -> NDArray[np.int64]:
    """Return the [workers] ids of the GPUs that job `j` of cluster `b` of `state` holds, ascending."""
    last, places = int(state.clusters["num_jobs"][b]) - 1, state.place_scratch[b]
    if not 0 <= j <= last:
        raise PlacementError(f"there is no job {j}; expected a row in 0..{last}")
    if int(state.jobs["kind"][b, j]) == JobKind.CPU_ONLY:
        return np.zeros(0, np.int64)
    return places[: entry_point(collect_places)(state, b, j, places)].astype(np.int64)
