"""A bound by prices: what jobs want at the same time they cannot all have.

Let a GPU of each type, and a core, cost z(t) >= 0 a second, whatever z. A schedule takes at no time more than
there is, so that the sum of its completion times is at least

    sum over jobs of (end + cost of what the job takes) - integral of z(t) x (what there is).

Each job's part is at least what it would choose were it alone with these prices: any end, and before it
any options of its menu (`ringyard.sim.menus`) that do all its work. So every z gives a bound that no schedule
beats (Lagrangian duality). That jobs are stopped and resized, share and move is in these choices, as if it
cost nothing; that servers hold whole GPUs and nobody knows the future is not: it only makes schedules longer.

A job's choice is bounded in its turn. Whatever m >= 0 its work may be worth to it, until an end C it pays
at least m - integral over [submission, C] of g(t), where g(t) is the most of m x rate - price of an option,
or 0. Some dozen m are tried. On a grid of time, in whose cells prices are constant, it is linear in C.

Good prices are found by raising what is asked for too much and lowering the rest. Where sizes are fixed and
all jobs are there at once, those of Eastman, Even and Isaacs' (Management Science, 1964) are among them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatMatrix, FloatVector, IntVector, bundle, kernel
from ringyard.sim.menus import Menus

__all__ = ["Supply", "least_total_jct"]

_CELLS = 128
_BEYOND = 1.3  # the grid goes on so many times longer than all work may take
_HALVINGS = 9  # of the first prices that are tried
_TURNS = 100
_WORTHS = np.logspace(0.0, 2.0, 60)
_FINE_WORTHS = np.logspace(0.0, 2.0, 240)
_WEIGHTS = (0.0625, 0.25, 0.375, 0.25, 0.0625)


@dataclass(frozen=True)
class Supply:
    """What there is at all times.

    Attributes:
        gpus: [types] of each type.
        cores: 0: not counted.
    """

    gpus: NDArray[np.float64]
    cores: float


@bundle
class _Demand:
    """The jobs.

    Attributes:
        submit: [jobs] seconds.
        leaves: [jobs] seconds at which the job leaves without having done its work; inf: never.
        fastest: [jobs] seconds of its fastest option.
        menus: what they can do.
    """

    submit: FloatVector
    leaves: FloatVector
    fastest: FloatVector
    menus: Menus


@bundle
class _Offer:
    """Prices, in each cell of a grid of time; 0 before and after it.

    Attributes:
        edges: [cells + 1] seconds.
        gpus: [sets of types, cells] of a GPU of the cheapest type of the set; set 0: 0.
        cores: [cells] of a core.
        worths: [tries] of all of a job's work, over its fastest option's seconds: ascending from 1.
        took_gpus: [sets of types, cells] GPU seconds that jobs chose.
        took_cores: [cells] core seconds.
        chosen: [most options] scratch of `_best_options`: their rows.
        costs: [most options] their prices per second.
        gained: [tries] scratch: integral of g so far.
    """

    edges: FloatVector
    gpus: FloatMatrix
    cores: FloatVector
    worths: FloatVector
    took_gpus: FloatMatrix
    took_cores: FloatVector
    chosen: IntVector
    costs: FloatVector
    gained: FloatVector


@kernel
def _best_options(demand: _Demand, offer: _Offer, j: int, cell: int) -> int:
    """Job j's options that are the best in a cell for some worth, slowest first, into `chosen`; how many."""
    menus = demand.menus
    count = 0
    for o in range(menus.first[j], menus.first[j + 1]):
        cost = offer.gpus[menus.types[o], cell] * menus.gpus[o] + offer.cores[cell] * menus.cores[o]
        while count > 0:  # the lower convex hull of (rate, cost) and (0, 0)
            last = offer.chosen[count - 1]
            last_cost = offer.costs[count - 1]
            before_rate = menus.rate[offer.chosen[count - 2]] if count > 1 else 0.0
            before_cost = offer.costs[count - 2] if count > 1 else 0.0
            ahead = (cost - last_cost) * (menus.rate[last] - before_rate)
            if ahead > (last_cost - before_cost) * (menus.rate[o] - menus.rate[last]):
                break
            count -= 1
        if count == 0 or menus.rate[o] > menus.rate[offer.chosen[count - 1]]:
            offer.chosen[count] = o
            offer.costs[count] = cost
            count += 1
    return count


@kernel
def _first_cell(offer: _Offer, seconds: float) -> int:
    cell = 0
    while cell < len(offer.edges) - 1 and offer.edges[cell + 1] <= seconds:
        cell += 1
    return cell


class _Choice(NamedTuple):
    """When a job ends and pays, both in seconds, together; the cell of its end and the worth that says so."""

    total: float
    cell: int
    attempt: int


@kernel
def _choose(demand: _Demand, offer: _Offer, j: int) -> _Choice:
    """No more than the least end and cost of job j together."""
    rate = demand.menus.rate
    cells = len(offer.edges) - 1
    alone = demand.fastest[j]
    earliest = demand.submit[j] + alone
    best = _Choice(demand.leaves[j], -1, 0)
    offer.gained[:] = 0.0
    now = demand.submit[j]
    for cell in range(_first_cell(offer, now), cells + 1):
        end = max(now, earliest)
        if end >= best.total:
            break
        if cell == cells:  # all is free from now on
            best = _Choice(min(best.total, max(end, now + alone - offer.gained[0])), cell, 0)
            break
        until = offer.edges[cell + 1]
        count = _best_options(demand, offer, j, cell)
        found = _Choice(end, cell, 0)
        k = 0
        for m in range(len(offer.worths)):
            worth = offer.worths[m] * alone
            gain = worth * rate[offer.chosen[k]] - offer.costs[k]
            while k + 1 < count:
                more = worth * rate[offer.chosen[k + 1]] - offer.costs[k + 1]
                if more <= gain:
                    break
                gain = more
                k += 1
            gain = max(gain, 0.0)
            left = worth - offer.gained[m]
            total = min(end + left - gain * (end - now), until + left - gain * (until - now))
            if total > found.total:
                found = _Choice(total, cell, m)
            offer.gained[m] += gain * (until - now)
        if until >= earliest and found.total < best.total:
            best = found
        now = until
    return best


@kernel
def _take(demand: _Demand, offer: _Offer, j: int, choice: _Choice) -> None:
    """Count what job j takes if it chooses so."""
    menus = demand.menus
    worth = offer.worths[choice.attempt] * demand.fastest[j]
    left = 1.0
    now = demand.submit[j]
    for cell in range(_first_cell(offer, now), min(choice.cell + 1, len(offer.edges) - 1)):
        gain = 0.0
        best = -1
        for k in range(_best_options(demand, offer, j, cell)):
            more = worth * menus.rate[offer.chosen[k]] - offer.costs[k]
            if more > gain:
                gain = more
                best = offer.chosen[k]
        if best >= 0:
            seconds = min(offer.edges[cell + 1] - now, left / menus.rate[best])
            left -= menus.rate[best] * seconds
            offer.took_gpus[menus.types[best], cell] += menus.gpus[best] * seconds
            offer.took_cores[cell] += menus.cores[best] * seconds
        now = offer.edges[cell + 1]


@kernel
def _choose_all(demand: _Demand, offer: _Offer) -> float:
    """No more than the sum of all jobs' least completion times and costs; counts what they take."""
    total = 0.0
    for j in range(len(demand.submit)):
        choice = _choose(demand, offer, j)
        total += choice.total - demand.submit[j]
        _take(demand, offer, j, choice)
    return total


def _values(menus: Menus, types: int) -> NDArray[np.float64]:
    """[types] mean of what GPUs of each are worth to jobs, over what those that suit them best are worth."""
    taken = menus.gpus / menus.rate
    on_gpus = menus.least(taken) > 0.0
    if not on_gpus.any():
        return np.ones(types)
    best = menus.least(taken)[on_gpus]
    on_each = (menus.least(np.where(menus.types >> t & 1 > 0, taken, np.inf)) for t in range(types))
    return np.array([(best / on_type[on_gpus]).mean() for on_type in on_each])


class _Market:
    """Jobs, what there is, and a grid of time for prices.

    Args:
        demand: the jobs.
        supply: what there is.
    """

    def __init__(self, demand: _Demand, supply: Supply) -> None:
        self.demand = demand
        self.supply = np.array([*supply.gpus, supply.cores])[:, None]
        menus = demand.menus
        self.values = np.append(_values(menus, len(supply.gpus)), 1.0)[:, None]
        begin, self.last = float(demand.submit[0]), float(demand.submit[-1])
        busy = self.last - begin
        for taken, rows in ((menus.gpus, slice(0, -1)), (menus.cores, slice(-1, None))):
            work = np.where(np.isinf(demand.leaves), menus.least(taken / menus.rate), 0.0)
            busy = max(busy, float(work.sum()) / max(self.worth(rows), 1e-9))
        seconds = _BEYOND * max(busy, float(demand.fastest.mean()), 1e-9 * begin)
        self.edges = begin + seconds * np.linspace(0.0, 1.0, _CELLS + 1)
        self.widths = np.diff(self.edges)
        self.most_options = int(np.diff(menus.first).max())

    def worth(self, rows: slice) -> float:
        """What there is of some resources, GPUs by their values."""
        return float((self.supply * self.values)[rows].sum())

    def total(
        self, prices: NDArray[np.float64], worths: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        """The bound on the sum of completion times by some prices, and what is asked for too much.

        Args:
            prices: [types + 1, cells] of GPUs by type, then of cores.
            worths: as in `_Offer`.

        Returns:
            Seconds, and [types + 1, cells] taken / there is - 1.
        """
        types = len(prices) - 1
        cheapest = np.zeros((1 << types, _CELLS), np.int64)
        gpus = np.zeros((1 << types, _CELLS))
        for members in range(1, 1 << types):
            among = np.flatnonzero(members >> np.arange(types) & 1)
            cheapest[members] = among[prices[among].argmin(axis=0)]
            gpus[members] = prices[among].min(axis=0)
        offer = _Offer(
            self.edges,
            gpus,
            prices[-1].copy(),
            worths,
            np.zeros_like(gpus),
            np.zeros(_CELLS),
            np.zeros(self.most_options, np.int64),
            np.zeros(self.most_options),
            np.zeros(len(worths)),
        )
        total = _choose_all(self.demand, offer)
        taken = np.zeros_like(prices)
        for members in range(1, 1 << types):
            np.add.at(taken, (cheapest[members], np.arange(_CELLS)), offer.took_gpus[members])
        taken[-1] = offer.took_cores
        paid = float((prices * self.supply * self.widths).sum())
        return total - paid, taken / (np.maximum(self.supply, 1.0) * self.widths) - 1.0


def _smooth(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over neighbouring cells: prices of one cell alone only send jobs to the next."""
    padded = np.pad(rows, ((0, 0), (2, 2)), mode="edge")
    parts = [part * padded[:, k : k + _CELLS] for k, part in enumerate(_WEIGHTS)]
    return np.asarray(np.sum(parts, axis=0))


def _first_prices(market: _Market, num_jobs: int) -> tuple[float, NDArray[np.float64]]:
    """The best of some prices that are constant until the last arrival and then fall to 0; their total."""
    middles = (market.edges[:-1] + market.edges[1:]) / 2.0
    fall = max(market.edges[-1] / _BEYOND - market.last, market.widths[0])
    shape = np.clip((market.last + fall - middles) / fall, 0.0, 1.0)
    best = np.zeros((len(market.supply), _CELLS))
    total, _ = market.total(best, _WORTHS)
    for rows in (slice(0, -1), slice(-1, None)):  # GPUs, then cores
        there = market.worth(rows)
        kept = best
        for halving in range(_HALVINGS if there > 0.0 else 0):
            tried = kept.copy()
            tried[rows] = market.values[rows] * shape * num_jobs / there / 2.0**halving
            now, _ = market.total(tried, _WORTHS)
            if now > total:
                total, best = now, tried
    return total, best


def least_total_jct(
    submit_seconds: NDArray[np.float64], leaves_seconds: NDArray[np.float64], menus: Menus, supply: Supply
) -> float:
    """No more than the sum of these jobs' completion times in any schedule, in seconds.

    Args:
        submit_seconds: [jobs] ascending.
        leaves_seconds: [jobs] when the job leaves, done or not; inf: never.
        menus: of these jobs.
        supply: what there is; where cores are not counted, no option takes any.
    """
    fastest = menus.least(1.0 / menus.rate)
    market = _Market(_Demand(submit_seconds, leaves_seconds, fastest, menus), supply)
    total, prices = _first_prices(market, len(submit_seconds))
    found = [prices, np.zeros_like(prices)]  # the best, and the mean of the later ones
    change = np.zeros_like(prices)
    least_step = 5.0 / np.maximum(market.supply, 1.0)
    for turn in range(_TURNS):
        now, excess = market.total(prices, _WORTHS)
        if now > total:
            total, found[0] = now, prices
        if 2 * turn >= _TURNS:
            found[1] = found[1] + prices / (_TURNS // 2)
        change = 0.9 * change + 0.1 * _smooth(excess)
        step = np.maximum(prices.max(axis=1, keepdims=True), least_step) * 0.5 / (1.0 + turn / 5.0)
        prices = np.maximum(prices + step * change, 0.0)
    return max(market.total(prices, _FINE_WORTHS)[0] for prices in found) * (1.0 - 1e-9)  # rounding
