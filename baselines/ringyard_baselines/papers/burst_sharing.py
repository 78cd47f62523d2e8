"""Foreground and background jobs on one GPU, after DeepPool (Park et al., MLSys 2022, arXiv 2112.10065)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Observability, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import checked
from ringyard.sim.view import JobColumns
from ringyard.state.records import JobStatus
from ringyard_baselines.scheduler import Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs


@checked("burst_sharing")
@dataclass(eq=False)
class BurstSharing(Scheduler):
    """Large jobs run in the foreground, one-GPU jobs fill the gaps that they leave.

    FOUND (abstract and code of DeepPool): foreground jobs leave GPUs idle part of the time. Background jobs
    fill these gaps by prioritised multiplexing. The foreground is slowed down by a factor of at most 1.1. A
    background job joins the foreground GPU that idles most (transfers, input), if that job's predicted
    slowdown stays within the limit. Burst-parallel plans are those of `ringyard.workloads.BurstJobs`.

    Assumed: jobs of at least `foreground_gpus` GPUs are foreground, first come, first served. Slowdowns come
    from the simulator's interference table, without CUDA priorities. A background job prefers a free GPU.
    """

    name = "burst_sharing"
    observability = Observability.SIZES | Observability.SPEEDS

    placement: PlacementRule  #: where jobs go that do not share
    #: smallest number of GPUs of a foreground job, 2 or more. Assumption.
    foreground_gpus: Annotated[int, "[2, 2147483647]"] = 2
    #: largest factor on the time of a foreground job, 1 or more
    max_slowdown: Annotated[float, "[1, inf)"] = 1.1
    #: whether foreground jobs also start on GPUs of background jobs, as in DeepPool. If not, a background job
    #: that stays behind keeps its GPU until it ends.
    join_background: bool = False

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start foreground jobs, then background jobs on free GPUs or beside the foreground."""
        plan = PlacementPlan(view)
        allocations = start_cpu_jobs(view, plan, self.placement)
        waiting = np.intersect1d(view.gpu_jobs, view.waiting)
        large = view.column("asked_gpus")[waiting] >= self.foreground_gpus
        allocations += plan.start(self.placement, waiting[large])
        if view.cluster.jobs_per_gpu == 1:
            return allocations + plan.start(self.placement, waiting[~large])
        if self.join_background:
            rest = np.setdiff1d(waiting[large], [one.job for one in allocations])
            allocations += self._start_over_background(view, plan, rest)
        hosts: dict[tuple[float, ...], list[int]] = {}  # of a model and its samples, as things are
        small = waiting[~large]
        kinds = zip(*map(np.ndarray.tolist, view.workers(small)), strict=True)
        for job, kind in zip(small.tolist(), kinds, strict=True):
            found = plan.place(self.placement, job)
            if found is None:
                if kind not in hosts:
                    hosts[kind] = self._hosts(view, plan, job)
                beside = (Allocation(job, (gpu,)) for gpu in hosts[kind])
                found = next((one for one in beside if plan.allocate(one)), None)
            if found is not None:
                allocations.append(found)
                hosts = {}
        return allocations

    def _hosts(self, view: SchedulingView, plan: PlacementPlan, job: int) -> list[int]:
        """Return the GPUs of foreground jobs that allow a background job beside them, the idlest first.

        For a foreground job: the free GPUs, and those of background jobs that it allows beside itself.
        """
        holders = plan.jobs_of_gpu
        single = (holders >= 0).sum(axis=1) == 1
        host = holders.max(axis=1)
        gpus = view.column("asked_gpus")
        is_large = gpus[job] >= self.foreground_gpus
        foreground, guest = np.maximum(host, 0), np.full(len(host), job)
        if is_large:
            foreground, guest = guest, foreground
        activity = self._activity(view.select(foreground))
        excess = view.interference(view.workers(foreground), view.workers(guest), view.type_of_gpu)
        allowed = single & ((gpus[host] >= self.foreground_gpus) != is_large)
        allowed &= 1.0 + excess * activity <= self.max_slowdown + 1e-9
        options = np.flatnonzero(allowed | (is_large & (host < 0)))
        return options[np.lexsort((options, activity[options]))].tolist()

    def _start_over_background(
        self, view: SchedulingView, plan: PlacementPlan, jobs: NDArray[np.int32]
    ) -> Iterator[Allocation]:
        """Start foreground jobs in order, each on one server: on free GPUs and those of background jobs."""
        for job in jobs.tolist():
            options = np.array(self._hosts(view, plan, job), dtype=np.int64)
            servers, count = view.cluster.server_of_gpu[options], int(view.column("asked_gpus")[job])
            fitting = np.flatnonzero(np.bincount(servers) >= count)
            found = (Allocation(job, tuple(options[servers == s][:count].tolist())) for s in fitting)
            chosen = next((one for one in found if plan.allocate(one)), None)
            if chosen is None:
                return
            yield chosen

    @staticmethod
    def _activity(seen: JobColumns) -> NDArray[np.float64]:
        """Return [n] shares of an iteration in which jobs compute, by isolated speed if they do not run."""
        now = seen.column("iteration_seconds") * seen.column("progress_per_iteration")
        isolated = seen.column("isolated_iteration_seconds")
        seconds = np.where(seen.column("status") == JobStatus.RUNNING, now, isolated)
        return np.minimum(seen.column("compute_seconds") / np.maximum(seconds, 1e-300), 1.0)
