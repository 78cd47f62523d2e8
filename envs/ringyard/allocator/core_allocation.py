"""Divide the cores of a server among its jobs, greedily: each core goes where it adds most weighted speed."""

from ringyard.allocator.allocation_plan import AllocationPlan, AllocatorConfig, place_job
from ringyard.allocator.worker_resources import seconds_in_shape, with_cores
from ringyard.compiled import kernel, linked_kernel, to_int
from ringyard.performance.model import Physics
from ringyard.restart import cores_pause
from ringyard.sim.engine.allocation import collect_places, detach, reattach
from ringyard.sim.engine.shape import Shape, current_shape
from ringyard.state.arrays import State


@kernel
def _has_adjustable_cores(state: State, b: int, i: int) -> bool:
    """Whether slot `i` is the first of a job that holds cores, and GPUs of one server only."""
    j = state.slots[b, i].job
    if j < 0:
        return False
    job = state.jobs[b, j]
    return job.first_slot == i and job.num_servers == 1 and job.cores_per_worker > 0


@kernel
def reclaimable_cores(state: State, b: int, s: int) -> int:
    """Cores of server `s` of cluster `b` in `state` that could be taken back if each worker kept one."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    spare = 0
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        if _has_adjustable_cores(state, b, i):
            job = state.jobs[b, state.slots[b, i].job]
            spare += (job.cores_per_worker - 1) * job.num_gpus
    return spare


@kernel
def reclaim_cores(
    state: State, b: int, j: int, s: int, wanted: int, shape: Shape, plan: AllocationPlan, physics: Physics
) -> bool:
    """Take cores that `j` lacks from the job with most cores per worker on `s`; return if there is one.

    `wanted` workers of `j` would run there in `shape`. The other job keeps one core per worker. At the end of
    a decision, `divide_cores` divides cores anew.
    """
    num_held = detach(state, b, j)
    free = to_int(state.servers[b, s].free_cores)  # with those of the job itself
    reattach(state, b, j, num_held)
    missing = wanted * shape.cores_per_worker + shape.parameter_servers * shape.cores_per_server_task - free
    if missing <= 0:
        return False
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    most = -1
    cores = 1
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        k = to_int(state.slots[b, i].job)
        if k == j or not _has_adjustable_cores(state, b, i):
            continue
        more = state.jobs[b, k].cores_per_worker - cores
        if more > 0 or (more == 0 and 0 <= k < most):
            most = k
            cores = to_int(state.jobs[b, k].cores_per_worker)
    if most < 0:
        return False
    gpus = to_int(state.jobs[b, most].num_gpus)
    fewer = max(1, cores - (missing + gpus - 1) // gpus)
    collect_places(state, b, most, plan.out[b])
    less = with_cores(current_shape(state.jobs[b, most]), fewer)
    place_job(state, b, most, less, plan.out[b], plan, physics)
    return True


@kernel
def _core_change_cost(state: State, b: int, j: int, plan: AllocationPlan, config: AllocatorConfig) -> float:
    """Utility that a change of cores costs a running job: the pause it adds to a present one, priced."""
    job = state.jobs[b, j]
    now = state.clusters[b].now
    pending = max(job.pause_ends_seconds - now, 0.0)
    return config.resize_price * max(cores_pause(job, now) - pending, 0.0) / plan.seconds_left[b, j]


@kernel
def _utility(state: State, b: int, j: int, cores: int, cost: float, physics: Physics) -> float:
    """Speed of job `j` (copied to the last row) with `cores` / its speed as asked, less `cost` if changed."""
    job = state.jobs[b, j]
    shape = with_cores(current_shape(job), cores)
    speed = job.isolated_iteration_seconds / seconds_in_shape(state, b, j, shape, physics)
    return speed - cost if cores != job.cores_per_worker else speed


@linked_kernel
def _find_core_step(
    state: State, b: int, j: int, left: int, plan: AllocationPlan, config: AllocatorConfig, physics: Physics
) -> None:
    """Find the step of job `j`, of at most `left` cores, that adds most weighted utility per core.

    It goes to `next_step` and `step_utility`, its gain per core to `priority` (0: no step gains). A step is
    one core per worker. Below the cores that the job holds, it may also go up to them. At these, it may be
    any number of cores, because the first of them bears the cost of the change.
    """
    job = state.jobs[b, j]
    state.jobs[b, state.jobs.shape[1] - 1] = job
    granted = to_int(plan.granted_cores[b, j])
    max_cores = granted + left // to_int(job.num_gpus)
    held = to_int(job.cores_per_worker)
    cost = _core_change_cost(state, b, j, plan, config)
    value = plan.granted_utility[b, j]
    best = 0.0
    last = 0.0
    k = granted + 1
    while k <= max_cores:
        utility = _utility(state, b, j, k, cost, physics)
        gain = (utility - value) / (k - granted)
        better = gain > best
        if better:
            best = gain
            plan.next_step[b, j] = k
            plan.step_utility[b, j] = utility
        if cost == 0.0 or granted > held or k == held:
            break
        if granted < held:
            k = held
            continue
        if (best > 0.0 and not better) or (k > granted + 1 and utility <= last):
            break
        last = utility
        k += 1
    plan.priority[b, j] = plan.weight[b, j] * best / job.num_gpus


@kernel
def _best_core_step(state: State, b: int, first: int, last: int, plan: AllocationPlan) -> int:
    """Job of slots `first` to `last` - 1 with the largest priority, then the lowest row. -1: none."""
    best = -1
    for i in range(first, last):
        if _has_adjustable_cores(state, b, i):
            j = to_int(state.slots[b, i].job)
            more = plan.priority[b, j] - (0.0 if best < 0 else plan.priority[b, best])
            if more > 0.0 or (more == 0.0 and j < best):
                best = j
    return best


@linked_kernel
def divide_cores(
    state: State, b: int, s: int, plan: AllocationPlan, config: AllocatorConfig, physics: Physics
) -> None:
    """Divide cores of server `s` anew among jobs with all their GPUs there, where it is worth the pause."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    first = to_int(server.first_gpu * per_gpu)
    last = to_int((server.first_gpu + server.num_gpus) * per_gpu)
    left = to_int(server.free_cores) + reclaimable_cores(state, b, s)
    for i in range(first, last):  # one core for each worker, then the best steps
        if _has_adjustable_cores(state, b, i):
            j = to_int(state.slots[b, i].job)
            state.jobs[b, state.jobs.shape[1] - 1] = state.jobs[b, j]
            plan.granted_cores[b, j] = 1
            cost = _core_change_cost(state, b, j, plan, config)
            plan.granted_utility[b, j] = _utility(state, b, j, 1, cost, physics)
            _find_core_step(state, b, j, left, plan, config, physics)
    best = _best_core_step(state, b, first, last, plan) if left > 0 else -1
    while best >= 0:
        cores = to_int((plan.next_step[b, best] - plan.granted_cores[b, best]) * state.jobs[b, best].num_gpus)
        if cores <= left:
            plan.granted_cores[b, best] = plan.next_step[b, best]
            plan.granted_utility[b, best] = plan.step_utility[b, best]
            left -= cores
        _find_core_step(state, b, best, left, plan, config, physics)
        best = _best_core_step(state, b, first, last, plan) if left > 0 else -1
    gain = 0.0  # of all changes together, less their costs
    for i in range(first, last):
        if _has_adjustable_cores(state, b, i):
            j = to_int(state.slots[b, i].job)
            held, cores = to_int(state.jobs[b, j].cores_per_worker), to_int(plan.granted_cores[b, j])
            if cores != held:
                state.jobs[b, state.jobs.shape[1] - 1] = state.jobs[b, j]
                cost = _core_change_cost(state, b, j, plan, config)
                more = _utility(state, b, j, cores, cost, physics)
                gain += plan.weight[b, j] * (more - _utility(state, b, j, held, cost, physics))
    for more_cores in (False, True):  # decreases free the cores for increases
        for i in range(first, last if gain >= 0.0 else first):
            if _has_adjustable_cores(state, b, i):
                j = to_int(state.slots[b, i].job)
                job = state.jobs[b, j]
                cores = to_int(plan.granted_cores[b, j])
                if cores != job.cores_per_worker and (cores > job.cores_per_worker) == more_cores:
                    collect_places(state, b, j, plan.out[b])
                    place_job(state, b, j, with_cores(current_shape(job), cores), plan.out[b], plan, physics)
