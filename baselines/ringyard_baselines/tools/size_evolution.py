"""Genetic algorithm for the number of GPUs of each job: maximises a power mean of the jobs' utilities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatMatrix, FloatVector, Int32Matrix, Int32Vector, UIntVector, kernel
from ringyard.state.random_numbers import STEP, leading_bits, mix, next_uniform

_BLOCK = 64  #: genes that are crossed at once
_TWO_STEPS = STEP << np.uint64(1)  #: of the generator, for each gene


class SizeOptions(NamedTuple):
    """Sizes that n jobs may have, and the objective."""

    #: [n, sizes + 1] utility of each allowed number of GPUs, not negative, to the power of the mean
    utility: FloatMatrix
    allowed: Int32Matrix  #: [n, sizes + 1] largest number of GPUs, not above the index, that the job may have
    max_gpus: int  #: largest number of GPUs that is tried
    num_gpus: int  #: number of GPUs that the jobs may have together
    power: float  #: power of the mean over jobs, not 0


class _Population(NamedTuple):
    """P parents and as many children."""

    genes: Int32Matrix  #: [2 P, n] GPUs of each job
    row: Int32Vector  #: [2 P] row in `genes` of each individual, parents first
    total: Int32Vector  #: [2 P] GPUs of all jobs
    score: FloatVector  #: [2 P] power mean of the utilities


@kernel
def _shrink(sizes: Int32Vector, total: int, options: SizeOptions, rng: UIntVector) -> int:
    """Shrink random jobs until all fit together, and return how many GPUs they then have."""
    count = options.allowed.shape[0]
    while total > options.num_gpus:
        j = int(next_uniform(rng) * count)
        if sizes[j] > 0:
            smaller = options.allowed[j, sizes[j] - 1]
            total -= sizes[j] - smaller
            sizes[j] = smaller
    return total


@kernel
def _alike(mother: Int32Vector, father: Int32Vector) -> bool:
    """Return whether two parents have the same genes, by vector code."""
    differing = 0
    for j in range(len(mother)):
        differing |= mother[j] ^ father[j]
    return differing == 0


@kernel
def _cross(mother: Int32Vector, father: Int32Vector, child: Int32Vector, rng: UIntVector) -> None:
    """Give the child genes of either parent, in vector code, as the first bits of every second draw say."""
    if _alike(mother, father):
        return
    state = rng[0] - STEP
    for j in range(len(child)):
        state += _TWO_STEPS
        child[j] = mother[j] ^ ((mother[j] ^ father[j]) & (np.int64(leading_bits(state)) >> 63))


@kernel
def _first_mutation(genes: int, count: int, rng: UIntVector) -> int:
    """Return the first of `genes` genes that mutates, of which one in `count` does, else their number."""
    least, state = ~np.uint64(0), rng[0]
    for _ in range(genes):  # vector code
        state += _TWO_STEPS
        least = min(least, leading_bits(state))
    if least >> np.uint64(33) <= np.uint64(2.0**53 / count + 1.0) >> np.uint64(22):
        state = rng[0]
        for j in range(genes):
            state += _TWO_STEPS
            if float(mix(state) >> np.uint64(11)) / 2.0**53 * count < 1.0:
                return j
    return genes


@kernel
def _score(population: _Population, i: int, options: SizeOptions) -> None:
    """Score individual `i`."""
    sizes, total = population.genes[population.row[i]], 0.0
    for j in range(len(sizes)):
        total += options.utility[j, sizes[j]]
    mean = total / len(sizes)
    population.score[i] = mean if options.power == 1.0 else mean ** (1.0 / options.power)


@kernel
def _breed(population: _Population, a: int, b: int, i: int, options: SizeOptions, rng: UIntVector) -> None:
    """Make child `i` of mother `a` and father `b` by uniform crossover, mutation and repair, and score it.

    Each gene has one draw for the parent and one for mutation, and a mutating gene a third for its new size.
    On average one gene mutates. A child like its mother has her score.
    """
    genes, row = population.genes, population.row
    one, two, child = genes[row[a]], genes[row[b]], genes[row[i]]
    count, j = len(child), 0
    for k in range(count):
        child[k] = one[k]
    crossing = not _alike(one, two)
    unlike = crossing
    while j < count:
        block = min(_BLOCK, count - j)
        kept = _first_mutation(block, count, rng)
        if crossing:
            _cross(one[j : j + kept], two[j : j + kept], child[j : j + kept], rng)
        rng[0] += np.uint64(min(kept + 1, block)) * _TWO_STEPS
        j += kept
        if kept < block:
            child[j] = options.allowed[j, int(next_uniform(rng) * (options.max_gpus + 1))]
            unlike = unlike or child[j] != one[j]
            j += 1
    population.total[i], population.score[i] = population.total[a], population.score[a]
    if unlike:
        total = 0
        for k in range(count):
            total += child[k]
        population.total[i] = _shrink(child, total, options, rng)
        _score(population, i, options)


@kernel
def _evolve(population: _Population, options: SizeOptions, generations: int, rng: UIntVector) -> int:
    """Run generations of tournaments, children and replacements, and return the best individual."""
    size = len(population.row) // 2
    row, total, score = population.row, population.total, population.score
    best = 0
    for k in range(size):
        sizes, total[k] = population.genes[k], 0
        for j in range(len(sizes)):  # reduced to allowed ones that fit together
            sizes[j] = options.allowed[j, sizes[j]]
            total[k] += sizes[j]
        total[k] = _shrink(sizes, total[k], options, rng)
        _score(population, k, options)
        if score[k] > score[best]:
            best = k
    for _ in range(generations):
        for i in range(size, 2 * size):
            a, b = int(next_uniform(rng) * size), int(next_uniform(rng) * size)
            c, d = int(next_uniform(rng) * size), int(next_uniform(rng) * size)
            mother = a if score[a] >= score[b] else b
            father = c if score[c] >= score[d] else d
            _breed(population, mother, father, i, options, rng)
        # a child replaces a random parent with a lower score, but never the best
        for i in range(size, 2 * size):
            k = int(next_uniform(rng) * size)
            if score[i] < score[k] or (k == best and score[i] == score[k]):
                continue
            row[k], row[i] = row[i], row[k]
            score[k], total[k] = score[i], total[i]
            if score[k] > score[best] or (score[k] == score[best] and k < best):
                best = k
    return best


def evolve_sizes(
    parents: NDArray[np.integer], options: SizeOptions, generations: int, rng: NDArray[np.uint64]
) -> tuple[int, NDArray[np.int32]]:
    """Evolve sizes for a number of generations; return the position of the best, and the individuals [P, n].

    `parents` [P, n] are GPUs of each job, from 0 to `options.max_gpus`, not necessarily allowed or feasible.
    `rng` [1] is the state of the random numbers.
    """
    size, count = parents.shape
    genes, scores = np.zeros((2 * size, count), np.int32), np.zeros(2 * size)
    genes[:size] = parents
    rows, totals = np.arange(2 * size, dtype=np.int32), np.zeros(2 * size, np.int32)
    population = _Population(genes, rows, totals, scores)
    best = _evolve(population, options, generations, rng)
    return best, population.genes[population.row[:size]]
