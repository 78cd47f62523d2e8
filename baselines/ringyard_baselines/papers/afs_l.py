"""AFS-L (Hwang et al., NSDI 2021): GPUs one by one to the job that shortens mean completion time most."""

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
    """Return the next larger number of GPUs that job j may use with `free` GPUs left, or 0."""
    for g in range(size + 1, min(speed.shape[1] - 1, size + free) + 1):
        if speed[j, g] > 0.0:
            return g
    return 0


@kernel
def _is_preferred(
    speed: FloatMatrix, left: FloatVector, sizes: IntVector, next_sizes: IntVector, a: int, b: int
) -> bool:
    """Return whether job b goes before job a (the rule of the public implementation)."""
    if sizes[a] == 0 or sizes[b] == 0:
        if sizes[a] == 0 and sizes[b] == 0:
            return left[b] < left[a]
        return sizes[b] == 0
    now_a, then_a = speed[a, sizes[a]], speed[a, next_sizes[a]]
    now_b, then_b = speed[b, sizes[b]], speed[b, next_sizes[b]]
    if left[a] / now_a <= left[b] / now_b:
        return (then_b - now_b) / then_b > (then_a - now_a) / now_a
    return not (then_a - now_a) / then_a > (then_b - now_b) / now_b


@kernel
def _grant_gpus(
    speed: FloatMatrix, left: FloatVector, sizes: IntVector, next_sizes: IntVector, gpus: int
) -> None:
    """Hand out `gpus` one size step at a time until no job can take more, into `sizes` (`elastic_shares`)."""
    free = gpus
    for j in range(len(left)):
        next_sizes[j] = _next_size(speed, j, sizes[j], speed.shape[1])
    while free > 0:
        top = -1
        for j in range(len(left)):
            if 0 < next_sizes[j] <= sizes[j] + free:
                if top < 0 or _is_preferred(speed, left, sizes, next_sizes, top, j):
                    top = j
        if top < 0:
            return
        size = next_sizes[top]
        free -= size - sizes[top]
        sizes[top] = size
        next_sizes[top] = _next_size(speed, top, size, speed.shape[1])


def elastic_shares(speed: NDArray[np.float64], left: NDArray[np.float64], gpus: int) -> NDArray[np.int64]:
    """Return [jobs] the number of GPUs of each job by AFS-L's rule.

    `speed` [jobs, sizes + 1] is progress per second by number of GPUs, 0 where not allowed, `left` [jobs] the
    work left in its units.
    """
    sizes, next_sizes = np.zeros((2, len(left)), dtype=np.int64)
    _grant_gpus(speed, left, sizes, next_sizes, gpus)
    return sizes


class AFSL(SizingScheduler):
    """AFS-L of Hwang et al., NSDI 2021: elastic sizes, decided anew at every arrival and completion.

    FOUND (a public port): GPUs go one by one to the job that wins all comparisons. Of two jobs without GPUs
    the shorter one wins. A job without GPUs beats a job with GPUs. Otherwise, with j the shorter and b the
    longer job, b wins if (s_b(n+1) - s_b(n)) / s_b(n+1) > (s_j(n+1) - s_j(n)) / s_j(n), s being the speed on
    n GPUs. Assumed: a job that needs several GPUs at least (its own limit, or memory for its batch) gets them
    at once. The batch stays as requested.

    Args:
        placement: where jobs go.
    """

    def __init__(self, placement: PlacementRule) -> None:
        observability = Observability.SIZES | Observability.PREDICTIONS | Observability.SPEEDS
        super().__init__("afs_l", observability, placement, BatchRule.ASKED)

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Return the GPUs of every job, shortest job first (`view`, `table`: see `SizingScheduler.sizes`)."""
        jobs = view.gpu_jobs
        left = expected_iterations_left(view, jobs)
        speed, least = table.speeds_of(jobs), table.min_size_speeds_of(jobs)
        work = left / least
        order = np.lexsort((jobs, work))
        gpus = num_gpu_slots(view, self.placement)
        sizes = elastic_shares((speed / least[:, None])[order], work[order], gpus)
        jobs = jobs[order]
        return [Target(job, size) for job, size in zip(jobs.tolist(), sizes.tolist(), strict=True)]
