"""Reading the waiting list, a window on the middle of its array: both of its ends are free to grow."""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import kernel
from ringyard.state.arrays import State

__all__ = ["waiting_at", "waiting_rows"]


@kernel
def waiting_at(state: State, b: int, i: int) -> int:
    """Row of the i-th waiting job."""
    return int(state.waiting[b, state.clusters[b].first_waiting + i])


def waiting_rows(state: State, b: int) -> NDArray[np.int32]:
    """[waiting jobs] their rows, a window on the state."""
    first, count = (int(state.clusters[name][b]) for name in ("first_waiting", "num_waiting"))
    return state.waiting[b, first : first + count]
