"""What kernels need to rate jobs: the performance model, and the engine's heavy functions.

Nearly every kernel starts or ends jobs. Were the code for that linked into each of them, compiling the
simulator would take twice as long; instead it is compiled once and called through its address.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.bundles import by_reference, reference_at
from ringyard.compiled.functions import CompiledFunction
from ringyard.performance.model import ITERATION_SECONDS
from ringyard.state.arrays import STATE_TYPE
from ringyard.state.records import PARAMETERS_TYPE

__all__ = ["ADVANCE", "RELEASE", "RUN", "Rate", "rate_at"]

_INDEX = numba.types.int64
#: (state, cluster, job row, GPUs, how many, pause in seconds, address of the `Rate`)
RUN = numba.types.void(
    STATE_TYPE, _INDEX, _INDEX, numba.types.int32[::1], _INDEX, numba.types.float64, _INDEX
)
#: (state, cluster, job row, address of the `Rate`)
RELEASE = numba.types.void(STATE_TYPE, _INDEX, _INDEX, _INDEX)
#: (state, cluster, address of the `Rate`) -> whether anything can still happen
ADVANCE = numba.types.boolean(STATE_TYPE, _INDEX, _INDEX)


@by_reference(
    numba.types.FunctionType(ITERATION_SECONDS),
    PARAMETERS_TYPE,
    numba.types.FunctionType(RUN),
    numba.types.FunctionType(RELEASE),
    numba.types.FunctionType(ADVANCE),
)
@dataclass(frozen=True, eq=False)
class Rate:
    """A performance model as kernels receive it; `rate.seconds(job, rate.parameters)` rates a job.

    Attributes:
        seconds: of signature `ITERATION_SECONDS`.
        parameters: [parameters] what it reads.
        run: of signature `RUN`, `ringyard.sim.engine.life.run`.
        release: of signature `RELEASE`, `ringyard.sim.engine.life.release`.
        advance: of signature `ADVANCE`, `ringyard.sim.engine.events.next_decision`.
    """

    seconds: CompiledFunction
    parameters: NDArray[np.float64]
    run: CompiledFunction
    release: CompiledFunction
    advance: CompiledFunction


rate_at = reference_at(Rate)
