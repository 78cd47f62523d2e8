"""Foreground/background sharing after DeepPool (Park et al., MLSys 2022, arXiv 2112.10065)."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Observability, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import checked
from ringyard.sim.job_columns import JobColumns
from ringyard.state.records import JobStatus
from ringyard_baselines.scheduler import Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs


@checked("burst_sharing")
class BurstSharing(Scheduler):
    """Large jobs in the foreground, one-GPU jobs in the gaps they leave.

    FOUND (abstract and code): foreground jobs do not use their GPUs all the time, background jobs fill the
    gaps by prioritised multiplexing, the foreground is slowed to 1.1 times at most. A cluster simulator has
    no layers, so that the burst-parallel plan itself is not shown; what is shown is the sharing: a
    background job joins the foreground GPU that idles most (transfers, input) where the predicted slowdown
    of the foreground stays within the limit. Assumed: jobs of at least `foreground_gpus` GPUs are
    foreground, first come first served; slowdowns by the simulator's interference table, without CUDA
    priorities; a background job prefers a free GPU.

    Args:
        placement: where jobs go that have GPUs of their own.
        foreground_gpus: jobs with at least so many GPUs are foreground. Assumption.
        most_slowdown: of the foreground job, as a factor.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "burst_sharing"
    observability = Observability.SIZES | Observability.SPEEDS
    round_seconds: float | None = None

    def __init__(
        self,
        placement: PlacementRule,
        foreground_gpus: Annotated[int, "[2, 2147483647]"] = 2,
        max_slowdown: Annotated[float, "[1, inf)"] = 1.1,
    ) -> None:
        self.placement = placement
        self._foreground_gpus = foreground_gpus
        self._max_slowdown = max_slowdown

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Foreground first, then the background on free GPUs or beside the foreground."""
        draft = PlacementPlan(view)
        allocations = start_cpu_jobs(view, draft, self.placement)
        waiting = np.intersect1d(view.gpu_jobs, view.waiting)
        large = view.column("asked_gpus")[waiting] >= self._foreground_gpus
        allocations += draft.start(self.placement, waiting[large])
        if view.cluster.jobs_per_gpu == 1:
            return allocations + draft.start(self.placement, waiting[~large])
        for job in waiting[~large].tolist():
            found = draft.place(self.placement, job) or self._beside(view, draft, job)
            if found is not None:
                allocations.append(found)
        return allocations

    def _beside(self, view: SchedulingView, draft: PlacementPlan, job: int) -> Allocation | None:
        """A background job on one GPU each of running foreground jobs, the idlest first."""
        holders = draft.jobs_of_gpu
        single = (holders >= 0).sum(axis=1) == 1
        host = holders.max(axis=1)
        activity = self._activity(view.select(np.maximum(host, 0)))
        large = view.column("asked_gpus")[host] >= self._foreground_gpus
        excess = view.interference(view.workers(host), view.workers(job), view.type_of_gpu)
        slowdown = 1.0 + excess * activity
        options = np.flatnonzero(single & (host >= 0) & large & (slowdown <= self._max_slowdown))
        for gpu in options[np.lexsort((options, activity[options]))].tolist():
            found = Allocation(job, (gpu,))
            if draft.allocate(found):
                return found
        return None

    @staticmethod
    def _activity(seen: JobColumns) -> NDArray[np.float64]:
        """[n] share of an iteration in which a job computes; of one that does not run: were it alone."""
        now = seen.column("iteration_seconds") * seen.column("progress_per_iteration")
        alone = seen.column("isolated_iteration_seconds")
        seconds = np.where(seen.column("status") == JobStatus.RUNNING, now, alone)
        return np.minimum(seen.column("compute_seconds") / np.maximum(seconds, 1e-300), 1.0)
