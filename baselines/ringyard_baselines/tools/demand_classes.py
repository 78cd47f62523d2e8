"""Starts jobs by demand class: if one job finds no place, no other job with the same demands is tried."""

import heapq
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.allocation import Allocation


def start_by_demand_class(
    jobs: NDArray[np.integer], classes: NDArray[np.integer], place: Callable[[int], Allocation | None]
) -> list[Allocation]:
    """Start jobs in their order; a class that finds no place is skipped from then on.

    Jobs of one of the `classes` [n] find equal places. `place` returns a job's allocation or None. It is
    called for the first job of each class, and for those behind it while they find a place, so that a long
    queue costs little.
    """
    narrow = classes.astype(np.min_scalar_type(classes.max(initial=0)))  # small integers sort in linear time
    by_class = np.argsort(narrow, kind="stable")
    ends = np.flatnonzero(np.diff(classes[by_class], append=-1)) + 1
    bounds = [0, *ends.tolist()]
    #: (position in `jobs` of a class's next job, its position in `by_class`, end of the class there)
    heads = [(int(by_class[at]), at, end) for at, end in pairwise(bounds)]
    heapq.heapify(heads)
    allocations = []
    while heads:
        position, at, end = heads[0]
        found = place(int(jobs[position]))
        if found is not None:
            allocations.append(found)
        if found is None or at + 1 == end:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (int(by_class[at + 1]), at + 1, end))
    return allocations
