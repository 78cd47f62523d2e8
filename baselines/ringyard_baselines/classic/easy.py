"""EASY backfilling (Lifka 1995): first come first served with one reservation."""

from collections.abc import Sequence

import numpy as np

from ringyard import (
    Allocation,
    Cluster,
    JobTable,
    Observability,
    PlacementPlan,
    PlacementRule,
    SchedulingView,
)
from ringyard_baselines.scheduler import Scheduler


class EasyBackfilling(Scheduler):
    """Starts jobs in order of arrival; later jobs may overtake the first blocked one if they do not delay it.

    The blocked job's start is reserved for the moment enough running jobs are expected to have ended. A
    later job may start now if it is expected to end by then, or needs only GPUs the reservation leaves.
    GPUs are counted over the whole cluster; run times are the isolated ones.

    Args:
        placement: where a job goes.
    """

    name = "easy"
    observability = Observability.SIZES | Observability.DURATIONS
    round_seconds: float | None = None

    def __init__(self, placement: PlacementRule) -> None:
        self.placement = placement

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Learn the run times."""
        self._duration = jobs.duration_seconds

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start in order, reserve for the first blocked job, backfill behind it."""
        draft = PlacementPlan(view)
        allocations: list[Allocation] = []
        running, now, sizes = view.running, view.now, view.num_gpus
        ends = list(zip(view.column("end_seconds")[running].tolist(), sizes[running].tolist(), strict=True))
        queue = sorted(view.waiting.tolist())
        blocked = len(queue)
        for position, job in enumerate(queue):
            allocation = draft.place(self.placement, job)
            if allocation is None:
                blocked = position
                break
            allocations.append(allocation)
            ends.append((now + float(self._duration[job]), len(allocation.gpu_ids)))
        if blocked == len(queue):
            return allocations
        shadow, spare = self._reservation(int(sizes[queue[blocked]]), draft.num_free_gpus, ends)
        closed: set[int] = set()
        classes = view.column("demand_class")
        for job in queue[blocked + 1 :]:
            demand = int(sizes[job])
            in_time = now + float(self._duration[job]) <= shadow
            if int(classes[job]) in closed or not (in_time or demand <= spare):
                continue
            allocation = draft.place(self.placement, job)
            if allocation is None:
                closed.add(int(classes[job]))
                continue
            allocations.append(allocation)
            if not in_time:
                spare -= demand
        return allocations

    @staticmethod
    def _reservation(demand: int, free: int, ends: list[tuple[float, int]]) -> tuple[float, int]:
        """(when `demand` GPUs will be free, GPUs left over then)."""
        for end, gpus in sorted(ends):
            if free >= demand:
                break
            free += gpus
            shadow = end
            if free >= demand:
                return shadow, free - demand
        # enough GPUs, but the placement rule refuses them: nothing to reserve
        return float("inf"), max(free - demand, 0)
