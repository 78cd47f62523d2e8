"""The declared signature of performance models, and the model in which nothing ever slows a job."""

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.functions import CompiledFunction, function_value
from ringyard.performance.interference import Interference, no_interference
from ringyard.state.records import JOB_TYPE, PARAMETERS_TYPE, Network

__all__ = ["ITERATION_SECONDS", "PerformanceModel", "ideal"]

#: seconds per iteration of a job: (job record, parameters) -> float64. Before it asks, the engine brings
#: up to date what the record says of the job's allocation (`num_gpus`, `num_servers`, `batch_size`,
#: `compute_seconds`, `cores_per_worker`, ...) and of its neighbours (`contenders`, `sharing_slowdown`,
#: `bandwidth_slowdown`).
ITERATION_SECONDS = numba.types.float64(JOB_TYPE, PARAMETERS_TYPE)


@dataclass(frozen=True)
class PerformanceModel:
    """A compiled function, its parameters, and what couples neighbours.

    Attributes:
        iteration_seconds: compiled function of signature `ITERATION_SECONDS`.
        parameters: [parameters] float64, whatever the function reads.
        network: how `contenders` is counted; NONE lets the engine skip it.
        interference: of jobs that share a GPU.
        transfer_bytes_per_second: of a ring alone between servers, for `Network.LIVE_TRANSFERS`.
        straggler_cv: coefficient of variation of compute time among a job's workers, drawn at each start;
            the slowest sets the pace. One worker alone has nobody to wait for.
    """

    iteration_seconds: CompiledFunction
    parameters: NDArray[np.float64]
    network: Network = Network.NONE
    interference: Interference = field(default_factory=no_interference)
    transfer_bytes_per_second: float = np.inf
    straggler_cv: float = 0.0


@function_value(ITERATION_SECONDS)
def one_second(job: Any, parameters: Any) -> float:
    """Every iteration takes one second."""
    return 1.0


def ideal() -> PerformanceModel:
    """Speed 1 wherever a job is placed: iterations are seconds of traced duration."""
    return PerformanceModel(one_second, np.zeros(1))
