"""AFS-L (Hwang et al., NSDI 2021): GPUs one by one to whoever shortens the average completion most."""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatMatrix, FloatVector, IntVector, kernel
from ringyard.placement import PlacementRule
from ringyard.sim.speeds import BatchRule, SpeedTable
from ringyard.sim.view import SchedulingView
from ringyard_baselines.families.sizing import SizingScheduler
from ringyard_baselines.scheduler import Information
from ringyard_baselines.tools.predictions import predicted_iterations
from ringyard_baselines.tools.targets import Target, gpu_places

__all__ = ["AFSL", "elastic_shares"]


@kernel
def _next_size(speed: FloatMatrix, j: int, size: int, free: int) -> int:
    """The smallest larger number of GPUs that job j may have and that is free; 0 if none."""
    for g in range(size + 1, min(speed.shape[1] - 1, size + free) + 1):
        if speed[j, g] > 0.0:
            return g
    return 0


@kernel
def _prefers(speed: FloatMatrix, left: FloatVector, sizes: IntVector, a: int, b: int, free: int) -> bool:
    """Whether b is to be preferred to a (the rule of the public implementation)."""
    if sizes[a] == 0 or sizes[b] == 0:
        if sizes[a] == 0 and sizes[b] == 0:
            return left[b] < left[a]
        return sizes[b] == 0
    length_a, length_b = left[a] / speed[a, sizes[a]], left[b] / speed[b, sizes[b]]
    short, long = (a, b) if length_a <= length_b else (b, a)
    more_short = speed[short, _next_size(speed, short, sizes[short], free)]
    more_long = speed[long, _next_size(speed, long, sizes[long], free)]
    gain_long = (more_long - speed[long, sizes[long]]) / more_long
    gain_short = (more_short - speed[short, sizes[short]]) / speed[short, sizes[short]]
    return (gain_long > gain_short) == (long == b)


@kernel
def _grant(speed: FloatMatrix, left: FloatVector, sizes: IntVector, gpus: int) -> None:
    """Hand out GPUs until no job can take more, into `sizes`."""
    free = gpus
    while free > 0:
        top = -1
        for j in range(len(left)):
            if _next_size(speed, j, sizes[j], free) > 0:
                if top < 0 or _prefers(speed, left, sizes, top, j, free):
                    top = j
        if top < 0:
            return
        size = _next_size(speed, top, sizes[top], free)
        free -= size - sizes[top]
        sizes[top] = size


def elastic_shares(speed: NDArray[np.float64], left: NDArray[np.float64], gpus: int) -> NDArray[np.int64]:
    """[jobs] GPUs of each job.

    Args:
        speed: [jobs, sizes + 1] progress per second on g GPUs, 0 where that is not allowed.
        left: [jobs] work left, in the same units.
        gpus: to be handed out.
    """
    sizes = np.zeros(len(left), dtype=np.int64)
    _grant(speed, left, sizes, gpus)
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
        knows = Information.SIZES | Information.PREDICTIONS | Information.SPEEDS
        super().__init__("afs_l", knows, placement, BatchRule.ASKED)

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Shares of all, the shortest jobs placed first."""
        jobs = view.gpu_jobs
        left = predicted_iterations(view, jobs)
        speed, least = table.of(jobs), table.least_of(jobs)
        work = left / least
        order = np.lexsort((jobs, work))
        gpus = gpu_places(view, self.placement)
        sizes = elastic_shares((speed / least[:, None])[order], work[order], gpus)
        jobs = jobs[order]
        return [Target(job, size) for job, size in zip(jobs.tolist(), sizes.tolist(), strict=True)]
