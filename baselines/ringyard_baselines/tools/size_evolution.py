"""Genetic algorithm for the number of GPUs of each job: maximises a power mean of the jobs' utilities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import (
    FloatMatrix,
    FloatVector,
    Int32Matrix,
    Int32Vector,
    IntVector,
    UIntVector,
    kernel,
)
from ringyard.state.random_numbers import next_uniform


class SizeOptions(NamedTuple):
    """Sizes that n jobs may have, and the objective."""

    #: [n, sizes + 1] utility of each number of GPUs, to the power of the mean. Only allowed sizes are
    #: read.
    utility: FloatMatrix
    allowed: Int32Matrix  #: [n, sizes + 1] largest number of GPUs, not above the index, that the job may have
    max_gpus: int  #: largest number of GPUs that is tried
    num_gpus: int  #: number of GPUs that the jobs may have together
    power: float  #: power of the mean over jobs, not 0


class _Population(NamedTuple):
    """P parents and as many children."""

    genes: Int32Matrix  #: [2 P, n] GPUs of each job
    row: IntVector  #: [2 P] row in `genes` of each individual, parents first
    total: IntVector  #: [2 P] GPUs of all jobs
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
def _make_child(
    mother: Int32Vector,
    father: Int32Vector,
    child: Int32Vector,
    total: int,
    options: SizeOptions,
    rng: UIntVector,
) -> int:
    """Make a child by uniform crossover, mutation and repair, and return its number of GPUs.

    Genes are [n]. Each has one draw for the parent and one for mutation, and a mutating gene a third for its
    new size. On average one gene mutates. The mother has `total` GPUs.
    """
    count = len(child)
    for j in range(count):
        size = mother[j] if next_uniform(rng) < 0.5 else father[j]
        if next_uniform(rng) * count < 1.0:
            size = options.allowed[j, int(next_uniform(rng) * (options.max_gpus + 1))]
        total += size - mother[j]
        child[j] = size
    return _shrink(child, total, options, rng)


@kernel
def _mean(total: float, options: SizeOptions) -> float:
    """Return the power mean of utilities with this sum."""
    mean = total / options.utility.shape[0]
    return mean if options.power == 1.0 else mean ** (1.0 / options.power)


@kernel
def _score(population: _Population, first: int, last: int, options: SizeOptions) -> None:
    """Score individuals `first` to `last` - 1."""
    for i in range(first, last):
        sizes, total = population.genes[population.row[i]], 0.0
        for j in range(options.utility.shape[0]):
            total += options.utility[j, sizes[j]]
        population.score[i] = _mean(total, options)


@kernel
def _repair_parents(population: _Population, options: SizeOptions, rng: UIntVector) -> None:
    """Reduce the parents' sizes to allowed ones that fit together."""
    for i in range(len(population.row) // 2):
        sizes = population.genes[i]
        total = 0
        for j in range(options.allowed.shape[0]):
            sizes[j] = options.allowed[j, sizes[j]]
            total += sizes[j]
        population.total[i] = _shrink(sizes, total, options, rng)


@kernel
def _evolve(population: _Population, options: SizeOptions, generations: int, rng: UIntVector) -> int:
    """Run generations of tournaments, children and replacements, and return the best individual."""
    size = len(population.row) // 2
    genes, row, total, score = population.genes, population.row, population.total, population.score
    _repair_parents(population, options, rng)
    _score(population, 0, size, options)
    best = 0
    for k in range(size):
        if score[k] > score[best]:
            best = k
    for _ in range(generations):
        for i in range(size, 2 * size):
            a, b = int(next_uniform(rng) * size), int(next_uniform(rng) * size)
            c, d = int(next_uniform(rng) * size), int(next_uniform(rng) * size)
            mother = a if score[a] >= score[b] else b
            father = c if score[c] >= score[d] else d
            total[i] = _make_child(
                genes[row[mother]], genes[row[father]], genes[row[i]], total[mother], options, rng
            )
        _score(population, size, 2 * size, options)
        for i in range(
            size, 2 * size
        ):  # a child replaces a random parent with a lower score, but never the best
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
    population = _Population(genes, np.arange(2 * size), np.zeros(2 * size, np.int64), scores)
    population.genes[:size] = parents
    best = _evolve(population, options, generations, rng)
    return best, population.genes[population.row[:size]]
