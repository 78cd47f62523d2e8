"""Ada-SRSF (Wang et al., arXiv 2002.10105): shortest remaining service first, and AdaDUAL."""

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
from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.compiled import FloatVector, Int32Vector, fills
from ringyard.sim.admission import AdmissionFilter, AdmitStart
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus
from ringyard_baselines.scheduler import Scheduler
from ringyard_baselines.tools.predictions import expected_iterations_left
from ringyard_baselines.tools.targets import start_cpu_jobs

_NO_THRESHOLD = -1.0  # in place of a threshold: a job starts whatever it has to send


@fills(AdmitStart)
def _admit_transfer(
    state: State,
    b: int,
    j: int,
    places: Int32Vector,
    count: int,
    of_jobs: FloatVector,
    parameters: FloatVector,
) -> bool:
    max_transfers, threshold = parameters[0], parameters[1]
    first = state.gpus[b, places[0]].server
    spans = False
    most = 0
    for k in range(count):
        s = state.gpus[b, places[k]].server
        spans = spans or s != first
        most = max(most, state.servers[b, s].spanning_jobs)
    if not spans:
        return True
    if most >= max_transfers:
        return False
    if most == 0 or threshold == _NO_THRESHOLD:
        return True
    per_gpu = state.clusters[b].jobs_per_gpu
    for k in range(count):
        server = state.servers[b, state.gpus[b, places[k]].server]
        for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
            other = state.slots[b, i].job
            if other >= 0 and state.jobs[b, other].num_servers > 1:
                if not of_jobs[j] <= threshold * of_jobs[other]:
                    return False
    return True


def transfer_filter(num_jobs: int, threshold: float | None, max_transfers: int) -> AdmissionFilter:
    """Keeps jobs on several servers from starting where others transfer.

    Its `of_jobs` is bytes left to transfer, 0 until they are filled in.

    Args:
        num_jobs: of the workload.
        threshold: of new to remaining bytes, up to which a job starts beside others; None: whatever it has.
        most_transfers: so many jobs on several servers may share one, at most.
    """
    limit = _NO_THRESHOLD if threshold is None else threshold
    return AdmissionFilter(_admit_transfer, np.zeros(num_jobs), np.array([float(max_transfers), limit]))


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

    observability = Observability.SIZES | Observability.PREDICTIONS
    round_seconds: float | None = None

    def __init__(
        self,
        placement: PlacementRule,
        adaptive: bool = True,
        max_transfers: PositiveInt = 2,
        beta_seconds_per_megabyte: Positive = 0.856e-3,
        eta_seconds_per_megabyte: NonNegative = 0.235e-3,
    ) -> None:
        self.name = "ada_srsf" if adaptive else f"srsf_{max_transfers}"
        self.placement = placement
        self._adaptive = adaptive
        self._most = max_transfers
        self._threshold = dual_threshold(beta_seconds_per_megabyte, eta_seconds_per_megabyte)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget what jobs had left to send."""
        self._gate = transfer_filter(len(jobs), self._threshold if self._adaptive else None, self._most)

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start what finds GPUs and may use its links."""
        draft = PlacementPlan(view)
        allocations = start_cpu_jobs(view, draft, self.placement)
        jobs = view.gpu_jobs
        seen, iterations = view.select(jobs), expected_iterations_left(view, jobs)
        service = iterations * seen.column("isolated_iteration_seconds") * seen.column("asked_gpus")
        self._gate.of_jobs[jobs] = iterations * seen.column("gradient_bytes")
        waits = seen.column("status") == JobStatus.WAITING
        order = jobs[waits][np.lexsort((jobs[waits], service[waits]))]
        return [*allocations, *draft.start(self.placement, order, self._gate)]
