"""Compiled planner of SJF-BCO's comparators: assign every job to GPUs under a limit on each GPU's time."""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, kernel
from ringyard.performance.model import Physics, iteration_seconds
from ringyard_baselines.papers.sjf_bco.plan import (
    FIRST_FIT,
    RANDOM,
    Batch,
    Plan,
    Task,
)

__all__ = ["search"]


@kernel
def _within(plan: Plan, g: int, estimate: float, theta: float) -> bool:
    """Whether the GPU's load stays within theta."""
    return plan.load[g] + estimate <= theta


@kernel
def _earliest(plan: Plan, estimate: float, theta: float, time: float, count: int) -> float:
    """When `count` GPUs within theta are free: `time`, or an exit after it; inf: there are not as many."""
    while time < np.inf:
        later = np.inf
        free = 0
        for g in range(len(plan.load)):
            if _within(plan, g, estimate, theta):
                if plan.free_at[g] <= time:
                    free += 1
                else:
                    later = min(later, plan.free_at[g])
        if free >= count:
            return time
        time = later
    return np.inf


@kernel
def _comes_before(plan: Plan, rule: int, priority: FloatVector, one: int, other: int) -> bool:
    """Whether the rule prefers a GPU to one of smaller id."""
    if rule == FIRST_FIT:
        return False
    if rule == RANDOM:
        return priority[one] < priority[other]
    return plan.load[one] < plan.load[other]


@kernel
def _choose(
    plan: Plan,
    rule: int,
    priority: FloatVector,
    estimate: float,
    theta: float,
    time: float,
    out: IntVector,
) -> None:
    """Fill `out` with the GPUs within theta, free at `time`, that the rule prefers; there are as many.

    FF: by id; LS: least load first; RAND: by priority.
    """
    plan.taken[:] = 0
    for i in range(len(out)):
        best = -1
        for g in range(len(plan.load)):
            if plan.taken[g] != 0 or plan.free_at[g] > time:
                continue
            if not _within(plan, g, estimate, theta):
                continue
            if best < 0 or _comes_before(plan, rule, priority, g, best):
                best = g
                if rule == FIRST_FIT:
                    break
        plan.taken[best] = 1
        out[i] = best


@kernel
def _commit(
    plan: Plan, servers: IntVector, batch: Batch, i: int, gpus: IntVector, time: float, physics: Physics
) -> float:
    """Occupy the GPUs from `time` on; the job's exit by eq. 8 with the links as planned at its start."""
    job = batch.records[i]
    num_servers = 0
    plan.marks[:] = 0
    for g in gpus:
        if plan.marks[servers[g]] == 0:
            plan.marks[servers[g]] = 1
            num_servers += 1
    worst = 0
    if num_servers > 1:  # marks of its servers become the rings on their links, its own first
        for g in range(len(servers)):
            s = servers[g]
            if plan.marks[s] > 0 and plan.spans[g] == 1 and plan.free_at[g] > time:
                plan.marks[s] += 1
        for g in gpus:
            worst = max(worst, plan.marks[servers[g]])
    job.num_servers = num_servers
    job.contenders = float(worst)
    end = time + job.remaining_iterations * iteration_seconds(job, batch.rows[i], physics)
    job.num_servers = 0
    job.contenders = 0.0
    for g in gpus:
        s = servers[g]
        plan.spans[g] = 0
        if num_servers > 1 and plan.marks[s] > 0:
            plan.spans[g] = 1
            plan.marks[s] = 0
        plan.load[g] += batch.estimates[i]
        plan.free_at[g] = end
    return end


@kernel
def _trial(plan: Plan, task: Task, theta: float, limit: float) -> float:
    """Plan every job in order; the last exit.

    inf if a job finds no place or ends after `limit`.
    """
    batch, machine, search = task.batch, task.machine, task.search
    rule = search.rule
    all_free = 0.0
    for g in range(len(plan.load)):
        plan.load[g] = machine.busy_seconds[g]
        plan.free_at[g] = machine.busy_seconds[g]
        plan.spans[g] = 0
        all_free = max(all_free, machine.busy_seconds[g])
    time = 0.0
    last = 0.0
    for i in range(len(batch.records)):
        estimate = batch.estimates[i]
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        since = all_free if search.queues else time  # who queues up takes any
        found = _earliest(plan, estimate, theta, since, len(out))
        if found == np.inf:
            return np.inf
        if not search.queues:
            time = found
        _choose(plan, rule, batch.priorities[i], estimate, theta, found, out)
        plan.start[i] = time
        for g in out:
            plan.start[i] = max(plan.start[i], plan.free_at[g])
        last = max(last, _commit(plan, machine.servers, batch, i, out, plan.start[i], task.physics))
        all_free = max(all_free, last)
        if last > limit:
            return np.inf
    return last


@kernel
def search(plan: Plan, task: Task) -> tuple[float, float]:
    """Bisection on theta_u; the best plan stays in `plan`.

    Args:
        plan: work space, holds the best plan afterwards.
        task: jobs, GPUs, rule and limits.

    Returns:
        (planned makespan, theta); makespan inf if no plan ends within the horizon.
    """
    tried = task.search
    best = np.inf
    best_theta = tried.horizon
    left = 0.0
    right = tried.horizon
    theta = tried.horizon if tried.rule == RANDOM else tried.horizon / 2.0
    while True:
        limit = min(tried.horizon, best)  # a trial that ends later changes nothing
        found = _trial(plan, task, theta, limit)
        if found < np.inf:
            best = found
            best_theta = theta
            right = theta
        else:
            left = theta
        if right - left <= tried.resolution or tried.rule == RANDOM:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        _trial(plan, task, best_theta, np.inf)
    return best, best_theta
