"""ONES' evolution of schedules in compiled code: a schedule says which job each GPU works for."""

from typing import Any

import numpy as np

from ringyard.compiled.functions import kernel
from ringyard.state.random_numbers import next_uniform

__all__ = ["evolve", "fill", "reorder"]

FREE = -1

#: what keeping a job's own GPUs, and not spanning more servers than needed, count beside one displaced GPU
_OWN, _SPAN = 1e-3, 1e-2


@kernel
def _sizes(genome: Any, sizes: Any) -> None:
    """GPUs of each job, into `sizes`."""
    sizes[:] = 0
    for gene in genome:
        if gene >= 0:
            sizes[gene] += 1


@kernel
def _refresh(genome: Any, low: Any, limit: Any, up: Any, sizes: Any) -> None:
    """Drop GPUs beyond a job's limit or on failed servers, and jobs with fewer than they need."""
    sizes[:] = 0
    for g in range(len(genome)):
        j = genome[g]
        if j >= 0:
            if up[g] == 0 or sizes[j] >= limit[j]:
                genome[g] = FREE
            else:
                sizes[j] += 1
    for g in range(len(genome)):
        if genome[g] >= 0 and sizes[genome[g]] < low[genome[g]]:
            genome[g] = FREE


@kernel
def _cross(a: Any, b: Any, first: Any, second: Any, keep: float, limit: Any, sizes: Any, rng: Any) -> None:
    """Uniform crossover: each gene from either parent, unless its job would exceed its limit."""
    half = sizes.shape[0] // 2
    one, two = sizes[:half], sizes[half:]
    sizes[:] = 0
    for g in range(len(a)):
        swap = next_uniform(rng) >= keep
        x = b[g] if swap else a[g]
        y = a[g] if swap else b[g]
        first[g] = FREE
        second[g] = FREE
        if x >= 0 and one[x] < limit[x]:
            one[x] += 1
            first[g] = x
        if y >= 0 and two[y] < limit[y]:
            two[y] += 1
            second[g] = y


@kernel
def _mutate(genome: Any, mutable: Any, rate: float, sizes: Any, rng: Any) -> None:
    """Remove each job that may be moved, with probability `rate`, from the whole schedule."""
    for j in range(len(mutable)):
        sizes[j] = int(mutable[j] != 0 and next_uniform(rng) < rate)
    for g in range(len(genome)):
        if genome[g] >= 0 and sizes[genome[g]] != 0:
            genome[g] = FREE


@kernel
def _give(genome: Any, up: Any, j: int, wanted: int) -> None:
    """Free GPUs, lowest numbers first."""
    for g in range(len(genome)):
        if wanted <= 0:
            return
        if genome[g] == FREE and up[g] != 0:
            genome[g] = j
            wanted -= 1


@kernel
def fill(
    genome: Any, order: Any, low: Any, present_limit: Any, limit: Any, allowed: Any, up: Any, sizes: Any
) -> None:
    """Pad to full: new jobs first, then the others by remaining time, to their present limits, then to R.

    Args:
        genome: [GPUs] job of each, -1 free; changed in place.
        order: [jobs] new jobs first come first served, then the others by remaining time.
        low: [jobs] fewest GPUs.
        present_limit: [jobs] how far a job may be padded in the first pass.
        limit: [jobs] R, how far in the second.
        allowed: [jobs, sizes + 1] largest number of GPUs not above the index that the job may have.
        up: [GPUs] 1 if there.
        sizes: [jobs] work space.
    """
    _sizes(genome, sizes)
    free = 0
    for g in range(len(genome)):
        free += int(genome[g] == FREE and up[g] != 0)
    for bound in (present_limit, limit):
        for i in range(len(order)):
            j = order[i]
            reach = min(bound[j], sizes[j] + free)
            size = allowed[j, min(reach, allowed.shape[1] - 1)]
            if size > sizes[j] and size >= low[j]:
                _give(genome, up, j, size - sizes[j])
                free -= size - sizes[j]
                sizes[j] = size
    for g in range(len(genome)):  # sizes between two allowed ones go down
        j = genome[g]
        if j >= 0 and allowed[j, sizes[j]] < sizes[j]:
            genome[g] = FREE
            sizes[j] -= 1


@kernel
def _block_cost(present: Any, server: Any, up: Any, end: int, size: int, j: int, widest: int) -> float:
    """Running GPUs of others that job j would displace on GPUs end - size .. end - 1; inf: one is down."""
    cost = 0.0
    for g in range(end - size, end):
        if up[g] == 0:
            return np.inf
        if present[g] >= 0 and present[g] != j:
            cost += 1.0
        if present[g] != j:
            cost += _OWN
    spans = server[end - 1] - server[end - size] + 1
    return cost + _SPAN * max(0, spans - (size + widest - 1) // widest)


@kernel
def reorder(
    genome: Any,
    present: Any,
    sequence: Any,
    server: Any,
    up: Any,
    widest: int,
    sizes: Any,
    cost: Any,
    took: Any,
) -> bool:
    """Give each job a contiguous block so that least running GPUs of others are displaced.

    Dynamic program over (GPU position, jobs placed in `sequence`); holes are allowed.

    Args:
        genome: [GPUs] changed in place; unchanged if there is no room (failed GPUs in between).
        present: [GPUs] job running now, -1 none.
        sequence: [jobs] order of the blocks.
        server: [GPUs].
        up: [GPUs] 1 if there.
        widest: GPUs of the largest server.
        sizes: [jobs] work space.
        cost: [GPUs + 1, jobs + 1] work space.
        took: as `cost`, integers.
    """
    _sizes(genome, sizes)
    count = len(genome)
    cost[:, 0] = 0.0
    rank = 0
    for i in range(len(sequence)):
        j = sequence[i]
        size = sizes[j]
        if size == 0:
            continue
        for end in range(count + 1):
            best = np.inf
            took[end, rank + 1] = 0
            if end > 0 and cost[end - 1, rank + 1] < np.inf:
                best = cost[end - 1, rank + 1]
            if end >= size and cost[end - size, rank] < np.inf:
                here = cost[end - size, rank] + _block_cost(present, server, up, end, size, j, widest)
                if here < best:
                    best = here
                    took[end, rank + 1] = 1
            cost[end, rank + 1] = best
        rank += 1
    if not np.isfinite(cost[count, rank]):
        return False
    genome[:] = FREE
    end = count
    for i in range(len(sequence) - 1, -1, -1):
        j = sequence[i]
        if sizes[j] == 0:
            continue
        while took[end, rank] == 0:
            end -= 1
        for g in range(end - sizes[j], end):
            genome[g] = j
        end -= sizes[j]
        rank -= 1
    return True


@kernel
def _score(genome: Any, left: Any, speed: Any, sizes: Any) -> float:
    """SRUF: remaining GPU seconds of the jobs with a prediction; NaN in `left` counts nothing."""
    _sizes(genome, sizes)
    total = 0.0
    for j in range(len(sizes)):
        if sizes[j] > 0 and not np.isnan(left[j]):
            total += sizes[j] * left[j] / speed[j, sizes[j]]
    return total


@kernel
def evolve(
    population: Any,
    scores: Any,
    present: Any,
    jobs: tuple[Any, Any, Any, Any, Any, Any, Any, Any],
    orders: tuple[Any, Any],
    machine: tuple[Any, Any, int],
    rates: tuple[float, float],
    work: tuple[Any, Any, Any, Any],
    rng: Any,
) -> None:
    """One generation; the K lowest scores come first in `population` afterwards, the best of all first.

    Scores do not depend on where jobs are, so that only the K that stay are reordered.

    Args:
        population: [3 K, GPUs] the first K are the parents.
        scores: [3 K] work space.
        present: [GPUs] job running now.
        jobs: low, present_limit, limit, allowed, mutable, left, speed, sizes (work space), as in `fill` and
            `_score`.
        orders: padding order and block sequence.
        machine: server and up of each GPU, GPUs of the largest server.
        rates: crossover xi and mutation theta.
        work: cost and took of `reorder`, [2 jobs] for crossover, [GPUs] one genome.
        rng: [1] uint64.
    """
    low, present_limit, limit, allowed, mutable, left, speed, sizes = jobs
    order, sequence = orders
    server, up, widest = machine
    keep, theta = rates
    cost, took, pair, spare = work
    size = population.shape[0] // 3
    for i in range(size):
        _refresh(population[i], low, limit, up, sizes)
    for i in range(size, 2 * size - 1, 2):
        a, b = int(next_uniform(rng) * size), int(next_uniform(rng) * size)
        _cross(population[a], population[b], population[i], population[i + 1], 1.0 - keep, limit, pair, rng)
        _refresh(population[i], low, limit, up, sizes)
        _refresh(population[i + 1], low, limit, up, sizes)
    if size % 2:
        for g in range(population.shape[1]):
            population[2 * size - 1, g] = population[0, g]
    for i in range(size):
        for g in range(population.shape[1]):
            population[2 * size + i, g] = population[i, g]
        _mutate(population[2 * size + i], mutable, theta, sizes, rng)
    for i in range(3 * size):
        fill(population[i], order, low, present_limit, limit, allowed, up, sizes)
        scores[i] = _score(population[i], left, speed, sizes)
    for i in range(size):
        best = i
        for k in range(i + 1, 3 * size):
            if scores[k] < scores[best]:
                best = k
        scores[i], scores[best] = scores[best], scores[i]
        for g in range(population.shape[1]):
            spare[g] = population[i, g]
            population[i, g] = population[best, g]
            population[best, g] = spare[g]
        reorder(population[i], present, sequence, server, up, widest, sizes, cost, took)
