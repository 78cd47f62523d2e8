"""What an action would do to a job, and doing it."""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.bundles import by_reference
from ringyard.compiled.functions import function_at, kernel
from ringyard.mdp.actions.space import IN_PLACE, REJECT, STOP
from ringyard.mdp.slots import running_at
from ringyard.placement import PLACE
from ringyard.sim.engine.holding import collect, hold, let_go
from ringyard.sim.engine.life import end, reshape, start, stop
from ringyard.sim.engine.shape import ask, set_cores, set_size
from ringyard.state.records import JobKind, JobOutcome

__all__ = [
    "Options",
    "adjust",
    "describe",
    "dress_for",
    "propose_adjustment",
    "propose_start",
    "start_by",
    "target_shape",
]

_CPU_ONLY = int(JobKind.CPU_ONLY)
_BLOCKED = int(JobOutcome.BLOCKED)

place_at = function_at(PLACE)


@by_reference(
    numba.types.int64[:, ::1],
    numba.types.float64[:, ::1],
    numba.types.float64[:, ::1],
    numba.types.int64[::1],
    numba.types.int64,
    numba.types.int64,
    numba.types.int64,
)
@dataclass(frozen=True, eq=False)
class Options:
    """What actions can do, the same in every cluster of a batch: T starts, then A adjustments.

    Attributes:
        rules: [T + A, 2] `CompiledFunction.addresses` of the placement functions.
        parameters: [T + A, ...] of each.
        factors: [T + A, 4] of GPUs, batch and cores; bandwidth cap, 0: keep.
        kinds: [T + A] PLACED, IN_PLACE, STOP or REJECT.
        scaled: 1 if any start differs from what jobs ask for, else 0.
        num_starts: T.
        num_adjustments: A.
    """

    rules: NDArray[np.int64]
    parameters: NDArray[np.float64]
    factors: NDArray[np.float64]
    kinds: NDArray[np.int64]
    scaled: int
    num_starts: int
    num_adjustments: int


@kernel
def target_shape(job: Any, options: Any, o: int) -> tuple[int, float, int, float]:
    """(GPUs, batch, cores per worker, bandwidth cap) of a job after option o, from its present ones."""
    gpus = job.num_gpus
    batch = job.batch_size
    cores = job.cores_per_worker
    cap = job.memory_bandwidth_cap
    if job.kind != _CPU_ONLY:
        if options.factors[o, 0] != 1.0:
            gpus = int(np.floor(gpus * options.factors[o, 0] + 0.5))
            gpus = min(max(gpus, int(job.min_gpus)), int(job.max_gpus))
        if options.factors[o, 1] != 1.0:
            batch = min(max(batch * options.factors[o, 1], job.min_batch), job.max_batch)
    elif options.factors[o, 3] > 0.0:
        cap = options.factors[o, 3]
    if cores > 0 and options.factors[o, 2] != 1.0:
        factor = options.factors[o, 2]
        scaled = np.ceil(cores * factor) if factor > 1.0 else np.floor(cores * factor)
        cores = max(int(scaled), 1)
    return gpus, batch, cores, cap


@kernel
def _dress(job: Any, shape: tuple[int, float, int, float]) -> None:
    set_size(job, shape[0], shape[1])
    set_cores(job, shape[2], job.parameter_servers, job.cores_per_server_task, shape[3])


@kernel
def dress_for(job: Any, options: Any, t: int) -> None:
    """Give a waiting job, shaped as it asks, the shape of template t; `ask` undoes it."""
    _dress(job, target_shape(job, options, t))


@kernel
def propose_start(state: Any, b: int, j: int, options: Any, t: int, out: Any) -> int:
    """GPUs that template t would give waiting job j into `out` (not sorted); 0 if none.

    The job is left in the template's shape if it is another than it asks for: `ask` undoes that.
    """
    job = state.jobs[b, j]
    if options.kinds[t] == REJECT:
        out[0] = 0  # always possible; no place is taken
        return 1
    if options.scaled:
        shape = target_shape(job, options, t)
        same = shape[0] == job.num_gpus and shape[1] == job.batch_size and shape[2] == job.cores_per_worker
        factors = options.factors[t]
        if same and (factors[0] != 1.0 or factors[1] != 1.0 or factors[2] != 1.0):
            return 0
        if not same:
            _dress(job, shape)
    return place_at(options.rules, t)(state, b, j, options.parameters[t], out)


@kernel
def start_by(state: Any, b: int, j: int, options: Any, t: int, rate: Any) -> None:
    """Start waiting job j by template t, which finds a place; or reject it."""
    if options.kinds[t] == REJECT:
        end(state, b, j, _BLOCKED, rate)
        return
    out = state.gpu_scratch[b]
    count = propose_start(state, b, j, options, t, out)
    start(state, b, j, out, count, rate)


@kernel
def _fits(state: Any, b: int, j: int, places: Any, count: int) -> bool:
    """Whether job j, that holds nothing now, could have these places: cores and memory."""
    job = state.jobs[b, j]
    if job.kind == _CPU_ONLY:
        return job.cores_per_worker <= state.servers[b, places[0]].free_cores
    here = 0
    for i in range(count):
        if state.gpus[b, places[i]].free_memory_bytes < job.gpu_memory_bytes:
            return False
        server = state.gpus[b, places[i]].server
        here += 1
        if i + 1 == count or state.gpus[b, places[i + 1]].server != server:
            cores = here * job.cores_per_worker + job.parameter_servers * job.cores_per_server_task
            if cores > 0 and cores > state.servers[b, server].free_cores:
                return False
            here = 0
    return True


@kernel
def _same_places(places: Any, count: int, others: Any, num_others: int) -> bool:
    """Whether two lists without repetition hold the same places."""
    if count != num_others:
        return False
    for i in range(count):
        found = False
        for k in range(count):
            found = found or places[i] == others[k]
        if not found:
            return False
    return True


@kernel
def propose_adjustment(state: Any, b: int, j: int, options: Any, a: int, out: Any) -> int:
    """Places that running job j would have after adjustment a, ascending in `out`; 0 if it is not possible.

    Everything is left as it was.
    """
    o = options.num_starts + a
    job = state.jobs[b, j]
    if options.kinds[o] == STOP:
        return 1
    shape = target_shape(job, options, o)
    held = state.held_scratch[b]
    num_held = collect(state, b, j, held)
    same_shape = (
        shape[0] == job.num_gpus
        and shape[1] == job.batch_size
        and shape[2] == job.cores_per_worker
        and shape[3] == job.memory_bandwidth_cap
    )
    moves = options.kinds[o] != IN_PLACE and job.kind != _CPU_ONLY
    if same_shape and not moves:
        return 0
    if same_shape and (options.factors[o, 0] != 1.0 or options.factors[o, 1] != 1.0):
        return 0  # the job is at the end of its range: this would be a mere migration
    if moves and shape[0] - job.num_gpus > state.clusters[b].open_gpus:
        return 0
    scratch = state.jobs.shape[1] - 1
    state.jobs[b, scratch] = job
    let_go(state, b, j)
    _dress(job, shape)
    count = num_held
    if moves:
        count = place_at(options.rules, o)(state, b, j, options.parameters[o], out)
        if same_shape and _same_places(out, count, held, num_held):
            count = 0
    else:
        for i in range(num_held):
            out[i] = held[i]
        if not _fits(state, b, j, out, count):
            count = 0
    state.jobs[b, j] = state.jobs[b, scratch]
    hold(state, b, j, held, num_held)
    return count


@kernel
def adjust(state: Any, b: int, j: int, options: Any, a: int, rate: Any) -> None:
    """Carry out adjustment a, which is possible, on running job j."""
    o = options.num_starts + a
    if options.kinds[o] == STOP:
        stop(state, b, j, rate)
        return
    out = state.gpu_scratch[b]
    count = propose_adjustment(state, b, j, options, a, out)
    job = state.jobs[b, j]
    shape = target_shape(job, options, o)
    servers, tasks = int(job.parameter_servers), int(job.cores_per_server_task)
    resized = job.kind != _CPU_ONLY and (count != job.num_gpus or shape[1] != job.batch_size)
    held = state.held_scratch[b]
    moved = not _same_places(out, count, held, collect(state, b, j, held))
    if moved and not resized:  # a migration: a restart elsewhere
        stop(state, b, j, rate)
        set_size(job, shape[0], shape[1])
        set_cores(job, shape[2], servers, tasks, shape[3])
        start(state, b, j, out, count, rate)
        return
    pause = job.resize_seconds if resized else 0.0
    cores = (int(shape[2]), servers, tasks, float(shape[3]))
    reshape(state, b, j, out, count, shape[1], cores, pause, rate)


@kernel
def describe(state: Any, b: int, options: Any, num_waiting: int, action: int, shape: Any) -> tuple[int, int]:
    """(job, places in `gpu_scratch`, 0: it stops or is rejected) of a valid action other than waiting.

    Args:
        num_waiting: V.
        action: its number.
        shape: [3] batch, cores per worker and bandwidth cap are written here.
        (others): as above.
    """
    out = state.gpu_scratch[b]
    change = action - num_waiting * options.num_starts
    if change < 0:
        o = action % options.num_starts
        j = state.waiting[b, action // options.num_starts]
        target = target_shape(state.jobs[b, j], options, o)
        count = propose_start(state, b, j, options, o, out) if options.kinds[o] != REJECT else 0
        ask(state.jobs[b, j])
    else:
        a = change % options.num_adjustments
        o = options.num_starts + a
        j = running_at(state, b, change // options.num_adjustments)
        target = target_shape(state.jobs[b, j], options, o)
        count = 0
        if options.kinds[o] != STOP:
            count = propose_adjustment(state, b, j, options, a, out)
    shape[0] = target[1]
    shape[1] = target[2]
    shape[2] = target[3]
    return j, count
