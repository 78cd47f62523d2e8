"""RLTune's placement objective: few partly free servers, evenly free, with room for the next job.

Its public code (github.com/dshruti20/RLTune, `choose_allocation_milp_solver`) states a mixed-integer program
that picks one of at most four placements. Here every server with room is compared, so no solver is needed.
"""

import numpy as np

from ringyard.checks import NonNegative, checked
from ringyard.compiled import FloatVector, Int32Vector, implements, kernel
from ringyard.placement.availability import available_gpus, take_free_gpus
from ringyard.placement.rule import FindGpus, PlacementRule
from ringyard.placement.rules import consolidate_gpus
from ringyard.state.arrays import State, waiting_at


@kernel
def _next_demand(state: State, b: int, j: int) -> int:
    """GPUs that the oldest waiting job other than `j` asks for. 0: none waits."""
    first = -1
    for i in range(state.clusters[b].num_waiting):
        k = waiting_at(state, b, i)
        if k != j and state.jobs[b, k].asked_gpus > 0 and (first < 0 or k < first):
            first = k
    return int(state.jobs[b, first].asked_gpus) if first >= 0 else 0


@kernel
def _cost(state: State, b: int, chosen: int, wanted: int, demand: int, parameters: FloatVector) -> float:
    """Objective (`least_fragmenting`) if `wanted` GPUs of the `chosen` server were taken."""
    fragments = 0
    fits = 0
    least = np.inf
    most = 0.0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.up == 0:
            continue
        free = server.free_gpus - (wanted if s == chosen else 0)
        fragments += 0 < free < server.num_gpus
        fits += 0 < demand <= free
        least = min(least, free)
        most = max(most, free)
    return parameters[0] * fragments + parameters[1] * (most - least) - parameters[2] * fits


@implements(FindGpus)
def _least_fragmenting(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    demand = _next_demand(state, b, j)
    best = -1
    least = np.inf
    for s in range(state.servers.shape[1]):
        if available_gpus(state, b, j, s) >= wanted:
            cost = _cost(state, b, s, wanted, demand, parameters)
            if cost < least:
                best = s
                least = cost
    if best >= 0:
        return take_free_gpus(state, b, j, best, wanted, out, 0)
    return consolidate_gpus(state, b, j, wanted, out)


@checked("placement")
def least_fragmenting(
    fragments: NonNegative = 1.0, imbalance: NonNegative = 0.3, next_fits: NonNegative = 0.5
) -> PlacementRule:
    """Return the rule that minimises RLTune's objective, and else places jobs as `consolidate`.

    The objective is fragments x partly free servers + imbalance x (most - fewest free GPUs of a server)
    - next_fits x servers with room for the oldest other waiting job. Defaults are the public code's.

    Args:
        fragments: weight of partly free servers, at least 0.
        imbalance: weight of the difference of free GPUs, at least 0.
        next_fits: weight of servers with room for the next job, at least 0.

    Raises:
        ConfigurationError: a weight below 0.
    """
    weights = np.array([fragments, imbalance, next_fits])
    return PlacementRule(_least_fragmenting, "least_fragmenting", weights)
