"""Bisection on theta: SJF-BCO with the loop over kappa inside (Algorithm 1), skipping equal trials.

Its comparators FF, LS and RAND have a limit on the accumulated time of each GPU instead.
"""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, bundle, kernel
from ringyard_baselines.papers.sjf_bco.gpu_choice import (
    choose_for_large,
    choose_for_small,
    earliest_free,
    find_candidates,
)
from ringyard_baselines.papers.sjf_bco.plan import FIRST_FIT, RANDOM, GpuPlan, PlanningProblem
from ringyard_baselines.papers.sjf_bco.planner_state import (
    EXIT,
    HIGHEST,
    PlannerState,
    assign_job,
    copy_trial,
    start_trial,
)


@bundle
class Trials:
    """Trials of the K kappas at one theta, to which trials at smaller thetas are compared.

    A trial in which no load exceeds the smaller theta is the same there: GPUs outside theta stay outside, and
    the chosen ones stay inside. Row k of the planner holds the k-th trial after its small jobs, row K + k the
    same at another theta, and row 2 K the present trial.
    """

    planner: PlannerState  #: work space with `num_rows` rows
    plan: GpuPlan  #: plan of the present trial, the best one in the end
    task: PlanningProblem  #: jobs in order of size, GPUs, settings of the search
    num_small: IntVector  #: [K] number of small jobs
    makespan: FloatVector  #: [K] last exit. inf: a job found no place or ended too late.
    highest_load: FloatVector  #: [K] largest load until then
    load_after_small: FloatVector  #: [K] largest load after the small jobs. inf: these were not planned.


def num_rows(task: PlanningProblem) -> int:
    """Return the rows of the planner that the trials of `task` need."""
    return 2 * len(task.kappas) + 1


def empty_trials(planner: PlannerState, task: PlanningProblem, plan: GpuPlan) -> Trials:
    """Return trials before any has run, on `planner` with the jobs of `task`. GPUs go to `plan`."""
    kappas = task.kappas
    num_small = np.searchsorted(np.diff(plan.begin), kappas, side="right").astype(np.int64)
    makespan, highest_load, load_after_small = np.full((3, len(kappas)), np.inf)
    return Trials(planner, plan, task, num_small, makespan, highest_load, load_after_small)


@kernel
def _plan_jobs(trials: Trials, r: int, begin: int, end: int, small: bool, theta: float, limit: float) -> bool:
    """Plan jobs `begin` to `end` - 1 in row r. False: no place, or an end after `limit`."""
    planner, plan, task = trials.planner, trials.plan, trials.task
    batch = task.batch
    for i in range(begin, end):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if small:
            time = choose_for_small(planner, r, batch.estimates[i], theta, out)
        else:
            capacity = task.over_provision * len(out)
            time = choose_for_large(planner, r, batch.estimates[i], theta, capacity, out)
        if time == np.inf:
            return False
        plan.start[i] = time
        assign_job(planner, r, batch, i, out, time, task.physics)
        if planner.clock[r, EXIT] > limit:
            return False
    return True


@kernel
def _plan_small_jobs(trials: Trials, r: int, k: int, before: int, theta: float, limit: float) -> bool:
    """Plan the small jobs of the k-th kappa in row r, starting from those of kappa k - 1 in row `before`."""
    since = 0
    if k == 0:
        start_trial(trials.planner, r, trials.task.busy_seconds)
    else:
        copy_trial(trials.planner, before, r)
        since = trials.num_small[k - 1]
    return _plan_jobs(trials, r, since, trials.num_small[k], True, theta, limit)


@kernel
def _plan_large_jobs(trials: Trials, k: int, source: int, theta: float, limit: float) -> float:
    """Plan the large jobs of the k-th kappa after row `source`, and return the last exit, inf: no plan."""
    planner = trials.planner
    r = 2 * len(trials.num_small)
    copy_trial(planner, source, r)
    since, until = trials.num_small[k], len(trials.task.batch.records)
    if _plan_jobs(trials, r, since, until, False, theta, limit):
        return planner.clock[r, EXIT]
    return np.inf


@kernel
def _try_all(trials: Trials, theta: float, best: float) -> tuple[float, int]:
    """Return the earliest makespan at theta, up to `best`, and the number of its kappa. Keeps all trials."""
    planner = trials.planner
    found, chosen, count = np.inf, 0, len(trials.num_small)
    trials.makespan[:] = np.inf
    trials.load_after_small[:] = np.inf
    for k in range(count):
        limit = min(trials.task.horizon, best, found)  # a trial that ends later changes nothing
        if not _plan_small_jobs(trials, k, k, k - 1, theta, limit):
            trials.highest_load[k:] = planner.clock[k, HIGHEST]
            break
        trials.load_after_small[k] = planner.clock[k, HIGHEST]
        trials.makespan[k] = _plan_large_jobs(trials, k, k, theta, limit)
        trials.highest_load[k] = planner.clock[2 * count, HIGHEST]
        if trials.makespan[k] < found:
            found, chosen = trials.makespan[k], k
    return found, chosen


@kernel
def _try_changed(trials: Trials, theta: float, best: float) -> tuple[float, int]:
    """Return as `_try_all` at a smaller theta, running only the trials that differ."""
    found, chosen, count = np.inf, 0, len(trials.num_small)
    row = -1
    for k in range(count):
        limit = min(trials.task.horizon, best, found)
        if trials.load_after_small[k] <= theta:
            row = k
        if trials.highest_load[k] <= theta:
            makespan = trials.makespan[k]
        else:
            if trials.load_after_small[k] > theta:
                if not _plan_small_jobs(trials, count + k, k, row, theta, limit):
                    break
                row = count + k
            makespan = _plan_large_jobs(trials, k, row, theta, limit)
        if makespan <= limit and makespan < found:
            found, chosen = makespan, k
    return found, chosen


@kernel
def bisect_theta_and_kappa(trials: Trials) -> tuple[float, float, int]:
    """Return planned makespan and theta in seconds, and kappa: the smallest theta, the trial that ends first.

    `trials.plan` gets the best plan. The makespan is inf if no plan ends within the horizon.
    """
    task = trials.task
    best, best_theta, best_kappa = np.inf, task.horizon, 0
    left, right = 0.0, task.horizon
    noted = 0.0  # the theta of `trials`
    theta = right / 2.0
    while True:
        if theta > noted:
            found, kappa = _try_all(trials, theta, best)
            noted = theta
        else:
            found, kappa = _try_changed(trials, theta, best)
        if found < np.inf:
            best, best_theta, best_kappa = found, theta, kappa
            right = theta
        else:
            left = theta
        if right - left <= task.resolution:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        r = 2 * len(trials.num_small)
        start_trial(trials.planner, r, trials.task.busy_seconds)
        num_small = trials.num_small[best_kappa]
        _plan_jobs(trials, r, 0, num_small, True, best_theta, np.inf)
        _plan_jobs(trials, r, num_small, len(trials.task.batch.records), False, best_theta, np.inf)
    return best, best_theta, task.kappas[best_kappa]


@kernel
def find_certain_starts(planner: PlannerState, plan: GpuPlan, task: PlanningProblem) -> int:
    """Return how many jobs, from the first on, get the same GPUs at once in every trial that places all jobs.

    They are small whatever kappa, and choose GPUs without load, which are within any theta that has a place
    for them. Their GPUs and starts are in `plan` afterwards, those of later jobs mean nothing. Row 0 of
    `planner` is work space. `task` has the jobs in order of size.
    """
    start_trial(planner, 0, task.busy_seconds)
    batch = task.batch
    for i in range(len(batch.records)):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if len(out) > task.kappas[0]:
            return i
        time = choose_for_small(planner, 0, batch.estimates[i], np.inf, out)
        for g in out:
            if time > 0.0 or planner.load[0, g] > 0.0:
                return i
        plan.start[i] = time
        assign_job(planner, 0, batch, i, out, time, task.physics)
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
