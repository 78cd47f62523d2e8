"""Starts jobs by demand class: if one job finds no place, no other job with the same demands is tried."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.allocation import Allocation


def start_by_demand_class(
    jobs: NDArray[np.integer], classes: NDArray[np.integer], place: Callable[[int], Allocation | None]
) -> list[Allocation]:
    """Start jobs in their order; a class that finds no place is skipped from then on.

    Jobs of one of the `classes` [n] find equal places. `place` returns a job's allocation or None.
    """
    allocations = []
    unplaced = set()
    for job, demand_class in zip(jobs.tolist(), classes.tolist(), strict=True):
        if demand_class in unplaced:
            continue
        found = place(job)
        if found is None:
            unplaced.add(demand_class)
        else:
            allocations.append(found)
    return allocations
