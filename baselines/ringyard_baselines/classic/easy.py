"""EASY backfilling (Lifka 1995): first come, first served with one reservation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.observability import Observability
from ringyard_baselines.scheduler import Scheduler


@dataclass(eq=False)
class EasyBackfilling(Scheduler):
    """Start jobs in order of arrival. Later jobs overtake the first blocked job if they do not delay it.

    The blocked job's start is reserved for the moment at which enough running jobs are expected to have
    ended. A later job starts now if it is expected to end by then, or if it needs only GPUs that the
    reservation leaves. GPUs are counted over the whole cluster. Expected run times are isolated run times.
    """

    name = "easy"
    observability = Observability.SIZES | Observability.DURATIONS

    placement: PlacementRule  #: rule that places a job

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Read the isolated run times of the jobs."""
        self._duration = jobs.duration_seconds

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start in order, reserve for the first blocked job, backfill behind it."""
        plan = PlacementPlan(view)
        allocations: list[Allocation] = []
        running, now, sizes = view.running, view.now, view.num_gpus
        ends = list(zip(view.column("end_seconds")[running].tolist(), sizes[running].tolist(), strict=True))
        queue = sorted(view.waiting.tolist())
        blocked = len(queue)
        for position, job in enumerate(queue):
            allocation = plan.place(self.placement, job)
            if allocation is None:
                blocked = position
                break
            allocations.append(allocation)
            ends.append((now + float(self._duration[job]), len(allocation.gpu_ids)))
        if blocked == len(queue):
            return allocations
        reserved_seconds, spare = self._reservation(int(sizes[queue[blocked]]), plan.num_free_gpus, ends)
        unplaced: set[int] = set()
        classes = view.column("demand_class")
        for job in queue[blocked + 1 :]:
            demand = int(sizes[job])
            in_time = now + float(self._duration[job]) <= reserved_seconds
            if int(classes[job]) in unplaced or not (in_time or demand <= spare):
                continue
            allocation = plan.place(self.placement, job)
            if allocation is None:
                unplaced.add(int(classes[job]))
                continue
            allocations.append(allocation)
            if not in_time:
                spare -= demand
        return allocations

    @staticmethod
    def _reservation(demand: int, free: int, ends: list[tuple[float, int]]) -> tuple[float, int]:
        """Return when `demand` GPUs will be free, in seconds, and how many GPUs are left over then."""
        for end, gpus in sorted(ends):
            if free >= demand:
                break
            free += gpus
            reserved_seconds = end
            if free >= demand:
                return reserved_seconds, free - demand
        # There are enough GPUs but the placement rule refuses them, so no moment can be reserved.
        return float("inf"), max(free - demand, 0)
