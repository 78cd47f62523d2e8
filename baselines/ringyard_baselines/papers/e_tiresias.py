"""Elastic Tiresias (EDL, TPDS 2021): Tiresias' order, with sizes that follow the load."""

from collections.abc import Sequence

import numpy as np

from ringyard import Observability, PlacementRule, SchedulingView
from ringyard.checks import NonNegativeInt, Positive, checked
from ringyard.compiled import FloatMatrix, FloatVector, IntVector, kernel
from ringyard.sim.speeds import BatchRule, SpeedTable, fewest_gpus
from ringyard.state.records import JobStatus
from ringyard_baselines.policies.sizing import SizingScheduler
from ringyard_baselines.tools.targets import Target, num_gpu_slots


@kernel
def _grant_gpus(speed: FloatMatrix, least: FloatVector, sizes: IntVector, left: int) -> None:
    """Give `left` GPUs, a size step at a time, to the largest marginal speed-up per GPU, in `sizes`."""
    while left > 0:
        best, gain, step = -1, 0.0, 0
        for j in range(len(sizes)):
            for larger in range(sizes[j] + 1, min(sizes[j] + left, speed.shape[1] - 1) + 1):
                if speed[j, larger] > 0.0:
                    more = larger - sizes[j]
                    marginal = (speed[j, larger] - speed[j, sizes[j]]) / least[j] / more
                    if marginal > gain:
                        best, gain, step = j, marginal, more
                    break
        if best < 0:
            return
        sizes[best] += step
        left -= step


@checked("e_tiresias")
class ElasticTiresias(SizingScheduler):
    """Elastic Tiresias of EDL (TPDS 2021): two queues by attained GPU time, sizes that follow the load.

    FOUND (a public port): Tiresias' order with requested sizes. While more than 10 jobs wait, jobs of lower
    priority shrink to their fewest GPUs. Free GPUs go where the marginal speed-up is largest. The second
    queue begins at 3600 GPU seconds. Within a queue running jobs stay ahead of waiting ones, as in Tiresias'
    public simulator. Assumed: jobs shrink from the lowest priority up, just enough to start the next waiting
    job. The batch stays as requested.

    Args:
        placement: where jobs go.
        threshold_gpu_seconds: attained GPU seconds that move a job to the second queue.
        max_waiting_jobs: number of waiting jobs above which running jobs shrink.
        round_seconds: seconds between decisions besides those at events. Assumption.
    """

    def __init__(
        self,
        placement: PlacementRule,
        threshold_gpu_seconds: Positive = 3600.0,
        max_waiting_jobs: NonNegativeInt = 10,
        round_seconds: Positive = 300.0,
    ) -> None:
        observes = Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.SPEEDS
        super().__init__("e_tiresias", observes, placement, BatchRule.ASKED, round_seconds)
        self._threshold = threshold_gpu_seconds
        self._max_waiting_jobs = max_waiting_jobs

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Return sizes that shrink or grow with the load (`view`, `table`: see `SizingScheduler.sizes`)."""
        jobs = view.gpu_jobs
        queue = view.select(jobs).attained_service >= self._threshold
        waits = view.column("status")[jobs] == JobStatus.WAITING
        jobs = jobs[np.lexsort((jobs, waits, queue))]
        sizes = self._shrunk(view, jobs.tolist())
        left = num_gpu_slots(view, self.placement) - sum(sizes.values())
        if left > 0:
            jobs, held = np.array([*sizes], dtype=np.int64), np.array([*sizes.values()], dtype=np.int64)
            _grant_gpus(table.speeds_of(jobs), table.min_size_speeds_of(jobs), held, left)
            sizes.update(zip(sizes, held.tolist(), strict=True))
        return [Target(job, size) for job, size in sizes.items()]

    def _shrunk(self, view: SchedulingView, jobs: Sequence[int]) -> dict[int, int]:
        """Return {job: GPUs}, the most urgent job first."""
        rows = np.array(jobs, dtype=np.int64)
        asked = dict(zip(jobs, view.column("asked_gpus")[rows].tolist(), strict=True))
        least = dict(zip(jobs, fewest_gpus(view, rows).tolist(), strict=True))
        left = num_gpu_slots(view, self.placement)
        sizes: dict[int, int] = {}
        waiting = []
        for job in jobs:
            if asked[job] <= left:
                sizes[job] = asked[job]
                left -= sizes[job]
            else:
                waiting.append(job)
        while len(waiting) > self._max_waiting_jobs:
            job = waiting[0]
            spare = {other: sizes[other] - least[other] for other in sizes}
            need = least[job] - left
            if sum(spare.values()) < need:
                break
            for other in reversed(list(sizes)):
                if need <= 0:
                    break
                released = min(spare[other], need)
                sizes[other] -= released
                need -= released
                left += released
            sizes[job] = least[job]
            left -= sizes[job]
            waiting.pop(0)
        return sizes
