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
        spans = _Spans(view, left)
        waits = seen.column("status") == JobStatus.WAITING
        for job in jobs[waits][np.lexsort((jobs[waits], service[waits]))].tolist():
            found = draft.place(self.placement, job)
            if found is None:
                continue
            servers = np.unique(view.cluster.server_of_gpu[list(found.gpu_ids)])
            if len(servers) > 1 and not self._may_transfer(spans, servers, left[job]):
                draft.release(job)
                continue
            allocations.append(found)
            if len(servers) > 1:
                spans.add(servers, left[job])
        return allocations

    def _may_transfer(self, spans: "_Spans", servers: NDArray[np.int32], left: float) -> bool:
        """Whether a job on several servers may start beside those that transfer there.

        Args:
            spans: jobs on several servers.
            servers: those of the new one.
            left: its bytes left to transfer.
        """
        shared = spans.there[:, servers]
        most = int(shared.sum(axis=0).max())
        if not self._adaptive or most == 0:
            return most < self._most
        met = spans.left[shared.any(axis=1)]
        return most < self._most and bool((left <= self._threshold * met).all())


class _Spans:
    """Jobs on several servers: those that run, and those that are to start.

    Args:
        view: the present moment.
        left: {job: bytes left to transfer}.

    Attributes:
        there: [jobs, servers] whether a job is there.
        left: [jobs] bytes left to transfer.
    """

    def __init__(self, view: SchedulingView, left: Mapping[int, float]) -> None:
        running = view.running
        jobs = running[view.column("num_servers")[running] > 1]
        self.there = np.zeros((len(jobs), view.cluster.num_servers), dtype=np.bool_)
        self.left = np.array([left[job] for job in jobs.tolist()], dtype=np.float64)
        if len(jobs):
            holders = view.jobs_of_gpu
            which = np.minimum(np.searchsorted(jobs, holders), len(jobs) - 1)
            gpu, slot = np.nonzero(jobs[which] == holders)
            self.there[which[gpu, slot], view.cluster.server_of_gpu[gpu]] = True

    def add(self, servers: NDArray[np.int32], left: float) -> None:
        """A job that is to start there."""
        row = np.zeros((1, self.there.shape[1]), dtype=np.bool_)
        row[0, servers] = True
        self.there = np.concatenate([self.there, row])
        self.left = np.append(self.left, left)
