"""AFS-L (Hwang et al., NSDI 2021): GPUs one by one to the job that shortens the average completion most."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Observability, PlacementRule, SchedulingView
from ringyard.compiled import FloatMatrix, FloatVector, IntVector, kernel
from ringyard.sim.speeds import BatchRule, SpeedTable
from ringyard_baselines.policies.sizing import SizingScheduler
from ringyard_baselines.tools.predictions import expected_iterations_left
from ringyard_baselines.tools.targets import Target, num_gpu_slots


@kernel
def _next_size(speed: FloatMatrix, j: int, size: int, free: int) -> int:
    """The smallest larger number of GPUs that job j may have and that is free; 0 if none."""
    for g in range(size + 1, min(speed.shape[1] - 1, size + free) + 1):
        if speed[j, g] > 0.0:
            return g
    return 0


class _RelativeGains(NamedTuple):
    """What the rule compares, of every job that has GPUs.

    Attributes:
        length: [jobs] work left / speed.
        of_more: [jobs] gain by the next size / speed there.
        of_now: [jobs] the same / speed now.
    """

    length: FloatVector
    of_more: FloatVector
    of_now: FloatVector


@kernel
def _update_gains(
    speed: FloatMatrix, left: FloatVector, sizes: IntVector, j: int, more: int, prospects: _RelativeGains
) -> None:
    """Note what job j, which has GPUs, would gain by `more` of them in all."""
    now, then = speed[j, sizes[j]], speed[j, more]
    prospects.length[j] = left[j] / now
    prospects.of_more[j] = (then - now) / then
    prospects.of_now[j] = (then - now) / now


@kernel
def _is_preferred(left: FloatVector, sizes: IntVector, prospects: _RelativeGains, a: int, b: int) -> bool:
    """Whether b is to be preferred to a (the rule of the public implementation)."""
    if sizes[a] == 0 or sizes[b] == 0:
        if sizes[a] == 0 and sizes[b] == 0:
            return left[b] < left[a]
        return sizes[b] == 0
    if prospects.length[a] <= prospects.length[b]:
        return prospects.of_more[b] > prospects.of_now[a]
    return not prospects.of_more[a] > prospects.of_now[b]


@kernel
def _grant_gpus(
    speed: FloatMatrix,
    left: FloatVector,
    sizes: IntVector,
    following: IntVector,
    prospects: _RelativeGains,
    gpus: int,
) -> None:
    """Hand out GPUs until no job can take more, into `sizes`; `following` is work space, [jobs]."""
    free = gpus
    for j in range(len(left)):
        following[j] = _next_size(speed, j, sizes[j], speed.shape[1])
    while free > 0:
        top = -1
        for j in range(len(left)):
            if 0 < following[j] <= sizes[j] + free:
                if top < 0 or _is_preferred(left, sizes, prospects, top, j):
                    top = j
        if top < 0:
            return
        size = following[top]
        free -= size - sizes[top]
        sizes[top] = size
        following[top] = _next_size(speed, top, size, speed.shape[1])
        if following[top] > 0:
            _update_gains(speed, left, sizes, top, following[top], prospects)


def elastic_shares(speed: NDArray[np.float64], left: NDArray[np.float64], gpus: int) -> NDArray[np.int64]:
    """[jobs] GPUs of each job.

    Args:
        speed: [jobs, sizes + 1] progress per second on g GPUs, 0 where that is not allowed.
        left: [jobs] work left, in the same units.
        gpus: to be handed out.
    """
    sizes, following = np.zeros((2, len(left)), dtype=np.int64)
    _grant_gpus(speed, left, sizes, following, _RelativeGains(*np.zeros((3, len(left)))), gpus)
    return sizes


class AFSL(SizingScheduler):
    """AFS-L: decides anew whenever jobs come and go.

    FOUND (a public port): GPUs go one by one to the top job; between two jobs without GPUs the shorter wins,
    one without GPUs beats one with; else, with j the shorter and b the longer, b wins if
    (s_b(n+1) - s_b(n)) / s_b(n+1) > (s_j(n+1) - s_j(n)) / s_j(n). A job whose fewest GPUs (its own
    limit, or what its batch needs of memory) are more than one gets them at once; the batch stays as asked.

    Args:
        placement: where jobs go.
    """

    def __init__(self, placement: PlacementRule) -> None:
        observability = Observability.SIZES | Observability.PREDICTIONS | Observability.SPEEDS
        super().__init__("afs_l", observability, placement, BatchRule.ASKED)

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Shares of all, the shortest jobs placed first."""
        jobs = view.gpu_jobs
        left = expected_iterations_left(view, jobs)
        speed, least = table.speeds_of(jobs), table.min_size_speeds_of(jobs)
        work = left / least
        order = np.lexsort((jobs, work))
        gpus = num_gpu_slots(view, self.placement)
        sizes = elastic_shares((speed / least[:, None])[order], work[order], gpus)
        jobs = jobs[order]
        return [Target(job, size) for job, size in zip(jobs.tolist(), sizes.tolist(), strict=True)]
