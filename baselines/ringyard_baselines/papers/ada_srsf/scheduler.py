"""Ada-SRSF (Wang, Shi, Wang, Chu; arXiv 2002.10105): shortest remaining service first, and AdaDUAL."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.compiled import FloatVector, Int32Vector, implements
from ringyard.observability import Observability
from ringyard.sim.admission import AdmissionFilter, AdmitStart
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus
from ringyard_baselines.scheduler import Scheduler
from ringyard_baselines.tools.predictions import expected_iterations_left
from ringyard_baselines.tools.targets import start_cpu_jobs

_NO_THRESHOLD = -1.0  # a threshold that allows any number of bytes


@implements(AdmitStart)
def _admit_transfer(
    state: State,
    b: int,
    j: int,
    places: Int32Vector,
    count: int,
    of_jobs: FloatVector,
    parameters: FloatVector,
) -> bool:
    """Implements `AdmitStart`: whether job j may use the links of its servers.

    `of_jobs` has the bytes left, `parameters` the most transfers on a server and the threshold.
    """
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
    """Return a filter that keeps jobs on several servers from starting where others transfer.

    The caller fills its `of_jobs` with the bytes that jobs have left to transfer. `threshold` is the largest
    ratio of new to remaining bytes at which a job starts beside another, None: any. At most `max_transfers`
    jobs on several servers share one.
    """
    limit = _NO_THRESHOLD if threshold is None else threshold
    return AdmissionFilter(_admit_transfer, np.zeros(num_jobs), np.array([float(max_transfers), limit]))


def dual_threshold(beta: float, eta: float) -> float:
    """Return b / (2 (b + eta)), the largest ratio of new to remaining bytes for a transfer beside another.

    With one transfer of R bytes left, starting one of M bytes now gives the smaller sum of completion times
    exactly if M / R is below this ratio. b is seconds per byte of an isolated transfer, eta extra ones per
    contender.
    """
    return beta / (2.0 * (beta + eta))


@checked("ada_srsf")
@dataclass(eq=False)
class AdaSrsf(Scheduler):
    """Ada-SRSF (arXiv 2002.10105): non-preemptive SRSF in which multi-server jobs may wait for the links.

    FOUND (the authors' public simulator): waiting jobs go by remaining service (remaining time x GPUs), and
    every one is tried. AdaDUAL lets a transfer start on links without another, never beside two, and beside
    one exactly if new / remaining bytes <= b / (2 (b + eta)), with b = 0.856 and eta = 0.235 ms per MB
    (10GbE). SRSF(k) lets k jobs share a link. LWF-kappa is the placement rule `lwf`.

    Not as published: iterations are no single events here, so that AdaDUAL acts once, when a job would start.
    Its "transfer" is all that it will send, iterations left x gradient bytes. In the model of single
    transfers of docs/reproduction/ada_srsf.md, AdaDUAL acts as published.
    """

    observability = Observability.SIZES | Observability.PREDICTIONS

    placement: PlacementRule  #: where jobs go, `lwf` in the paper
    adaptive: bool = True  #: True is AdaDUAL, False is SRSF(`max_transfers`)
    max_transfers: PositiveInt = 2  #: k, 2 as published with AdaDUAL
    beta_seconds_per_megabyte: Positive = 0.856e-3  #: b, seconds per MB of an isolated transfer
    eta_seconds_per_megabyte: NonNegative = 0.235e-3  #: eta, extra seconds per MB and contender

    def __post_init__(self) -> None:
        self.name = "ada_srsf" if self.adaptive else f"srsf_{self.max_transfers}"
        threshold = dual_threshold(self.beta_seconds_per_megabyte, self.eta_seconds_per_megabyte)
        self._threshold = threshold if self.adaptive else None

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget what jobs had left to send (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._filter = transfer_filter(len(jobs), self._threshold, self.max_transfers)

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start the jobs that find GPUs and may use their links."""
        plan = PlacementPlan(view)
        allocations = start_cpu_jobs(view, plan, self.placement)
        jobs = view.gpu_jobs
        seen, iterations = view.select(jobs), expected_iterations_left(view, jobs)
        service = iterations * seen.column("isolated_iteration_seconds") * seen.column("asked_gpus")
        self._filter.of_jobs[jobs] = iterations * seen.column("gradient_bytes")
        waits = seen.column("status") == JobStatus.WAITING
        order = jobs[waits][np.lexsort((jobs[waits], service[waits]))]
        return [*allocations, *plan.start(self.placement, order, self._filter)]
