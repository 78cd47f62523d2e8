"""Shapes of jobs: GPUs, batch, cores, RAM, parameter servers, bandwidth cap, plan and link share."""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import FloatVector, kernel, to_int
from ringyard.performance.host_resources import stored_bytes
from ringyard.performance.model import progress_per_iteration
from ringyard.resources import CORES, NUM_RESOURCES, RAM
from ringyard.state.records import Job, JobKind, asked_per_worker, held_per_worker, set_held_per_worker


class Shape(NamedTuple):
    """What a job holds, apart from where."""

    num_gpus: int  #: number of workers, one on each GPU. 0 for CPU-only jobs.
    batch_size: float  #: global batch in samples
    cores_per_worker: int  #: CPU cores of each worker (all of a CPU-only job). 0 if not counted.
    parameter_servers: int  #: number of parameter servers
    cores_per_server_task: int  #: CPU cores of each parameter server
    memory_bandwidth_cap: float  #: fraction of its memory bandwidth that it may use, in (0, 1]
    ram_per_worker: int  #: bytes of main memory of each worker (all of a CPU-only job). 0 if not counted.
    plan: int  #: execution plan. 0: the fastest, or none
    link_share: float  #: weight of its ring where rings share a link, 1 unless a scheduler sets it


@kernel
def current_shape(job: Job) -> Shape:
    """Return the shape that `job` has, or with which it will start if it is waiting."""
    return Shape(
        to_int(job.num_gpus),
        job.batch_size,
        to_int(job.cores_per_worker),
        to_int(job.parameter_servers),
        to_int(job.cores_per_server_task),
        job.memory_bandwidth_cap,
        to_int(job.ram_per_worker),
        to_int(job.plan),
        job.link_share,
    )


@kernel
def asked_shape(job: Job) -> Shape:
    """Return the shape that `job` asks for when it is submitted."""
    return Shape(
        to_int(job.asked_gpus),
        job.base_batch,
        to_int(job.asked_cores),
        to_int(job.asked_parameter_servers),
        to_int(job.asked_cores_per_server_task),
        1.0,
        to_int(job.asked_ram),
        to_int(job.asked_plan),
        1.0,
    )


@kernel
def _value_or(overrides: float, present: float) -> float:
    return present if np.isnan(overrides) else overrides


@kernel
def override_shape(own: Shape, overrides: FloatVector, host_resources: bool) -> Shape:
    """Return a shape with [9] overrides (NaN: as it is), of cores, RAM and servers if `host_resources`.

    The plan of another number of GPUs is the fastest, unless it is overridden.
    """
    gpus = to_int(_value_or(overrides[0], own.num_gpus))
    return Shape(
        gpus,
        _value_or(overrides[1], own.batch_size),
        to_int(_value_or(overrides[2], own.cores_per_worker)) if host_resources else own.cores_per_worker,
        to_int(_value_or(overrides[3], own.parameter_servers)) if host_resources else own.parameter_servers,
        to_int(_value_or(overrides[4], own.cores_per_server_task))
        if host_resources
        else own.cores_per_server_task,
        _value_or(overrides[5], own.memory_bandwidth_cap),
        to_int(_value_or(overrides[6], own.ram_per_worker)) if host_resources else own.ram_per_worker,
        to_int(_value_or(overrides[7], own.plan if gpus == own.num_gpus else 0)),
        _value_or(overrides[8], own.link_share),
    )


@kernel
def amount_per_worker(job: Job, shape: Shape, r: int) -> int:
    """Return how much of resource `r` each worker of `job` holds in `shape`."""
    if r == CORES:
        return shape.cores_per_worker
    if r == RAM:
        return shape.ram_per_worker
    return asked_per_worker(job, r)


@kernel
def num_places(shape: Shape) -> int:
    """Return the number of places of a job in `shape`: its GPUs, or the one server of a CPU-only job."""
    return max(shape.num_gpus, 1)


@kernel
def gpu_memory_needed(job: Job, shape: Shape) -> int:
    """Return the bytes of memory that `job` needs on each of its GPUs in `shape`."""
    samples = shape.batch_size / shape.num_gpus
    return to_int(np.ceil(job.fixed_memory_bytes + job.sample_memory_bytes * samples))


@kernel
def set_shape(job: Job, shape: Shape) -> None:
    """Give `job`, which holds nothing, `shape`, and set the fields that follow from it."""
    job.num_gpus = shape.num_gpus
    job.batch_size = shape.batch_size
    job.parameter_servers = shape.parameter_servers
    job.cores_per_server_task = shape.cores_per_server_task
    job.memory_bandwidth_cap = shape.memory_bandwidth_cap
    job.plan = shape.plan
    job.link_share = shape.link_share
    asked = shape.cores_per_server_task
    for r in range(NUM_RESOURCES):
        set_held_per_worker(job, r, amount_per_worker(job, shape, r))
        asked += held_per_worker(job, r)
    if job.kind == JobKind.CPU_ONLY:
        job.uses_host_resources = 1
        return
    samples = shape.batch_size / shape.num_gpus
    ratio = samples / (job.base_batch / job.asked_gpus)
    share = job.fixed_fraction
    stretch = share + (1.0 - share) * ratio
    job.compute_seconds = job.base_compute_seconds * stretch
    job.fixed_share = share / stretch
    job.progress_per_iteration = progress_per_iteration(job.noise_scale, job.base_batch, shape.batch_size)
    job.gpu_memory_bytes = gpu_memory_needed(job, shape)
    if job.sample_bytes > 0.0:
        cached = float(shape.num_gpus) * float(shape.ram_per_worker)
        job.stored_bytes = stored_bytes(job.sample_bytes, job.dataset_bytes, cached)
    job.uses_host_resources = 1 if asked > 0 or job.stored_bytes > 0.0 else 0


@kernel
def set_asked_shape(job: Job) -> None:
    """Give `job`, which holds nothing, the shape it asks for."""
    set_shape(job, asked_shape(job))
