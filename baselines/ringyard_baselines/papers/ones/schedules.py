"""One schedule of ONES in compiled code, which says the job of each GPU: within limits, padded, in blocks."""

import numpy as np

from ringyard.compiled import IntVector, kernel
from ringyard_baselines.papers.ones.inputs import FREE, Jobs, Machine, Workspace

#: what keeping a job's own GPUs, and not spanning more servers than needed, count beside one displaced GPU
_OWN, _SPAN = 1e-3, 1e-2

# rows of `Workspace.below`
_BUSY, _DOWN = 0, 1


@kernel
def _count(genome: IntVector, sizes: IntVector) -> None:
    """GPUs of each job, into `sizes`."""
    sizes[:] = 0
    for gene in genome:
        if gene >= 0:
            sizes[gene] += 1


@kernel
def refresh(genome: IntVector, jobs: Jobs, up: IntVector, sizes: IntVector) -> None:
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
def _at_most(jobs: Jobs, j: int, size: int) -> int:
    """Largest number of GPUs not above `size` on which the job can run; 0: none."""
    speed = jobs.speed[jobs.place[j]]
    size = min(size, len(speed) - 1)
    while size > 0 and speed[size] <= 0.0:
        size -= 1
    return size


@kernel
def _padded(jobs: Jobs, j: int, bound: int, size: int, free: int) -> int:
    """GPUs that a job comes to from `size`, within its bound and those that are free."""
    more = _at_most(jobs, j, min(bound, size + free))
    return more if more > size and more >= jobs.fewest[j] else size


@kernel
def pad(sizes: IntVector, jobs: Jobs, free: int) -> None:
    """As `fill`, of a schedule with so many free GPUs that says no more than the GPUs of each job."""
    for bound in (jobs.present_limit, jobs.limit):
        for i in range(len(jobs.padding)):
            if free == 0:
                break
            j = jobs.padding[i]
            size = _padded(jobs, j, bound[j], sizes[j], free)
            free -= size - sizes[j]
            sizes[j] = size
    for j in range(len(sizes)):
        sizes[j] = _at_most(jobs, j, sizes[j])


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
        sizes: [jobs] gets the GPUs of each.
    """
    _count(genome, sizes)
    free = 0
    for g in range(len(genome)):
        free += int(genome[g] == FREE and up[g] != 0)
    begin = 0
    for bound in (jobs.present_limit, jobs.limit):
        for i in range(len(jobs.padding)):
            j = jobs.padding[i]
            size = _padded(jobs, j, bound[j], sizes[j], free)
            begin = _give(genome, up, j, size - sizes[j], begin)
            free -= size - sizes[j]
            sizes[j] = size
    for g in range(len(genome)):  # sizes between two allowed ones go down
        j = genome[g]
        if j >= 0 and _at_most(jobs, j, sizes[j]) < sizes[j]:
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
    refresh(genome, jobs, machine.up, work.sizes[0])
    fill(genome, jobs, machine.up, work.sizes[0])
    reorder(genome, jobs.sequence, machine, work)


@kernel
def count_below(machine: Machine, work: Workspace) -> None:
    """GPUs below each that run a job, and that are down, into `work.below`."""
    work.below[:, 0] = 0
    for g in range(len(machine.present)):
        work.below[_BUSY, g + 1] = work.below[_BUSY, g] + int(machine.present[g] >= 0)
        work.below[_DOWN, g + 1] = work.below[_DOWN, g] + int(machine.up[g] == 0)


@kernel
def _block_cost(machine: Machine, work: Workspace, begin: int, size: int, own: int) -> float:
    """Running GPUs of others that a job displaces, `own` of its GPUs being its already; inf: one is down."""
    busy, down = work.below[_BUSY], work.below[_DOWN]
    end = begin + size
    if down[end] > down[begin]:
        return np.inf
    cost = float(busy[end] - busy[begin] - own) + _OWN * (size - own)
    spans = machine.server[end - 1] - machine.server[begin] + 1
    return cost + _SPAN * max(0, spans - (size + machine.widest - 1) // machine.widest)


@kernel
def _place(machine: Machine, work: Workspace, j: int, size: int, first: int, free: int, rank: int) -> None:
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
    genome: IntVector, sizes: IntVector, sequence: IntVector, machine: Machine, work: Workspace
) -> bool:
    """Give each job a contiguous block so that least running GPUs of others are displaced.

    Dynamic program over (blocks placed in `sequence`, free GPUs below the last one's end).

    Args:
        genome: [GPUs] gets the job of each, -1 free; unchanged if there is no room (failed GPUs in between).
        sizes: [jobs] GPUs of each, all together no more than there are.
        sequence: [jobs] order of the blocks.
        machine: the GPUs and who runs there now.
        work: work space, with the present counts (`count_below`).

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
            _place(machine, work, j, sizes[j], first, free, rank)
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
def reorder(genome: IntVector, sequence: IntVector, machine: Machine, work: Workspace) -> bool:
    """As `arrange`, of the GPUs that each job has in `genome`."""
    sizes = work.sizes[0]
    _count(genome, sizes)
    count_below(machine, work)
    return arrange(genome, sizes, sequence, machine, work)
