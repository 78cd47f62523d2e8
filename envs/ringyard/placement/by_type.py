"""Placement rule that gives a job GPUs of some types only."""

from collections.abc import Collection

import numpy as np

from ringyard.cluster import Cluster
from ringyard.compiled import FloatVector, Int32Vector, implements
from ringyard.placement.availability import available_gpus, take_free_gpus
from ringyard.placement.rule import FindGpus, PlacementRule
from ringyard.state.arrays import State


@implements(FindGpus)
def _pack_on_types(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    taken = state.server_scratch[b]
    taken[:] = 0
    count = 0
    while count < wanted:
        best = -1
        best_room = 0
        for s in range(state.servers.shape[1]):
            server = state.servers[b, s]
            if taken[s] != 0 or parameters[server.gpu_type] == 0.0:
                continue
            room = min(available_gpus(state, b, j, s), wanted - count)
            tighter = room == best_room and best >= 0 and server.free_gpus < state.servers[b, best].free_gpus
            if room > best_room or tighter:
                best = s
                best_room = room
        if best < 0:
            return 0
        taken[best] = 1
        count = take_free_gpus(state, b, j, best, best_room, out, count)
    return count


def pack_on_types(cluster: Cluster, gpu_types: Collection[str]) -> PlacementRule:
    """Return rule `pack` on servers of some types: the fullest server that fits, else as few as can be.

    Args:
        cluster: servers to choose from.
        gpu_types: names in `Cluster.gpu_types`.
    """
    allowed = np.array([kind in gpu_types for kind in cluster.distinct_gpu_types], dtype=np.float64)
    return PlacementRule(_pack_on_types, f"pack on {', '.join(sorted(gpu_types))}", allowed)
