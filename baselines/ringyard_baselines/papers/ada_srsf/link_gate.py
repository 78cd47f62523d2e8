"""The gate of Ada-SRSF: whether a job on several servers may start beside those that transfer there."""

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, fills
from ringyard.sim.admission import AdmissionFilter, AdmitStart
from ringyard.state.arrays import State

__all__ = ["link_gate"]

_ANY = -1.0  # in place of a threshold: a job starts whatever it has to send


@fills(AdmitStart)
def _may_transfer(
    state: State,
    b: int,
    j: int,
    places: Int32Vector,
    count: int,
    of_jobs: FloatVector,
    parameters: FloatVector,
) -> bool:
    most_transfers, threshold = parameters[0], parameters[1]
    first = state.gpus[b, places[0]].server
    spans = False
    most = 0
    for k in range(count):
        s = state.gpus[b, places[k]].server
        spans = spans or s != first
        most = max(most, state.servers[b, s].spanning_jobs)
    if not spans:
        return True
    if most >= most_transfers:
        return False
    if most == 0 or threshold == _ANY:
        return True
    per_gpu = state.clusters[b].jobs_per_gpu
    for k in range(count):
        server = state.servers[b, state.gpus[b, places[k]].server]
        for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
            other = state.slots[b, i].job
            if other >= 0 and state.jobs[b, other].num_servers > 1:
                if not of_jobs[j] <= threshold * of_jobs[other]:
                    return False
    return True


def link_gate(num_jobs: int, threshold: float | None, most_transfers: int) -> AdmissionFilter:
    """Keeps jobs on several servers from starting where others transfer.

    Its `of_jobs` is bytes left to transfer, 0 until they are filled in.

    Args:
        num_jobs: of the workload.
        threshold: of new to remaining bytes, up to which a job starts beside others; None: whatever it has.
        most_transfers: so many jobs on several servers may share one, at most.
    """
    limit = _ANY if threshold is None else threshold
    return AdmissionFilter(_may_transfer, np.zeros(num_jobs), np.array([float(most_transfers), limit]))
