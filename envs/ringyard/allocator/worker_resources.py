"""CPU cores and RAM of a job's workers: the least with which the job is nearly as fast as it can be."""

from typing import NamedTuple

from ringyard.allocator.allocation_plan import AllocationPlan
from ringyard.allocator.estimates import live_job, num_live
from ringyard.compiled import kernel, linked_kernel, to_int
from ringyard.performance.model import Physics, iteration_seconds
from ringyard.sim.engine.shape import Shape, current_shape, set_asked_shape, set_shape
from ringyard.state.arrays import State
from ringyard.state.gpu_effects import slowness_on
from ringyard.state.records import UNLIMITED, UNLIMITED_CORES

_SATURATION = 0.98  #: share of the best speed that a job's cores and RAM should reach


class WorkerResources(NamedTuple):
    """Cores and RAM (bytes) of one worker."""

    cores: int
    ram: int


@kernel
def with_size(shape: Shape, num_gpus: int, batch_size: float, cores: int, ram: int, plan: int) -> Shape:
    """Copy of `shape` with other `num_gpus`, `batch_size`, `plan`, `cores` and `ram` (bytes) per worker."""
    servers, cores_each = shape.parameter_servers, shape.cores_per_server_task
    cap, share = shape.memory_bandwidth_cap, shape.link_share
    return Shape(num_gpus, batch_size, cores, servers, cores_each, cap, ram, plan, share)


@kernel
def with_cores(shape: Shape, cores: int) -> Shape:
    """Copy of `shape` with other `cores` per worker."""
    return with_size(shape, shape.num_gpus, shape.batch_size, cores, shape.ram_per_worker, shape.plan)


@kernel
def _with_ram(shape: Shape, ram: int) -> Shape:
    return with_size(shape, shape.num_gpus, shape.batch_size, shape.cores_per_worker, ram, shape.plan)


@kernel
def _ram_step(state: State, b: int) -> int:
    """A third of the least proportional share of RAM of a GPU, bytes, as in Synergy (OSDI 2022)."""
    unit = UNLIMITED
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        unit = min(unit, to_int(server.ram_bytes) // (3 * to_int(server.num_gpus)))
    return unit


@kernel
def with_least_resources(state: State, b: int, shape: Shape) -> Shape:
    """Copy of `shape` with one core and the least RAM of cluster `b` of `state` for workers that have any."""
    if shape.cores_per_worker > 0:
        shape = with_cores(shape, 1)
    if shape.ram_per_worker > 0:
        shape = _with_ram(shape, _ram_step(state, b))
    return shape


@kernel
def seconds_in_shape(state: State, b: int, j: int, shape: Shape, physics: Physics) -> float:
    """Seconds per base iteration of job `j` (copied to the last row) in another `shape` where it runs."""
    scratch = state.jobs[b, state.jobs.shape[1] - 1]
    set_shape(scratch, shape)
    return iteration_seconds(scratch, j, physics) / scratch.progress_per_iteration


@kernel
def free_per_worker(state: State, b: int, s: int, shape: Shape) -> WorkerResources:
    """Free cores and RAM of server `s` of cluster `b` in `state` per worker of a job of this `shape`."""
    server = state.servers[b, s]
    cores = server.free_cores - shape.parameter_servers * shape.cores_per_server_task
    return WorkerResources(to_int(cores) // shape.num_gpus, to_int(server.free_ram) // shape.num_gpus)


@linked_kernel
def _least_saturating(
    state: State, b: int, j: int, shape: Shape, s: int, free: WorkerResources, physics: Physics
) -> Shape:
    """`with_saturating_resources` of the job in the last row of `state.jobs`."""
    server = state.servers[b, s]
    scratch = state.jobs[b, state.jobs.shape[1] - 1]
    scratch.num_servers, scratch.fewest_gpus = 1, 0
    scratch.contenders = 0.0
    scratch.gpu_speed = 1.0 / slowness_on(state.slowness, scratch, server.gpu_type)
    scratch.straggler = 1.0
    # 0 where storage is not counted. Assumes that every GPU of the server has a reader.
    scratch.storage_seconds_per_byte = server.num_gpus / server.storage_bytes_per_second
    if shape.ram_per_worker > 0:
        shape = _with_ram(shape, max(shape.ram_per_worker, free.ram))
    if shape.cores_per_worker > 0:
        shape = with_cores(shape, max(1, free.cores))
    enough = seconds_in_shape(state, b, j, shape, physics) / _SATURATION
    if shape.cores_per_worker > 0:
        cores = 1
        while (
            cores < shape.cores_per_worker
            and seconds_in_shape(state, b, j, with_cores(shape, cores), physics) > enough
        ):
            cores += 1
        shape = with_cores(shape, cores)
    if shape.ram_per_worker > 0:
        unit = _ram_step(state, b)
        ram = unit
        while (
            ram < shape.ram_per_worker
            and seconds_in_shape(state, b, j, _with_ram(shape, ram), physics) > enough
        ):
            ram += unit
        shape = _with_ram(shape, min(ram, shape.ram_per_worker))
    return shape


@kernel
def with_saturating_resources(
    state: State, b: int, j: int, shape: Shape, s: int, free: WorkerResources, physics: Physics
) -> Shape:
    """Copy of `shape` with the least of `free` cores, then RAM, that give `j` nearly its best speed."""
    if shape.cores_per_worker == 0 and shape.ram_per_worker == 0:
        return shape
    state.jobs[b, state.jobs.shape[1] - 1] = state.jobs[b, j]
    return _least_saturating(state, b, j, shape, s, free, physics)


@linked_kernel
def set_wanted_cores(state: State, b: int, plan: AllocationPlan, physics: Physics) -> None:
    """Compute `plan.wanted_cores` of live jobs, if cores count.

    With these per worker, a job is nearly as fast as if each worker had all cores of the first server.
    """
    if state.servers[b, 0].num_cores >= UNLIMITED_CORES:
        return
    scratch = state.jobs[b, state.jobs.shape[1] - 1]
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        if plan.wanted_cores[b, j] != 0 or state.jobs[b, j].asked_gpus == 0:
            continue
        state.jobs[b, state.jobs.shape[1] - 1] = state.jobs[b, j]
        set_asked_shape(scratch)  # regardless of its present allocation and neighbours
        scratch.sharing_slowdown = 1.0
        scratch.bandwidth_slowdown = 1.0
        shape = current_shape(scratch)
        if shape.cores_per_worker == 0 and shape.ram_per_worker == 0:
            plan.wanted_cores[b, j] = -1
            continue
        free = WorkerResources(to_int(state.servers[b, 0].num_cores), shape.ram_per_worker)
        plan.wanted_cores[b, j] = _least_saturating(state, b, j, shape, 0, free, physics).cores_per_worker
