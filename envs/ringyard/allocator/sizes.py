"""The GPUs that each job shall hold: each GPU goes where it adds most weighted worth."""

import numpy as np

from ringyard.allocator.plan import ORDERED, Plan, Rules, live_job, num_live
from ringyard.compiled import (
    FloatMatrix,
    FloatVector,
    Int32Vector,
    address_of,
    complain,
    complaint,
    kernel,
    linked_kernel,
    whole,
)
from ringyard.restart import resize_pause, restart_pause
from ringyard.state.arrays import State, waiting_at
from ringyard.state.records import Job, JobStatus

_LEAST_SECONDS = 1.0
_NO_TIME = complaint(
    "estimate {function} says that job {job} has {got} s left at {there:.0f} s; expected a finite number, at"
    " least 0"
)


@kernel
def _stop_cost(job: Job, rules: Rules) -> float:
    """Seconds that stopping a running job counts as."""
    return rules.stop_price * restart_pause(job, whole(job.num_gpus))


@linked_kernel
def weigh(state: State, b: int, plan: Plan, rules: Rules) -> None:
    """Estimate what live jobs have left, and say what their speed counts.

    Of a job that was stopped, the pause of its next start counts as work left.
    """
    rules.estimate.seconds(state, b, rules.estimate.parameters, plan.memory[b], plan.left[b])
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        job = state.jobs[b, j]
        left = plan.left[b, j]
        if not 0.0 <= left < np.inf:
            complain(_NO_TIME, address_of(rules.estimate.seconds), j, left, 0.0, state.clusters[b].now)
        left = max(left, _LEAST_SECONDS)
        if job.status != JobStatus.RUNNING and job.num_preemptions + job.num_failures > 0:
            left += restart_pause(job, whole(job.asked_gpus))
        plan.left[b, j] = left
        shown = left
        if job.status == JobStatus.RUNNING:
            shown *= rules.stay
            plan.spare[b, j] = shown - _stop_cost(job, rules)
        exponent = rules.score_scale * plan.score[b, j] - rules.gamma * np.log(shown)
        plan.weight[b, j] = np.exp(exponent)


@kernel
def _before(slope: FloatVector, i: int, k: int) -> int:
    """1 if job i is asked before job k, else 0; of equal ones by row, as running ones stand as they will end.

    Without a branch: which of two jobs it is cannot be foreseen.
    """
    return whole((slope[i] > slope[k]) | ((slope[i] == slope[k]) & (i < k)))


@kernel
def _sink(queue: Int32Vector, slope: FloatVector, i: int, count: int) -> None:
    """Restore the heap (largest slope first) below position i."""
    j = queue[i]
    while 2 * i + 1 < count:
        k = 2 * i + 1
        if k + 1 < count:
            k += _before(slope, queue[k + 1], queue[k])
        if _before(slope, j, queue[k]):
            break
        queue[i] = queue[k]
        i = k
    queue[i] = j


@kernel
def queue_up(queue: Int32Vector, slope: FloatVector, count: int) -> None:
    """Make a heap of the first `count` jobs of a queue.

    Args:
        queue: [jobs] rows.
        slope: [jobs] by row: the largest comes first.
        count: of the jobs.
    """
    for i in range(count // 2 - 1, -1, -1):
        _sink(queue, slope, i, count)


@kernel
def pop(queue: Int32Vector, slope: FloatVector, count: int) -> int:
    """The job with the largest slope of a heap of `count`; the heap is one shorter then."""
    j = queue[0]
    queue[0] = queue[count - 1]
    queue[count - 1] = j
    _sink(queue, slope, 0, count - 1)
    return whole(j)


@kernel
def queue_waiting(state: State, b: int, weight: FloatMatrix, most_gpus: int, plan: Plan) -> int:
    """Queue the waiting jobs that ask for so many GPUs at most, the heaviest per GPU first; how many.

    Args:
        weight: [clusters, jobs] `Plan.weight`, or one of its like.
        (others): as everywhere.
    """
    count = 0
    for i in range(state.clusters[b].num_waiting):
        j = waiting_at(state, b, i)
        asked = state.jobs[b, j].asked_gpus
        if 0 < asked <= most_gpus:
            plan.slope[b, j] = weight[b, j] / asked
            plan.queue[b, count] = j
            count += 1
    queue_up(plan.queue[b], plan.slope[b], count)
    return count


@kernel
def _resize_cost(job: Job, k: int, left: float, rules: Rules) -> float:
    """What going to k GPUs costs a running job's worth."""
    return rules.resize_price * resize_pause(job, k) / left


@kernel
def _find_step(state: State, b: int, j: int, most: int, plan: Plan, rules: Rules) -> None:
    """The step of job j, of `most` GPUs at most, that adds most per GPU to its grant; slope 0: none."""
    job = state.jobs[b, j]
    table = plan.worth[b, j]
    have = plan.target[b, j]
    held = job.num_gpus if job.status == JobStatus.RUNNING else 0
    varies = job.resize_growth > 0.0 or job.resize_jump > 0.0
    cost = _resize_cost(job, held, plan.left[b, j], rules) if held > 0 else 0.0
    value = 0.0
    if have > 0:
        value = table[have]
        if held > 0 and have != held:
            value -= _resize_cost(job, have, plan.left[b, j], rules) if varies else cost
    best = 0.0
    for k in range(max(have + 1, job.min_gpus), min(job.max_gpus, have + most, len(table) - 1) + 1):
        if best * (k - have) >= plan.most_worth[b, j] - value:
            break  # no larger size adds as much
        if table[k] > 0.0:
            gain = table[k] - value
            if held > 0 and k != held:
                gain -= _resize_cost(job, k, plan.left[b, j], rules) if varies else cost
            if gain > best * (k - have):
                best = gain / (k - have)
                plan.step[b, j] = k
    plan.slope[b, j] = plan.weight[b, j] * best
    if rules.stop_price > 0.0 and held > 0 and have == 0:
        more = _stop_cost(job, rules) / max(plan.spare[b, j], _LEAST_SECONDS)
        plan.slope[b, j] *= (1.0 + more) ** rules.gamma


@linked_kernel
def choose_sizes(state: State, b: int, plan: Plan, rules: Rules) -> None:
    """Grant GPUs step by step, the best step first, until none is left."""
    cluster = state.clusters[b]
    budget = cluster.num_gpus - cluster.down_gpus
    count = 0
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        plan.target[b, j] = 0
        if state.jobs[b, j].asked_gpus > 0:
            _find_step(state, b, j, budget, plan, rules)
            plan.queue[b, count] = j
            count += 1
    plan.counts[b, ORDERED] = count
    queue_up(plan.queue[b], plan.slope[b], count)
    while count > 0 and budget > 0:
        j = plan.queue[b, 0]
        if plan.slope[b, j] <= 0.0:
            break
        if plan.step[b, j] - plan.target[b, j] <= budget:
            budget -= plan.step[b, j] - plan.target[b, j]
            plan.target[b, j] = plan.step[b, j]
        _find_step(state, b, j, budget, plan, rules)
        _sink(plan.queue[b], plan.slope[b], 0, count)
