"""SJF-BCO's two ways to choose a job's GPUs: FA-FFP for small jobs, LBSGF for large ones."""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, kernel
from ringyard_baselines.papers.sjf_bco.planner_state import TIME, PlannerState


@kernel
def _smallest(values: FloatVector, count: int, k: int) -> float:
    """Return the k-th smallest, from 1, of the first `count` values. Changes their order."""
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            high = j
        elif k - 1 >= i:
            low = i
        else:
            break
    return values[k - 1]


@kernel
def find_candidates(planner: PlannerState, estimate: float, theta: float) -> int:
    """Write GPUs on which a job stays within `theta` to the candidates, by id, and return their number."""
    load = planner.load
    count = 0
    for g in range(len(load)):
        planner.candidates[count] = g
        count += int(load[g] + estimate <= theta)
    return count


@kernel
def earliest_free(planner: PlannerState, count: int, demand: int, time: float) -> float:
    """Return when `demand` of the first `count` candidates are free, from `time` on; inf if too few."""
    if count < demand:
        return np.inf
    free = 0
    for k in range(count):
        exit_seconds = planner.free_at[planner.candidates[k]]
        planner.values[k] = exit_seconds
        free += int(exit_seconds <= time)
    return time if free >= demand else _smallest(planner.values, count, demand)


@kernel
def _least_loaded(planner: PlannerState, count: int, time: float, busy_first: bool, out: IntVector) -> None:
    """Choose the candidates that are free at `time` and have the least load, in order of id, into `out`.

    The first `count` candidates are in order of id, enough are free at `time`, and no server has a mark. With
    `busy_first`, GPUs of servers in use come first among equal loads, before lower ids.
    """
    load, free_at = planner.load, planner.free_at
    candidates, values = planner.candidates, planner.values
    free = 0
    for k in range(count):
        g = candidates[k]
        if free_at[g] <= time:
            candidates[free] = g
            values[free] = load[g]
            free += 1
    bound = _smallest(values, free, len(out))
    below, equal = 0, 0
    for k in range(free):
        below += int(load[candidates[k]] < bound)
        equal += int(load[candidates[k]] == bound)
    places = len(out) - below  # left for candidates of equal load
    in_use = 0
    if busy_first and places < equal:
        for k in range(free):
            g = candidates[k]
            in_use += int(load[g] == bound and planner.latest_exit[planner.server[g]] > time)
    from_used = min(places, in_use)
    from_others = places - from_used
    n = 0
    for k in range(free):
        g = candidates[k]
        if load[g] > bound:
            continue
        if load[g] == bound:
            if in_use > 0 and planner.latest_exit[planner.server[g]] > time:
                from_used -= 1
                if from_used < 0:
                    continue
            else:
                from_others -= 1
                if from_others < 0:
                    continue
        out[n] = g
        n += 1


@kernel
def _choose_among(planner: PlannerState, count: int, busy_first: bool, out: IntVector) -> float:
    """Choose as `_least_loaded` as soon as enough candidates are free. Return that time, inf: never."""
    time = earliest_free(planner, count, len(out), planner.clock[TIME])
    if time < np.inf:
        _least_loaded(planner, count, time, busy_first, out)
    return time


@kernel
def choose_for_small(planner: PlannerState, estimate: float, theta: float, out: IntVector) -> float:
    """Choose by FA-FFP: the least loaded GPUs within theta, on servers in use first among equal loads.

    Fills `out` [demand] by id, for a job of `estimate` seconds. Returns the seconds
    at which the GPUs are free, inf if there are too few.
    """
    return _choose_among(planner, find_candidates(planner, estimate, theta), True, out)


@kernel
def choose_for_large(
    planner: PlannerState, estimate: float, theta: float, capacity: float, out: IntVector
) -> float:
    """Choose by LBSGF: as `choose_for_small`, on the least loaded servers with lambda x demand `capacity`."""
    ranked, first_gpu = planner.ranked, planner.first_gpu
    servers, gpus = 0, 0
    while capacity > 0 and servers < len(ranked):
        width = first_gpu[ranked[servers] + 1] - first_gpu[ranked[servers]]
        capacity -= width
        gpus += width
        servers += 1
    if gpus < len(out):
        return np.inf
    for k in range(servers):
        planner.marks[ranked[k]] = 1
    count = 0
    for s in range(len(ranked)):
        if planner.marks[s] != 0:
            planner.marks[s] = 0
            for g in range(first_gpu[s], first_gpu[s + 1]):
                planner.candidates[count] = g
                count += int(planner.load[g] + estimate <= theta)
    return _choose_among(planner, count, False, out)
