"""From rows of who held what to bars on GPUs and rings on links."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.drawing.history import History

__all__ = ["Bars", "Rings", "bars_of", "rings_of"]


@dataclass(frozen=True)
class Bars:
    """[bars] columns: a job on a GPU, for as long as it has the same neighbours there.

    Attributes:
        job: row of the job.
        gpu: it held.
        start: seconds.
        stop: seconds; not beyond now.
        lane: which of the equal parts of the GPU's line it is drawn in, from 0.
        lanes: how many parts there are: jobs on the GPU.
        spans: whether it also held GPUs of another server.
    """

    job: NDArray[np.int64]
    gpu: NDArray[np.int64]
    start: NDArray[np.float64]
    stop: NDArray[np.float64]
    lane: NDArray[np.int64]
    lanes: NDArray[np.int64]
    spans: NDArray[np.bool_]


@dataclass(frozen=True)
class Rings:
    """[intervals] columns: how many jobs that span servers (racks) a link carries; none is left out.

    Attributes:
        link: a server's own, then the racks' uplinks from `num_servers` on.
        start: seconds.
        stop: seconds; not beyond now.
        rings: 1 or more.
    """

    link: NDArray[np.int64]
    start: NDArray[np.float64]
    stop: NDArray[np.float64]
    rings: NDArray[np.int64]


def _clipped(history: History) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Rows of jobs on GPUs, none beyond now; which rows belong together: one job from one start on."""
    held = history.held[(history.held["job"] >= 0) & (history.held["gpu_bits"] > 0)].copy()
    held["stop_seconds"] = np.minimum(held["stop_seconds"], history.now)
    held = held[held["stop_seconds"] > held["start_seconds"]]
    _, run = np.unique(held[["job", "start_seconds"]], return_inverse=True)
    return held, run.ravel()


def _spread(group: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[rows] whether rows of the same group have more than one place."""
    if not len(group):
        return np.zeros(0, bool)
    pairs = np.unique(np.stack([group, place]), axis=1)
    return np.bincount(pairs[0])[group] > 1


def bars_of(history: History) -> Bars:
    """Every job on every GPU, as long as it is remembered."""
    held, run = _clipped(history)
    octets = np.ascontiguousarray(held["gpu_bits"]).astype("<u8").view(np.uint8).reshape(-1, 8)
    row, local = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little"))
    first = np.asarray(history.cluster.first_gpu_of_server)
    gpu = first[held["server"][row]] + local
    start, stop = held["start_seconds"][row], held["stop_seconds"][row]
    spans = _spread(run, held["server"])[row]
    if history.cluster.jobs_per_gpu == 1:
        lane, lanes, part = np.zeros(len(row), np.int64), np.ones(len(row), np.int64), np.arange(len(row))
    else:
        part, start, stop, lane, lanes = _parted(gpu, start, stop)
    return Bars(held["job"][row][part].astype(np.int64), gpu[part], start, stop, lane, lanes, spans[part])


def _parted(
    gpu: NDArray[np.int64], start: NDArray[np.float64], stop: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Bars cut where neighbours on their GPU come and go: (bar, start, stop, lane, lanes)."""
    bar = np.concatenate([np.arange(len(gpu))] * 2)
    comes = np.repeat([1, 0], len(gpu))
    time = np.concatenate([start, stop])
    order = np.lexsort((bar, comes, time, gpu[bar]))  # who leaves does so before others come
    parts: list[tuple[int, float, float, int, int]] = []
    here: dict[int, tuple[float, int, int]] = {}  # bar: since when it has this lane of so many
    for i, is_new, now in zip(bar[order].tolist(), comes[order].tolist(), time[order].tolist(), strict=True):
        if is_new:
            here[i] = (now, -1, 0)
        else:
            since, lane, lanes = here.pop(i)
            parts.append((i, since, now, lane, lanes))
        for lane, (one, (since, *before)) in enumerate(here.items()):
            if before != [lane, len(here)]:
                parts.append((one, since, now, *before))
                here[one] = (now, lane, len(here))
    found = np.array([part for part in parts if part[2] > part[1]], np.float64).reshape(-1, 5)
    whole = found[:, [0, 3, 4]].astype(np.int64)
    return whole[:, 0], found[:, 1], found[:, 2], whole[:, 1], whole[:, 2]


def rings_of(history: History) -> Rings:
    """Jobs that span servers on each server's link, those that span racks on racks' uplinks."""
    held, run = _clipped(history)
    spans = _spread(run, held["server"])
    link, start, stop = (held[name][spans] for name in ("server", "start_seconds", "stop_seconds"))
    if history.cluster.rack_of_server:
        rack = np.asarray(history.cluster.rack_of_server)[held["server"]]
        far = _spread(run, rack)
        _, once = np.unique(np.stack([run[far], rack[far]]), axis=1, return_index=True)
        uplinks = history.cluster.num_servers + rack[far][once]
        link = np.concatenate([link, uplinks])
        start = np.concatenate([start, held["start_seconds"][far][once]])
        stop = np.concatenate([stop, held["stop_seconds"][far][once]])
    change = np.repeat([1, -1], len(link))
    links, times = np.tile(link, 2).astype(np.int64), np.concatenate([start, stop])
    order = np.lexsort((times, links))
    links, times, rings = links[order], times[order], np.cumsum(change[order])
    ends = np.append(times[1:], 0.0)
    real = np.flatnonzero((rings > 0) & (ends > times))
    return Rings(links[real], times[real], ends[real], rings[real])
