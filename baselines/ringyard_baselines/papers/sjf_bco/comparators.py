"""Compiled planner of SJF-BCO's comparators: assign every job to GPUs under a limit on each GPU's time."""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, kernel
from ringyard_baselines.papers.sjf_bco.plan import FIRST_FIT, RANDOM, GpuPlan, PlanningProblem
from ringyard_baselines.papers.sjf_bco.planner_state import EXIT, PlannerState, assign_job, start_trial


@kernel
def _earliest(planner: PlannerState, estimate: float, theta: float, time: float, count: int) -> float:
    """When `count` GPUs within theta are free: `time`, or an exit after it; inf: there are not as many."""
    load, free_at = planner.load[0], planner.free_at[0]
    while time < np.inf:
        later = np.inf
        free = 0
        for g in range(len(load)):
            if load[g] + estimate <= theta:
                if free_at[g] <= time:
                    free += 1
                else:
                    later = min(later, free_at[g])
        if free >= count:
            return time
        time = later
    return np.inf


@kernel
def _choose(
    planner: PlannerState,
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
    load, free_at, taken = planner.load[0], planner.free_at[0], planner.candidates
    taken[:] = 0
    for i in range(len(out)):
        best = -1
        for g in range(len(load)):
            if taken[g] != 0 or free_at[g] > time or load[g] + estimate > theta:
                continue
            if best < 0 or (priority[g] < priority[best] if rule == RANDOM else load[g] < load[best]):
                best = g
                if rule == FIRST_FIT:
                    break
        taken[best] = 1
        out[i] = best


@kernel
def _trial(planner: PlannerState, plan: GpuPlan, task: PlanningProblem, theta: float, limit: float) -> float:
    """Plan every job in order; the last exit.

    inf if a job finds no place or ends after `limit`.
    """
    batch, search = task.batch, task.settings
    start_trial(planner, 0, task.busy_seconds)
    idle = 0.0  # when all GPUs are
    for seconds in task.busy_seconds:
        idle = max(idle, seconds)
    time = 0.0
    for i in range(len(batch.records)):
        estimate = batch.estimates[i]
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        since = (
            max(idle, planner.clock[0, EXIT]) if search.queue_on_busy_gpus else time
        )  # a job that queues up takes any
        found = _earliest(planner, estimate, theta, since, len(out))
        if found == np.inf:
            return np.inf
        if not search.queue_on_busy_gpus:
            time = found
        _choose(planner, search.rule, batch.draws[i], estimate, theta, found, out)
        plan.start[i] = time
        for g in out:
            plan.start[i] = max(plan.start[i], planner.free_at[0, g])
        assign_job(planner, 0, batch, i, out, plan.start[i], task.physics)
        if planner.clock[0, EXIT] > limit:
            return np.inf
    return planner.clock[0, EXIT]


@kernel
def bisect_theta(planner: PlannerState, plan: GpuPlan, task: PlanningProblem) -> tuple[float, float]:
    """Bisection on theta_u; the best plan stays in `plan`.

    Args:
        planner: work space, one row.
        plan: holds the best plan afterwards.
        task: jobs, GPUs, rule and limits.

    Returns:
        (planned makespan, theta); makespan inf if no plan ends within the horizon.
    """
    tried = task.settings
    best = np.inf
    best_theta = tried.horizon
    left = 0.0
    right = tried.horizon
    theta = tried.horizon if tried.rule == RANDOM else tried.horizon / 2.0
    while True:
        limit = min(tried.horizon, best)  # a trial that ends later changes nothing
        found = _trial(planner, plan, task, theta, limit)
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
        _trial(planner, plan, task, best_theta, np.inf)
    return best, best_theta
