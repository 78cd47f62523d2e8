"""Schedules of ONES in compiled code: the job of each GPU, within limits, padded, in contiguous blocks."""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import BoolMatrix, FloatMatrix, FloatVector, IntMatrix, IntVector, kernel

FREE = -1  #: gene of a GPU without a job


class SearchJobs(NamedTuple):
    """The n jobs of the search. Genes are their positions 0 .. n - 1."""

    fewest: IntVector  #: [n] smallest number of GPUs
    held: IntVector  #: [n] present number of GPUs
    current_limit: IntVector  #: [n] largest size that a schedule passes on, and to which the first pass pads
    limit: IntVector  #: [n] R, to which the second pass pads
    mutable: IntVector  #: [n] 1 if mutation may remove the job
    left: FloatVector  #: [n] iterations left, NaN counts nothing
    place: IntVector  #: [n] row of each job in `speed`
    speed: FloatMatrix  #: [rows, sizes + 1] iterations per second by number of GPUs, 0: it cannot run
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
    ends_here: BoolMatrix  #: [n, GPUs + 1] by block and free GPUs below: whether the block ends there
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
