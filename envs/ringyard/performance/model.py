"""What a performance model is, and the one in which nothing ever slows a job."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.compiled import (
    FloatVector,
    bundle,
    error_message,
    function_address,
    implements,
    interface,
    kernel,
    raise_plugin_error,
)
from ringyard.fabric import Fabric
from ringyard.performance.interference import Interference, no_interference
from ringyard.state.records import Job, Network


@interface
class IterationSeconds(Protocol):
    """Seconds of one iteration of a job.

    Before it asks, the engine brings up to date what the record says of the job's allocation (`num_gpus`,
    `num_servers`, `batch_size`, `compute_seconds`, `cores_per_worker`, ...) and of its neighbours
    (`contenders`, `sharing_slowdown`, `bandwidth_slowdown`). The function promises a finite number above 0,
    which is checked each time, and changes nothing.
    """

    def __call__(self, job: Job, parameters: FloatVector) -> float:
        """Of the job, by the model's parameters [parameters]."""


_NO_TIME = error_message(
    "performance model {function} gave job {job}, with {expected:.0f} GPUs on {there:.0f} servers, {got}"
    " seconds an iteration; expected a finite number above 0 (1e-100 to 1e100)"
)


@bundle
class Physics:
    """A performance model in kernels, which ask it by `iteration_seconds`.

    Attributes:
        seconds: of one iteration of a job.
        parameters: [parameters] what it reads.
    """

    seconds: IterationSeconds
    parameters: FloatVector


@checked("performance")
@dataclass(frozen=True)
class PerformanceModel:
    """A compiled function, its parameters, and what couples neighbours.

    Attributes:
        iteration_seconds: a function that implements `IterationSeconds`.
        parameters: [parameters] float64, whatever the function reads.
        network: how `contenders` is counted; NONE lets the engine skip it.
        interference: of jobs that share a GPU.
        between_servers: what a ring alone gets there, for `Network.LIVE_TRANSFERS`.
        straggler_cv: coefficient of variation of compute time among a job's workers, drawn at each start;
            the slowest sets the pace. One worker alone never waits.
        overlap_exponent: `Job.overlap_exponent` of every job; None: of its profile, 1 where that has none.
    """

    iteration_seconds: IterationSeconds
    parameters: Annotated[NDArray[np.float64], "one-dimensional"]
    network: Network = Network.NONE
    interference: Interference = field(default_factory=no_interference)
    between_servers: Fabric = field(default_factory=lambda: Fabric(np.inf))
    straggler_cv: Annotated[float, "[0, 1e3]"] = 0.0
    overlap_exponent: Annotated[float, "[1, inf)"] | None = None

    @cached_property
    def physics(self) -> Physics:
        """The model as kernels receive it."""
        return Physics(self.iteration_seconds, self.parameters)


@implements(IterationSeconds)
def one_second(job: Job, parameters: FloatVector) -> float:
    """Every iteration takes one second."""
    return 1.0


def ideal() -> PerformanceModel:
    """Speed 1 wherever a job is placed: iterations are seconds of traced duration."""
    return PerformanceModel(one_second, np.zeros(1))


@kernel
def iteration_seconds(job: Job, j: int, physics: Physics) -> float:
    """Seconds of one iteration of job j at its present batch, as the performance model says."""
    seconds = physics.seconds(job, physics.parameters)
    if not 1e-100 < seconds < 1e100:
        raise_plugin_error(
            _NO_TIME, function_address(physics.seconds), j, seconds, job.num_gpus, job.num_servers
        )
    return seconds
