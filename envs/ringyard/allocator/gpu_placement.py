"""Find GPUs for targets: one server where one could hold the job, else whole servers.

GPUs that other jobs hold are reclaimed as far as needed (`ringyard.allocator.reclaim`).
"""

import numpy as np

from ringyard.allocator.allocation_plan import DECISIONS, AllocationPlan, is_on_wrong_type, place_job
from ringyard.allocator.reclaim import migratable_gpus, reclaim_gpus, reclaimable_gpus
from ringyard.allocator.worker_resources import (
    free_per_worker,
    with_least_resources,
    with_saturating_resources,
    with_size,
)
from ringyard.compiled import kernel, linked_kernel, to_int
from ringyard.performance.model import Physics
from ringyard.performance.plan_table import FASTEST
from ringyard.placement.availability import available_gpus, gpus_when_idle, take_free_gpus
from ringyard.sim.engine.allocation import collect_places, detach, reattach
from ringyard.sim.engine.shape import Shape, asked_shape, current_shape, set_shape
from ringyard.sim.feasibility import FITS, find_shortfall
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus

_NONE = -1


@kernel
def shape_with_gpus(state: State, b: int, j: int, gpus: int, plan: AllocationPlan) -> Shape:
    """Copy of the shape of job `j`, or that it asks for, on other `gpus`, in the plan that its scores like.

    This is the fastest, unless another class of plans has a higher speed x exp(score).
    """
    job = state.jobs[b, j]
    chosen, best = FASTEST, 1.0
    for c in range(plan.class_plan.shape[1]):
        speed = plan.class_speed[job.plan_model, c, gpus] * np.exp(plan.type_score[b, j, c])
        if speed > best:
            chosen, best = to_int(plan.class_plan[job.plan_model, c, gpus]), speed
    shape = current_shape(job) if job.status == JobStatus.RUNNING else asked_shape(job)
    batch = plan.batch_size[b, j, gpus]
    return with_size(shape, gpus, batch, shape.cores_per_worker, shape.ram_per_worker, chosen)


@kernel
def _is_allowed_type(state: State, b: int, j: int, s: int, plan: AllocationPlan) -> bool:
    kind = plan.target_gpu_type[b, j]
    return kind < 0 or state.servers[b, s].gpu_type == kind


@kernel
def _best_server(state: State, b: int, j: int, wanted: int, plan: AllocationPlan) -> int:
    """Server where fewest GPUs, then cores, then free GPUs are reclaimed for `wanted` of `j`. -1: none."""
    best = _NONE
    least = 1 << 60
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        tight = server.free_gpus + plan.preemptible_gpus[b, s]
        if tight < wanted or plan.chosen_gpus[b, s] > 0:  # too small, or chosen already
            continue
        if (max(0, wanted - server.free_gpus) << 40) + tight >= least:
            continue  # already this lower limit of its cost is no better
        if not _is_allowed_type(state, b, j, s, plan) or reclaimable_gpus(state, b, j, s, plan) < wanted:
            continue
        cleared = max(0, wanted - available_gpus(state, b, j, s))
        missing = max(0, wanted * max(plan.wanted_cores[b, j], 0) - server.free_cores)
        cost = (cleared << 40) + (missing << 20) + tight  # compares them in this order
        if cost < least:
            best = s
            least = cost
    return best


@kernel
def _server_by_migration(state: State, b: int, j: int, wanted: int, plan: AllocationPlan) -> int:
    """Server where the fewest GPUs must be freed by migrating small jobs to other servers. -1: none."""
    best = _NONE
    least = 1 << 60
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.up == 0 or server.num_gpus < wanted or not _is_allowed_type(state, b, j, s, plan):
            continue
        missing = wanted - (server.free_gpus + plan.preemptible_gpus[b, s])
        if not 0 < missing <= min(least - 1, state.clusters[b].free_gpus - server.free_gpus):
            continue  # jobs that leave the server need free GPUs elsewhere
        if gpus_when_idle(state, b, j, s) >= wanted and migratable_gpus(state, b, s, wanted, plan) >= missing:
            best = s
            least = missing
    return best


@kernel
def _choose_servers(state: State, b: int, j: int, wanted: int, plan: AllocationPlan) -> bool:
    """Write servers that job `j` fills, and one more, to `plan.chosen_gpus`; return if there are any."""
    chosen = plan.chosen_gpus[b]
    largest = 0
    for s in range(state.servers.shape[1]):
        if _is_allowed_type(state, b, j, s, plan):
            largest = max(largest, gpus_when_idle(state, b, j, s))
    if wanted <= largest:
        return False
    left = wanted
    for only_idle in (True, False):
        for s in range(state.servers.shape[1]):
            all_of_it = gpus_when_idle(state, b, j, s)
            if chosen[s] > 0 or not 0 < all_of_it <= left or not _is_allowed_type(state, b, j, s, plan):
                continue
            if only_idle and state.servers[b, s].free_gpus < state.servers[b, s].num_gpus:
                continue
            if reclaimable_gpus(state, b, j, s, plan) == all_of_it:
                chosen[s] = all_of_it
                left -= all_of_it
    if left >= largest:
        return False  # only one server may be filled in part
    if left > 0:
        s = _best_server(state, b, j, left, plan)
        if s < 0:
            return False
        chosen[s] = left
    return True


@linked_kernel
def _span_servers(state: State, b: int, j: int, shape: Shape, plan: AllocationPlan, physics: Physics) -> int:
    """Write GPUs of whole servers, and one more, for a large job to `plan.out`. Return their number, or 0."""
    chosen = plan.chosen_gpus[b]
    chosen[:] = 0
    num_held = detach(state, b, j)
    set_shape(state.jobs[b, j], shape)
    found = _choose_servers(state, b, j, shape.num_gpus, plan)
    reattach(state, b, j, num_held)
    for s in range(len(chosen)):
        gpus = to_int(chosen[s])
        found = found and (gpus == 0 or reclaim_gpus(state, b, j, s, gpus, shape, plan, physics))
    count = 0
    if found:
        num_held = detach(state, b, j)
        set_shape(state.jobs[b, j], shape)
        for s in range(len(chosen)):
            count = take_free_gpus(state, b, j, s, to_int(chosen[s]), plan.out[b], count)
        reattach(state, b, j, num_held)
    chosen[:] = 0
    return count


@kernel
def _choose_kept_gpus(state: State, b: int, j: int, wanted: int, plan: AllocationPlan) -> bool:
    """Put GPUs that a shrinking job keeps first in `plan.out`; return if they need no further servers."""
    out, most = plan.out[b], plan.chosen_gpus[b]
    held = collect_places(state, b, j, out)
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
        here = min(left, to_int(most[best]))
        if here < left and here < state.servers[b, best].num_gpus:
            most[:] = 0
            return False
        most[best] = 0
        left -= here
        for i in range(kept, held):
            if here > 0 and state.gpus[b, out[i]].server == best:
                g = out[i]
                out[i] = out[kept]
                out[kept] = g
                kept += 1
                here -= 1
    most[:] = 0
    return True


@linked_kernel
def shrink_to_target(state: State, b: int, j: int, plan: AllocationPlan, physics: Physics) -> None:
    """Shrink running job `j` to its target in place, if it holds more GPUs and can."""
    job = state.jobs[b, j]
    target = to_int(plan.target_gpus[b, j])
    if job.status != JobStatus.RUNNING or not 0 < target < job.num_gpus:
        return
    shape = shape_with_gpus(state, b, j, target, plan)
    if (
        _choose_kept_gpus(state, b, j, target, plan)
        and find_shortfall(state, b, j, shape, plan.out[b]).cause == FITS
    ):
        place_job(state, b, j, shape, plan.out[b], plan, physics)


@linked_kernel
def place_target(state: State, b: int, j: int, plan: AllocationPlan, physics: Physics) -> bool:
    """Start, resize or migrate job `j` so that it runs as `plan` has it. Return whether it does then."""
    job = state.jobs[b, j]
    target = to_int(plan.target_gpus[b, j])
    if target == 0:
        return True
    if job.status == JobStatus.RUNNING and job.num_gpus == target and not is_on_wrong_type(state, b, j, plan):
        return True
    if plan.last_change[b, j] == plan.counts[b, DECISIONS] and job.status == JobStatus.RUNNING:
        return False
    shape = with_least_resources(state, b, shape_with_gpus(state, b, j, target, plan))
    out = plan.out[b]
    num_held = detach(state, b, j)  # its own GPUs count as free
    set_shape(state.jobs[b, j], shape)
    s = _best_server(state, b, j, shape.num_gpus, plan)
    reattach(state, b, j, num_held)
    if s < 0:
        s = _server_by_migration(state, b, j, shape.num_gpus, plan)
    count = 0
    if s < 0:
        count = _span_servers(state, b, j, shape, plan, physics)
    elif reclaim_gpus(state, b, j, s, shape.num_gpus, shape, plan, physics):
        num_held = detach(state, b, j)
        set_shape(state.jobs[b, j], shape)
        count = take_free_gpus(state, b, j, s, shape.num_gpus, out, 0)
        free = free_per_worker(state, b, s, shape)
        reattach(state, b, j, num_held)
        shape = with_saturating_resources(state, b, j, shape, s, free, physics)
    if count != shape.num_gpus or find_shortfall(state, b, j, shape, out).cause != FITS:
        return False
    place_job(state, b, j, shape, out, plan, physics)
    return True
