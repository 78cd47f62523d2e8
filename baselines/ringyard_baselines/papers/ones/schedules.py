"""Schedules of ONES, which say the job of each GPU, in compiled code: within limits, padded, in blocks."""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import BoolMatrix, FloatMatrix, FloatVector, IntMatrix, IntVector, kernel

#: gene of a GPU without a job
FREE = -1


class SearchJobs(NamedTuple):
    """What evolution knows of the n jobs; genes are positions 0 .. n - 1 here.

    Attributes:
        fewest: [n] GPUs a job needs at least.
        held: [n] GPUs it has now.
        present_limit: [n] most GPUs that a schedule hands on, and how far a job is padded in the first pass.
        limit: [n] R, how far in the second.
        mutable: [n] 1 if mutation may remove the job.
        left: [n] iterations left; NaN counts nothing.
        place: [n] row of each in `speed`.
        speed: [rows, sizes + 1] iterations per second on so many GPUs; 0 where the job cannot run so.
        padding: [n] new jobs first come first served, then the others by remaining time.
        sequence: [n] order of the blocks.
    """

    fewest: IntVector
    held: IntVector
    present_limit: IntVector
    limit: IntVector
    mutable: IntVector
    left: FloatVector
    place: IntVector
    speed: FloatMatrix
    padding: IntVector
    sequence: IntVector


class ClusterGpus(NamedTuple):
    """The GPUs.

    Attributes:
        present: [GPUs] job running now, -1 none.
        server: [GPUs] server of each.
        up: [GPUs] 1 if there.
        widest: GPUs of the largest server.
        switch_seconds: what a change of a running job's GPUs costs each of them in a score.
    """

    present: IntVector
    server: IntVector
    up: IntVector
    widest: int
    switch_seconds: float


class Workspace(NamedTuple):
    """Room for intermediate results, its contents mean nothing between calls; K parents, n jobs.

    The schedules of a generation are K parents, K children and K mutants.

    Attributes:
        genes: [2 K, GPUs] job of each GPU in the first two thirds; a mutant has its parent's.
        kept: [3 K, n] how many of them each job keeps, all or none, before a schedule is padded.
        sizes: [3 K, n] GPUs of each job afterwards.
        scores: [3 K] by rank.
        ranked: [3 K] schedule of each rank.
        cost: [GPUs + 1] of blocks placed so far, by free GPUs below, see `schedules`.
        took: [n, GPUs + 1] by block and free GPUs below: whether it ends there.
        below: [2, GPUs + 1] busy and failed GPUs below each.
    """

    genes: IntMatrix
    kept: IntMatrix
    sizes: IntMatrix
    scores: FloatVector
    ranked: IntVector
    cost: FloatVector
    took: BoolMatrix
    below: IntMatrix

    @classmethod
    def empty(cls, parents: int, num_gpus: int, num_jobs: int) -> "Workspace":
        """Room for the generations of so many parents."""
        return cls(
            genes=np.empty((2 * parents, num_gpus), dtype=np.int64),
            kept=np.empty((3 * parents, num_jobs), dtype=np.int64),
            sizes=np.empty((3 * parents, num_jobs), dtype=np.int64),
            scores=np.empty(3 * parents),
            ranked=np.empty(3 * parents, dtype=np.int64),
            cost=np.empty(num_gpus + 1),
            took=np.empty((num_jobs, num_gpus + 1), dtype=np.bool_),
            below=np.empty((2, num_gpus + 1), dtype=np.int64),
        )


#: what keeping a job's own GPUs, and not spanning more servers than needed, count beside one displaced GPU
_OWN_GPU_COST, _EXTRA_SERVER_COST = 1e-3, 1e-2

# rows of `Workspace.below`
_BUSY, _DOWN = 0, 1


@kernel
def _count_gpus(genome: IntVector, sizes: IntVector) -> None:
    """GPUs of each job, into `sizes`."""
    sizes[:] = 0
    for gene in genome:
        if gene >= 0:
            sizes[gene] += 1


@kernel
def refresh(genome: IntVector, jobs: SearchJobs, up: IntVector, sizes: IntVector) -> None:
    """Drop GPUs beyond a job's present limit or on failed servers, and jobs with fewer than they need.

    Args:
        genome: [GPUs] job of each, -1 free; changed in place.
        jobs: their limits.
        up: [GPUs] 1 if there.
        sizes: [jobs] gets the GPUs of each.
    """
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
    for j in range(len(sizes)):
        if sizes[j] < jobs.fewest[j]:
            sizes[j] = 0


@kernel
def _allowed_size(jobs: SearchJobs, j: int, size: int) -> int:
    """Largest number of GPUs not above `size` on which the job can run; 0: none."""
    speed = jobs.speed[jobs.place[j]]
    size = min(size, len(speed) - 1)
    while size > 0 and speed[size] <= 0.0:
        size -= 1
    return size


@kernel
def _grown_size(jobs: SearchJobs, j: int, bound: int, size: int, free: int) -> int:
    """GPUs that a job comes to from `size`, within its bound and those that are free."""
    more = _allowed_size(jobs, j, min(bound, size + free))
    return more if more > size and more >= jobs.fewest[j] else size


@kernel
def pad(sizes: IntVector, jobs: SearchJobs, free: int) -> None:
    """As `fill`, of a schedule with so many free GPUs that says no more than the GPUs of each job."""
    for bound in (jobs.present_limit, jobs.limit):
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
    """Free GPUs from `begin` on, lowest numbers first; where the next search may begin."""
    g = begin
    while wanted > 0 and g < len(genome):
        if genome[g] == FREE and up[g] != 0:
            genome[g] = j
            wanted -= 1
        g += 1
    return g


@kernel
def fill(genome: IntVector, jobs: SearchJobs, up: IntVector, sizes: IntVector) -> None:
    """Pad to full: new jobs first, then the others by remaining time, to their present limits, then to R.

    Args:
        genome: [GPUs] job of each, -1 free; changed in place.
        jobs: their limits and order.
        up: [GPUs] 1 if there.
        sizes: [jobs] gets the GPUs of each.
    """
    _count_gpus(genome, sizes)
    free = 0
    for g in range(len(genome)):
        free += int(genome[g] == FREE and up[g] != 0)
    begin = 0
    for bound in (jobs.present_limit, jobs.limit):
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
def fill_without_search(genome: IntVector, jobs: SearchJobs, machine: ClusterGpus, work: Workspace) -> None:
    """No search: what the schedule holds stays within the present limits, free GPUs are padded, blocks made.

    Args:
        genome: [GPUs] job of each, -1 free; changed in place.
        jobs: those waiting and running.
        machine: the GPUs and the jobs that run there now.
        work: work space.
    """
    refresh(genome, jobs, machine.up, work.sizes[0])
    fill(genome, jobs, machine.up, work.sizes[0])
    reorder(genome, jobs.sequence, machine, work)


@kernel
def count_unavailable(machine: ClusterGpus, work: Workspace) -> None:
    """GPUs below each that run a job, and that are down, into `work.below`."""
    work.below[:, 0] = 0
    for g in range(len(machine.present)):
        work.below[_BUSY, g + 1] = work.below[_BUSY, g] + int(machine.present[g] >= 0)
        work.below[_DOWN, g + 1] = work.below[_DOWN, g] + int(machine.up[g] == 0)


@kernel
def _block_cost(machine: ClusterGpus, work: Workspace, begin: int, size: int, own: int) -> float:
    """Running GPUs of others that a job displaces, `own` of its GPUs being its already; inf: one is down."""
    busy, down = work.below[_BUSY], work.below[_DOWN]
    end = begin + size
    if down[end] > down[begin]:
        return np.inf
    cost = float(busy[end] - busy[begin] - own) + _OWN_GPU_COST * (size - own)
    spans = machine.server[end - 1] - machine.server[begin] + 1
    return cost + _EXTRA_SERVER_COST * max(0, spans - (size + machine.widest - 1) // machine.widest)


@kernel
def _place_block(
    machine: ClusterGpus, work: Workspace, j: int, size: int, first: int, free: int, rank: int
) -> None:
    """One more block: least cost with 0 .. `free` free GPUs below its end, into `work.cost`, `work.took`."""
    present, cost, took = machine.present, work.cost, work.took[rank]
    own = 0
    for g in range(first, first + size):
        own += int(present[g] == j)
    best = np.inf
    for k in range(free + 1):
        begin = first + k
        if k > 0:
            own += int(present[begin + size - 1] == j) - int(present[begin - 1] == j)
        here = cost[k] + _block_cost(machine, work, begin, size, own)
        took[k] = here < best
        best = min(here, best)
        cost[k] = best


@kernel
def arrange(
    genome: IntVector, sizes: IntVector, sequence: IntVector, machine: ClusterGpus, work: Workspace
) -> bool:
    """Give each job a contiguous block so that least running GPUs of others are displaced.

    Dynamic program over (blocks placed in `sequence`, free GPUs below the last one's end).

    Args:
        genome: [GPUs] gets the job of each, -1 free; unchanged if there is no room (failed GPUs in between).
        sizes: [jobs] GPUs of each, all together no more than there are.
        sequence: [jobs] order of the blocks.
        machine: the GPUs and the jobs that run there now.
        work: work space, with the present counts (`count_unavailable`).

    Returns:
        Whether there is room.
    """
    free = len(genome)
    for j in range(len(sizes)):
        free -= sizes[j]
    work.cost[: free + 1] = 0.0
    first, rank = 0, 0
    for i in range(len(sequence)):
        j = sequence[i]
        if sizes[j] > 0:
            _place_block(machine, work, j, sizes[j], first, free, rank)
            first += sizes[j]
            rank += 1
    if not np.isfinite(work.cost[free]):
        return False
    genome[:] = FREE
    for i in range(len(sequence) - 1, -1, -1):
        j = sequence[i]
        if sizes[j] > 0:
            rank -= 1
            while not work.took[rank, free]:
                free -= 1
            first -= sizes[j]
            for g in range(first + free, first + free + sizes[j]):
                genome[g] = j
    return True


@kernel
def reorder(genome: IntVector, sequence: IntVector, machine: ClusterGpus, work: Workspace) -> bool:
    """As `arrange`, of the GPUs that each job has in `genome`."""
    sizes = work.sizes[0]
    _count_gpus(genome, sizes)
    count_unavailable(machine, work)
    return arrange(genome, sizes, sequence, machine, work)
