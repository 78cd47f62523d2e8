"""History of who held what, for drawing."""

import numpy as np

from ringyard.compiled import kernel
from ringyard.state.arrays import State
from ringyard.state.records import Segment

__all__ = ["log_down", "log_segments"]


@kernel
def _log(state: State, b: int, j: int, server: int, start: float, stop: float) -> Segment:
    """The next row, the oldest if all are taken, with no GPUs yet."""
    cluster = state.clusters[b]
    row = state.segments[b, cluster.num_segments % state.segments.shape[1]]
    cluster.num_segments += 1
    row.job = j
    row.server = server
    row.gpu_bits = np.uint64(0)
    row.start_seconds = start
    row.stop_seconds = stop
    return row


@kernel
def log_down(state: State, b: int, s: int) -> None:
    """Remember that server s is down from now on until it returns: a row of no job."""
    if state.segments.shape[1] > 0:
        _log(state, b, -1, s, state.clusters[b].now, state.servers[b, s].next_change_seconds)


@kernel
def log_segments(state: State, b: int, j: int) -> None:
    """Remember which GPUs of which servers job j held since its last start; a CPU-only job: where it was."""
    if state.segments.shape[1] == 0:
        return
    now = state.clusters[b].now
    job = state.jobs[b, j]
    if job.server >= 0:
        _log(state, b, j, job.server, job.last_start_seconds, now)
    i = job.first_slot
    while i >= 0:
        server = state.slots[b, i].server
        row = _log(state, b, j, server, job.last_start_seconds, now)
        bits = np.uint64(0)
        held = i
        while held >= 0 and state.slots[b, held].server == server:
            here = state.slots[b, held].gpu - state.servers[b, server].first_gpu
            bits |= np.uint64(1) << np.uint64(here)
            held = state.slots[b, held].next_slot
        row.gpu_bits = bits
        i = state.slots[b, i].next_server_slot
