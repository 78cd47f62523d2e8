"""ONES' evolution of schedules in compiled code.

A score depends only on how many GPUs each job has, and so does where blocks go: GPUs are looked at one by one
where parents are crossed, and where a schedule that stays finds no room in blocks.
"""

import numpy as np

from ringyard.compiled import IntMatrix, IntVector, UIntVector, kernel
from ringyard.state.random_numbers import next_uniform
from ringyard_baselines.papers.ones.schedules import (
    FREE,
    ClusterGpus,
    SearchJobs,
    Workspace,
    arrange,
    count_unavailable,
    fill,
    pad,
    refresh,
)


@kernel
def _copy(source: IntVector, target: IntVector) -> None:
    for k in range(len(source)):
        target[k] = source[k]


@kernel
def _cross(work: Workspace, child: int, jobs: SearchJobs, crossover: float, rng: UIntVector) -> None:
    """Uniform crossover of two parents: each gene from either, unless its job would exceed its limit.

    Args:
        work: its first third are the parents.
        child: the children are the schedules `child` and `child` + 1.
        jobs: present limits, and the fewest GPUs, below which a job is out.
        crossover: xi, probability that genes change sides.
        rng: [1] state of the random numbers.
    """
    genes, limit = work.genes, jobs.present_limit
    parents = len(genes) // 2
    a, b = int(next_uniform(rng) * parents), int(next_uniform(rng) * parents)
    one, two = work.kept[child], work.kept[child + 1]
    one[:] = 0
    two[:] = 0
    for g in range(genes.shape[1]):
        x, y, draw = genes[a, g], genes[b, g], next_uniform(rng)
        if x != y and draw >= 1.0 - crossover:
            x, y = y, x
        genes[child, g] = FREE
        genes[child + 1, g] = FREE
        if x >= 0 and one[x] < limit[x]:
            one[x] += 1
            genes[child, g] = x
        if y >= 0 and two[y] < limit[y]:
            two[y] += 1
            genes[child + 1, g] = y
    for j in range(len(one)):
        if one[j] < jobs.fewest[j]:
            one[j] = 0
        if two[j] < jobs.fewest[j]:
            two[j] = 0


@kernel
def _mutate(parent: IntVector, kept: IntVector, mutable: IntVector, rate: float, rng: UIntVector) -> None:
    """GPUs of each job that are kept of the parent's: none, with probability `rate`, if it may be moved."""
    for j in range(len(mutable)):
        kept[j] = 0 if mutable[j] != 0 and next_uniform(rng) < rate else parent[j]


@kernel
def _score(jobs: SearchJobs, machine: ClusterGpus, sizes: IntVector) -> float:
    """SRUF of jobs on `sizes` GPUs: remaining GPU seconds of those with a prediction, and of changes."""
    total = 0.0
    for j in range(len(sizes)):
        if sizes[j] > 0 and not np.isnan(jobs.left[j]):
            total += sizes[j] * jobs.left[j] / jobs.speed[jobs.place[j], sizes[j]]
        if machine.switch_seconds > 0.0 and jobs.held[j] > 0 and sizes[j] != jobs.held[j]:
            total += machine.switch_seconds * max(sizes[j], jobs.held[j])
    return total


@kernel
def _pad_and_score(jobs: SearchJobs, machine: ClusterGpus, work: Workspace) -> None:
    """Pad all schedules, and rank them as they come."""
    num_up = 0
    for g in range(len(machine.up)):
        num_up += machine.up[g]
    for i in range(len(work.scores)):
        sizes, free = work.sizes[i], num_up
        for j in range(len(sizes)):
            sizes[j] = work.kept[i, j]
            free -= sizes[j]
        pad(sizes, jobs, free)
        work.scores[i] = _score(jobs, machine, sizes)
        work.ranked[i] = i


@kernel
def _select(work: Workspace, i: int) -> None:
    """Swap the lowest score from rank `i` on to rank `i`."""
    scores, ranked = work.scores, work.ranked
    best = i
    for k in range(i + 1, len(scores)):
        if scores[k] < scores[best]:
            best = k
    scores[i], scores[best] = scores[best], scores[i]
    ranked[i], ranked[best] = ranked[best], ranked[i]


@kernel
def _find_duplicate(work: Workspace, i: int) -> int:
    """A rank before `i` with the same score and sizes; -1: none."""
    sizes = work.sizes[work.ranked[i]]
    for k in range(i - 1, -1, -1):
        if work.scores[k] != work.scores[i]:
            return -1
        others = work.sizes[work.ranked[k]]
        same = True
        for j in range(len(sizes)):
            same = same and sizes[j] == others[j]
        if same:
            return k
    return -1


@kernel
def _write_genes(
    genome: IntVector, source: int, jobs: SearchJobs, machine: ClusterGpus, work: Workspace
) -> None:
    """The genes of schedule `source`, padded, as they come: its blocks have no room."""
    kept = work.kept[source]
    count = len(work.genes)
    genes = work.genes[source if source < count else source - count]
    for g in range(len(genome)):
        genome[g] = genes[g] if genes[g] >= 0 and kept[genes[g]] > 0 else FREE
    fill(genome, jobs, machine.up, work.sizes[source])


@kernel
def evolve(
    population: IntMatrix,
    jobs: SearchJobs,
    machine: ClusterGpus,
    crossover: float,
    mutation: float,
    work: Workspace,
    rng: UIntVector,
) -> None:
    """One generation; parents, children and mutants compete, the best of all comes first.

    Args:
        population: [K, GPUs] job of each GPU in the parents, -1 free; then in the K lowest scores.
        jobs: those waiting and running.
        machine: the GPUs and the jobs that run there now.
        crossover: xi, probability that a gene is swapped.
        mutation: theta, probability that a job is removed.
        work: work space.
        rng: [1] state of the random numbers.
    """
    size = len(population)
    for i in range(size):
        _copy(population[i], work.genes[i])
        refresh(work.genes[i], jobs, machine.up, work.kept[i])
    for i in range(size, 2 * size - 1, 2):
        _cross(work, i, jobs, crossover, rng)
    if size % 2:
        _copy(work.genes[0], work.genes[2 * size - 1])
        _copy(work.kept[0], work.kept[2 * size - 1])
    for i in range(size):
        _mutate(work.kept[i], work.kept[2 * size + i], jobs.mutable, mutation, rng)
    _pad_and_score(jobs, machine, work)
    count_unavailable(machine, work)
    for i in range(size):
        _select(work, i)
        same = _find_duplicate(work, i)
        source = work.ranked[i]
        if same >= 0:
            _copy(population[same], population[i])
        elif not arrange(population[i], work.sizes[source], jobs.sequence, machine, work):
            _write_genes(population[i], source, jobs, machine, work)
