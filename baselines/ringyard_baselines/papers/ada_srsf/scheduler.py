"""Ada-SRSF (Wang et al., arXiv 2002.10105): shortest remaining service first, and AdaDUAL."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Amount, Count, Positive, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.draft import Draft
from ringyard.sim.view import SchedulingView
from ringyard.state.records import JobStatus
from ringyard_baselines.scheduler import Information, Scheduler
from ringyard_baselines.tools.predictions import predicted_iterations
from ringyard_baselines.tools.targets import start_cpu_jobs

__all__ = ["AdaSrsf", "dual_threshold"]


def dual_threshold(beta: float, eta: float) -> float:
    """The ratio b / (2 (b + eta)) of new to remaining bytes below which a transfer starts beside another.

    With one transfer of R bytes left, starting one of M bytes now gives the smaller sum of completion times
    exactly if M / R is below it.

    Args:
        beta: b, seconds per byte of a transfer alone.
        eta: extra seconds per byte and contender.
    """
    return beta / (2.0 * (beta + eta))


@checked("ada_srsf")
class AdaSrsf(Scheduler):
    """Non-preemptive SRSF whose multi-server jobs may have to wait for the links.

    FOUND (the authors' public simulator): waiting jobs by remaining service (remaining time x GPUs), every
    one is tried; AdaDUAL lets a transfer start on links with no other, never beside two, and beside one
    exactly if new / remaining <= b / (2 (b + eta)), b = 0.856 and eta = 0.235 ms per MB; SRSF(k) lets k jobs
    share a link. LWF-kappa is the placement rule `lwf`. Here a job's iterations are not single events, so
    that the gate acts once, when a job would start: its "transfer" is all it will send, iterations left x
    gradient bytes (an adaptation). `papers.ada_srsf.transfers` is the model with single transfers, in which
    the gate acts as published, and shows what the public simulator's progress-counting error does.

    Args:
        placement: where a job goes; the paper's is `lwf`.
        adaptive: AdaDUAL; False is SRSF(`most_transfers`).
        most_transfers: k; with `adaptive` 2 as published.
        beta_seconds_per_megabyte: b.
        eta_seconds_per_megabyte: eta.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    information = Information.SIZES | Information.PREDICTIONS
    round_seconds: float | None = None

    def __init__(
        self,
        placement: PlacementRule,
        adaptive: bool = True,
        most_transfers: Count = 2,
        beta_seconds_per_megabyte: Positive = 0.856e-3,
        eta_seconds_per_megabyte: Amount = 0.235e-3,
    ) -> None:
        self.name = "ada_srsf" if adaptive else f"srsf_{most_transfers}"
        self.placement = placement
        self._adaptive = adaptive
        self._most = most_transfers
        self._threshold = dual_threshold(beta_seconds_per_megabyte, eta_seconds_per_megabyte)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Nothing to forget."""

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start what finds GPUs and may use its links."""
        draft = Draft(view)
        allocations = start_cpu_jobs(view, draft, self.placement)
        jobs = view.gpu_jobs
        seen, iterations = view.of(jobs), predicted_iterations(view, jobs)
        service = iterations * seen.column("isolated_iteration_seconds") * seen.column("asked_gpus")
        left = dict(zip(jobs.tolist(), (iterations * seen.column("gradient_bytes")).tolist(), strict=True))
        running = view.running[view.column("num_servers")[view.running] > 1]
        spans = {job: self._servers(view, view.gpus_of(job)) for job in running.tolist()}
        waits = seen.column("status") == JobStatus.WAITING
        for job in jobs[waits][np.lexsort((jobs[waits], service[waits]))].tolist():
            found = draft.place(self.placement, job)
            if found is None:
                continue
            servers = self._servers(view, found.gpu_ids)
            several = servers.sum() > 1
            if several and not self._may_transfer(spans, servers, job, left):
                draft.release(job)
                continue
            allocations.append(found)
            if several:
                spans[job] = servers
        return allocations

    @staticmethod
    def _servers(view: SchedulingView, gpus: Sequence[int]) -> NDArray[np.bool_]:
        """[servers] whether any of the GPUs is there."""
        there = np.zeros(view.cluster.num_servers, dtype=bool)
        there[view.cluster.server_of_gpu[list(gpus)]] = True
        return there

    def _may_transfer(
        self,
        spans: dict[int, NDArray[np.bool_]],
        servers: NDArray[np.bool_],
        job: int,
        left: Mapping[int, float],
    ) -> bool:
        """Whether a job on several servers may start beside those that transfer there.

        Args:
            spans: {job on several servers: [servers] whether it is there}.
            servers: [servers] whether the new one is there.
            job: the new one.
            left: {job: bytes left to transfer}.
        """
        shared = np.array([*spans.values()]).reshape(len(spans), len(servers))[:, servers]
        most = int(shared.sum(axis=0).max())
        if not self._adaptive or most == 0:
            return most < self._most
        meets: NDArray[np.bool_] = np.asarray(shared.any(axis=1))
        met = [other for i, other in enumerate(spans) if meets[i]]
        return most < self._most and all(left[job] <= self._threshold * left[other] for other in met)
