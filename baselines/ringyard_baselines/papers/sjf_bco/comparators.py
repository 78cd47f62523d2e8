"""Planner of SJF-BCO's comparators FF, LS and RAND, with a limit on the accumulated time of each GPU."""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, kernel
from ringyard_baselines.papers.sjf_bco.gpu_choice import earliest_free, find_candidates
from ringyard_baselines.papers.sjf_bco.plan import FIRST_FIT, RANDOM, GpuPlan, PlanningProblem
from ringyard_baselines.papers.sjf_bco.planner_state import EXIT, PlannerState, assign_job, start_trial


@kernel
def _choose(
    planner: PlannerState,
    rule: int,
    draws: FloatVector,
    estimate: float,
    theta: float,
    time: float,
    out: IntVector,
) -> None:
    """Fill `out` with GPUs within theta, free at `time`: FF by id, LS by least load, RAND by `draws`."""
    load, free_at, taken = planner.load[0], planner.free_at[0], planner.candidates
    taken[:] = 0
    for i in range(len(out)):
        best = -1
        for g in range(len(load)):
            if taken[g] != 0 or free_at[g] > time or load[g] + estimate > theta:
                continue
            if best < 0 or (draws[g] < draws[best] if rule == RANDOM else load[g] < load[best]):
                best = g
                if rule == FIRST_FIT:
                    break
        taken[best] = 1
        out[i] = best


@kernel
def _trial(planner: PlannerState, plan: GpuPlan, task: PlanningProblem, theta: float, limit: float) -> float:
    """Plan every job in order and return the last exit, inf if a job finds no place or ends after `limit`."""
    batch = task.batch
    start_trial(planner, 0, task.busy_seconds)
    idle = 0.0  # time from which all GPUs are idle
    for seconds in task.busy_seconds:
        idle = max(idle, seconds)
    time = 0.0
    for i in range(len(batch.records)):
        estimate = batch.estimates[i]
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        # a queued job may take GPUs that are busy until then
        since = max(idle, planner.clock[0, EXIT]) if task.queue_on_busy_gpus else time
        found = earliest_free(planner, 0, find_candidates(planner, 0, estimate, theta), len(out), since)
        if found == np.inf:
            return np.inf
        if not task.queue_on_busy_gpus:
            time = found
        _choose(planner, task.rule, batch.draws[i], estimate, theta, found, out)
        plan.start[i] = time
        for g in out:
            plan.start[i] = max(plan.start[i], planner.free_at[0, g])
        assign_job(planner, 0, batch, i, out, plan.start[i], task.physics)
        if planner.clock[0, EXIT] > limit:
            return np.inf
    return planner.clock[0, EXIT]


@kernel
def bisect_theta(planner: PlannerState, plan: GpuPlan, task: PlanningProblem) -> tuple[float, float]:
    """Bisect on theta_u, keep the best plan in `plan`, and return its makespan (inf: none) and theta, s."""
    best = np.inf
    best_theta = task.horizon
    left = 0.0
    right = task.horizon
    theta = task.horizon if task.rule == RANDOM else task.horizon / 2.0
    while True:
        limit = min(task.horizon, best)  # a trial that ends later changes nothing
        found = _trial(planner, plan, task, theta, limit)
        if found < np.inf:
            best = found
            best_theta = theta
            right = theta
        else:
            left = theta
        if right - left <= task.resolution or task.rule == RANDOM:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        _trial(planner, plan, task, best_theta, np.inf)
    return best, best_theta
