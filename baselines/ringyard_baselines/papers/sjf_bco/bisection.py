"""SJF-BCO's bisection on theta with the kappa loop inside (Algorithm 1), trials only where they differ."""

import numpy as np

from ringyard.compiled import FloatMatrix, FloatVector, IntVector, bundle, kernel
from ringyard_baselines.papers.sjf_bco.gpu_choice import choose_for_large, choose_for_small
from ringyard_baselines.papers.sjf_bco.plan import GpuPlan, PlanningProblem
from ringyard_baselines.papers.sjf_bco.planner_state import (
    EXIT,
    HIGHEST,
    PlannerState,
    assign_job,
    copy_trial,
    start_trial,
)

#: parts of a trial's large jobs, from the beginning of each of which another trial may go on
PARTS = 8


@bundle
class Trials:
    """The trials of the K kappas at one theta, to which those at smaller ones are compared.

    A trial in which no load exceeds the smaller theta is the same there: GPUs that were not within theta are
    not now, and the chosen ones still are. Row k of the planner is where the k-th trial had planned its small
    jobs, row K + k the same at another theta, row 2 K the trial that is under way, row 2 K + 1 + PARTS k + p
    the k-th trial where a part p of its large jobs begins.

    Attributes:
        planner: work space, `num_rows` of rows.
        plan: of the trial under way; the best one in the end.
        task: jobs in order of size, GPUs, limits.
        small: [K] how many jobs are small.
        last: [K] each trial's last exit; inf: a job found no place, or ended too late.
        highest: [K] largest load until then.
        stem: [K] largest load until its small jobs were planned; inf: they were not.
        reached: [K, PARTS] largest load where a part begins; inf: it was not reached.
    """

    planner: PlannerState
    plan: GpuPlan
    task: PlanningProblem
    num_small: IntVector
    makespan: FloatVector
    highest_load: FloatVector
    load_after_small: FloatVector
    load_at_part: FloatMatrix


def num_rows(task: PlanningProblem) -> int:
    """Rows of the planner that the trials need."""
    return (2 + PARTS) * len(task.settings.kappas) + 1


def empty_trials(planner: PlannerState, task: PlanningProblem, plan: GpuPlan) -> Trials:
    """Before any trial."""
    kappas = task.settings.kappas
    num_small = np.searchsorted(np.diff(plan.begin), kappas, side="right").astype(np.int64)
    makespan, highest_load, load_after_small = np.full((3, len(kappas)), np.inf)
    load_at_part = np.full((len(kappas), PARTS), np.inf)
    return Trials(planner, plan, task, num_small, makespan, highest_load, load_after_small, load_at_part)


@kernel
def _plan_jobs(
    trials: Trials, r: int, since: int, until: int, small: bool, theta: float, limit: float
) -> bool:
    """Plan the jobs since .. until - 1 (Algorithms 2 and 3); False: one found no place, or ended too late."""
    planner, plan, task = trials.planner, trials.plan, trials.task
    batch = task.batch
    for i in range(since, until):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if small:
            time = choose_for_small(planner, r, batch.estimates[i], theta, out)
        else:
            capacity = task.settings.over_provision * len(out)
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
    """Plan the small jobs of the k-th kappa in row r; those of the kappa before are planned in `before`."""
    since = 0
    if k == 0:
        start_trial(trials.planner, r, trials.task.busy_seconds)
    else:
        copy_trial(trials.planner, before, r)
        since = trials.num_small[k - 1]
    return _plan_jobs(trials, r, since, trials.num_small[k], True, theta, limit)


@kernel
def _part_begin(trials: Trials, k: int, part: int) -> int:
    """Where a part of the k-th trial's large jobs begins; the last part ends where the next would begin."""
    return trials.num_small[k] + (len(trials.task.batch.records) - trials.num_small[k]) * part // PARTS


@kernel
def _plan_large_jobs(trials: Trials, k: int, source: int, theta: float, limit: float) -> float:
    """Plan the large jobs of the k-th kappa, part by part, each of which is noted; the last exit.

    Its small jobs are planned in row `stem`.
    """
    planner = trials.planner
    r = 2 * len(trials.num_small)
    copy_trial(planner, source, r)
    for part in range(PARTS):
        copy_trial(planner, r, r + 1 + PARTS * k + part)
        trials.load_at_part[k, part] = planner.clock[r, HIGHEST]
        since, until = _part_begin(trials, k, part), _part_begin(trials, k, part + 1)
        if not _plan_jobs(trials, r, since, until, False, theta, limit):
            return np.inf
    return planner.clock[r, EXIT]


@kernel
def _replan_large_jobs(trials: Trials, k: int, source: int, theta: float, limit: float) -> float:
    """As `_plan_large_jobs` at a smaller theta, from the last part on where both trials are the same."""
    planner = trials.planner
    r = 2 * len(trials.num_small)
    since = trials.num_small[k]
    if trials.load_after_small[k] <= theta:
        for part in range(PARTS):
            if trials.load_at_part[k, part] <= theta:
                source, since = r + 1 + PARTS * k + part, _part_begin(trials, k, part)
    copy_trial(planner, source, r)
    until = len(trials.task.batch.records)
    if _plan_jobs(trials, r, since, until, False, theta, limit):
        return planner.clock[r, EXIT]
    return np.inf


@kernel
def _try_all(trials: Trials, theta: float, best: float) -> tuple[float, int]:
    """The earliest last exit at theta, not after `best`, and its kappa's number; all trials are noted."""
    planner = trials.planner
    found, chosen, count = np.inf, 0, len(trials.num_small)
    for k in range(count):
        limit = min(trials.task.settings.horizon, best, found)  # a trial that ends later changes nothing
        trials.makespan[k] = np.inf
        trials.load_after_small[k] = np.inf
        trials.load_at_part[k, :] = np.inf
        if not _plan_small_jobs(trials, k, k, k - 1, theta, limit):
            for other in range(k, count):
                trials.makespan[other] = np.inf
                trials.load_after_small[other] = np.inf
                trials.load_at_part[other, :] = np.inf
                trials.highest_load[other] = planner.clock[k, HIGHEST]
            break
        trials.load_after_small[k] = planner.clock[k, HIGHEST]
        trials.makespan[k] = _plan_large_jobs(trials, k, k, theta, limit)
        trials.highest_load[k] = planner.clock[2 * count, HIGHEST]
        if trials.makespan[k] < found:
            found, chosen = trials.makespan[k], k
    return found, chosen


@kernel
def _try_changed(trials: Trials, theta: float, best: float) -> tuple[float, int]:
    """As `_try_all` at a smaller theta: only what differs is tried."""
    found, chosen, count = np.inf, 0, len(trials.num_small)
    row = -1
    for k in range(count):
        limit = min(trials.task.settings.horizon, best, found)
        if trials.load_after_small[k] <= theta:
            row = k
        if trials.highest_load[k] <= theta:
            makespan = trials.makespan[k]
        else:
            if trials.load_after_small[k] > theta:
                if not _plan_small_jobs(trials, count + k, k, row, theta, limit):
                    break
                row = count + k
            makespan = _replan_large_jobs(trials, k, row, theta, limit)
        if makespan <= limit and makespan < found:
            found, chosen = makespan, k
    return found, chosen


@kernel
def bisect_theta_and_kappa(trials: Trials) -> tuple[float, float, int]:
    """Find the least theta, and the kappa, whose trial ends first; the best plan stays in `trials.plan`.

    Returns:
        (planned makespan, theta, kappa); makespan inf if no plan ends within the horizon.
    """
    search = trials.task.settings
    best, best_theta, best_kappa = np.inf, search.horizon, 0
    left, right = 0.0, search.horizon
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
        if right - left <= search.resolution:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        r = 2 * len(trials.num_small)
        start_trial(trials.planner, r, trials.task.busy_seconds)
        num_small = trials.num_small[best_kappa]
        _plan_jobs(trials, r, 0, num_small, True, best_theta, np.inf)
        _plan_jobs(trials, r, num_small, len(trials.task.batch.records), False, best_theta, np.inf)
    return best, best_theta, search.kappas[best_kappa]


@kernel
def find_certain_starts(planner: PlannerState, plan: GpuPlan, task: PlanningProblem) -> int:
    """How many jobs, from the first on, every trial that finds places for all gives the same GPUs at once.

    They are small whatever kappa, and choose GPUs without load: within any theta that has a place for them.
    Their GPUs and starts are in `plan` afterwards, those of later jobs mean nothing.
    """
    start_trial(planner, 0, task.busy_seconds)
    batch = task.batch
    for i in range(len(batch.records)):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if len(out) > task.settings.kappas[0]:
            return i
        time = choose_for_small(planner, 0, batch.estimates[i], np.inf, out)
        for g in out:
            if time > 0.0 or planner.load[0, g] > 0.0:
                return i
        plan.start[i] = time
        assign_job(planner, 0, batch, i, out, time, task.physics)
    return len(batch.records)
