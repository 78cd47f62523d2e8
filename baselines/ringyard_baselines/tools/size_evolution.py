"""How many GPUs each job has, by a genetic algorithm for the largest power mean of what sizes are worth."""

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
    u8,
)
from ringyard.state.random_numbers import bits_ahead, next_uniform, skip

#: genes that are looked at together: without a way out of the loop, processors draw for several at once
_BLOCK = 64


class SizeOptions(NamedTuple):
    """What there is to choose for n jobs.

    Attributes:
        worth: [n, sizes + 1] of so many GPUs, to the power of the mean; read where `allowed` is the index.
        allowed: [n, sizes + 1] largest number of GPUs not above the index that the job may have.
        most: largest number of GPUs that is tried.
        num_gpus: that the jobs may have together.
        power: of the mean over jobs, not 0.
    """

    worth: FloatMatrix
    allowed: Int32Matrix
    most: int
    num_gpus: int
    power: float


class _People(NamedTuple):
    """P parents and as many children.

    Attributes:
        genes: [2 P, n + a block] GPUs of each job; the block is scratch.
        row: [2 P] of `genes`, where each individual is; parents first.
        total: [2 P] GPUs of all jobs.
        score: [2 P] the power mean.
    """

    genes: Int32Matrix
    row: IntVector
    total: IntVector
    score: FloatVector


@kernel
def _shrink(sizes: Int32Vector, total: int, choices: SizeOptions, rng: UIntVector) -> int:
    """Shrink random jobs until all fit; how many GPUs they have then."""
    count = choices.allowed.shape[0]
    while total > choices.num_gpus:
        j = int(next_uniform(rng) * count)
        if sizes[j] > 0:
            smaller = choices.allowed[j, sizes[j] - 1]
            total -= sizes[j] - smaller
            sizes[j] = smaller
    return total


@kernel
def _next_mutation(state: u8, below: u8, genes: int) -> int:
    """The first gene whose second draw is below a number, or how many genes there are."""
    for first in range(0, genes, _BLOCK):
        found = _BLOCK
        for k in range(_BLOCK):
            mutates = bits_ahead(state, 2 * (first + k) + 2) < below
            found = min(found, k if mutates else _BLOCK)
        if found < _BLOCK:
            return min(first + found, genes)
    return genes


@kernel
def _differ(mother: Int32Vector, father: Int32Vector) -> bool:
    """Whether any gene of a block does."""
    difference = 0
    for k in range(_BLOCK):
        difference |= mother[k] ^ father[k]
    return difference != 0


@kernel
def _mix(mother: Int32Vector, father: Int32Vector, child: Int32Vector, genes: int, state: u8) -> int:
    """Each gene of mother or father, by the first draw of each; GPUs that this adds to the mother's."""
    added = 0
    for k in range(genes):
        size = mother[k] if bits_ahead(state, 2 * k + 1) < np.uint64(1 << 52) else father[k]
        added += size - mother[k]
        child[k] = size
    return added


@kernel
def _cross(mother: Int32Vector, father: Int32Vector, child: Int32Vector, genes: int, state: u8) -> int:
    """`_mix` where the parents differ; elsewhere the child, a copy of its mother, stays as it is."""
    added = 0
    for first in range(0, genes, _BLOCK):
        if _differ(mother[first:], father[first:]):
            some = min(_BLOCK, genes - first)
            added += _mix(mother[first:], father[first:], child[first:], some, skip(state, 2 * first))
    return added


@kernel
def _breed(
    mother: Int32Vector,
    father: Int32Vector,
    child: Int32Vector,
    total: int,
    choices: SizeOptions,
    below: u8,
    rng: UIntVector,
) -> int:
    """Uniform crossover, mutation and repair; GPUs of the child.

    Gene after gene takes a draw for whose it is and one for whether it mutates, and if so a third for what
    to. These draws are made where they decide anything.

    Args:
        mother: [n + a block] its genes.
        father: [n + a block]
        child: [n + a block] gets its genes.
        total: GPUs of the mother.
        choices: what is allowed.
        below: a gene mutates where its bits are.
        rng: [1] state of the random numbers.
    """
    count = choices.allowed.shape[0]
    for j in range(count):
        child[j] = mother[j]
    first = 0
    while first < count:
        left = count - first
        mutant = _next_mutation(rng[0], below, left)
        genes = min(mutant + 1, left)
        total += _cross(mother[first:], father[first:], child[first:], genes, rng[0])
        rng[0] = skip(rng[0], 2 * genes)
        if mutant < left:
            j = first + mutant
            size = choices.allowed[j, int(next_uniform(rng) * (choices.most + 1))]
            total += size - child[j]
            child[j] = size
        first += genes
    return _shrink(child, total, choices, rng)


@kernel
def _mean(total: float, choices: SizeOptions) -> float:
    """The power mean whose sum this is."""
    mean = total / choices.worth.shape[0]
    return mean if choices.power == 1.0 else mean ** (1.0 / choices.power)


@kernel
def _rate(people: _People, first: int, last: int, choices: SizeOptions) -> None:
    """Scores of some individuals, four at a time: none of four sums waits for another."""
    genes, worth = people.genes, choices.worth
    for i in range(first, last, 4):
        i1, i2, i3 = min(i + 1, last - 1), min(i + 2, last - 1), min(i + 3, last - 1)
        g0, g1 = genes[people.row[i]], genes[people.row[i1]]
        g2, g3 = genes[people.row[i2]], genes[people.row[i3]]
        t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
        for j in range(worth.shape[0]):
            of_job = worth[j]  # indices without a sign take no look at whether they count from the end
            t0 += of_job[np.uint32(g0[j])]
            t1 += of_job[np.uint32(g1[j])]
            t2 += of_job[np.uint32(g2[j])]
            t3 += of_job[np.uint32(g3[j])]
        people.score[i], people.score[i1] = _mean(t0, choices), _mean(t1, choices)
        people.score[i2], people.score[i3] = _mean(t2, choices), _mean(t3, choices)


@kernel
def _begin(people: _People, choices: SizeOptions, rng: UIntVector) -> None:
    """Lower the parents' sizes to what is allowed and fits."""
    for i in range(len(people.row) // 2):
        sizes = people.genes[i]
        total = 0
        for j in range(choices.allowed.shape[0]):
            sizes[j] = choices.allowed[j, sizes[j]]
            total += sizes[j]
        people.total[i] = _shrink(sizes, total, choices, rng)


@kernel
def _evolve(people: _People, choices: SizeOptions, generations: int, rng: UIntVector) -> int:
    """Generations of tournaments, children and fights; the best individual."""
    size = len(people.row) // 2
    genes, row, total, score = people.genes, people.row, people.total, people.score
    count = choices.allowed.shape[0]
    below = np.uint64((1 << 53) + count - 1) // np.uint64(count)  # one gene in `count` mutates
    _begin(people, choices, rng)
    _rate(people, 0, size, choices)
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
            total[i] = _breed(
                genes[row[mother]], genes[row[father]], genes[row[i]], total[mother], choices, below, rng
            )
        _rate(people, size, 2 * size, choices)
        for i in range(size, 2 * size):  # every child fights a random parent; the best parent survives anyway
            k = int(next_uniform(rng) * size)
            if score[i] < score[k] or (k == best and score[i] == score[k]):
                continue
            row[k], row[i] = row[i], row[k]
            score[k], total[k] = score[i], total[i]
            if score[k] > score[best] or (score[k] == score[best] and k < best):
                best = k
    return best


def evolve_sizes(
    parents: NDArray[np.integer], choices: SizeOptions, generations: int, rng: NDArray[np.uint64]
) -> tuple[int, NDArray[np.int32]]:
    """The best individual's position after so many generations, and [P, n] the individuals then.

    Args:
        parents: [P, n] GPUs of each job, from 0 to `choices.most`; they need not be allowed nor fit together.
        choices: what there is to choose.
        generations: how many.
        rng: [1] state of the random numbers.
    """
    size, count = parents.shape
    people = _People(
        genes=np.zeros((2 * size, count + _BLOCK), np.int32),
        row=np.arange(2 * size),
        total=np.zeros(2 * size, np.int64),
        score=np.zeros(2 * size),
    )
    people.genes[:size, :count] = parents
    best = _evolve(people, choices, generations, rng)
    return best, people.genes[people.row[:size], :count]
