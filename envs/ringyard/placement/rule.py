"""The declared signature of placement rules."""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.bundles import by_reference
from ringyard.compiled.functions import CompiledFunction
from ringyard.state.arrays import STATE_TYPE
from ringyard.state.records import PARAMETERS_TYPE

__all__ = ["PLACE", "PlacementRule"]

#: (state, cluster, job row, parameters, out [gpus]) -> number of GPU ids written to `out`, 0 if the rule
#: finds no place. For a CPU-only job (`num_gpus` 0) it writes one server instead. A rule reads free GPUs,
#: slots, memory and cores from the state and may write only `out` and `server_scratch` (and, if it is
#: random, the cluster's `rng`). It gives only what the cluster can hold; less that is free never makes a job
#: placeable.
PLACE = numba.types.int64(
    STATE_TYPE, numba.types.int64, numba.types.int64, PARAMETERS_TYPE, numba.types.int32[::1]
)


@by_reference(numba.types.FunctionType(PLACE), PARAMETERS_TYPE)
@dataclass(frozen=True, eq=False)
class PlacementRule:
    """A compiled rule and its parameters.

    Attributes:
        place: compiled function of signature `PLACE`.
        parameters: [parameters] float64, whatever the function reads.
        name: shown in tables.
    """

    place: CompiledFunction
    parameters: NDArray[np.float64]
    name: str
