"""Schedules of ONES and their evolution in compiled code.

A schedule is the job of each GPU, within limits, padded, in contiguous blocks. A score depends only on the
number of GPUs of each job, and so do the blocks of a schedule. Single GPUs matter only when parents are
crossed, and when a schedule finds no room in blocks.
"""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import BoolMatrix, FloatMatrix, FloatVector, IntMatrix, IntVector, UIntVector, kernel
from ringyard.state.random_numbers import next_uniform

#: gene of a GPU without a job
FREE = -1


class SearchJobs(NamedTuple):
    """The n jobs of the search. Genes are their positions 0 .. n - 1."""

    fewest: IntVector  #: [n] smallest number of GPUs
    held: IntVector  #: [n] present number of GPUs
    current_limit: IntVector  #: [n] largest size that a schedule passes on, and to which the first pass pads
    limit: IntVector  #: [n] R, to which the second pass pads
    mutable: IntVector  #: [n] 1 if mutation may remove the job
    left: FloatVector  #: [n] iterations left, NaN counts nothing
    place: IntVector  #: [n] row of each job in `speed`
    #: [rows, sizes + 1] iterations per second by number of GPUs, 0 where the job cannot run
    speed: FloatMatrix
    padding: IntVector  #: [n] order of padding: new jobs by submission, then the others by remaining time
    sequence: IntVector  #: [n] order of the blocks


class ClusterGpus(NamedTuple):
    """GPUs of the cluster."""

    present: IntVector  #: [GPUs] job that runs there now, -1 none
    server: IntVector  #: [GPUs] server of each
    up: IntVector  #: [GPUs] 1 if available
    widest: int  #: GPUs of the largest server
    switch_seconds: float  #: seconds that a change of a running job costs each of its GPUs in a score


class Workspace(NamedTuple):
    """Scratch arrays for K parents and n jobs. Their contents mean nothing between calls.

    The schedules of a generation are K parents, K children and K mutants.
    """

    genes: IntMatrix  #: [2 K, GPUs] job of each GPU in parents and children. A mutant has its parent's.
    unpadded: IntMatrix  #: [3 K, n] GPUs of each job before padding, all of the genes' or none
    sizes: IntMatrix  #: [3 K, n] GPUs of each job after padding
    scores: FloatVector  #: [3 K] by rank
    ranked: IntVector  #: [3 K] schedule of each rank
    cost: FloatVector  #: [GPUs + 1] cost of the blocks placed so far, by number of free GPUs below their end
    #: [n, GPUs + 1] by block and number of free GPUs below: whether the block ends there
    ends_here: BoolMatrix
    below: IntMatrix  #: [2, GPUs + 1] busy and failed GPUs below each

    @classmethod
    def empty(cls, parents: int, num_gpus: int, num_jobs: int) -> "Workspace":
        """Return a work space for `parents` = K, `num_gpus` GPUs and `num_jobs` jobs."""
        return cls(
            genes=np.empty((2 * parents, num_gpus), dtype=np.int64),
            unpadded=np.empty((3 * parents, num_jobs), dtype=np.int64),
            sizes=np.empty((3 * parents, num_jobs), dtype=np.int64),
            scores=np.empty(3 * parents),
            ranked=np.empty(3 * parents, dtype=np.int64),
            cost=np.empty(num_gpus + 1),
            ends_here=np.empty((num_jobs, num_gpus + 1), dtype=np.bool_),
            below=np.empty((2, num_gpus + 1), dtype=np.int64),
        )


#: cost of a GPU that a job does not hold yet, and of a server beyond those needed, in displaced GPUs
_OWN_GPU_COST, _EXTRA_SERVER_COST = 1e-3, 1e-2

# rows of `Workspace.below`
_BUSY, _DOWN = 0, 1


@kernel
def _count_gpus(genome: IntVector, sizes: IntVector) -> None:
    """Count the GPUs of each job into `sizes`."""
    sizes[:] = 0
    for gene in genome:
        if gene >= 0:
            sizes[gene] += 1


@kernel
def refresh(genome: IntVector, jobs: SearchJobs, up: IntVector, sizes: IntVector) -> None:
    """Drop GPUs beyond current limits or on failed servers, and jobs with fewer GPUs than they need.

    The `genome` [GPUs] has the job of each, -1 free. `up` [GPUs] is 1 if available, `sizes` [jobs] is filled.
    """
    sizes[:] = 0
    for g in range(len(genome)):
        j = genome[g]
        if j >= 0:
            if up[g] == 0 or sizes[j] >= jobs.current_limit[j]:
                genome[g] = FREE
            else:
                sizes[j] += 1
    for g in range(len(genome)):
        if genome[g] >= 0 and sizes[genome[g]] < jobs.fewest[genome[g]]:
            genome[g] = FREE
    for j in range(len(sizes)):
        if sizes[j] < jobs.fewest[j]:
            sizes[j] = 0


@kernel
def _allowed_size(jobs: SearchJobs, j: int, size: int) -> int:
    """Return the largest number of GPUs up to `size` on which the job can run, 0 if none."""
    speed = jobs.speed[jobs.place[j]]
    size = min(size, len(speed) - 1)
    while size > 0 and speed[size] <= 0.0:
        size -= 1
    return size


@kernel
def _grown_size(jobs: SearchJobs, j: int, bound: int, size: int, free: int) -> int:
    """Return the number of GPUs to which a job grows from `size`, within its bound and the free GPUs."""
    more = _allowed_size(jobs, j, min(bound, size + free))
    return more if more > size and more >= jobs.fewest[j] else size


@kernel
def pad(sizes: IntVector, jobs: SearchJobs, free: int) -> None:
    """Pad as `fill`, in a schedule that is only `sizes` of `jobs` and has `free` free GPUs."""
    for bound in (jobs.current_limit, jobs.limit):
        for i in range(len(jobs.padding)):
            if free == 0:
                break
            j = jobs.padding[i]
            size = _grown_size(jobs, j, bound[j], sizes[j], free)
            free -= size - sizes[j]
            sizes[j] = size
    for j in range(len(sizes)):
        sizes[j] = _allowed_size(jobs, j, sizes[j])


@kernel
def _assign_free_gpus(genome: IntVector, up: IntVector, j: int, wanted: int, begin: int) -> int:
    """Give job j free GPUs from `begin` on, lowest ids first. Return where the next search may begin."""
    g = begin
    while wanted > 0 and g < len(genome):
        if genome[g] == FREE and up[g] != 0:
            genome[g] = j
            wanted -= 1
        g += 1
    return g


@kernel
def fill(genome: IntVector, jobs: SearchJobs, up: IntVector, sizes: IntVector) -> None:
    """Pad until GPUs are used: new jobs first, then by remaining time, to current limits, then to R.

    Arrays are those of `refresh`.
    """
    _count_gpus(genome, sizes)
    free = 0
    for g in range(len(genome)):
        free += int(genome[g] == FREE and up[g] != 0)
    begin = 0
    for bound in (jobs.current_limit, jobs.limit):
        for i in range(len(jobs.padding)):
            j = jobs.padding[i]
            size = _grown_size(jobs, j, bound[j], sizes[j], free)
            begin = _assign_free_gpus(genome, up, j, size - sizes[j], begin)
            free -= size - sizes[j]
            sizes[j] = size
    for g in range(len(genome)):  # sizes between two allowed ones go down
        j = genome[g]
        if j >= 0 and _allowed_size(jobs, j, sizes[j]) < sizes[j]:
            genome[g] = FREE
            sizes[j] -= 1


@kernel
def greedy_fill(genome: IntVector, jobs: SearchJobs, gpus: ClusterGpus, work: Workspace) -> None:
    """Keep what is held within current limits, pad free GPUs and arrange blocks, all without search."""
    refresh(genome, jobs, gpus.up, work.sizes[0])
    fill(genome, jobs, gpus.up, work.sizes[0])
    reorder(genome, jobs.sequence, gpus, work)


@kernel
def count_unavailable(gpus: ClusterGpus, work: Workspace) -> None:
    """Count the `gpus` below each that are busy, and that are down, into `work.below`."""
    work.below[:, 0] = 0
    for g in range(len(gpus.present)):
        work.below[_BUSY, g + 1] = work.below[_BUSY, g] + int(gpus.present[g] >= 0)
        work.below[_DOWN, g + 1] = work.below[_DOWN, g] + int(gpus.up[g] == 0)


@kernel
def _block_cost(gpus: ClusterGpus, work: Workspace, begin: int, size: int, own: int) -> float:
    """Return the GPUs of others that a block displaces, plus small terms. inf: a GPU of it is down."""
    busy, down = work.below[_BUSY], work.below[_DOWN]
    end = begin + size
    if down[end] > down[begin]:
        return np.inf
    cost = float(busy[end] - busy[begin] - own) + _OWN_GPU_COST * (size - own)
    spans = gpus.server[end - 1] - gpus.server[begin] + 1
    return cost + _EXTRA_SERVER_COST * max(0, spans - (size + gpus.widest - 1) // gpus.widest)


@kernel
def _place(gpus: ClusterGpus, work: Workspace, j: int, size: int, first: int, free: int, rank: int) -> None:
    """Add a block: write least costs by 0 .. `free` free GPUs below its end into `work`."""
    present, cost, ends_here = gpus.present, work.cost, work.ends_here[rank]
    own = 0
    for g in range(first, first + size):
        own += int(present[g] == j)
    best = np.inf
    for k in range(free + 1):
        begin = first + k
        if k > 0:
            own += int(present[begin + size - 1] == j) - int(present[begin - 1] == j)
        here = cost[k] + _block_cost(gpus, work, begin, size, own)
        ends_here[k] = here < best
        best = min(here, best)
        cost[k] = best


@kernel
def arrange(
    genome: IntVector, sizes: IntVector, sequence: IntVector, gpus: ClusterGpus, work: Workspace
) -> bool:
    """Give each job a contiguous block such that fewest running GPUs of others are displaced.

    A dynamic program over blocks in `sequence` and free GPUs below the last block's end, after
    `count_unavailable`. Returns whether there is room. Without room, because GPUs failed, the `genome` stays.
    """
    free = len(genome)
    for j in range(len(sizes)):
        free -= sizes[j]
    work.cost[: free + 1] = 0.0
    first, rank = 0, 0
    for i in range(len(sequence)):
        j = sequence[i]
        if sizes[j] > 0:
            _place(gpus, work, j, sizes[j], first, free, rank)
            first += sizes[j]
            rank += 1
    if not np.isfinite(work.cost[free]):
        return False
    genome[:] = FREE
    for i in range(len(sequence) - 1, -1, -1):
        j = sequence[i]
        if sizes[j] > 0:
            rank -= 1
            while not work.ends_here[rank, free]:
                free -= 1
            first -= sizes[j]
            for g in range(first + free, first + free + sizes[j]):
                genome[g] = j
    return True


@kernel
def reorder(genome: IntVector, sequence: IntVector, gpus: ClusterGpus, work: Workspace) -> bool:
    """Arrange by the GPUs of each job in `genome` (`sequence`, `gpus`, `work`: see `arrange`)."""
    sizes = work.sizes[0]
    _count_gpus(genome, sizes)
    count_unavailable(gpus, work)
    return arrange(genome, sizes, sequence, gpus, work)


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
