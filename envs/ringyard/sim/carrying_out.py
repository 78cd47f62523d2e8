"""Many allocations carried out in one compiled loop, as far as there is plainly nothing wrong with them."""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ringyard.compiled import (
    BoolVector,
    FloatVector,
    Int32Vector,
    IntMatrix,
    IntVector,
    kernel,
    linked_kernel,
)
from ringyard.placement.places import sort_ascending
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.life import carry_out, stop
from ringyard.sim.engine.physics import Physics
from ringyard.sim.engine.shape import Shape, shape_of
from ringyard.sim.engine.standstill import count_step
from ringyard.sim.fits import FITS, fits
from ringyard.state.arrays import State
from ringyard.state.records import UNLIMITED, UNLIMITED_CORES, Job, JobKind, JobStatus

__all__ = ["Listed", "carry_out_plain", "listed"]

_CPU_ONLY, _PARAMETER_SERVER = int(JobKind.CPU_ONLY), int(JobKind.PARAMETER_SERVER)
_WAITING, _RUNNING = int(JobStatus.WAITING), int(JobStatus.RUNNING)
_OUTSIDE = np.iinfo(np.int32).max  # no GPU
_MOST_BYTES = 10**15  # as `ringyard.checks.Bytes`

#: whole numbers that an allocation may leave open, in the order of the columns of `Listed.held`
_HELD = ("cores_per_worker", "parameter_servers", "cores_per_server_task", "ram_per_worker")
_fields = attrgetter("job", "gpu_ids", "batch_size", *_HELD, "memory_bandwidth_cap", "server", "reject")


class Listed(NamedTuple):
    """Allocations as arrays; only their types have been looked at.

    Attributes:
        jobs: [n] rows.
        first: [n + 1] where each one's GPUs begin.
        gpus: [all] GPUs of one after the other; those of each may be sorted.
        batch: [n] -1: open.
        held: [n, 4] numbers of `_HELD`; -1: open.
        is_rare: [n] whether it rejects its job, or names a server or a cap.
    """

    jobs: IntVector
    first: IntVector
    gpus: Int32Vector
    batch: FloatVector
    held: IntMatrix
    is_rare: BoolVector


def _filled(values: Sequence[Any], kind: type) -> Sequence[Any] | None:
    """Numbers, -1 where one is left open; None: some are of another kind, or below 0."""
    kinds = set(map(type, values))
    given = [value for value in values if value is not None] if type(None) in kinds else values
    if not given:
        return [-1] * len(values)
    if not kinds <= {kind, type(None)} or not min(given) >= 0:
        return None
    return [-1 if value is None else value for value in values] if len(given) < len(values) else values


def listed(allocations: Sequence[Allocation]) -> Listed | None:
    """At least one allocation, as arrays; None: some are none, or hold what is no plain number."""
    if set(map(type, allocations)) != {Allocation}:
        return None
    jobs, places, batch, *held, caps, servers, rejects = zip(*map(_fields, allocations), strict=True)
    gpus = list(chain.from_iterable(places))
    columns = [_filled(batch, float), *(_filled(values, int) for values in held)]
    if not set(map(type, chain(jobs, gpus))) <= {int} or None in columns:
        return None
    rare = [
        cap is not None or server is not None or bool(reject)
        for cap, server, reject in zip(caps, servers, rejects, strict=True)
    ]
    try:
        return Listed(
            jobs=np.array(jobs, np.int64),
            first=np.cumsum([0, *map(len, places)]),
            gpus=np.array(gpus, np.int64).clip(-1, _OUTSIDE).astype(np.int32),
            batch=np.array(columns[0], np.float64),
            held=np.array(columns[1:], np.int64).T.copy(),
            is_rare=np.array(rare),
        )
    except OverflowError:
        return None


@kernel
def _are_numbers(numbers: Listed, i: int) -> bool:
    """Whether what the i-th allocation names is within the bounds of what records hold."""
    batch, held = numbers.batch[i], numbers.held[i]
    if not (batch == -1.0 or 0.0 < batch < np.inf):
        return False
    return max(held[0], held[1], held[2]) < UNLIMITED_CORES and held[3] <= _MOST_BYTES


@kernel
def _shape(job: Job, numbers: Listed, i: int) -> Shape:
    """The i-th allocation's; what it leaves open stays as the job has it."""
    present = shape_of(job)
    held = numbers.held[i]
    return Shape(
        numbers.first[i + 1] - numbers.first[i],
        present.batch_size if numbers.batch[i] < 0 else numbers.batch[i],
        present.cores_per_worker if held[0] < 0 else held[0],
        present.parameter_servers if held[1] < 0 else held[1],
        present.cores_per_server_task if held[2] < 0 else held[2],
        present.memory_bandwidth_cap,
        present.ram_per_worker if held[3] < 0 else held[3],
    )


@kernel
def _is_plain_shape(state: State, b: int, job: Job, shape: Shape) -> bool:
    """Whether `fits.checked_shape` has nothing against the shape of a job on GPUs."""
    cores, server_cores = shape.cores_per_worker, shape.cores_per_server_task
    if not job.min_gpus <= shape.num_gpus <= job.max_gpus:
        return False
    if not job.min_batch <= shape.batch_size <= job.max_batch or shape.memory_bandwidth_cap != 1.0:
        return False
    if (cores < 1 and job.asked_cores > 0) or (server_cores < 1 and job.asked_cores_per_server_task > 0):
        return False
    if (shape.parameter_servers > 0) != (job.kind == _PARAMETER_SERVER):
        return False
    server = state.servers[b, 0]
    if server.num_cores == UNLIMITED_CORES and cores + server_cores > 0:
        return False
    return server.ram_bytes < UNLIMITED or shape.ram_per_worker == 0


@kernel
def _is_open(state: State, b: int, j: int, g: int) -> bool:
    """Whether GPU g has a slot for job j, free or its own."""
    per_gpu = state.clusters[b].jobs_per_gpu
    if state.gpus[b, g].num_jobs < per_gpu:
        return True
    if state.gpus[b, g].num_jobs > per_gpu:  # its server is down
        return False
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        if state.slots[b, i].job == j:
            return True
    return False


@kernel
def _are_plain_places(state: State, b: int, j: int, places: Int32Vector) -> bool:
    """Whether these are different GPUs, each with a slot for the job; they are sorted."""
    count = len(places)
    sort_ascending(places, count)
    if places[0] < 0 or places[count - 1] >= state.gpus.shape[1]:
        return False
    for k in range(count):
        if (k > 0 and places[k] == places[k - 1]) or not _is_open(state, b, j, places[k]):
            return False
    return True


@linked_kernel
def carry_out_plain(state: State, b: int, numbers: Listed, begin: int, physics: Physics) -> int:
    """Carry out allocations in their order, up to the first that `fits.checked_shape` must look at.

    That may refuse it, with a message, or not: allocations of CPU-only jobs, for instance, are left to it.

    Args:
        state: theirs.
        b: cluster.
        numbers: the allocations.
        begin: with this one.
        physics: performance model.

    Returns:
        Its position; how many there are, if there is none; -1 if time stands still (`standstill`).
    """
    cluster = state.clusters[b]
    for i in range(begin, len(numbers.jobs)):
        j = numbers.jobs[i]
        if numbers.is_rare[i] or not _are_numbers(numbers, i) or not 0 <= j < cluster.num_jobs:
            return i
        job = state.jobs[b, j]
        if job.status != _RUNNING and job.status != _WAITING:
            return i
        places = numbers.gpus[numbers.first[i] : numbers.first[i + 1]]
        shape = _shape(job, numbers, i)
        if len(places) == 0:
            if job.status != _RUNNING:
                return i
        elif job.kind == _CPU_ONLY or not _is_plain_shape(state, b, job, shape):
            return i
        elif not _are_plain_places(state, b, j, places) or fits(state, b, j, shape, places).what != FITS:
            return i
        if not count_step(state, b, cluster.now):
            return -1
        if len(places) == 0:
            stop(state, b, j, physics)
        else:
            carry_out(state, b, j, shape, places, physics)
    return len(numbers.jobs)
