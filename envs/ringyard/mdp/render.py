"""Gantt chart of servers over time, drawn straight into pixels."""

import colorsys

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.state.arrays import State
from ringyard.state.records import Segment

__all__ = ["draw_gantt", "segments"]

_WIDTH = 960
_GPU_HEIGHT = 4
_SERVER_GAP = 3
_BACKGROUND = 255
_FREE = 232


def segments(state: State, b: int) -> NDArray[np.void]:
    """Rows of who held what in cluster b: those kept in the history and those still held."""
    cluster = state.clusters[b]
    kept = state.segments[b, : min(int(cluster["num_segments"]), state.segments.shape[1])]
    live = []
    for j in state.running[b, : cluster["num_running"]]:
        gpus = np.unique(state.slots["gpu"][b, state.slots["job"][b] == j])
        for s in np.unique(state.gpus["server"][b, gpus]):
            here = gpus[state.gpus["server"][b, gpus] == s]
            started = state.jobs["last_start_seconds"][b, j]
            bits = sum(1 << int(gpu - state.servers["first_gpu"][b, s]) for gpu in here)
            live.append((j, s, bits, started, cluster["now"]))
    return np.concatenate([kept, np.array(live, Segment.dtype)])


def _colour(job: int) -> tuple[int, int, int]:
    """A colour by row, neighbours far apart on the colour wheel."""
    red, green, blue = colorsys.hsv_to_rgb((job * 0.61803398875) % 1.0, 0.65, 0.85)
    return int(red * 255), int(green * 255), int(blue * 255)


def draw_gantt(state: State, b: int, cluster: Cluster) -> NDArray[np.uint8]:
    """[height, width, 3] pixels: one band per server, one line per GPU, one colour per job.

    The chart spans from the oldest remembered start to now. Jobs that span servers have a dark edge on top.
    """
    servers = cluster.server_of_gpu
    tops = np.arange(cluster.num_gpus) * _GPU_HEIGHT + servers * _SERVER_GAP
    image = np.full((int(tops[-1]) + _GPU_HEIGHT, _WIDTH, 3), _BACKGROUND, np.uint8)
    for top in tops:
        image[top : top + _GPU_HEIGHT - 1] = _FREE
    rows = segments(state, b)
    if len(rows) == 0:
        return image
    begin = float(rows["start_seconds"].min())
    span = max(float(state.clusters["now"][b]) - begin, 1e-9)
    starts = list(zip(rows["job"].tolist(), rows["start_seconds"].tolist(), strict=True))
    spanning = {start for start in starts if starts.count(start) > 1}
    for row, start in zip(rows, starts, strict=True):
        left = int((row["start_seconds"] - begin) / span * (_WIDTH - 1))
        right = max(int((row["stop_seconds"] - begin) / span * (_WIDTH - 1)), left + 1)
        lowest = int(cluster.first_gpu_of_server[row["server"]])
        bits = int(row["gpu_bits"])
        for gpu in range(lowest, lowest + cluster.gpus_per_server[row["server"]]):
            if not bits >> (gpu - lowest) & 1:
                continue
            top = int(tops[gpu])
            image[top : top + _GPU_HEIGHT - 1, left:right] = _colour(int(row["job"]))
            if start in spanning:
                image[top, left:right] = 40
    return image
