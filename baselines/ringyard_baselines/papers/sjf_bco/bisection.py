"""SJF-BCO's bisection on theta with the kappa loop inside (Algorithm 1), trials only where they differ."""

import numpy as np

from ringyard.compiled import FloatMatrix, FloatVector, IntVector, bundle, kernel
from ringyard_baselines.papers.sjf_bco.choosing import choose_for_large, choose_for_small
from ringyard_baselines.papers.sjf_bco.plan import Plan, Task
from ringyard_baselines.papers.sjf_bco.planner_state import (
    EXIT,
    HIGHEST,
    PlannerState,
    begin,
    commit,
    copy,
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
    plan: Plan
    task: Task
    small: IntVector
    last: FloatVector
    highest: FloatVector
    stem: FloatVector
    reached: FloatMatrix


def num_rows(task: Task) -> int:
    """Rows of the planner that the trials need."""
    return (2 + PARTS) * len(task.search.kappas) + 1


def empty_trials(planner: PlannerState, task: Task, plan: Plan) -> Trials:
    """Before any trial."""
    kappas = task.search.kappas
    small = np.searchsorted(np.diff(plan.begin), kappas, side="right").astype(np.int64)
    last, highest, stem = np.full((3, len(kappas)), np.inf)
    reached = np.full((len(kappas), PARTS), np.inf)
    return Trials(planner, plan, task, small, last, highest, stem, reached)


@kernel
def _advance(trials: Trials, r: int, since: int, until: int, small: bool, theta: float, limit: float) -> bool:
    """Plan the jobs since .. until - 1 (Algorithms 2 and 3); False: one found no place, or ended too late."""
    planner, plan, task = trials.planner, trials.plan, trials.task
    batch = task.batch
    for i in range(since, until):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if small:
            time = choose_for_small(planner, r, batch.estimates[i], theta, out)
        else:
            capacity = task.search.over_provision * len(out)
            time = choose_for_large(planner, r, batch.estimates[i], theta, capacity, out)
        if time == np.inf:
            return False
        plan.start[i] = time
        commit(planner, r, batch, i, out, time, task.physics)
        if planner.clock[r, EXIT] > limit:
            return False
    return True


@kernel
def _stem(trials: Trials, r: int, k: int, before: int, theta: float, limit: float) -> bool:
    """Plan the small jobs of the k-th kappa in row r; those of the kappa before are planned in `before`."""
    since = 0
    if k == 0:
        begin(trials.planner, r, trials.task.busy_seconds)
    else:
        copy(trials.planner, before, r)
        since = trials.small[k - 1]
    return _advance(trials, r, since, trials.small[k], True, theta, limit)


@kernel
def _part(trials: Trials, k: int, part: int) -> int:
    """Where a part of the k-th trial's large jobs begins; the last part ends where the next would begin."""
    return trials.small[k] + (len(trials.task.batch.records) - trials.small[k]) * part // PARTS


@kernel
def _branch(trials: Trials, k: int, stem: int, theta: float, limit: float) -> float:
    """Plan the large jobs of the k-th kappa, part by part, each of which is noted; the last exit.

    Its small jobs are planned in row `stem`.
    """
    planner = trials.planner
    r = 2 * len(trials.small)
    copy(planner, stem, r)
    for part in range(PARTS):
        copy(planner, r, r + 1 + PARTS * k + part)
        trials.reached[k, part] = planner.clock[r, HIGHEST]
        since, until = _part(trials, k, part), _part(trials, k, part + 1)
        if not _advance(trials, r, since, until, False, theta, limit):
            return np.inf
    return planner.clock[r, EXIT]


@kernel
def _branch_again(trials: Trials, k: int, stem: int, theta: float, limit: float) -> float:
    """As `_branch` at a smaller theta, from the last part on where both are the same; nothing is noted."""
    planner = trials.planner
    r = 2 * len(trials.small)
    source, since = stem, trials.small[k]
    if trials.stem[k] <= theta:
        for part in range(PARTS):
            if trials.reached[k, part] <= theta:
                source, since = r + 1 + PARTS * k + part, _part(trials, k, part)
    copy(planner, source, r)
    until = len(trials.task.batch.records)
    if _advance(trials, r, since, until, False, theta, limit):
        return planner.clock[r, EXIT]
    return np.inf


@kernel
def _first(trials: Trials, theta: float, best: float) -> tuple[float, int]:
    """The earliest last exit at theta, not after `best`, and its kappa's number; all trials are noted."""
    planner = trials.planner
    found, chosen, count = np.inf, 0, len(trials.small)
    for k in range(count):
        limit = min(trials.task.search.horizon, best, found)  # a trial that ends later changes nothing
        trials.last[k] = np.inf
        trials.stem[k] = np.inf
        trials.reached[k, :] = np.inf
        if not _stem(trials, k, k, k - 1, theta, limit):
            for other in range(k, count):
                trials.last[other] = np.inf
                trials.stem[other] = np.inf
                trials.reached[other, :] = np.inf
                trials.highest[other] = planner.clock[k, HIGHEST]
            break
        trials.stem[k] = planner.clock[k, HIGHEST]
        trials.last[k] = _branch(trials, k, k, theta, limit)
        trials.highest[k] = planner.clock[2 * count, HIGHEST]
        if trials.last[k] < found:
            found, chosen = trials.last[k], k
    return found, chosen


@kernel
def _next(trials: Trials, theta: float, best: float) -> tuple[float, int]:
    """As `_first` at a smaller theta: only what differs is tried."""
    found, chosen, count = np.inf, 0, len(trials.small)
    row = -1
    for k in range(count):
        limit = min(trials.task.search.horizon, best, found)
        if trials.stem[k] <= theta:
            row = k
        if trials.highest[k] <= theta:
            last = trials.last[k]
        else:
            if trials.stem[k] > theta:
                if not _stem(trials, count + k, k, row, theta, limit):
                    break
                row = count + k
            last = _branch_again(trials, k, row, theta, limit)
        if last <= limit and last < found:
            found, chosen = last, k
    return found, chosen


@kernel
def bisect(trials: Trials) -> tuple[float, float, int]:
    """Find the least theta, and the kappa, whose trial ends first; the best plan stays in `trials.plan`.

    Returns:
        (planned makespan, theta, kappa); makespan inf if no plan ends within the horizon.
    """
    search = trials.task.search
    best, best_theta, best_kappa = np.inf, search.horizon, 0
    left, right = 0.0, search.horizon
    noted = 0.0  # the theta of `trials`
    theta = right / 2.0
    while True:
        if theta > noted:
            found, kappa = _first(trials, theta, best)
            noted = theta
        else:
            found, kappa = _next(trials, theta, best)
        if found < np.inf:
            best, best_theta, best_kappa = found, theta, kappa
            right = theta
        else:
            left = theta
        if right - left <= search.resolution:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        r = 2 * len(trials.small)
        begin(trials.planner, r, trials.task.busy_seconds)
        small = trials.small[best_kappa]
        _advance(trials, r, 0, small, True, best_theta, np.inf)
        _advance(trials, r, small, len(trials.task.batch.records), False, best_theta, np.inf)
    return best, best_theta, search.kappas[best_kappa]


@kernel
def certain(planner: PlannerState, plan: Plan, task: Task) -> int:
    """How many jobs, from the first on, every trial that finds places for all gives the same GPUs at once.

    They are small whatever kappa, and choose GPUs without load: within any theta that has a place for them.
    Their GPUs and starts are in `plan` afterwards, those of later jobs mean nothing.
    """
    begin(planner, 0, task.busy_seconds)
    batch = task.batch
    for i in range(len(batch.records)):
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        if len(out) > task.search.kappas[0]:
            return i
        time = choose_for_small(planner, 0, batch.estimates[i], np.inf, out)
        for g in out:
            if time > 0.0 or planner.load[0, g] > 0.0:
                return i
        plan.start[i] = time
        commit(planner, 0, batch, i, out, time, task.physics)
    return len(batch.records)
