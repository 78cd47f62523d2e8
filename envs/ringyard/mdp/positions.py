"""Which running job each visible position shows."""

from ringyard.compiled import kernel, whole
from ringyard.state.arrays import State

__all__ = ["next_running", "running_at"]


@kernel
def next_running(state: State, b: int, position: int, previous: int) -> int:
    """Row of the job in a position, given that of the one before (-1 for position 0).

    Where all ends are known, position 0 ends first and the others are in heap order; else positions go by
    row, as the heap would show when jobs end that nobody can predict.
    """
    cluster = state.clusters[b]
    if cluster.certain != 0:
        return whole(state.running[b, position])
    row = whole(cluster.num_jobs)
    for i in range(cluster.num_running):
        other = whole(state.running[b, i])
        if previous < other < row:
            row = other
    return row


@kernel
def running_at(state: State, b: int, position: int) -> int:
    """Row of the job in a position."""
    row = -1
    for i in range(position if state.clusters[b].certain != 0 else 0, position + 1):
        row = next_running(state, b, i, row)
    return row
