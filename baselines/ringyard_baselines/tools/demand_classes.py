"""Queues of jobs that are asked class by class: of equal demands, one that finds no place speaks for all."""

import heapq
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.allocation import Allocation


def start_by_demand_class(
    jobs: NDArray[np.integer], classes: NDArray[np.integer], place: Callable[[int], Allocation | None]
) -> list[Allocation]:
    """Start jobs in their order; a class that finds no place is passed over from then on.

    Args:
        jobs: [n] rows of waiting jobs, in order.
        classes: [n] each job's demands as a number, at least 0; equal ones find equal places.
        place: (job) -> its place, or None; called for the first of each class and for those behind it while
            they find one, so that the length of the queue costs little.
    """
    narrow = classes.astype(np.min_scalar_type(classes.max(initial=0)))  # sorted by digits, in linear time
    by_class = np.argsort(narrow, kind="stable")
    ends = np.flatnonzero(np.diff(classes[by_class], append=-1)) + 1
    bounds = [0, *ends.tolist()]
    #: (turn of a class's next job, its position in `by_class`, where its class ends there)
    heads = [(int(by_class[at]), at, end) for at, end in pairwise(bounds)]
    heapq.heapify(heads)
    allocations = []
    while heads:
        turn, at, end = heads[0]
        found = place(int(jobs[turn]))
        if found is not None:
            allocations.append(found)
        if found is None or at + 1 == end:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (int(by_class[at + 1]), at + 1, end))
    return allocations
