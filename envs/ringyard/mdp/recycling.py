"""Fresh arrays without fresh memory: what nobody holds any more is written again."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Recycling"]

#: arrays that are kept: callers hold the last one or two
_KEPT = 4


def _references(kept: list[NDArray[Any]], number: int) -> int:
    """How many there are to one of the arrays, counted from here."""
    one = kept[number]
    return sys.getrefcount(one)


#: to an array that nobody else holds: measured, since versions of Python count differently
_OWN = _references([np.zeros(1)], 0)


class Recycling:
    """Copies of an array that belong to the caller, in memory of copies that callers have let go.

    Memory that the system hands out anew, as it does for each large array, costs several times the copy.
    """

    def __init__(self) -> None:
        self._kept: list[NDArray[Any]] = []

    def copy(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array's values, in an array that nobody else holds."""
        for number in range(len(self._kept)):
            if _references(self._kept, number) == _OWN:  # nor a window on it, which would count
                free = self._kept[number]
                np.copyto(free, array)
                return free
        fresh = array.copy()
        if len(self._kept) < _KEPT:
            self._kept.append(fresh)
        return fresh

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies of an environment begin with nothing to write again."""
        return Recycling, ()
