"""SJF-BSBF (Luo et al., IWQoS 2024): shortest first, sharing a GPU only where the pair gains."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.draft import Draft
from ringyard.sim.view import SchedulingView
from ringyard_baselines.scheduler import Information, Scheduler
from ringyard_baselines.tools.predictions import predicted_seconds
from ringyard_baselines.tools.targets import start_cpu_jobs

__all__ = ["SjfBsbf", "mean_jct_in_turn", "mean_jct_shared"]


def mean_jct_shared(length_a: float, length_b: float, xi_a: float, xi_b: float) -> float:
    """Mean completion time of two jobs that start on the same GPUs now.

    Args:
        length_a: L_a, seconds left of the new job, alone.
        length_b: L_b, of the running one.
        xi_a: slowdown of the new one beside the other, at least 1.
        xi_b: of the running one.
    """
    together_a, together_b = xi_a * length_a, xi_b * length_b
    if together_a >= together_b:
        return 0.5 * length_a + (1.0 - 1.0 / (2.0 * xi_a)) * together_b
    return 0.5 * length_b + (1.0 - 1.0 / (2.0 * xi_b)) * together_a


def mean_jct_in_turn(length_a: float, length_b: float) -> float:
    """Mean completion time if the new job waits for the running one's end."""
    return length_b + 0.5 * length_a


@checked("sjf_bsbf")
class SjfBsbf(Scheduler):
    """Non-preemptive; at most two jobs to a GPU, admitted by a pair test.

    FOUND (public code): queue by remaining time; free GPUs first; else also the GPUs of resident jobs that
    pass the pair test, best shared mean JCT first: of one server (most free GPUs, then fewest jobs first),
    else of all (fewest jobs first), until there are enough; else wait. The formulas are the exact mean
    completion times of the two orders. From memory, and not done: sub-batches with gradient
    accumulation where memory is short; here such pairs do not share. The slowdown xi of a pair comes from
    the simulator's interference table (the public code's table is not published).

    Args:
        placement: where a job goes that finds enough free GPUs; with `consolidate` it shares one server
            rather than take free GPUs of several, as the public code's sjf-bsbfs.
        pair_test: False shares whenever a GPU is free to be shared: the comparator SJF-FFS.

    Raises:
        ConfigurationError: pair_test is neither true nor false.
    """

    information = Information.SIZES | Information.PREDICTIONS | Information.SPEEDS
    round_seconds: float | None = None

    def __init__(self, placement: PlacementRule, pair_test: bool = True) -> None:
        self.name = "sjf_bsbf" if pair_test else "sjf_ffs"
        self.placement = placement
        self._pair_test = pair_test

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Nothing to forget."""

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start what finds GPUs, shortest first."""
        draft = Draft(view)
        allocations = start_cpu_jobs(view, draft, self.placement)
        left = predicted_seconds(view)
        waiting = np.intersect1d(view.gpu_jobs, view.waiting)
        for job in waiting[np.lexsort((waiting, left[waiting]))].tolist():
            found = draft.place(self.placement, job)
            if found is None and view.cluster.jobs_per_gpu > 1:
                found = self._share(view, draft, job, left)
            if found is not None:
                allocations.append(found)
        return allocations

    def _share(
        self, view: SchedulingView, draft: Draft, job: int, left: NDArray[np.float64]
    ) -> Allocation | None:
        """Free GPUs and those of the best partners, on one server if there is one that has enough."""
        size = int(view.column("asked_gpus")[job])
        holders, free = draft.jobs_of_gpu, draft.gpu_is_free
        resident = np.where((holders >= 0).sum(axis=1) == 1, holders.max(axis=1), -1)
        wait = np.full(len(free), np.inf)
        for other, shared in self._partners(view, job, resident, left).items():
            wait[resident == other] = shared
        wait[free] = -np.inf
        server = view.cluster.server_of_gpu
        held = np.unique(np.stack([server[np.nonzero(holders >= 0)[0]], holders[holders >= 0]]), axis=1)
        jobs_there = np.bincount(held[0], minlength=view.cluster.num_servers)
        gpus = np.lexsort((resident, jobs_there[server], wait))
        gpus = gpus[wait[gpus] < np.inf]
        for name in np.lexsort((jobs_there, -draft.free_gpus_per_server)).tolist():
            here = gpus[server[gpus] == name][:size]
            if len(here) == size:
                found = Allocation(job, tuple(sorted(here.tolist())))
                if draft.take(found):
                    return found
        found = Allocation(job, tuple(sorted(gpus[:size].tolist())))
        return found if len(gpus) >= size and draft.take(found) else None

    def _partners(
        self, view: SchedulingView, job: int, resident: NDArray[np.int32], left: NDArray[np.float64]
    ) -> dict[int, float]:
        """{job that is alone on GPUs: shared mean JCT} of those that pass the pair test."""
        partners = {}
        for other in np.unique(resident[resident >= 0]).tolist():
            theirs = np.unique(view.type_of_gpu[resident == other])
            xi_a, xi_b = self._slowdown(view, job, other, theirs), self._slowdown(view, other, job, theirs)
            shared = mean_jct_shared(float(left[job]), float(left[other]), xi_a, xi_b)
            if not self._pair_test or shared < mean_jct_in_turn(float(left[job]), float(left[other])):
                partners[other] = shared
        return partners

    @staticmethod
    def _slowdown(view: SchedulingView, job: int, other: int, gpu_types: NDArray[np.int64]) -> float:
        """Times longer an iteration takes beside the other on the worst of these GPU types.

        Only computing suffers, not transfers.
        """
        excess = float(view.interference(view.workers(job), view.workers(other), gpu_types).max())
        share = view.column("base_compute_seconds")[job] / view.column("isolated_iteration_seconds")[job]
        return 1.0 + excess * min(float(share), 1.0)
