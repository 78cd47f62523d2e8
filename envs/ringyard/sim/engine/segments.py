"""History of who held what, for drawing."""

import numpy as np

from ringyard.compiled import kernel
from ringyard.state.arrays import State

__all__ = ["log_segments"]


@kernel
def log_segments(state: State, b: int, j: int) -> None:
    """Remember which GPUs of which servers job j held since its last start."""
    rows = state.segments.shape[1]
    if rows == 0:
        return
    cluster = state.clusters[b]
    i = state.jobs[b, j].first_slot
    while i >= 0:
        row = state.segments[b, cluster.num_segments % rows]
        cluster.num_segments += 1
        row.job = j
        row.server = state.slots[b, i].server
        row.start_seconds = state.jobs[b, j].last_start_seconds
        row.stop_seconds = cluster.now
        bits = np.uint64(0)
        held = i
        while held >= 0 and state.slots[b, held].server == row.server:
            here = state.slots[b, held].gpu - state.servers[b, row.server].first_gpu
            bits |= np.uint64(1) << np.uint64(here)
            held = state.slots[b, held].next_slot
        row.gpu_bits = bits
        i = state.slots[b, i].next_server_slot
