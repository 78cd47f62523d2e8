"""The declared signature of placement rules."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import CompiledFunction, fixed_type
from ringyard.records import PARAMETERS_TYPE, STATE_TYPE

__all__ = ["PLACE", "PlacementRule"]

#: (state, cluster, job row, parameters, out [gpus]) -> number of GPU ids written to `out`, 0 if the rule
#: finds no place. A rule reads free GPUs from the state and may write only `out` and `server_scratch`
#: (and, if it is random, the cluster's `rng`). Fewer free GPUs never make a job placeable.
PLACE = numba.types.int64(
    STATE_TYPE, numba.types.int64, numba.types.int64, PARAMETERS_TYPE, numba.types.int32[::1]
)


class PlacementRule(NamedTuple):
    """A compiled rule and its parameters.

    Attributes:
        place: compiled function of signature `PLACE`.
        parameters: [parameters] float64, whatever the function reads.
        name: shown in tables.
    """

    place: CompiledFunction
    parameters: NDArray[np.float64]
    name: str


fixed_type(PlacementRule, numba.types.FunctionType(PLACE), PARAMETERS_TYPE, numba.types.unicode_type)
