"""ONES' evolution of schedules in compiled code: a schedule says which job each GPU works for."""

import numpy as np

from ringyard.compiled import IntMatrix, IntVector, UIntVector, kernel
from ringyard.state.random_numbers import next_uniform
from ringyard_baselines.papers.ones.inputs import FREE, Jobs, Machine, Rates, Workspace

__all__ = ["evolve", "fill", "keep_and_fill", "reorder"]

#: what keeping a job's own GPUs, and not spanning more servers than needed, count beside one displaced GPU
_OWN, _SPAN = 1e-3, 1e-2


@kernel
def _sizes(genome: IntVector, sizes: IntVector) -> None:
    """GPUs of each job, into `sizes`."""
    sizes[:] = 0
    for gene in genome:
        if gene >= 0:
            sizes[gene] += 1


@kernel
def _refresh(genome: IntVector, jobs: Jobs, up: IntVector, sizes: IntVector) -> None:
    """Drop GPUs beyond a job's present limit or on failed servers, and jobs with fewer than they need."""
    sizes[:] = 0
    for g in range(len(genome)):
        j = genome[g]
        if j >= 0:
            if up[g] == 0 or sizes[j] >= jobs.present_limit[j]:
                genome[g] = FREE
            else:
                sizes[j] += 1
    for g in range(len(genome)):
        if genome[g] >= 0 and sizes[genome[g]] < jobs.fewest[genome[g]]:
            genome[g] = FREE


@kernel
def _cross(
    population: IntMatrix,
    child: int,
    limit: IntVector,
    crossover: float,
    pair: IntVector,
    rng: UIntVector,
) -> None:
    """Uniform crossover of two parents: each gene from either, unless its job would exceed its limit.

    Args:
        population: the first third are the parents.
        child: the children are the schedules `child` and `child` + 1.
        limit: [jobs] present limits.
        crossover: xi, probability that genes change sides.
        pair: [2 jobs] work space.
        rng: [1] state of the random numbers.
    """
    parents = population.shape[0] // 3
    a, b = int(next_uniform(rng) * parents), int(next_uniform(rng) * parents)
    half = len(limit)
    one, two = pair[:half], pair[half:]
    pair[:] = 0
    for g in range(population.shape[1]):
        swap = next_uniform(rng) >= 1.0 - crossover
        x = population[b if swap else a, g]
        y = population[a if swap else b, g]
        population[child, g] = FREE
        population[child + 1, g] = FREE
        if x >= 0 and one[x] < limit[x]:
            one[x] += 1
            population[child, g] = x
        if y >= 0 and two[y] < limit[y]:
            two[y] += 1
            population[child + 1, g] = y


@kernel
def _mutate(genome: IntVector, mutable: IntVector, rate: float, sizes: IntVector, rng: UIntVector) -> None:
    """Remove each job that may be moved, with probability `rate`, from the whole schedule."""
    for j in range(len(mutable)):
        sizes[j] = int(mutable[j] != 0 and next_uniform(rng) < rate)
    for g in range(len(genome)):
        if genome[g] >= 0 and sizes[genome[g]] != 0:
            genome[g] = FREE


@kernel
def _give(genome: IntVector, up: IntVector, j: int, wanted: int, begin: int) -> int:
    """Free GPUs from `begin` on, lowest numbers first; where the next search may begin."""
    g = begin
    while wanted > 0 and g < len(genome):
        if genome[g] == FREE and up[g] != 0:
            genome[g] = j
            wanted -= 1
        g += 1
    return g


@kernel
def fill(genome: IntVector, jobs: Jobs, up: IntVector, sizes: IntVector) -> None:
    """Pad to full: new jobs first, then the others by remaining time, to their present limits, then to R.

    Args:
        genome: [GPUs] job of each, -1 free; changed in place.
        jobs: their limits and order.
        up: [GPUs] 1 if there.
        sizes: [jobs] work space.
    """
    _sizes(genome, sizes)
    free = 0
    for g in range(len(genome)):
        free += int(genome[g] == FREE and up[g] != 0)
    allowed = jobs.allowed
    begin = 0
    for bound in (jobs.present_limit, jobs.limit):
        for i in range(len(jobs.padding)):
            if free == 0:
                break
            j = jobs.padding[i]
            reach = min(bound[j], sizes[j] + free)
            size = allowed[j, min(reach, allowed.shape[1] - 1)]
            if size > sizes[j] and size >= jobs.fewest[j]:
                begin = _give(genome, up, j, size - sizes[j], begin)
                free -= size - sizes[j]
                sizes[j] = size
    for g in range(len(genome)):  # sizes between two allowed ones go down
        j = genome[g]
        if j >= 0 and allowed[j, sizes[j]] < sizes[j]:
            genome[g] = FREE
            sizes[j] -= 1


@kernel
def keep_and_fill(genome: IntVector, jobs: Jobs, machine: Machine, work: Workspace) -> None:
    """No search: what the schedule holds stays within the present limits, free GPUs are padded, blocks made.

    Args:
        genome: [GPUs] job of each, -1 free; changed in place.
        jobs: those waiting and running.
        machine: the GPUs and who runs there now.
        work: work space.
    """
    _refresh(genome, jobs, machine.up, work.sizes)
    fill(genome, jobs, machine.up, work.sizes)
    reorder(genome, jobs.sequence, machine, work)


@kernel
def _count_others(machine: Machine, j: int, counts: IntMatrix) -> None:
    """GPUs below each, into `counts`, [3, GPUs + 1]: of other running jobs, all that j has not, failed."""
    for g in range(len(machine.present)):
        now = machine.present[g]
        counts[0, g + 1] = counts[0, g] + int(now >= 0 and now != j)
        counts[1, g + 1] = counts[1, g] + int(now != j)
        counts[2, g + 1] = counts[2, g] + int(machine.up[g] == 0)


@kernel
def _block_cost(machine: Machine, end: int, size: int, counts: IntMatrix) -> float:
    """Running GPUs of others that a job would displace on GPUs end - size .. end - 1; inf: one is down."""
    begin = end - size
    if counts[2, end] > counts[2, begin]:
        return np.inf
    cost = float(counts[0, end] - counts[0, begin]) + _OWN * (counts[1, end] - counts[1, begin])
    spans = machine.server[end - 1] - machine.server[begin] + 1
    return cost + _SPAN * max(0, spans - (size + machine.widest - 1) // machine.widest)


@kernel
def reorder(genome: IntVector, sequence: IntVector, machine: Machine, work: Workspace) -> bool:
    """Give each job a contiguous block so that least running GPUs of others are displaced.

    Dynamic program over (GPU position, jobs placed in `sequence`); holes are allowed.

    Args:
        genome: [GPUs] changed in place; unchanged if there is no room (failed GPUs in between).
        sequence: [jobs] order of the blocks.
        machine: the GPUs and who runs there now.
        work: work space.
    """
    sizes, cost, took = work.sizes, work.cost, work.took
    _sizes(genome, sizes)
    count = len(genome)
    cost[:, 0] = 0.0
    rank = 0
    for i in range(len(sequence)):
        j = sequence[i]
        size = sizes[j]
        if size == 0:
            continue
        _count_others(machine, j, work.counts)
        for end in range(count + 1):
            best = np.inf
            took[end, rank + 1] = 0
            if end > 0 and cost[end - 1, rank + 1] < np.inf:
                best = cost[end - 1, rank + 1]
            if end >= size and cost[end - size, rank] < np.inf:
                here = cost[end - size, rank] + _block_cost(machine, end, size, work.counts)
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
def _score(jobs: Jobs, machine: Machine, sizes: IntVector) -> float:
    """SRUF of jobs on `sizes` GPUs: remaining GPU seconds of those with a prediction, and of changes."""
    total = 0.0
    for j in range(len(sizes)):
        if sizes[j] > 0 and not np.isnan(jobs.left[j]):
            total += sizes[j] * jobs.left[j] / jobs.speed[j, sizes[j]]
        if machine.switch_seconds > 0.0 and jobs.held[j] > 0 and sizes[j] != jobs.held[j]:
            total += machine.switch_seconds * max(sizes[j], jobs.held[j])
    return total


@kernel
def _like_before(population: IntMatrix, i: int, work: Workspace) -> int:
    """A schedule before the i-th with the same score and sizes (those of i are in `work.sizes`); -1: none."""
    for k in range(i - 1, -1, -1):
        if work.scores[k] != work.scores[i]:
            return -1
        _sizes(population[k], work.pair[: len(work.sizes)])
        same = True
        for j in range(len(work.sizes)):
            same = same and work.pair[j] == work.sizes[j]
        if same:
            return k
    return -1


@kernel
def _survive(population: IntMatrix, i: int, work: Workspace) -> None:
    """Swap the lowest score from `i` on to position `i`."""
    best = i
    for k in range(i + 1, len(population)):
        if work.scores[k] < work.scores[best]:
            best = k
    work.scores[i], work.scores[best] = work.scores[best], work.scores[i]
    for g in range(population.shape[1]):
        work.genome[g] = population[i, g]
        population[i, g] = population[best, g]
        population[best, g] = work.genome[g]


@kernel
def evolve(
    population: IntMatrix, jobs: Jobs, machine: Machine, rates: Rates, work: Workspace, rng: UIntVector
) -> None:
    """One generation; the K lowest scores come first in `population` afterwards, the best of all first.

    Scores do not depend on where jobs are, so that only the K that stay are reordered.

    Args:
        population: [3 K, GPUs] the first K are the parents.
        jobs: those waiting and running.
        machine: the GPUs and who runs there now.
        rates: of crossover and mutation.
        work: work space.
        rng: [1] state of the random numbers.
    """
    size = population.shape[0] // 3
    for i in range(size):
        _refresh(population[i], jobs, machine.up, work.sizes)
    for i in range(size, 2 * size - 1, 2):
        _cross(population, i, jobs.present_limit, rates.crossover, work.pair, rng)
        _refresh(population[i], jobs, machine.up, work.sizes)
        _refresh(population[i + 1], jobs, machine.up, work.sizes)
    if size % 2:
        for g in range(population.shape[1]):
            population[2 * size - 1, g] = population[0, g]
    for i in range(size):
        for g in range(population.shape[1]):
            population[2 * size + i, g] = population[i, g]
        _mutate(population[2 * size + i], jobs.mutable, rates.mutation, work.sizes, rng)
    for i in range(3 * size):
        fill(population[i], jobs, machine.up, work.sizes)
        work.scores[i] = _score(jobs, machine, work.sizes)
    for i in range(size):
        _survive(population, i, work)
        _sizes(population[i], work.sizes)
        same = _like_before(population, i, work)
        if same < 0:
            reorder(population[i], jobs.sequence, machine, work)
        else:
            for g in range(population.shape[1]):
                population[i, g] = population[same, g]
