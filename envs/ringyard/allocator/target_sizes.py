"""Weights of jobs, and the number of GPUs that each shall hold (its target).

GPUs are granted greedily. Each step goes where weighted utility grows most per GPU.
"""

import numpy as np

from ringyard.allocator.allocation_plan import QUEUED, AllocationPlan, AllocatorConfig
from ringyard.allocator.estimates import live_job, num_live
from ringyard.compiled import (
    FloatMatrix,
    FloatVector,
    Int32Vector,
    error_message,
    function_address,
    kernel,
    linked_kernel,
    raise_plugin_error,
    to_int,
)
from ringyard.restart import resize_pause, restart_pause
from ringyard.state.arrays import State, waiting_at
from ringyard.state.records import Job, JobStatus

_LEAST_SECONDS = 1.0
_NO_TIME = error_message(
    "estimate {function} gave job {job} {got} seconds left at {there:.0f} s; expected a finite number of at"
    " least 0"
)


@kernel
def _preemption_seconds(job: Job, config: AllocatorConfig) -> float:
    """Seconds of `Allocator.preemption_price` restarts of a running job."""
    return config.preemption_price * restart_pause(job, to_int(job.num_gpus))


@linked_kernel
def estimate_seconds_left(state: State, b: int, plan: AllocationPlan, config: AllocatorConfig) -> None:
    """Write `seconds_left` of live jobs. An estimate that is negative or not finite raises a PluginError."""
    estimate = config.estimate
    estimate.seconds(state, b, estimate.parameters, plan.estimate_memory[b], plan.seconds_left[b])
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        left = plan.seconds_left[b, j]
        if not 0.0 <= left < np.inf:
            now = state.clusters[b].now
            raise_plugin_error(_NO_TIME, function_address(config.estimate.seconds), j, left, 0.0, now)


@linked_kernel
def set_weights(state: State, b: int, plan: AllocationPlan, config: AllocatorConfig) -> None:
    """Compute `seconds_left` and `weight` of live jobs: seconds left ** -gamma * exp(score_scale * score).

    Seconds left of running jobs count `running_factor` times. Those of preempted or failed jobs include the
    pause of their next start. A waiting job that shall not start, by `Allocator.min_score`, has weight 0.
    """
    running = state.clusters[b].num_running > 0
    estimate_seconds_left(state, b, plan, config)
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        job = state.jobs[b, j]
        left = max(plan.seconds_left[b, j], _LEAST_SECONDS)
        if job.status != JobStatus.RUNNING and job.num_preemptions + job.num_failures > 0:
            left += restart_pause(job, to_int(job.asked_gpus))
        plan.seconds_left[b, j] = left
        effective_left = left
        if job.status == JobStatus.RUNNING:
            effective_left *= config.running_factor
            plan.preemption_margin[b, j] = effective_left - _preemption_seconds(job, config)
        exponent = config.score_scale * plan.score[b, j] - config.gamma * np.log(effective_left)
        plan.weight[b, j] = np.exp(exponent)
        if running and job.status == JobStatus.WAITING and plan.score[b, j] < config.min_score:
            plan.weight[b, j] = 0.0


@kernel
def _precedes(priority: FloatVector, i: int, k: int) -> int:
    """1 if job `i` has more `priority` than job `k`, or as much and a lower row. Else 0. Without a branch.

    The row breaks ties, because the order of running jobs reveals when they will end.
    """
    return to_int((priority[i] > priority[k]) | ((priority[i] == priority[k]) & (i < k)))


@kernel
def _sift_down(queue: Int32Vector, priority: FloatVector, i: int, count: int) -> None:
    """Restore the heap of `count` jobs (largest priority first) below position `i`."""
    j = queue[i]
    while 2 * i + 1 < count:
        k = 2 * i + 1
        if k + 1 < count:
            k += _precedes(priority, queue[k + 1], queue[k])
        if _precedes(priority, j, queue[k]):
            break
        queue[i] = queue[k]
        i = k
    queue[i] = j


@kernel
def build_heap(queue: Int32Vector, priority: FloatVector, count: int) -> None:
    """Make a heap of the first `count` rows in `queue`: the largest `priority` (by row) first."""
    for i in range(count // 2 - 1, -1, -1):
        _sift_down(queue, priority, i, count)


@kernel
def pop_largest(queue: Int32Vector, priority: FloatVector, count: int) -> int:
    """Remove and return the job of largest `priority` of a heap `queue`; it is left behind the heap."""
    j = queue[0]
    queue[0] = queue[count - 1]
    queue[count - 1] = j
    _sift_down(queue, priority, 0, count - 1)
    return to_int(j)


@kernel
def queue_waiting_jobs(state: State, b: int, weight: FloatMatrix, max_gpus: int, plan: AllocationPlan) -> int:
    """Make a heap of waiting jobs of 1 to `max_gpus` GPUs by `weight` / GPUs; return its length."""
    count = 0
    for i in range(state.clusters[b].num_waiting):
        j = waiting_at(state, b, i)
        asked = state.jobs[b, j].asked_gpus
        if 0 < asked <= max_gpus:
            plan.priority[b, j] = weight[b, j] / asked
            plan.queue[b, count] = j
            count += 1
    build_heap(plan.queue[b], plan.priority[b], count)
    return count


@kernel
def _resize_cost(job: Job, k: int, left: float, config: AllocatorConfig) -> float:
    """Utility that a resize of a running job to `k` GPUs costs: its pause / `left` seconds, priced."""
    return config.resize_price * resize_pause(job, k) / left


@kernel
def _find_gpu_step(
    state: State, b: int, j: int, max_step: int, plan: AllocationPlan, config: AllocatorConfig
) -> None:
    """Find the best `next_step` of job `j` up to `max_step`, and its gain per GPU, `priority` (0: none)."""
    job = state.jobs[b, j]
    table = plan.utility[b, j]
    granted = plan.target_gpus[b, j]
    held = job.num_gpus if job.status == JobStatus.RUNNING else 0
    cost_varies = job.resize_growth > 0.0 or job.resize_jump > 0.0
    cost = _resize_cost(job, held, plan.seconds_left[b, j], config) if held > 0 else 0.0
    value = 0.0
    if granted > 0:
        value = table[granted]
        if held > 0 and granted != held:
            value -= _resize_cost(job, granted, plan.seconds_left[b, j], config) if cost_varies else cost
    best = 0.0
    for k in range(max(granted + 1, job.min_gpus), min(job.max_gpus, granted + max_step, len(table) - 1) + 1):
        if best * (k - granted) >= plan.max_utility[b, j] - value:
            break  # no larger size can gain as much
        if table[k] > 0.0:
            gain = table[k] - value
            if held > 0 and k != held:
                gain -= _resize_cost(job, k, plan.seconds_left[b, j], config) if cost_varies else cost
            if gain > best * (k - granted):
                best = gain / (k - granted)
                plan.next_step[b, j] = k
    plan.priority[b, j] = plan.weight[b, j] * best
    if config.preemption_price > 0.0 and held > 0 and granted == 0:  # weight with the margin as time left
        more = _preemption_seconds(job, config) / max(plan.preemption_margin[b, j], _LEAST_SECONDS)
        plan.priority[b, j] *= (1.0 + more) ** config.gamma


@linked_kernel
def set_target_gpus(state: State, b: int, plan: AllocationPlan, config: AllocatorConfig) -> None:
    """Set `target_gpus` of live jobs: grant GPUs step by step, the best step first, until none is left."""
    cluster = state.clusters[b]
    budget = cluster.num_gpus - cluster.down_gpus
    count = 0
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        plan.target_gpus[b, j] = 0
        if state.jobs[b, j].asked_gpus > 0:
            _find_gpu_step(state, b, j, budget, plan, config)
            plan.queue[b, count] = j
            count += 1
    plan.counts[b, QUEUED] = count
    build_heap(plan.queue[b], plan.priority[b], count)
    while count > 0 and budget > 0:
        j = plan.queue[b, 0]
        if plan.priority[b, j] <= 0.0:
            break
        if plan.next_step[b, j] - plan.target_gpus[b, j] <= budget:
            budget -= plan.next_step[b, j] - plan.target_gpus[b, j]
            plan.target_gpus[b, j] = plan.next_step[b, j]
        _find_gpu_step(state, b, j, budget, plan, config)
        _sift_down(plan.queue[b], plan.priority[b], 0, count)
