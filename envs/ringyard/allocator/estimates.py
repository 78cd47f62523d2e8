"""Estimates of the seconds that jobs still have to run, from which the allocator computes weights.

To write your own, decorate a function with `ringyard.compiled.implements(EstimateSecondsLeft)` and wrap it in
an `Estimate`, as `attained` does.
"""

from dataclasses import field
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.compiled import FloatMatrix, FloatVector, bundle, implements, interface, kernel
from ringyard.jobs import JobTable
from ringyard.observability import Observability, check_reads
from ringyard.state.arrays import State, waiting_at
from ringyard.state.progress import predicted_iterations, run_seconds

#: seconds added where no prediction is known. Assumption: the order of median run times in traces
UNKNOWN_SECONDS = 600.0
UnknownSeconds = Annotated[float, "[0, 1e10]"]


@kernel
def num_live(state: State, b: int) -> int:
    """Number of jobs of cluster `b` in `state` that wait or run."""
    return int(state.clusters[b].num_waiting + state.clusters[b].num_running)


@kernel
def live_job(state: State, b: int, i: int) -> int:
    """Row of the `i`-th live job of cluster `b` in `state`, waiting jobs first, then running ones."""
    waiting = state.clusters[b].num_waiting
    return waiting_at(state, b, i) if i < waiting else int(state.running[b, i - waiting])


@interface
class EstimateSecondsLeft(Protocol):
    """Compiled function: how long live jobs (waiting or running) still run, isolated and as they ask."""

    def __call__(
        self, state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector
    ) -> None:
        """Write the estimate of every live job. Nothing but `memory` and `out` may change.

        Args:
            state: arrays of the simulations.
            b: cluster.
            parameters: [parameters] `Estimate.parameters`.
            memory: [jobs, `Estimate.memory`] numbers kept from decision to decision.
            out: [jobs] seconds left, finite and at least 0. Rows of other jobs are ignored.
        """


@bundle
class Estimate:
    """An estimate of how long jobs would still run.

    Raises:
        ObservabilityError: `seconds` reads more of jobs than `observability` declares.
    """

    seconds: EstimateSecondsLeft  #: implements `EstimateSecondsLeft`
    name: str  #: shown in tables
    observability: Observability  #: what `seconds` may read of jobs
    parameters: FloatVector = field(default_factory=lambda: np.zeros(1))  #: [parameters] passed to `seconds`
    memory: int = 0  #: numbers kept of each job between decisions

    def __post_init__(self) -> None:
        check_reads(self.seconds, self.observability, f"estimate {self.name}")

    def memory_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs, memory] memory before the first job arrives. Zeros, unless a subclass knows more."""
        return np.zeros((len(jobs), self.memory))


@implements(EstimateSecondsLeft)
def _predicted(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    now = state.clusters[b].now
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        job = state.jobs[b, j]
        if job.predictable != 0:
            out[j] = predicted_iterations(job, now) * job.isolated_iteration_seconds
        else:
            out[j] = run_seconds(job, now) + parameters[0]


@checked("action.allocator.estimate")
def predicted(unknown_seconds: UnknownSeconds = UNKNOWN_SECONDS) -> Estimate:
    """Return the estimate by predicted run times, or as `attained` for jobs without a prediction.

    Args:
        unknown_seconds: seconds added for jobs without a prediction, in [0, 1e10].

    Raises:
        ConfigurationError: an argument out of its range.
    """
    observability = Observability.SIZES | Observability.PREDICTIONS | Observability.ATTAINED_SERVICE
    parameters = np.array([float(unknown_seconds)])
    return Estimate(_predicted, "predicted", observability | Observability.SPEEDS, parameters)


@implements(EstimateSecondsLeft)
def _attained(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    now = state.clusters[b].now
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        out[j] = run_seconds(state.jobs[b, j], now) + parameters[0]


@checked("action.allocator.estimate")
def attained(unknown_seconds: UnknownSeconds = UNKNOWN_SECONDS) -> Estimate:
    """Return the estimate that a job runs as long again as it has run, as with heavy-tailed run times.

    Args:
        unknown_seconds: seconds added to the time that the job has run, in [0, 1e10].

    Raises:
        ConfigurationError: an argument out of its range.
    """
    return Estimate(_attained, "attained", Observability.ATTAINED_SERVICE, np.array([float(unknown_seconds)]))
