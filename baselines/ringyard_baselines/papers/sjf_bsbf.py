"""SJF-BSBF (Luo et al., IWQoS 2024): shortest job first, sharing a GPU only if the pair gains."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard import Allocation, Observability, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import checked
from ringyard_baselines.scheduler import Scheduler
from ringyard_baselines.tools.predictions import expected_seconds_left
from ringyard_baselines.tools.targets import start_cpu_jobs

Seconds = NDArray[np.float64]


def mean_jct_shared(length_a: ArrayLike, length_b: ArrayLike, xi_a: ArrayLike, xi_b: ArrayLike) -> Seconds:
    """Return [...] the mean completion time of two jobs that run on the same GPUs from now on.

    `length_a` (new) and `length_b` are isolated seconds left, `xi_a` and `xi_b` slowdowns, at least 1.
    """
    length_a, length_b, xi_a, xi_b = map(np.asarray, (length_a, length_b, xi_a, xi_b))
    together_a, together_b = xi_a * length_a, xi_b * length_b
    other_first = 0.5 * length_a + (1.0 - 1.0 / (2.0 * xi_a)) * together_b
    new_first = 0.5 * length_b + (1.0 - 1.0 / (2.0 * xi_b)) * together_a
    return np.where(together_a >= together_b, other_first, new_first)


def mean_jct_in_sequence(length_a: ArrayLike, length_b: ArrayLike) -> Seconds:
    """Return [...] the mean completion time if the new job waits for the end of the running one."""
    return np.asarray(length_b) + 0.5 * np.asarray(length_a)


@checked("sjf_bsbf")
@dataclass(eq=False)
class SjfBsbf(Scheduler):
    """SJF-BSBF of Luo et al. (IWQoS 2024): non-preemptive, two jobs on a GPU if a pair test allows it.

    FOUND (public code): jobs queue by remaining time. Free GPUs come first. Otherwise a job also takes the
    GPUs of resident jobs that pass the pair test, best shared mean JCT first: of one server (most free GPUs,
    then fewest jobs first), else of all servers (fewest jobs first), until there are enough. Otherwise it
    waits. The formulas are the exact mean completion times of the two orders. Not done (from memory of the
    paper): sub-batches with gradient accumulation where memory is short. Such pairs do not share here. A
    pair's slowdown xi comes from the simulator's interference table, since the public code's table is not
    published.
    """

    observability = Observability.SIZES | Observability.PREDICTIONS | Observability.SPEEDS

    #: where a job goes that finds enough free GPUs. With `consolidate` it shares one server rather than take
    #: free GPUs of several, as the public code's sjf-bsbfs.
    placement: PlacementRule
    pair_test: bool = True  #: False shares whenever a GPU can be shared, which is the comparator SJF-FFS

    def __post_init__(self) -> None:
        self.name = "sjf_bsbf" if self.pair_test else "sjf_ffs"

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start the jobs that find GPUs, shortest first."""
        plan = PlacementPlan(view)
        allocations = start_cpu_jobs(view, plan, self.placement)
        jobs = view.gpu_jobs
        left = np.empty(len(view.column("status")))  # [jobs] seconds, filled for GPU jobs only
        left[jobs] = expected_seconds_left(view, jobs)
        waiting = np.intersect1d(jobs, view.waiting)
        for job in waiting[np.lexsort((waiting, left[waiting]))].tolist():
            found = plan.place(self.placement, job)
            if found is None and view.cluster.jobs_per_gpu > 1:
                found = self._share(view, plan, job, left)
            if found is not None:
                allocations.append(found)
        return allocations

    def _share(self, view: SchedulingView, plan: PlacementPlan, job: int, left: Seconds) -> Allocation | None:
        """Place a job on free GPUs and those of the best partners, on one server if one has enough."""
        size = int(view.column("asked_gpus")[job])
        if size > plan.num_open_gpus:
            return None
        holders, free = plan.jobs_of_gpu, plan.gpu_is_free
        resident = np.where((holders >= 0).sum(axis=1) == 1, holders.max(axis=1), -1)
        wait = self._shared(view, job, resident, left)
        wait[free] = -np.inf
        server = view.cluster.server_of_gpu
        num_jobs = np.int64(holders.max() + 1)
        pairs = np.unique((server[:, None] * num_jobs + holders)[holders >= 0])  # (server, job) as one number
        jobs_there = np.bincount(pairs // num_jobs, minlength=view.cluster.num_servers)
        gpus = np.lexsort((resident, jobs_there[server], wait))
        gpus = gpus[wait[gpus] < np.inf]
        room = np.bincount(server[gpus], minlength=len(jobs_there))
        ranked_servers = np.lexsort((jobs_there, -plan.free_gpus_per_server))
        for s in ranked_servers[room[ranked_servers] >= size].tolist():
            here = gpus[server[gpus] == s][:size]
            found = Allocation(job, tuple(sorted(here.tolist())))
            if plan.allocate(found):
                return found
        found = Allocation(job, tuple(sorted(gpus[:size].tolist())))
        return found if len(gpus) >= size and plan.allocate(found) else None

    def _shared(self, view: SchedulingView, job: int, resident: NDArray[np.int32], left: Seconds) -> Seconds:
        """Return [GPUs] mean JCT if shared with the only job there. inf: no such job, or the pair loses."""
        shared = np.full(len(resident), np.inf)
        gpus = np.flatnonzero(resident >= 0)
        others, position = np.unique(resident[gpus], return_inverse=True)
        types = view.type_of_gpu
        there = np.zeros((len(others), int(types.max()) + 1), dtype=bool)
        there[position, types[gpus]] = True
        jobs = np.full(len(others), job)
        xi_a, xi_b = self._slowdown(view, jobs, others, there), self._slowdown(view, others, jobs, there)
        own, theirs = left[job], left[others]
        mean = mean_jct_shared(own, theirs, xi_a, xi_b)
        if self.pair_test:
            mean = np.where(mean < mean_jct_in_sequence(own, theirs), mean, np.inf)
        shared[gpus] = mean[position]
        return shared

    @staticmethod
    def _slowdown(
        view: SchedulingView, jobs: NDArray[Any], others: NDArray[Any], there: NDArray[np.bool_]
    ) -> Seconds:
        """Return [pairs] the factor on an iteration beside the other job, on the worst GPU type `there`."""
        own, other = view.workers(jobs[:, None]), view.workers(others[:, None])
        excess = view.interference(own, other, np.arange(there.shape[1]))
        share = view.column("base_compute_seconds")[jobs] / view.column("isolated_iteration_seconds")[jobs]
        return 1.0 + np.where(there, excess, -np.inf).max(axis=1) * np.minimum(share, 1.0)
