"""Evolution of ONES' schedules in compiled code.

A score depends only on the number of GPUs of each job, and so do the blocks of a schedule. Single GPUs matter
only when parents are crossed, and when a schedule finds no room in blocks.
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
    """Cross two random parents uniformly into the schedules `child` and `child` + 1.

    Each gene comes from either parent, unless its job would exceed its limit. `crossover` is xi, the
    probability that genes change sides. The parents are the first third of `work`.
    """
    genes, limit = work.genes, jobs.current_limit
    parents = len(genes) // 2
    a, b = int(next_uniform(rng) * parents), int(next_uniform(rng) * parents)
    one, two = work.unpadded[child], work.unpadded[child + 1]
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
def _mutate(parent: IntVector, sizes: IntVector, mutable: IntVector, rate: float, rng: UIntVector) -> None:
    """Write the parent's GPUs of each job to `sizes`, or 0 with probability `rate` if it is mutable."""
    for j in range(len(mutable)):
        sizes[j] = 0 if mutable[j] != 0 and next_uniform(rng) < rate else parent[j]


@kernel
def _score(jobs: SearchJobs, gpus: ClusterGpus, sizes: IntVector) -> float:
    """Return SRUF: remaining GPU seconds of jobs with a prediction, plus the cost of changes."""
    total = 0.0
    for j in range(len(sizes)):
        if sizes[j] > 0 and not np.isnan(jobs.left[j]):
            total += sizes[j] * jobs.left[j] / jobs.speed[jobs.place[j], sizes[j]]
        if gpus.switch_seconds > 0.0 and jobs.held[j] > 0 and sizes[j] != jobs.held[j]:
            total += gpus.switch_seconds * max(sizes[j], jobs.held[j])
    return total


@kernel
def _pad_and_score(jobs: SearchJobs, gpus: ClusterGpus, work: Workspace) -> None:
    """Pad and score all schedules, and number them in their present order."""
    num_up = 0
    for g in range(len(gpus.up)):
        num_up += gpus.up[g]
    for i in range(len(work.scores)):
        sizes, free = work.sizes[i], num_up
        for j in range(len(sizes)):
            sizes[j] = work.unpadded[i, j]
            free -= sizes[j]
        pad(sizes, jobs, free)
        work.scores[i] = _score(jobs, gpus, sizes)
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
    """Return a rank before `i` with the same score and sizes, or -1."""
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
def _write(genome: IntVector, source: int, jobs: SearchJobs, gpus: ClusterGpus, work: Workspace) -> None:
    """Write the genes of schedule `source`, padded, since its blocks found no room."""
    unpadded = work.unpadded[source]
    count = len(work.genes)
    genes = work.genes[source if source < count else source - count]
    for g in range(len(genome)):
        genome[g] = genes[g] if genes[g] >= 0 and unpadded[genes[g]] > 0 else FREE
    fill(genome, jobs, gpus.up, work.sizes[source])


@kernel
def evolve(
    population: IntMatrix,
    jobs: SearchJobs,
    gpus: ClusterGpus,
    crossover: float,
    mutation: float,
    work: Workspace,
    rng: UIntVector,
) -> None:
    """Evolve one generation: parents, children and mutants compete, and the best of all comes first.

    `population` [K, GPUs] has the job of each GPU in the parents, -1 free, and gets the K lowest scores.
    `crossover` is xi, the probability that a gene is swapped, `mutation` theta, that a job is removed.
    """
    size = len(population)
    for i in range(size):
        _copy(population[i], work.genes[i])
        refresh(work.genes[i], jobs, gpus.up, work.unpadded[i])
    for i in range(size, 2 * size - 1, 2):
        _cross(work, i, jobs, crossover, rng)
    if size % 2:
        _copy(work.genes[0], work.genes[2 * size - 1])
        _copy(work.unpadded[0], work.unpadded[2 * size - 1])
    for i in range(size):
        _mutate(work.unpadded[i], work.unpadded[2 * size + i], jobs.mutable, mutation, rng)
    _pad_and_score(jobs, gpus, work)
    count_unavailable(gpus, work)
    for i in range(size):
        _select(work, i)
        same = _find_duplicate(work, i)
        source = work.ranked[i]
        if same >= 0:
            _copy(population[same], population[i])
        elif not arrange(population[i], work.sizes[source], jobs.sequence, gpus, work):
            _write(population[i], source, jobs, gpus, work)
