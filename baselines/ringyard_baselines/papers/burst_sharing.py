"""Foreground and background jobs on one GPU, after DeepPool (Park et al., MLSys 2022, arXiv 2112.10065)."""

from collections.abc import Sequence
from dataclasses import dataclass
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
@dataclass(eq=False)
class BurstSharing(Scheduler):
    """Large jobs run in the foreground, one-GPU jobs fill the gaps that they leave.

    FOUND (abstract and code of DeepPool): foreground jobs leave GPUs idle part of the time. Background jobs
    fill these gaps by prioritised multiplexing. The foreground is slowed down by a factor of at most 1.1. Not
    shown: the burst-parallel plan, since this simulator has no layers. A background job joins the foreground
    GPU that idles most (transfers, input), if that job's predicted slowdown stays within the limit.

    Assumed: jobs of at least `foreground_gpus` GPUs are foreground, first come, first served. Slowdowns come
    from the simulator's interference table, without CUDA priorities. A background job prefers a free GPU.

    Args:
        placement: where jobs go that do not share.
        foreground_gpus: smallest number of GPUs of a foreground job, 2 or more. Assumption.
        max_slowdown: largest factor on the time of a foreground job, 1 or more.
    """

    name = "burst_sharing"
    observability = Observability.SIZES | Observability.SPEEDS

    placement: PlacementRule
    foreground_gpus: Annotated[int, "[2, 2147483647]"] = 2
    max_slowdown: Annotated[float, "[1, inf)"] = 1.1

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start foreground jobs, then background jobs on free GPUs or beside the foreground."""
        plan = PlacementPlan(view)
        allocations = start_cpu_jobs(view, plan, self.placement)
        waiting = np.intersect1d(view.gpu_jobs, view.waiting)
        large = view.column("asked_gpus")[waiting] >= self.foreground_gpus
        allocations += plan.start(self.placement, waiting[large])
        if view.cluster.jobs_per_gpu == 1:
            return allocations + plan.start(self.placement, waiting[~large])
        for job in waiting[~large].tolist():
            found = plan.place(self.placement, job) or self._beside(view, plan, job)
            if found is not None:
                allocations.append(found)
        return allocations

    def _beside(self, view: SchedulingView, plan: PlacementPlan, job: int) -> Allocation | None:
        """Place a background job on the idlest GPU of a foreground job that allows it, or return None."""
        holders = plan.jobs_of_gpu
        single = (holders >= 0).sum(axis=1) == 1
        host = holders.max(axis=1)
        activity = self._activity(view.select(np.maximum(host, 0)))
        large = view.column("asked_gpus")[host] >= self.foreground_gpus
        excess = view.interference(view.workers(host), view.workers(job), view.type_of_gpu)
        slowdown = 1.0 + excess * activity
        options = np.flatnonzero(single & (host >= 0) & large & (slowdown <= self.max_slowdown))
        for gpu in options[np.lexsort((options, activity[options]))].tolist():
            found = Allocation(job, (gpu,))
            if plan.allocate(found):
                return found
        return None

    @staticmethod
    def _activity(seen: JobColumns) -> NDArray[np.float64]:
        """Return [n] shares of an iteration in which jobs compute, by isolated speed if they do not run."""
        now = seen.column("iteration_seconds") * seen.column("progress_per_iteration")
        isolated = seen.column("isolated_iteration_seconds")
        seconds = np.where(seen.column("status") == JobStatus.RUNNING, now, isolated)
        return np.minimum(seen.column("compute_seconds") / np.maximum(seconds, 1e-300), 1.0)
