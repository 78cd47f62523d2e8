"""Fresh arrays without fresh memory: what nobody holds any more is written again."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Recycling"]

#: arrays that are kept: callers hold the last one or two
_KEPT = 4
#: references to an array that nobody else holds: the list, the name in the loop, the argument of the count
_OWN = 3


class Recycling:
    """Copies of an array that belong to the caller, in memory of copies that callers have let go.

    Memory that the system hands out anew, as it does for each large array, costs several times the copy.
    """

    def __init__(self) -> None:
        self._kept: list[NDArray[Any]] = []

    def copy(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array's values, in an array that nobody else holds."""
        for one in self._kept:
            if sys.getrefcount(one) == _OWN:  # nor a window on it, which would count
                np.copyto(one, array)
                return one
        fresh = array.copy()
        if len(self._kept) < _KEPT:
            self._kept.append(fresh)
        return fresh

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies of an environment begin with nothing to write again."""
        return Recycling, ()
