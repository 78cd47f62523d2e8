"""Which jobs on a server hold how many of its cores: each core goes where it adds most, or to make room."""

from ringyard.allocator.beside import seconds_as, with_cores
from ringyard.allocator.plan import Plan, Rules, give
from ringyard.compiled import kernel, linked_kernel, whole
from ringyard.performance.model import Physics
from ringyard.restart import cores_pause
from ringyard.sim.engine.allocation import collect_places, detach, reattach
from ringyard.sim.engine.shape import Shape, current_shape
from ringyard.state.arrays import State


@kernel
def _deals(state: State, b: int, i: int) -> bool:
    """Whether slot i is the first of a job that holds GPUs and cores of one server alone."""
    j = state.slots[b, i].job
    if j < 0:
        return False
    job = state.jobs[b, j]
    return job.first_slot == i and job.num_servers == 1 and job.cores_per_worker > 0


@kernel
def spare_cores(state: State, b: int, s: int) -> int:
    """Cores of server s that its jobs would give back if each worker kept one."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    spare = 0
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        if _deals(state, b, i):
            job = state.jobs[b, state.slots[b, i].job]
            spare += (job.cores_per_worker - 1) * job.num_gpus
    return spare


@kernel
def _missing_cores(state: State, b: int, j: int, s: int, wanted: int, shape: Shape) -> int:
    """Cores that `wanted` workers of job j in this shape lack on server s, its own there being free."""
    num_held = detach(state, b, j)
    free = whole(state.servers[b, s].free_cores)
    reattach(state, b, j, num_held)
    return wanted * shape.cores_per_worker + shape.parameter_servers * shape.cores_per_server_task - free


@kernel
def give_cores_back(
    state: State, b: int, j: int, s: int, wanted: int, shape: Shape, plan: Plan, physics: Physics
) -> bool:
    """Let the job on server s with most cores for each worker give back what job j lacks; whether it did.

    Each of its workers keeps one; `deal_cores` follows.
    """
    missing = _missing_cores(state, b, j, s, wanted, shape)
    if missing <= 0:
        return False
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    most = -1
    cores = 1
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        k = whole(state.slots[b, i].job)
        if k == j or not _deals(state, b, i):
            continue
        more = state.jobs[b, k].cores_per_worker - cores
        if more > 0 or (more == 0 and 0 <= k < most):
            most = k
            cores = whole(state.jobs[b, k].cores_per_worker)
    if most < 0:
        return False
    gpus = whole(state.jobs[b, most].num_gpus)
    fewer = max(1, cores - (missing + gpus - 1) // gpus)
    collect_places(state, b, most, plan.out[b])
    give(state, b, most, with_cores(current_shape(state.jobs[b, most]), fewer), plan.out[b], plan, physics)
    return True


@kernel
def _change_cost(state: State, b: int, j: int, plan: Plan, rules: Rules) -> float:
    """What other cores cost a running job's worth: the pause that they add to the one it is in."""
    job = state.jobs[b, j]
    now = state.clusters[b].now
    pending = max(job.progress_from_seconds - now, 0.0)
    return rules.resize_price * max(cores_pause(job, now) - pending, 0.0) / plan.left[b, j]


@kernel
def _worth(state: State, b: int, j: int, cores: int, cost: float, physics: Physics) -> float:
    """Speed of job j, a copy of which is in the scratch row, with so many cores for each worker, less `cost`.

    A share of its speed alone as it asks; a job that keeps its cores saves the cost.
    """
    job = state.jobs[b, j]
    speed = job.isolated_iteration_seconds / seconds_as(
        state, b, j, with_cores(current_shape(job), cores), physics
    )
    return speed - cost if cores != job.cores_per_worker else speed


@linked_kernel
def _find_grant(state: State, b: int, j: int, left: int, plan: Plan, rules: Rules, physics: Physics) -> None:
    """The step that adds most per core to what job j is dealt, of `left` cores at most; slope 0: none.

    A step is one core; below what the job has, also all the way to that; at what it has, as many as give most
    per core, since the first of them pays for the change.
    """
    job = state.jobs[b, j]
    state.jobs[b, state.jobs.shape[1] - 1] = job
    have = whole(plan.dealt[b, j])
    most = have + left // whole(job.num_gpus)
    held = whole(job.cores_per_worker)
    cost = _change_cost(state, b, j, plan, rules)
    value = plan.dealt_worth[b, j]
    best = 0.0
    last = 0.0
    k = have + 1
    while k <= most:
        worth = _worth(state, b, j, k, cost, physics)
        gain = (worth - value) / (k - have)
        better = gain > best
        if better:
            best = gain
            plan.step[b, j] = k
            plan.step_worth[b, j] = worth
        if cost == 0.0 or have > held or k == held:
            break
        if have < held:
            k = held
            continue
        if (best > 0.0 and not better) or (k > have + 1 and worth <= last):
            break
        last = worth
        k += 1
    plan.slope[b, j] = plan.weight[b, j] * best / job.num_gpus


@kernel
def _pays(state: State, b: int, first: int, last: int, plan: Plan, rules: Rules, physics: Physics) -> bool:
    """Whether the jobs of slots first to last - 1 lose nothing by having what they are dealt."""
    gain = 0.0
    for i in range(first, last):
        if _deals(state, b, i):
            j = whole(state.slots[b, i].job)
            job = state.jobs[b, j]
            dealt = whole(plan.dealt[b, j])
            if dealt != job.cores_per_worker:
                state.jobs[b, state.jobs.shape[1] - 1] = job
                held = whole(job.cores_per_worker)
                cost = _change_cost(state, b, j, plan, rules)
                more = _worth(state, b, j, dealt, cost, physics) - _worth(state, b, j, held, cost, physics)
                gain += plan.weight[b, j] * more
    return gain >= 0.0


@kernel
def _next_dealt(state: State, b: int, first: int, last: int, plan: Plan) -> int:
    """The job of slots first to last - 1 whose step adds most per core, of equal ones by row; -1: none."""
    best = -1
    for i in range(first, last):
        if _deals(state, b, i):
            j = whole(state.slots[b, i].job)
            ahead = plan.slope[b, j] - (0.0 if best < 0 else plan.slope[b, best])
            if ahead > 0.0 or (ahead == 0.0 and j < best):
                best = j
    return best


@kernel
def _deal(
    state: State, b: int, first: int, last: int, left: int, plan: Plan, rules: Rules, physics: Physics
) -> None:
    """Deal workers of the jobs of slots first to last - 1 a core each, then `left` more, best steps first."""
    for i in range(first, last):
        if _deals(state, b, i):
            j = whole(state.slots[b, i].job)
            state.jobs[b, state.jobs.shape[1] - 1] = state.jobs[b, j]
            cost = _change_cost(state, b, j, plan, rules)
            plan.dealt[b, j] = 1
            plan.dealt_worth[b, j] = _worth(state, b, j, 1, cost, physics)
            _find_grant(state, b, j, left, plan, rules, physics)
    while left > 0:
        best = _next_dealt(state, b, first, last, plan)
        if best < 0:
            return
        cores = whole((plan.step[b, best] - plan.dealt[b, best]) * state.jobs[b, best].num_gpus)
        if cores <= left:
            plan.dealt[b, best] = plan.step[b, best]
            plan.dealt_worth[b, best] = plan.step_worth[b, best]
            left -= cores
        _find_grant(state, b, best, left, plan, rules, physics)


@kernel
def _hand_out(state: State, b: int, first: int, last: int, more: bool, plan: Plan, physics: Physics) -> None:
    """Give jobs of slots first to last - 1 what they are dealt, where that is more, or where it is less."""
    for i in range(first, last):
        if _deals(state, b, i):
            j = whole(state.slots[b, i].job)
            job = state.jobs[b, j]
            cores = whole(plan.dealt[b, j])
            if cores != job.cores_per_worker and (cores > job.cores_per_worker) == more:
                collect_places(state, b, j, plan.out[b])
                give(state, b, j, with_cores(current_shape(job), cores), plan.out[b], plan, physics)


@linked_kernel
def deal_cores(state: State, b: int, s: int, plan: Plan, rules: Rules, physics: Physics) -> None:
    """Deal the cores of server s anew among the jobs that have all their GPUs there: each where it adds most.

    What a change costs counts: a job has other cores than before only where that is worth its pause. Jobs
    that have fewer afterwards give them back first.
    """
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    first = whole(server.first_gpu * per_gpu)
    last = whole((server.first_gpu + server.num_gpus) * per_gpu)
    _deal(state, b, first, last, whole(server.free_cores) + spare_cores(state, b, s), plan, rules, physics)
    if _pays(state, b, first, last, plan, rules, physics):
        for more in (False, True):
            _hand_out(state, b, first, last, more, plan, physics)
