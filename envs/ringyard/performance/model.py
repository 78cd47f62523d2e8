"""The declared signature of performance models, and the model in which nothing ever slows a job."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import CompiledFunction, fixed_type, function_value
from ringyard.records import JOB_TYPE, PARAMETERS_TYPE

__all__ = ["ITERATION_SECONDS", "PerformanceModel", "Rate", "ideal"]

#: seconds per iteration of a job: (job record, parameters) -> float64. The engine keeps `num_servers`
#: and `worst_link_jobs` of the record up to date before it asks.
ITERATION_SECONDS = numba.types.float64(JOB_TYPE, PARAMETERS_TYPE)


class Rate(NamedTuple):
    """A performance model as kernels receive it; `rate.seconds(job, rate.parameters)` rates a job."""

    seconds: CompiledFunction
    parameters: NDArray[np.float64]


fixed_type(Rate, numba.types.FunctionType(ITERATION_SECONDS), PARAMETERS_TYPE)


@dataclass(frozen=True)
class PerformanceModel:
    """A compiled function and its parameters.

    Attributes:
        iteration_seconds: compiled function of signature `ITERATION_SECONDS`.
        parameters: [parameters] float64, whatever the function reads.
        network_coupled: whether a job's speed depends on `worst_link_jobs`; False lets the engine
            skip re-rating neighbours.
    """

    iteration_seconds: CompiledFunction
    parameters: NDArray[np.float64]
    network_coupled: bool

    @cached_property
    def rate(self) -> Rate:
        """The model as kernels receive it."""
        return Rate(self.iteration_seconds, self.parameters)


@function_value(ITERATION_SECONDS)
def one_second(job: Any, parameters: Any) -> float:
    """Every iteration takes one second."""
    return 1.0


def ideal() -> PerformanceModel:
    """Speed 1 wherever a job is placed: iterations are seconds of traced duration."""
    return PerformanceModel(one_second, np.zeros(1), network_coupled=False)
