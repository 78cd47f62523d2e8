"""Which GPU type a job shall run on, where a cluster has several."""

import numpy as np

from ringyard.allocator.plan import ORDERED, Plan, Rules
from ringyard.allocator.sizes import pop, queue_up
from ringyard.compiled import kernel, linked_kernel, whole
from ringyard.restart import restart_pause
from ringyard.state.arrays import State
from ringyard.state.on_gpus import slowness_on
from ringyard.state.records import Job, JobStatus

_RUNNING = int(JobStatus.RUNNING)


@kernel
def _regret(state: State, job: Job) -> float:
    """How much faster the job is on its fastest type than on its slowest, on the reference GPU's scale."""
    least = np.inf
    most = 0.0
    for kind in range(state.slowness.shape[1]):
        slowness = slowness_on(state.slowness, job, kind)
        least = min(least, slowness)
        most = max(most, slowness)
    return 1.0 / least - 1.0 / most


@kernel
def _stays(state: State, job: Job, left: float, present: int, other: int, rules: Rules) -> bool:
    """Whether a move of a running job from its type to another would save too little."""
    here, there = slowness_on(state.slowness, job, present), slowness_on(state.slowness, job, other)
    return left * (here - there) <= rules.move_price * restart_pause(job, job.num_gpus)


@linked_kernel
def choose_types(state: State, b: int, plan: Plan, rules: Rules) -> None:
    """Give each job that shall hold GPUs a type with room; who has most to lose by another chooses first.

    One that no type has room for may go anywhere. A running job goes to another type only if that saves
    `Rules.move_price` times its restart.
    """
    room = plan.type_room[b]
    room[:] = 0
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].up != 0:
            room[state.servers[b, s].gpu_type] += state.servers[b, s].num_gpus
    count = whole(plan.counts[b, ORDERED])
    for i in range(count):
        j = plan.queue[b, i]
        plan.gpu_type[b, j] = -1
        plan.slope[b, j] = plan.weight[b, j] * _regret(state, state.jobs[b, j])
        if plan.target[b, j] == 0:
            plan.slope[b, j] = -1.0
    queue_up(plan.queue[b], plan.slope[b], count)
    for left in range(count, 0, -1):
        j = pop(plan.queue[b], plan.slope[b], left)
        wanted = plan.target[b, j]
        if wanted == 0:
            continue
        job = state.jobs[b, j]
        running = job.status == _RUNNING
        best = -1
        fastest = 0.0
        present = whole(state.servers[b, state.slots[b, job.first_slot].server].gpu_type) if running else -1
        for kind in range(len(room)):
            speed = 1.0 / slowness_on(state.slowness, job, kind)
            if kind < len(plan.scored_as) and plan.scored_as[kind] >= 0:
                speed *= np.exp(plan.type_score[b, j, plan.scored_as[kind]])
            if kind == present:
                speed *= 1.0 + rules.stay_bonus
            if room[kind] >= wanted and speed > fastest:
                best = kind
                fastest = speed
        if present >= 0 and best >= 0 and best != present and room[present] >= wanted:
            if _stays(state, job, plan.left[b, j], present, best, rules):
                best = present
        plan.gpu_type[b, j] = best
        if best >= 0:
            room[best] -= wanted
