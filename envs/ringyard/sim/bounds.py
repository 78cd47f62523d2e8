"""Lower bounds no schedule can beat: how far from the best possible a result is at most."""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LowerBounds", "lower_bounds"]


@dataclass(frozen=True)
class LowerBounds:
    """Bounds for any schedule of a job table on a cluster of exclusive GPUs, in seconds.

    Attributes:
        isolated_mean_jct: every job alone on consolidated GPUs from its arrival on.
        pooled_mean_jct: preemptive shortest-remaining-first of the jobs' GPU seconds on one machine as
            fast as all GPUs together.
        makespan: max of (latest possible end of any job, total GPU seconds / GPUs after the first arrival).
    """

    isolated_mean_jct: float
    pooled_mean_jct: float
    makespan: float

    @property
    def mean_jct(self) -> float:
        """The larger of the two bounds on mean completion time."""
        return max(self.isolated_mean_jct, self.pooled_mean_jct)


def _srpt_mean(submit: NDArray[np.float64], size: NDArray[np.float64]) -> float:
    """Mean completion time of preemptive shortest remaining processing time on one machine."""
    queue: list[float] = []
    total = 0.0
    now = 0.0
    for arrival, work in zip(submit.tolist(), size.tolist(), strict=True):
        while queue and now + queue[0] <= arrival:
            now += heapq.heappop(queue)
            total += now
        if queue:
            heapq.heapreplace(queue, queue[0] - (arrival - now))
        now = arrival
        heapq.heappush(queue, work)
    while queue:
        now += heapq.heappop(queue)
        total += now
    return (total - float(submit.sum())) / len(submit)


def lower_bounds(
    submit_seconds: NDArray[np.float64],
    isolated_seconds: NDArray[np.float64],
    num_gpus: NDArray[np.int64],
    total_gpus: int,
) -> LowerBounds:
    """Bounds for jobs sorted by submit time.

    Args:
        submit_seconds: [jobs] ascending.
        isolated_seconds: [jobs] fastest possible run time.
        num_gpus: [jobs].
        total_gpus: of the cluster.
    """
    work = isolated_seconds * num_gpus / total_gpus
    latest = float((submit_seconds + isolated_seconds).max() - submit_seconds[0])
    return LowerBounds(
        isolated_mean_jct=float(isolated_seconds.mean()),
        pooled_mean_jct=_srpt_mean(submit_seconds, work),
        makespan=max(latest, float(work.sum())),
    )
