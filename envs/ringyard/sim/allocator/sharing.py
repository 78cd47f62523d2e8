"""Jobs on GPUs that others hold: who joins whom, and who leaves for GPUs of its own."""

import numpy as np

from ringyard.compiled import kernel, linked_kernel, whole
from ringyard.placement.room import open_gpus
from ringyard.placement.rules import fastest_gpus
from ringyard.placement.share import take_mildest
from ringyard.restart import restart_pause
from ringyard.sim.allocator.beside import least_beside
from ringyard.sim.allocator.moves import give
from ringyard.sim.allocator.plan import DECISIONS, Plan, Rules
from ringyard.sim.allocator.sizes import pop, queue_up
from ringyard.sim.engine.holding import lift, put_back
from ringyard.sim.engine.physics import Physics
from ringyard.sim.engine.shape import ask, asked_shape, set_shape, shape_of
from ringyard.sim.fits import FITS, fits
from ringyard.state.arrays import State
from ringyard.state.on_gpus import excess_beside, excess_given, shared_on, summable
from ringyard.state.records import JobStatus

__all__ = ["join", "leave"]

_RUNNING = int(JobStatus.RUNNING)


@kernel
def _weight(plan: Plan, b: int, j: int, rules: Rules) -> float:
    """What the speed of a job counts beside others on a GPU."""
    return float(plan.left[b, j] ** -rules.sharing_power * np.exp(rules.score_scale * plan.score[b, j]))


@kernel
def _gain(state: State, b: int, j: int, count: int, plan: Plan, rules: Rules) -> float:
    """Weighted speed won if waiting job j joined `out[:count]`, less what those there lose."""
    out, seen = plan.out[b], plan.seen[b]
    per_gpu = state.clusters[b].jobs_per_gpu
    job = state.jobs[b, j]
    own = shared_on(state, job, whole(state.servers[b, state.gpus[b, out[0]].server].gpu_type))
    worst = 0.0
    lost = 0.0
    for n in range(count):
        suffered = 0.0
        for i in range(out[n] * per_gpu, (out[n] + 1) * per_gpu):
            k = state.slots[b, i].job
            if k < 0:
                continue
            suffered += excess_beside(state, b, job.model, own, i)
            if seen[k] == seen[-1]:
                continue
            seen[k] = seen[-1]
            before = state.jobs[b, k].sharing_slowdown
            after = max(before, 1.0 + excess_given(state, b, job.model, own, i))
            lost += summable(_weight(plan, b, k, rules) * (1.0 - before / after))
        worst = max(worst, suffered)
    return _weight(plan, b, j, rules) / (1.0 + worst) - lost


@kernel
def _find_company(state: State, b: int, j: int, wanted: int, plan: Plan, rules: Rules) -> float:
    """Write GPUs of the server where job j would win most beside others to `out`; what it would win."""
    best = -1
    most = 0.0
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].open_gpus < wanted or open_gpus(state, b, j, s) < wanted:
            continue
        if take_mildest(state, b, j, s, wanted, plan.out[b], 0) == np.inf:
            continue
        plan.seen[b, plan.seen.shape[1] - 1] += 1
        gain = _gain(state, b, j, wanted, plan, rules)
        if gain > most:
            best = s
            most = gain
    if best >= 0:
        take_mildest(state, b, j, best, wanted, plan.out[b], 0)
    return most


@linked_kernel
def join(state: State, b: int, plan: Plan, rules: Rules, physics: Physics) -> None:
    """Start waiting jobs, the heaviest first, beside others where that wins weighted speed."""
    cluster = state.clusters[b]
    count = 0
    for i in range(cluster.num_waiting):
        j = state.waiting[b, i]
        if 0 < state.jobs[b, j].asked_gpus <= cluster.open_gpus:
            plan.slope[b, j] = _weight(plan, b, whole(j), rules) / state.jobs[b, j].asked_gpus
            plan.queue[b, count] = j
            count += 1
    queue_up(plan, b, count)
    while count > 0 and cluster.open_gpus > 0:
        j = pop(plan, b, count)
        count -= 1
        job = state.jobs[b, j]
        shape = least_beside(state, b, asked_shape(job))
        set_shape(job, shape)
        gain = _find_company(state, b, j, shape.num_gpus, plan, rules)
        ask(job)
        if gain > 0.0 and fits(state, b, j, shape, plan.out[b]).what == FITS:
            give(state, b, j, shape, plan.out[b], plan, physics)


@linked_kernel
def leave(state: State, b: int, plan: Plan, rules: Rules, physics: Physics) -> None:
    """Move jobs that others slow down to free GPUs where that saves restarts, the most slowed first."""
    cluster = state.clusters[b]
    while cluster.free_gpus > 0:
        best = -1
        most = 0.0
        for i in range(cluster.num_running):
            j = whole(state.running[b, i])
            job = state.jobs[b, j]
            if job.sharing_slowdown <= 1.0 or plan.changed[b, j] == plan.counts[b, DECISIONS]:
                continue
            saved = plan.left[b, j] * (job.sharing_slowdown - 1.0)
            saved -= rules.move_price * restart_pause(job, job.num_gpus)
            if saved > most and job.num_gpus <= cluster.free_gpus:
                best = j
                most = saved
        if best < 0:
            return
        shape = shape_of(state.jobs[b, best])
        num_held = lift(state, b, best)
        count = fastest_gpus(state, b, best, shape.num_gpus, False, plan.out[b])
        put_back(state, b, best, num_held)
        if count > 0 and fits(state, b, best, shape, plan.out[b]).what == FITS:
            give(state, b, best, shape, plan.out[b], plan, physics)
        plan.changed[b, best] = plan.counts[b, DECISIONS]
