"""Co-locate jobs on shared GPUs: which jobs start beside others, migrate, or are replaced."""

import numpy as np

from ringyard.allocator.allocation_plan import (
    DECISIONS,
    AllocationPlan,
    AllocatorConfig,
    place_job,
    preempt_job,
)
from ringyard.allocator.estimates import live_job, num_live
from ringyard.allocator.target_sizes import build_heap, pop_largest, queue_waiting_jobs
from ringyard.allocator.worker_resources import with_least_resources
from ringyard.compiled import kernel, linked_kernel, to_int
from ringyard.performance.model import Physics
from ringyard.placement.availability import open_gpus
from ringyard.placement.share import factors_at, take_least_interfering
from ringyard.restart import restart_pause
from ringyard.sim.engine.allocation import detach, reattach
from ringyard.sim.engine.co_location import sharing_slowdown
from ringyard.sim.engine.shape import Shape, asked_shape, current_shape, set_asked_shape, set_shape
from ringyard.sim.feasibility import FITS, find_shortfall
from ringyard.state.arrays import State
from ringyard.state.gpu_effects import SharingFactors, excess_of_neighbour, excess_of_worker, summable
from ringyard.state.records import Job, JobStatus

_NONE = -1
_ANY_TYPE = -1
# These bound the time of a decision (assumptions): co-located jobs that are tried elsewhere, those with most
# to gain first, and waiting jobs that are tried in the place of each, the heaviest first.
_MAX_MOVED = 16
_MAX_CANDIDATES = 8


@kernel
def _sharing_gain(
    state: State, b: int, j: int, own: SharingFactors, count: int, plan: AllocationPlan
) -> float:
    """Weighted speed of job `j`, with factors `own`, on `count` GPUs of `plan.out`, less others' losses."""
    out, visited = plan.out[b], plan.visited[b]
    per_gpu = state.clusters[b].jobs_per_gpu
    job = state.jobs[b, j]
    visited[-1] += 1
    worst = 0.0
    lost = 0.0
    for n in range(count):
        slowdown = 0.0
        for i in range(out[n] * per_gpu, (out[n] + 1) * per_gpu):
            k = state.slots[b, i].job
            if k < 0:
                continue
            slowdown += excess_of_worker(state, b, job.model, own, i)
            if visited[k] == visited[-1]:
                continue
            visited[k] = visited[-1]
            before = sharing_slowdown(state, b, k)  # its record still counts the detached job j
            after = max(before, 1.0 + excess_of_neighbour(state, b, job.model, own, i))
            lost += summable(plan.sharing_weight[b, k] * (1.0 - before / after))
        worst = max(worst, slowdown)
    return plan.sharing_weight[b, j] / (1.0 + worst) - lost


@kernel
def _sharing_gain_on(
    state: State, b: int, j: int, s: int, own: SharingFactors, wanted: int, plan: AllocationPlan
) -> float:
    """`_sharing_gain` on the least interfering GPUs of server `s`, written to `plan.out`; 0 without room."""
    if state.servers[b, s].open_gpus < wanted:
        return 0.0
    if state.jobs[b, j].uses_host_resources and open_gpus(state, b, j, s) < wanted:
        return 0.0
    if take_least_interfering(state, b, j, s, own, wanted, plan.out[b], 0) == np.inf:
        return 0.0
    return _sharing_gain(state, b, j, own, wanted, plan)


@kernel
def _find_shared_gpus(
    state: State, b: int, j: int, wanted: int, gpu_type: int, floor: float, plan: AllocationPlan
) -> float:
    """Write `wanted` GPUs of the server where job `j` gains most to `plan.out`, and return the gain.

    Only servers of `gpu_type` (-1: any) that give more than `floor` count; else `floor` is returned.
    """
    best = _NONE
    most = floor
    own = SharingFactors(0.0, 0.0)
    known = _ANY_TYPE  # GPU type for which `own` was computed
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].open_gpus < wanted or plan.sharing_weight[b, j] <= most:
            continue
        kind = to_int(state.servers[b, s].gpu_type)
        if gpu_type == _ANY_TYPE or kind == gpu_type:
            if kind != known:
                own = factors_at(state, b, j, s)
                known = kind
            gain = _sharing_gain_on(state, b, j, s, own, wanted, plan)
            if gain > most:
                best = s
                most = gain
    if best >= 0:
        take_least_interfering(state, b, j, best, factors_at(state, b, j, best), wanted, plan.out[b], 0)
    return most


@kernel
def _least_shape(state: State, b: int, j: int) -> Shape:
    """Set the record of waiting job `j` to the shape with least cores and RAM, and return it."""
    shape = with_least_resources(state, b, asked_shape(state.jobs[b, j]))
    set_shape(state.jobs[b, j], shape)
    return shape


@kernel
def _start_on_shared_gpus(state: State, b: int, plan: AllocationPlan, physics: Physics) -> None:
    """Start waiting jobs on shared GPUs where that gains weighted speed, in order of weight per GPU.

    Once a job gains nowhere, the lighter ones of its demand class are not tried until another starts.
    """
    cluster = state.clusters[b]
    cluster.visit_mark += 1
    count = queue_waiting_jobs(state, b, plan.sharing_weight, to_int(cluster.open_gpus), plan)
    while count > 0 and cluster.open_gpus > 0:
        j = pop_largest(plan.queue[b], plan.priority[b], count)
        count -= 1
        demand = state.jobs[b, j].demand_class
        if state.class_marks[b, demand] == cluster.visit_mark:
            continue
        shape = _least_shape(state, b, j)
        gain = _find_shared_gpus(state, b, j, shape.num_gpus, _ANY_TYPE, 0.0, plan)
        set_asked_shape(state.jobs[b, j])
        if gain <= 0.0:
            state.class_marks[b, demand] = cluster.visit_mark
        elif find_shortfall(state, b, j, shape, plan.out[b]).cause == FITS:
            place_job(state, b, j, shape, plan.out[b], plan, physics)
            cluster.visit_mark += 1


@kernel
def _loss_of_neighbours(state: State, b: int, j: int, plan: AllocationPlan) -> float:
    """Weighted speed that the neighbours of running job `j` lose to co-location. -1: it has none."""
    visited = plan.visited[b]
    per_gpu = state.clusters[b].jobs_per_gpu
    visited[-1] += 1
    visited[j] = visited[-1]
    lost = -1.0
    slot = state.jobs[b, j].first_slot
    while slot >= 0:
        first = state.slots[b, slot].gpu * per_gpu
        for i in range(first, first + per_gpu):
            k = state.slots[b, i].job
            if k >= 0 and visited[k] != visited[-1]:
                visited[k] = visited[-1]
                here = plan.sharing_weight[b, k] * (1.0 - 1.0 / state.jobs[b, k].sharing_slowdown)
                lost = max(lost, 0.0) + summable(here)
        slot = state.slots[b, slot].next_slot
    return lost


@kernel
def _restart_cost(job: Job, j: int, b: int, plan: AllocationPlan, config: AllocatorConfig) -> float:
    """Weighted speed that a restart costs running job `j`: its pause / seconds left, priced."""
    restarts = config.migration_price * restart_pause(job, to_int(job.num_gpus)) / plan.seconds_left[b, j]
    return float(plan.sharing_weight[b, j] * restarts)


@kernel
def _queue_candidates(state: State, b: int, plan: AllocationPlan) -> int:
    """Write the heaviest waiting jobs to the end of `plan.queue`, the heaviest last. Return their number."""
    count = queue_waiting_jobs(state, b, plan.sharing_weight, to_int(state.clusters[b].num_gpus), plan)
    num_candidates = min(count, _MAX_CANDIDATES)
    for i in range(num_candidates):
        j = pop_largest(plan.queue[b], plan.priority[b], count - i)
        plan.queue[b, plan.queue.shape[1] - 1 - i] = j
    return num_candidates


@kernel
def _queue_sharing(
    state: State, b: int, num_candidates: int, plan: AllocationPlan, config: AllocatorConfig
) -> int:
    """Make a heap of co-located running jobs by how much migrating or replacing them could gain at most.

    Return their number. The `num_candidates` waiting jobs at the end of `plan.queue` may replace them.
    """
    cluster = state.clusters[b]
    last = plan.queue.shape[1] - 1
    heaviest = 0.0
    for i in range(num_candidates):
        heaviest = max(heaviest, plan.sharing_weight[b, plan.queue[b, last - i]])
    count = 0
    for i in range(cluster.num_running):
        j = to_int(state.running[b, i])
        job = state.jobs[b, j]
        if job.num_gpus == 0 or plan.last_change[b, j] == plan.counts[b, DECISIONS]:
            continue
        lost = _loss_of_neighbours(state, b, j, plan)
        if lost < 0.0:
            continue
        weight = plan.sharing_weight[b, j]
        most = max(weight, heaviest) if cluster.open_gpus > 0 else heaviest
        most += lost - weight / job.sharing_slowdown - _restart_cost(job, j, b, plan, config)
        if most > 0.0:
            plan.priority[b, j] = most
            plan.queue[b, count] = j
            count += 1
    build_heap(plan.queue[b], plan.priority[b], count)
    return count


@kernel
def _best_replacement(
    state: State, b: int, s: int, most: float, num_candidates: int, plan: AllocationPlan
) -> tuple[int, float]:
    """Waiting candidate that gains most on server `s`, and its gain. (-1, `most`) if none gains more."""
    best = _NONE
    for i in range(num_candidates):
        j = to_int(plan.queue[b, plan.queue.shape[1] - 1 - i])
        if state.jobs[b, j].status != JobStatus.WAITING or plan.sharing_weight[b, j] <= most:
            continue
        shape = _least_shape(state, b, j)
        gain = _sharing_gain_on(state, b, j, s, factors_at(state, b, j, s), shape.num_gpus, plan)
        set_asked_shape(state.jobs[b, j])
        if gain > most and find_shortfall(state, b, j, shape, plan.out[b]).cause == FITS:
            best = j
            most = gain
    return best, most


@linked_kernel
def _migrate_or_replace(
    state: State,
    b: int,
    j: int,
    num_candidates: int,
    plan: AllocationPlan,
    config: AllocatorConfig,
    physics: Physics,
) -> bool:
    """Migrate co-located job `j`, or replace it by a candidate, if that gains enough; return if it does."""
    job = state.jobs[b, j]
    out = plan.out[b]
    shape = current_shape(job)
    s = to_int(state.slots[b, job.first_slot].server)
    gpu_type = to_int(state.servers[b, s].gpu_type)
    has_open_gpus = state.clusters[b].open_gpus > 0
    num_held = detach(state, b, j)
    for i in range(num_held):
        out[i] = state.place_scratch[b, i]
    present = _sharing_gain(state, b, j, factors_at(state, b, j, s), num_held, plan)
    most = max(present + _restart_cost(job, j, b, plan, config), 0.0)
    winner, most = _best_replacement(state, b, s, most, num_candidates, plan)
    if has_open_gpus and _find_shared_gpus(state, b, j, shape.num_gpus, gpu_type, most, plan) > most:
        winner = j
    elif winner >= 0:
        shape = _least_shape(state, b, winner)
        take_least_interfering(state, b, winner, s, factors_at(state, b, winner, s), shape.num_gpus, out, 0)
        set_asked_shape(state.jobs[b, winner])
    reattach(state, b, j, num_held)
    if winner < 0 or (winner == j and find_shortfall(state, b, j, shape, out).cause != FITS):
        return False
    if winner != j:
        preempt_job(state, b, j, plan, physics)
    place_job(state, b, winner, shape, out, plan, physics)
    return True


@linked_kernel
def share_gpus(state: State, b: int, plan: AllocationPlan, config: AllocatorConfig, physics: Physics) -> None:
    """Start waiting jobs on shared GPUs, and migrate or replace co-located ones, where that gains speed."""
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        score = np.exp(config.score_scale * plan.score[b, j]) if plan.weight[b, j] > 0.0 else 0.0
        plan.sharing_weight[b, j] = plan.seconds_left[b, j] ** -config.sharing_power * score
    _start_on_shared_gpus(state, b, plan, physics)
    if state.clusters[b].open_gpus == 0 and state.clusters[b].num_waiting == 0:
        return
    num_candidates = _queue_candidates(state, b, plan)
    count = _queue_sharing(state, b, num_candidates, plan, config)
    changed = False
    for i in range(min(count, _MAX_MOVED)):
        j = pop_largest(plan.queue[b], plan.priority[b], count - i)
        if plan.last_change[b, j] != plan.counts[b, DECISIONS]:
            changed = _migrate_or_replace(state, b, j, num_candidates, plan, config, physics) or changed
    if changed:
        _start_on_shared_gpus(state, b, plan, physics)
