"""Where jobs go: one server where one would do; to make room, loose jobs stop and small ones move."""

from ringyard.compiled import kernel, linked_kernel, whole
from ringyard.placement.room import idle_room, room, take_free, workers_beside_gpus
from ringyard.sim.allocator.beside import (
    deals,
    free_beside,
    least_beside,
    most_beside,
    spare_cores,
    with_cores,
)
from ringyard.sim.allocator.moves import give, is_loose, is_misplaced, take
from ringyard.sim.allocator.plan import DECISIONS, Plan
from ringyard.sim.engine.holding import collect, held_there, lift, put_back
from ringyard.sim.engine.physics import Physics
from ringyard.sim.engine.shape import Shape, asked_shape, set_shape, shape_of
from ringyard.sim.fits import FITS, fits
from ringyard.state.arrays import State
from ringyard.state.records import Job, JobStatus

__all__ = ["count_loose", "find_room", "reach", "shrink", "sized_shape"]

_RUNNING = int(JobStatus.RUNNING)
_NONE = -1


@kernel
def _only_loose(state: State, b: int, g: int, plan: Plan) -> bool:
    """Whether GPU g is held, and by loose jobs only."""
    per_gpu = state.clusters[b].jobs_per_gpu
    held = False
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0:
            held = True
            if not is_loose(state, b, j, plan):
                return False
    return held


@kernel
def count_loose(state: State, b: int, plan: Plan) -> None:
    """Count the GPUs of each server that only loose jobs hold."""
    for s in range(state.servers.shape[1]):
        plan.loose[b, s] = 0
    for g in range(state.gpus.shape[1]):
        if _only_loose(state, b, g, plan):
            plan.loose[b, state.gpus[b, g].server] += 1


@kernel
def sized_shape(job: Job, gpus: int, batch: float) -> Shape:
    """What the job has (or asks for, if it waits), on so many GPUs and with such a batch."""
    shape = shape_of(job) if job.status == _RUNNING else asked_shape(job)
    return Shape(
        gpus,
        batch,
        shape.cores_per_worker,
        shape.parameter_servers,
        shape.cores_per_server_task,
        shape.memory_bandwidth_cap,
        shape.ram_per_worker,
    )


@kernel
def _loose_there(state: State, b: int, s: int, plan: Plan) -> tuple[int, int]:
    """(cores, bytes of RAM) that loose jobs hold on server s."""
    cores = 0
    ram = 0
    per_gpu = state.clusters[b].jobs_per_gpu
    server = state.servers[b, s]
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j < 0 or not is_loose(state, b, j, plan):
            continue
        first = True  # of its slots here
        for k in range(server.first_gpu * per_gpu, i):
            first = first and state.slots[b, k].job != j
        if first:
            here = held_there(state, b, j, s)
            cores += here[0]
            ram += here[1]
    return cores, ram


@kernel
def _could_have(state: State, b: int, j: int, s: int, plan: Plan) -> int:
    """GPUs of server s that job j, which holds nothing, could have if loose jobs stopped."""
    server = state.servers[b, s]
    job = state.jobs[b, j]
    if server.up == 0 or job.gpu_memory_bytes > server.gpu_memory_bytes:
        return 0
    gpus = whole(server.free_gpus + plan.loose[b, s])
    if job.beside_gpus and gpus > 0:
        held = _loose_there(state, b, s, plan)
        cores = server.free_cores + held[0] + spare_cores(state, b, s)
        return workers_beside_gpus(job, gpus, cores, server.free_ram + held[1])
    return gpus


@kernel
def _allowed(state: State, b: int, j: int, s: int, plan: Plan) -> bool:
    kind = plan.gpu_type[b, j]
    return kind < 0 or state.servers[b, s].gpu_type == kind


@kernel
def _best_server(state: State, b: int, j: int, wanted: int, plan: Plan) -> int:
    """The tightest of the servers where fewest GPUs must be cleared of loose jobs for job j; -1: none."""
    best = _NONE
    least = 1 << 60
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.free_gpus + plan.loose[b, s] < wanted or plan.chosen[b, s] > 0:
            continue
        if not _allowed(state, b, j, s, plan) or _could_have(state, b, j, s, plan) < wanted:
            continue
        cleared = max(0, wanted - room(state, b, j, s))
        missing = max(0, wanted * max(plan.cores[b, j], 0) - server.free_cores)
        cost = (cleared << 40) + (missing << 20) + server.free_gpus + plan.loose[b, s]
        if cost < least:
            best = s
            least = cost
    return best


@kernel
def _elsewhere(state: State, b: int, j: int, s: int, plan: Plan) -> int:
    """The tightest other server that has room for running job j as it is; -1: none."""
    wanted = whole(state.jobs[b, j].num_gpus)
    kind = state.servers[b, s].gpu_type
    best = _NONE
    for t in range(state.servers.shape[1]):
        server = state.servers[b, t]
        if t == s or server.gpu_type != kind or plan.chosen[b, t] > 0 or server.free_gpus < wanted:
            continue
        if best >= 0 and server.free_gpus >= state.servers[b, best].free_gpus:
            continue
        if room(state, b, j, t) >= wanted:
            best = t
    return best


@kernel
def _can_move(state: State, b: int, j: int, wanted: int, plan: Plan) -> bool:
    """Whether running job j is smaller than `wanted`, has one server, GPUs for itself, and stayed so far."""
    job = state.jobs[b, j]
    if job.num_servers != 1 or job.num_gpus >= wanted or plan.target[b, j] == 0:
        return False
    i = job.first_slot
    while i >= 0:
        if state.gpus[b, state.slots[b, i].gpu].num_jobs > 1:
            return False
        i = state.slots[b, i].next_slot
    return plan.changed[b, j] != plan.counts[b, DECISIONS]


@kernel
def _movable(state: State, b: int, s: int, wanted: int, plan: Plan) -> int:
    """GPUs of server s from which small jobs could move elsewhere, one by one."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    count = 0
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0 and state.jobs[b, j].first_slot == i and _can_move(state, b, j, wanted, plan):
            if _elsewhere(state, b, j, s, plan) >= 0:
                count += whole(state.jobs[b, j].num_gpus)
    return count


@kernel
def _server_by_moves(state: State, b: int, j: int, wanted: int, plan: Plan) -> int:
    """The server where fewest GPUs must be cleared by moving jobs away; -1: none."""
    best = _NONE
    least = 1 << 60
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.up == 0 or server.num_gpus < wanted or not _allowed(state, b, j, s, plan):
            continue
        missing = wanted - (server.free_gpus + plan.loose[b, s])
        if not 0 < missing <= min(least - 1, state.clusters[b].free_gpus - server.free_gpus):
            continue
        if idle_room(state, b, j, s) >= wanted and _movable(state, b, s, wanted, plan) >= missing:
            best = s
            least = missing
    return best


@kernel
def _is_smaller(state: State, b: int, j: int, other: int) -> bool:
    """Whether job j has fewer GPUs than the other, or as many and a lower row."""
    mine, its = state.jobs[b, j].num_gpus, state.jobs[b, other].num_gpus
    return mine < its or (mine == its and j < other)


@kernel
def _smallest_loose(state: State, b: int, s: int, plan: Plan) -> int:
    """The loose job on server s with fewest GPUs; -1: none."""
    per_gpu = state.clusters[b].jobs_per_gpu
    server = state.servers[b, s]
    best = _NONE
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0 and is_loose(state, b, j, plan) and _only_loose(state, b, i // per_gpu, plan):
            if best < 0 or _is_smaller(state, b, j, best):
                best = whole(j)
    return best


@kernel
def _smallest_movable(state: State, b: int, s: int, wanted: int, plan: Plan) -> int:
    """The job on server s with fewest GPUs that can move elsewhere; -1: none."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    best = _NONE
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j < 0 or state.jobs[b, j].first_slot != i or not _can_move(state, b, j, wanted, plan):
            continue
        if best < 0 or _is_smaller(state, b, j, best):
            if _elsewhere(state, b, j, s, plan) >= 0:
                best = whole(j)
    return best


@kernel
def _room_for(state: State, b: int, j: int, s: int, shape: Shape) -> int:
    """GPUs of server s that job j could have in this shape now, its own given back."""
    num_held = lift(state, b, j)
    set_shape(state.jobs[b, j], shape)
    found = room(state, b, j, s)
    put_back(state, b, j, num_held)
    return found


@kernel
def _give_cores_back(state: State, b: int, s: int, plan: Plan, physics: Physics) -> None:
    """Let the job on server s with most cores for each worker keep one for each; `deal_cores` follows."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    most = -1
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        if deals(state, b, i):
            j = whole(state.slots[b, i].job)
            more = 0
            if most >= 0:
                more = state.jobs[b, j].cores_per_worker - state.jobs[b, most].cores_per_worker
            if most < 0 or more > 0 or (more == 0 and j < most):
                most = j
    collect(state, b, most, plan.out[b])
    give(state, b, most, with_cores(shape_of(state.jobs[b, most]), 1), plan.out[b], plan, physics)


@linked_kernel
def _clear(
    state: State, b: int, j: int, s: int, wanted: int, shape: Shape, plan: Plan, physics: Physics
) -> bool:
    """Make room for job j on server s: loose jobs stop, then small ones move; whether it did."""
    while _room_for(state, b, j, s, shape) < wanted:
        victim = _smallest_loose(state, b, s, plan)
        if victim >= 0:
            take(state, b, victim, plan, physics)
            continue
        if shape.cores_per_worker > 0 and spare_cores(state, b, s) > 0:
            _give_cores_back(state, b, s, plan, physics)
            continue
        mover = _smallest_movable(state, b, s, wanted, plan)
        if mover < 0:
            return False
        other = _elsewhere(state, b, mover, s, plan)
        out = plan.out[b]
        take_free(state, b, mover, other, whole(state.jobs[b, mover].num_gpus), out, 0)
        give(state, b, mover, shape_of(state.jobs[b, mover]), out, plan, physics)
    return True


@kernel
def _find_server(state: State, b: int, j: int, shape: Shape, plan: Plan) -> int:
    """The server to be cleared for job j; its own GPUs count as free. -1: none."""
    num_held = lift(state, b, j)
    set_shape(state.jobs[b, j], shape)
    s = _best_server(state, b, j, shape.num_gpus, plan)
    put_back(state, b, j, num_held)
    if s < 0:
        s = _server_by_moves(state, b, j, shape.num_gpus, plan)
    return s


@kernel
def _choose_servers(state: State, b: int, j: int, wanted: int, plan: Plan) -> bool:
    """Say in `chosen` which servers job j, which holds nothing, would fill wholly, and one for the rest."""
    chosen = plan.chosen[b]
    largest = 0
    for s in range(state.servers.shape[1]):
        if _allowed(state, b, j, s, plan):
            largest = max(largest, idle_room(state, b, j, s))
    if wanted <= largest:
        return False
    left = wanted
    for only_idle in (True, False):
        for s in range(state.servers.shape[1]):
            all_of_it = idle_room(state, b, j, s)
            if chosen[s] > 0 or not 0 < all_of_it <= left or not _allowed(state, b, j, s, plan):
                continue
            if only_idle and state.servers[b, s].free_gpus < state.servers[b, s].num_gpus:
                continue
            if _could_have(state, b, j, s, plan) == all_of_it:
                chosen[s] = all_of_it
                left -= all_of_it
    if left >= largest:
        return False
    if left > 0:
        s = _best_server(state, b, j, left, plan)
        if s < 0:
            return False
        chosen[s] = left
    return True


@linked_kernel
def _fill_servers(state: State, b: int, j: int, shape: Shape, plan: Plan, physics: Physics) -> int:
    """Places of a job that no server could hold alone, on whole servers and one more, into `out`; 0: none."""
    chosen = plan.chosen[b]
    chosen[:] = 0
    num_held = lift(state, b, j)
    set_shape(state.jobs[b, j], shape)
    found = _choose_servers(state, b, j, shape.num_gpus, plan)
    put_back(state, b, j, num_held)
    for s in range(len(chosen)):
        found = found and (chosen[s] == 0 or _clear(state, b, j, s, whole(chosen[s]), shape, plan, physics))
    count = 0
    if found:
        num_held = lift(state, b, j)
        set_shape(state.jobs[b, j], shape)
        for s in range(len(chosen)):
            count = take_free(state, b, j, s, whole(chosen[s]), plan.out[b], count)
        put_back(state, b, j, num_held)
    chosen[:] = 0
    return count


@linked_kernel
def find_room(state: State, b: int, j: int, shape: Shape, plan: Plan, physics: Physics) -> bool:
    """Give job j this shape on one server, or on whole ones if none could hold it; whether it did.

    Loose jobs stop and small ones move to make room.
    """
    out = plan.out[b]
    s = _find_server(state, b, j, shape, plan)
    count = 0
    if s < 0:
        count = _fill_servers(state, b, j, shape, plan, physics)
    elif _clear(state, b, j, s, shape.num_gpus, shape, plan, physics):
        num_held = lift(state, b, j)
        set_shape(state.jobs[b, j], shape)
        count = take_free(state, b, j, s, shape.num_gpus, out, 0)
        free = free_beside(state, b, s, shape)
        put_back(state, b, j, num_held)
        shape = most_beside(state, b, j, shape, s, free, physics)
    if count != shape.num_gpus or fits(state, b, j, shape, out).what != FITS:
        return False
    give(state, b, j, shape, out, plan, physics)
    return True


@kernel
def _keep(state: State, b: int, j: int, wanted: int, plan: Plan) -> bool:
    """The GPUs that running job j would keep if it shrank, of the servers where it has most, into `out`.

    Returns:
        Whether they are on no more servers than so many GPUs need.
    """
    out, most = plan.out[b], plan.chosen[b]
    held = collect(state, b, j, out)
    most[:] = 0
    for i in range(held):
        most[state.gpus[b, out[i]].server] += 1
    left = wanted
    kept = 0
    while left > 0:
        best = 0
        for s in range(len(most)):
            if most[s] > most[best]:
                best = s
        here = min(left, whole(most[best]))
        if here < left and here < state.servers[b, best].num_gpus:
            most[:] = 0
            return False
        most[best] = 0
        left -= here
        for i in range(kept, held):  # its GPUs to the front
            if here > 0 and state.gpus[b, out[i]].server == best:
                g = out[i]
                out[i] = out[kept]
                out[kept] = g
                kept += 1
                here -= 1
    most[:] = 0
    return True


@linked_kernel
def shrink(state: State, b: int, j: int, plan: Plan, physics: Physics) -> None:
    """Let running job j keep as many GPUs as it shall hold, if it holds more, where it is."""
    job = state.jobs[b, j]
    target = whole(plan.target[b, j])
    if job.status != _RUNNING or not 0 < target < job.num_gpus:
        return
    shape = sized_shape(job, target, plan.batch[b, j, target])
    if _keep(state, b, j, target, plan) and fits(state, b, j, shape, plan.out[b]).what == FITS:
        give(state, b, j, shape, plan.out[b], plan, physics)


@linked_kernel
def reach(state: State, b: int, j: int, plan: Plan, physics: Physics) -> bool:
    """Let job j start on, or go to, the GPUs that it shall hold; whether it has them then."""
    job = state.jobs[b, j]
    target = whole(plan.target[b, j])
    if target == 0:
        return True
    if job.status == _RUNNING and job.num_gpus == target and not is_misplaced(state, b, j, plan):
        return True
    if plan.changed[b, j] == plan.counts[b, DECISIONS] and job.status == _RUNNING:
        return False
    shape = least_beside(state, b, sized_shape(job, target, plan.batch[b, j, target]))
    return find_room(state, b, j, shape, plan, physics)
