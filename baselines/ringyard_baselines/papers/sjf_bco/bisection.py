"""Bisection on theta: SJF-BCO with the loop over kappa inside (Algorithm 1).

Its comparators FF, LS and RAND have a limit on the accumulated time of each GPU instead.
"""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, kernel
from ringyard_baselines.papers.sjf_bco.gpu_choice import (
    choose_for_large,
    choose_for_small,
    earliest_free,
    find_candidates,
)
from ringyard_baselines.papers.sjf_bco.plan import FIRST_FIT, RANDOM, SJF_BCO, GpuPlan, PlanningProblem
from ringyard_baselines.papers.sjf_bco.planner_state import (
    EXIT,
    PlannerState,
    assign_job,
    copy_trial,
    start_trial,
)


@kernel
def _plan_jobs(
    planner: PlannerState,
    plan: GpuPlan,
    task: PlanningProblem,
    begin: int,
    end: int,
    small: bool,
    theta: float,
    limit: float,
) -> bool:
    """Plan jobs `begin` to `end` - 1 of SJF-BCO. False: no place, or an end after `limit`."""
    batch = task.batch
    for i in range(begin, end):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if small:
            time = choose_for_small(planner, batch.estimates[i], theta, out)
        else:
            capacity = task.over_provision * len(out)
            time = choose_for_large(planner, batch.estimates[i], theta, capacity, out)
        if time == np.inf:
            return False
        plan.start[i] = time
        assign_job(planner, batch, i, out, time, task.physics)
        if planner.clock[EXIT] > limit:
            return False
    return True


@kernel
def _try_kappas(
    planner: PlannerState,
    after_small: PlannerState,
    plan: GpuPlan,
    task: PlanningProblem,
    theta: float,
    limit: float,
    kappas: IntVector,
) -> tuple[float, int]:
    """Return the earliest makespan of SJF-BCO at theta, up to `limit` (else inf), and the place of its kappa.

    `after_small` holds the small jobs of a kappa, to which those of the next are added, since a trial with a
    larger one begins alike. `plan` gets the GPUs of the last trial.
    """
    found, chosen, small, count = np.inf, 0, 0, len(task.batch.records)
    start_trial(after_small, task.busy_seconds)
    for k in range(len(kappas)):
        latest = min(limit, found)  # a trial that ends later changes nothing
        planned = small
        while small < count and plan.begin[small + 1] - plan.begin[small] <= kappas[k]:
            small += 1
        if not _plan_jobs(after_small, plan, task, planned, small, True, theta, latest):
            break
        copy_trial(after_small, planner)
        if _plan_jobs(planner, plan, task, small, count, False, theta, latest):
            if planner.clock[EXIT] < found:
                found, chosen = planner.clock[EXIT], k
    return found, chosen


@kernel
def find_certain_starts(planner: PlannerState, plan: GpuPlan, task: PlanningProblem) -> int:
    """Return how many jobs, from the first on, get the same GPUs at once in every trial that places all jobs.

    They are small whatever kappa, and choose GPUs without load, which are within any theta that has a place
    for them. Their GPUs and starts are in `plan` afterwards, those of later jobs mean nothing. `planner`
    is work space. `task` has the jobs in order of size.
    """
    start_trial(planner, task.busy_seconds)
    batch = task.batch
    for i in range(len(batch.records)):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if len(out) > task.kappas[0]:
            return i
        time = choose_for_small(planner, batch.estimates[i], np.inf, out)
        for g in out:
            if time > 0.0 or planner.load[g] > 0.0:
                return i
        plan.start[i] = time
        assign_job(planner, batch, i, out, time, task.physics)
    return len(batch.records)


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
    load, free_at, taken = planner.load, planner.free_at, planner.candidates
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
    start_trial(planner, task.busy_seconds)
    idle = 0.0  # time from which all GPUs are idle
    for seconds in task.busy_seconds:
        idle = max(idle, seconds)
    time = 0.0
    for i in range(len(batch.records)):
        estimate = batch.estimates[i]
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        # a queued job may take GPUs that are busy until then
        since = max(idle, planner.clock[EXIT]) if task.queue_on_busy_gpus else time
        found = earliest_free(planner, find_candidates(planner, estimate, theta), len(out), since)
        if found == np.inf:
            return np.inf
        if not task.queue_on_busy_gpus:
            time = found
        _choose(planner, task.rule, batch.draws[i], estimate, theta, found, out)
        plan.start[i] = time
        for g in out:
            plan.start[i] = max(plan.start[i], planner.free_at[g])
        assign_job(planner, batch, i, out, plan.start[i], task.physics)
        if planner.clock[EXIT] > limit:
            return np.inf
    return planner.clock[EXIT]


@kernel
def bisect_theta(
    planner: PlannerState, after_small: PlannerState, plan: GpuPlan, task: PlanningProblem
) -> tuple[float, float, int]:
    """Return planned makespan and theta in seconds, and kappa: the smallest theta, the trial that ends first.

    `plan` gets the best plan. The makespan is inf if no plan ends within the horizon. `planner` and
    `after_small` are work space.
    """
    best, best_theta, chosen, k = np.inf, task.horizon, 0, 0
    left, right = 0.0, task.horizon
    theta = task.horizon if task.rule == RANDOM else task.horizon / 2.0
    while True:
        limit = min(task.horizon, best)  # a trial that ends later changes nothing
        if task.rule == SJF_BCO:
            found, k = _try_kappas(planner, after_small, plan, task, theta, limit, task.kappas)
        else:
            found = _trial(planner, plan, task, theta, limit)
        if found < np.inf:
            best, best_theta, chosen = found, theta, k
            right = theta
        else:
            left = theta
        if right - left <= task.resolution or task.rule == RANDOM:
            break
        theta = (left + right) / 2.0
    if best < np.inf and task.rule == SJF_BCO:
        kappas = task.kappas[chosen : chosen + 1]
        _try_kappas(planner, after_small, plan, task, best_theta, best, kappas)
    elif best < np.inf:
        _trial(planner, plan, task, best_theta, best)
    return best, best_theta, task.kappas[chosen]
