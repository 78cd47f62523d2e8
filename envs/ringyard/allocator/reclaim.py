"""Reclaim GPUs of a server: preempt jobs without a target, take back cores, migrate small jobs."""

from ringyard.allocator.allocation_plan import (
    DECISIONS,
    AllocationPlan,
    is_preemptible,
    place_job,
    preempt_job,
)
from ringyard.allocator.core_allocation import reclaim_cores, reclaimable_cores
from ringyard.compiled import kernel, linked_kernel, to_int
from ringyard.performance.model import Physics
from ringyard.placement.availability import available_gpus, max_workers, take_free_gpus
from ringyard.resources import CORES, NUM_RESOURCES
from ringyard.sim.engine.allocation import detach, held_on_server, reattach
from ringyard.sim.engine.shape import Shape, current_shape, set_shape
from ringyard.state.arrays import State
from ringyard.state.records import free_on

_NONE = -1


@kernel
def _only_preemptible(state: State, b: int, g: int, plan: AllocationPlan) -> bool:
    """Whether GPU `g` has jobs, all of them preemptible."""
    per_gpu = state.clusters[b].jobs_per_gpu
    held = False
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0:
            held = True
            if not is_preemptible(state, b, j, plan):
                return False
    return held


@kernel
def count_preemptible_gpus(state: State, b: int, plan: AllocationPlan) -> None:
    """Set `plan.preemptible_gpus` of each server of cluster `b` in `state`."""
    for s in range(state.servers.shape[1]):
        plan.preemptible_gpus[b, s] = 0
    for g in range(state.gpus.shape[1]):
        if _only_preemptible(state, b, g, plan):
            plan.preemptible_gpus[b, state.gpus[b, g].server] += 1


@kernel
def _preemptible_amount(state: State, b: int, s: int, r: int, plan: AllocationPlan) -> int:
    """Amount of resource `r` that preemptible jobs hold on server `s`."""
    held = 0
    per_gpu = state.clusters[b].jobs_per_gpu
    server = state.servers[b, s]
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j < 0 or not is_preemptible(state, b, j, plan):
            continue
        counted = False
        for k in range(server.first_gpu * per_gpu, i):
            counted = counted or state.slots[b, k].job == j
        if not counted:
            held += held_on_server(state, b, j, s, r)
    return held


@kernel
def reclaimable_gpus(state: State, b: int, j: int, s: int, plan: AllocationPlan) -> int:
    """GPUs that job `j`, which holds none, could have on server `s` if preemptible jobs were preempted."""
    server = state.servers[b, s]
    job = state.jobs[b, j]
    if server.up == 0 or job.gpu_memory_bytes > server.gpu_memory_bytes:
        return 0
    gpus = to_int(server.free_gpus + plan.preemptible_gpus[b, s])
    if job.uses_host_resources and gpus > 0:
        for r in range(NUM_RESOURCES):
            amount = free_on(server, r) + _preemptible_amount(state, b, s, r, plan)
            amount += reclaimable_cores(state, b, s) if r == CORES else 0
            gpus = max_workers(job, r, amount, gpus)
    return gpus


@kernel
def _migration_target(state: State, b: int, j: int, s: int, plan: AllocationPlan) -> int:
    """Server with the fewest free GPUs that can take running job `j` from server `s` as it is. -1: none."""
    wanted = to_int(state.jobs[b, j].num_gpus)
    kind = state.servers[b, s].gpu_type
    best = _NONE
    for t in range(state.servers.shape[1]):
        server = state.servers[b, t]
        if t == s or server.gpu_type != kind or plan.chosen_gpus[b, t] > 0 or server.free_gpus < wanted:
            continue
        if best >= 0 and server.free_gpus >= state.servers[b, best].free_gpus:
            continue
        if available_gpus(state, b, j, t) >= wanted:
            best = t
    return best


@kernel
def _is_migratable(state: State, b: int, j: int, wanted: int, plan: AllocationPlan) -> bool:
    """Whether running job `j`, smaller and on unshared GPUs of one server, may make room for `wanted`.

    It has a target and time left (`AllocationPlan.preemption_margin`), and was not changed just now.
    """
    job = state.jobs[b, j]
    if job.num_servers != 1 or job.num_gpus >= wanted or plan.target_gpus[b, j] == 0:
        return False
    if plan.preemption_margin[b, j] <= 0.0:
        return False
    i = job.first_slot
    while i >= 0:
        if state.gpus[b, state.slots[b, i].gpu].num_jobs > 1:
            return False
        i = state.slots[b, i].next_slot
    return plan.last_change[b, j] != plan.counts[b, DECISIONS]


@kernel
def migratable_gpus(state: State, b: int, s: int, wanted: int, plan: AllocationPlan) -> int:
    """GPUs of server `s` of jobs that could migrate, each alone, to make room for `wanted` GPUs."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    count = 0
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0 and state.jobs[b, j].first_slot == i and _is_migratable(state, b, j, wanted, plan):
            if _migration_target(state, b, j, s, plan) >= 0:
                count += to_int(state.jobs[b, j].num_gpus)
    return count


@kernel
def _is_smaller(state: State, b: int, j: int, other: int) -> bool:
    """Whether job `j` has fewer GPUs than the `other`, or as many and a lower row."""
    mine, its = state.jobs[b, j].num_gpus, state.jobs[b, other].num_gpus
    return mine < its or (mine == its and j < other)


@kernel
def _smallest_preemptible(state: State, b: int, s: int, plan: AllocationPlan) -> int:
    """Preemptible job on server `s` with the fewest GPUs. -1: none."""
    per_gpu = state.clusters[b].jobs_per_gpu
    server = state.servers[b, s]
    best = _NONE
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0 and is_preemptible(state, b, j, plan) and _only_preemptible(state, b, i // per_gpu, plan):
            if best < 0 or _is_smaller(state, b, j, best):
                best = to_int(j)
    return best


@kernel
def _smallest_migratable(state: State, b: int, s: int, wanted: int, plan: AllocationPlan) -> int:
    """Job on server `s` with the fewest GPUs that can migrate to make room. -1: none."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    best = _NONE
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j < 0 or state.jobs[b, j].first_slot != i or not _is_migratable(state, b, j, wanted, plan):
            continue
        if best < 0 or _is_smaller(state, b, j, best):
            if _migration_target(state, b, j, s, plan) >= 0:
                best = to_int(j)
    return best


@linked_kernel
def reclaim_gpus(
    state: State, b: int, j: int, s: int, wanted: int, shape: Shape, plan: AllocationPlan, physics: Physics
) -> bool:
    """Preempt or migrate jobs on server `s`, the smallest first, until `j` fits; return whether it does."""
    while True:
        num_held = detach(state, b, j)
        set_shape(state.jobs[b, j], shape)
        found = available_gpus(state, b, j, s)
        reattach(state, b, j, num_held)
        if found >= wanted:
            return True
        victim = _smallest_preemptible(state, b, s, plan)
        if victim >= 0:
            preempt_job(state, b, victim, plan, physics)
            continue
        if reclaim_cores(state, b, j, s, wanted, shape, plan, physics):
            continue
        mover = _smallest_migratable(state, b, s, wanted, plan)
        if mover < 0:
            return False
        other = _migration_target(state, b, mover, s, plan)
        out = plan.out[b]
        take_free_gpus(state, b, mover, other, to_int(state.jobs[b, mover].num_gpus), out, 0)
        place_job(state, b, mover, current_shape(state.jobs[b, mover]), out, plan, physics)
