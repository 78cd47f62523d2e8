"""A lower bound on the sum of completion times by Lagrangian duality.

Let a GPU of each type, and a core, have a price z(t) >= 0 per second, for any z. A schedule never uses more
than the cluster has, so the sum of its completion times is at least

    sum over jobs of (end + cost of the resources that the job uses) - integral of z(t) x capacity.

Each job's term is at least the minimum over all ends, and all sequences of its options
(`ringyard.bounds.options`) before it that do its work. So every z gives a valid lower bound. Preemption,
resizing, sharing and migration are free in this minimum. Servers and the unknown future are ignored, because
both only make schedules longer.

A job's minimum is bounded in turn by a multiplier m >= 0 of its work. Until an end C it costs at least
m - integral over [submission, C] of g(t), where g(t) is the maximum of m x rate - price over its options, and
0. Some dozen m are tried. On a grid of time with constant prices in each cell, the expression is linear in C.

Subgradient steps improve prices: they raise the price of overused resources and lower the others. If sizes
are fixed and all jobs arrive at once, the prices of Eastman, Even and Isaacs (Management Science, 1964) are
among them.
"""

from typing import NamedTuple

import numpy as np

from ringyard.bounds.options import JobOptions
from ringyard.compiled import FloatMatrix, FloatVector, IntVector, bundle, kernel

_CELLS = 128
_GRID_MARGIN = 1.3  # length of the grid / longest time that all work may take
_HALVINGS = 9  # halvings of the first prices that are tried
_ITERATIONS = 100
_SAMPLE = 4096  # number of jobs above which prices are sought for so many of them. They are valid for all.
_MANY = 1 << 16  # number of jobs above which all jobs are tried at one choice of prices only
_MULTIPLIERS = np.logspace(0.0, 2.0, 60)
_FINE_MULTIPLIERS = np.logspace(0.0, 2.0, 240)
_WEIGHTS = (0.0625, 0.25, 0.375, 0.25, 0.0625)


@bundle
class _JobList:
    """Jobs in order of submission."""

    submit: FloatVector  #: [jobs] submission times, seconds
    departure: FloatVector  #: [jobs] seconds at which the job leaves unfinished, inf: never
    fastest: FloatVector  #: [jobs] seconds of its fastest option
    options: JobOptions  #: options of the jobs


@bundle
class _DualPrices:
    """Prices in each cell of a grid of time (0 outside of it), the resources used at them, and scratch."""

    edges: FloatVector  #: [cells + 1] seconds
    gpus: FloatMatrix  #: [sets of types, cells] price of a GPU of the cheapest type of the set. Set 0: 0.
    cores: FloatVector  #: [cells] price of a core
    multipliers: FloatVector  #: [tries] m / seconds of the job's fastest option, ascending from 1
    gpu_seconds: FloatMatrix  #: [sets of types, cells] GPU seconds used
    core_seconds: FloatVector  #: [cells] core seconds used
    chosen: IntVector  #: [most options] scratch of `_best_options`: rows of options
    costs: FloatVector  #: [most options] their prices per second
    gained: FloatVector  #: [tries] scratch: integral of g so far


@kernel
def _best_options(jobs: _JobList, prices: _DualPrices, j: int, cell: int) -> int:
    """Write the options of job `j` that are best for some multiplier, slowest first; return how many."""
    options = jobs.options
    count = 0
    for o in range(options.first[j], options.first[j + 1]):
        cost = prices.gpus[options.types[o], cell] * options.gpus[o] + prices.cores[cell] * options.cores[o]
        while count > 0:
            last = prices.chosen[count - 1]
            last_cost = prices.costs[count - 1]
            before_rate = options.rate[prices.chosen[count - 2]] if count > 1 else 0.0
            before_cost = prices.costs[count - 2] if count > 1 else 0.0
            ahead = (cost - last_cost) * (options.rate[last] - before_rate)
            if ahead > (last_cost - before_cost) * (options.rate[o] - options.rate[last]):
                break
            count -= 1
        if count == 0 or options.rate[o] > options.rate[prices.chosen[count - 1]]:
            prices.chosen[count] = o
            prices.costs[count] = cost
            count += 1
    return count


@kernel
def _first_cell(prices: _DualPrices, seconds: float) -> int:
    cell = 0
    while cell < len(prices.edges) - 1 and prices.edges[cell + 1] <= seconds:
        cell += 1
    return cell


class _CompletionBound(NamedTuple):
    """Lower bound on a job's end plus cost, in seconds, with the cell and the multiplier that give it."""

    total: float
    cell: int
    multiplier: int


@kernel
def _bound_job(jobs: _JobList, prices: _DualPrices, j: int) -> _CompletionBound:
    """Lower bound on the least end plus cost of job `j`."""
    rate = jobs.options.rate
    cells = len(prices.edges) - 1
    fastest = jobs.fastest[j]
    earliest = jobs.submit[j] + fastest
    best = _CompletionBound(jobs.departure[j], -1, 0)
    prices.gained[:] = 0.0
    now = jobs.submit[j]
    for cell in range(_first_cell(prices, now), cells + 1):
        end = max(now, earliest)
        if end >= best.total:
            break
        if cell == cells:  # prices are 0 from now on
            best = _CompletionBound(min(best.total, max(end, now + fastest - prices.gained[0])), cell, 0)
            break
        until = prices.edges[cell + 1]
        count = _best_options(jobs, prices, j, cell)
        found = _CompletionBound(end, cell, 0)
        k = 0
        for m in range(len(prices.multipliers)):
            multiplier = prices.multipliers[m] * fastest
            gain = multiplier * rate[prices.chosen[k]] - prices.costs[k]
            while k + 1 < count:
                more = multiplier * rate[prices.chosen[k + 1]] - prices.costs[k + 1]
                if more <= gain:
                    break
                gain = more
                k += 1
            gain = max(gain, 0.0)
            left = multiplier - prices.gained[m]
            total = min(end + left - gain * (end - now), until + left - gain * (until - now))
            if total > found.total:
                found = _CompletionBound(total, cell, m)
            prices.gained[m] += gain * (until - now)
        if until >= earliest and found.total < best.total:
            best = found
        now = until
    return best


@kernel
def _add_usage(jobs: _JobList, prices: _DualPrices, j: int, choice: _CompletionBound) -> None:
    """Add the resources that job `j` uses in its minimum to those of `prices`."""
    options = jobs.options
    multiplier = prices.multipliers[choice.multiplier] * jobs.fastest[j]
    left = 1.0
    now = jobs.submit[j]
    for cell in range(_first_cell(prices, now), min(choice.cell + 1, len(prices.edges) - 1)):
        gain = 0.0
        best = -1
        for k in range(_best_options(jobs, prices, j, cell)):
            more = multiplier * options.rate[prices.chosen[k]] - prices.costs[k]
            if more > gain:
                gain = more
                best = prices.chosen[k]
        if best >= 0:
            seconds = min(prices.edges[cell + 1] - now, left / options.rate[best])
            left -= options.rate[best] * seconds
            prices.gpu_seconds[options.types[best], cell] += options.gpus[best] * seconds
            prices.core_seconds[cell] += options.cores[best] * seconds
        now = prices.edges[cell + 1]


@kernel
def _bound_jobs(jobs: _JobList, prices: _DualPrices) -> float:
    """Lower bound on the sum of all jobs' completion times and costs. Add their use to `prices`."""
    total = 0.0
    for j in range(len(jobs.submit)):
        choice = _bound_job(jobs, prices, j)
        total += choice.total - jobs.submit[j]
        _add_usage(jobs, prices, j, choice)
    return total


def _relative_values(options: JobOptions, types: int) -> FloatVector:
    """[types] mean value of a GPU of each type to the jobs, relative to each job's best type."""
    taken = options.gpus / options.rate
    on_gpus = options.least(taken) > 0.0
    if not on_gpus.any():
        return np.ones(types)
    best = options.least(taken)[on_gpus]
    on_each = (options.least(np.where(options.types >> t & 1 > 0, taken, np.inf)) for t in range(types))
    return np.array([(best / on_type[on_gpus]).mean() for on_type in on_each])


class _DualProblem:
    """Jobs, the [types + 1] capacity of a cluster (cores last), and a grid of time (`edges`) for prices."""

    def __init__(self, jobs: _JobList, capacity: FloatVector, edges: FloatVector | None = None) -> None:
        self.jobs = jobs
        self.capacity = capacity[:, None]
        options = jobs.options
        self.values = np.append(_relative_values(options, len(capacity) - 1), 1.0)[:, None]
        begin, self.last = float(jobs.submit[0]), float(jobs.submit[-1])
        busy = self.last - begin
        for taken, rows in ((options.gpus, slice(0, -1)), (options.cores, slice(-1, None))):
            work = np.where(np.isinf(jobs.departure), options.least(taken / options.rate), 0.0)
            busy = max(busy, float(work.sum()) / max(self.weighted_capacity(rows), 1e-9))
        seconds = _GRID_MARGIN * max(busy, float(jobs.fastest.mean()), 1e-9 * begin)
        self.edges = begin + seconds * np.linspace(0.0, 1.0, _CELLS + 1) if edges is None else edges
        self.widths = np.diff(self.edges)
        self.most_options = int(np.diff(options.first).max())

    def weighted_capacity(self, rows: slice) -> float:
        """Capacity of the resources in `rows`, GPUs weighted by their values."""
        return float((self.capacity * self.values)[rows].sum())

    def total(self, prices: FloatMatrix, multipliers: FloatVector) -> tuple[float, FloatMatrix]:
        """Return the bound at `prices` [types + 1, cells], cores last, and the relative excess use."""
        types = len(prices) - 1
        cheapest = np.zeros((1 << types, _CELLS), np.int64)
        gpus = np.zeros((1 << types, _CELLS))
        for members in range(1, 1 << types):
            among = np.flatnonzero(members >> np.arange(types) & 1)
            cheapest[members] = among[prices[among].argmin(axis=0)]
            gpus[members] = prices[among].min(axis=0)
        most, free = self.most_options, np.zeros_like(gpus)
        scratch = (np.zeros(_CELLS), np.zeros(most, np.int64), np.zeros(most), np.zeros(len(multipliers)))
        dual = _DualPrices(self.edges, gpus, prices[-1].copy(), multipliers, free, *scratch)
        total = _bound_jobs(self.jobs, dual)
        taken = np.zeros_like(prices)
        for members in range(1, 1 << types):
            np.add.at(taken, (cheapest[members], np.arange(_CELLS)), dual.gpu_seconds[members])
        taken[-1] = dual.core_seconds
        paid = float((prices * self.capacity * self.widths).sum())
        return total - paid, taken / (np.where(self.capacity > 0.0, self.capacity, 1.0) * self.widths) - 1.0


def _initial_prices(problem: _DualProblem, num_jobs: int) -> tuple[float, FloatMatrix]:
    """Best bound of prices that are constant until the last arrival and then fall to 0, and its prices."""
    middles = (problem.edges[:-1] + problem.edges[1:]) / 2.0
    fall = max(problem.edges[-1] / _GRID_MARGIN - problem.last, problem.widths[0])
    shape = np.clip((problem.last + fall - middles) / fall, 0.0, 1.0)
    best = np.zeros((len(problem.capacity), _CELLS))
    total, _ = problem.total(best, _MULTIPLIERS)
    for rows in (slice(0, -1), slice(-1, None)):  # GPUs, then cores
        there = problem.weighted_capacity(rows)
        kept = best
        for halving in range(_HALVINGS if there > 0.0 else 0):
            tried = kept.copy()
            tried[rows] = problem.values[rows] * shape * num_jobs / there / 2.0**halving
            now, _ = problem.total(tried, _MULTIPLIERS)
            if now > total:
                total, best = now, tried
    return total, best


def total_jct_bound(
    submit_seconds: FloatVector, departure_seconds: FloatVector, options: JobOptions, capacity: FloatVector
) -> float:
    """Return a lower bound on the sum of jobs' completion times in any schedule, in seconds.

    `submit_seconds` [jobs] ascend. `departure_seconds` [jobs] are when jobs leave, finished or not, inf:
    never. `capacity` [types + 1] is the GPUs of each type, then CPU cores (0 if no option uses any).
    """
    fastest = options.least(1.0 / options.rate)
    whole = problem = _DualProblem(_JobList(submit_seconds, departure_seconds, fastest, options), capacity)
    if len(fastest) > _SAMPLE:
        rows = np.linspace(0, len(fastest) - 1, _SAMPLE).astype(np.int64)
        few = _JobList(submit_seconds[rows], departure_seconds[rows], fastest[rows], options.rows(rows))
        problem = _DualProblem(few, capacity * (_SAMPLE / len(fastest)), whole.edges)
    total, prices = _initial_prices(problem, len(problem.jobs.submit))
    found = [prices, np.zeros_like(prices)]  # the best, and the mean of the later half
    change = np.zeros_like(prices)
    least_step = 5.0 / np.maximum(whole.capacity, 1.0)
    for iteration in range(_ITERATIONS):
        now, excess = problem.total(prices, _MULTIPLIERS)
        if now > total:
            total, found[0] = now, prices
        if 2 * iteration >= _ITERATIONS:
            found[1] = found[1] + prices / (_ITERATIONS // 2)
        # the mean over neighbouring cells: a price of a single cell would only move jobs to the next
        padded = np.pad(excess, ((0, 0), (2, 2)), mode="edge")
        parts = [part * padded[:, k : k + _CELLS] for k, part in enumerate(_WEIGHTS)]
        change = 0.9 * change + 0.1 * np.asarray(np.sum(parts, axis=0))
        step = np.maximum(prices.max(axis=1, keepdims=True), least_step) * 0.5 / (1.0 + iteration / 5.0)
        prices = np.maximum(prices + step * change, 0.0)
    multipliers = _FINE_MULTIPLIERS if problem is whole else _MULTIPLIERS
    if len(fastest) > _MANY:
        found = [max(found, key=lambda prices: problem.total(prices, _MULTIPLIERS)[0])]
    # The factor covers rounding.
    return max(whole.total(prices, multipliers)[0] for prices in found) * (1.0 - 1e-9)
