"""A schedule until some moment: which jobs held what, as bars on GPUs and rings on links."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.state.arrays import State
from ringyard.state.records import JobOutcome, JobStatus, Segment


@dataclass(frozen=True)
class ScheduleHistory:
    """A schedule until `now`.

    Attributes:
        cluster: the servers.
        now: seconds since the start.
        held: [rows] `Segment`; `stop_seconds` is inf for what is still held, and `job` -1 where a server
            is down.
        submit_seconds: [jobs] arrival, in order.
        end_seconds: [jobs] inf for those that have not ended.
        num_gpus: [jobs] asked for.
        blocked: [jobs] whether it was turned away; its time counts in no mean.
        is_whole: whether no row of it is forgotten.
    """

    cluster: Cluster
    now: float
    held: NDArray[np.void]
    submit_seconds: NDArray[np.float64]
    end_seconds: NDArray[np.float64]
    num_gpus: NDArray[np.int64]
    blocked: NDArray[np.bool_]
    is_whole: bool

    def until(self, seconds: float) -> Self:
        """The schedule as it was at an earlier moment."""
        held = self.held[self.held["start_seconds"] <= seconds].copy()
        held["stop_seconds"][held["stop_seconds"] > seconds] = np.inf
        end = np.where(self.end_seconds > seconds, np.inf, self.end_seconds)
        return replace(self, now=seconds, held=held, end_seconds=end)

    @cached_property
    def begins(self) -> float:
        """Seconds of the first arrival, or of the oldest start known if earlier rows are forgotten."""
        here = self.submit_seconds[self.submit_seconds <= self.now]
        known = np.concatenate([self.held["start_seconds"], [self.now]])
        return float(min(known.min(), here[0]) if self.is_whole and len(here) else known.min())

    @cached_property
    def running(self) -> NDArray[np.int64]:
        """[running jobs] rows that hold something now."""
        live = self.held["job"][np.isinf(self.held["stop_seconds"])]
        return np.unique(live[live >= 0]).astype(np.int64)

    @cached_property
    def waiting(self) -> NDArray[np.int64]:
        """[waiting jobs] rows that are in the system and hold nothing, longest there first."""
        here = (self.submit_seconds <= self.now) & np.isinf(self.end_seconds)
        here[self.running] = False
        return np.flatnonzero(here)

    @cached_property
    def finished(self) -> NDArray[np.int64]:
        """[finished jobs] rows that have ended and were not turned away."""
        return np.flatnonzero(np.isfinite(self.end_seconds) & ~self.blocked)

    @cached_property
    def mean_jct(self) -> float:
        """Of the finished jobs, seconds; NaN before there are any."""
        jct = (self.end_seconds - self.submit_seconds)[self.finished]
        return float(jct.mean()) if len(jct) else float("nan")


def history_of(state: State, b: int, cluster: Cluster) -> ScheduleHistory:
    """History of cluster b: the latest rows of `State.segments`, and what is still held.

    Args:
        state: of the simulations; it has to keep segments.
        b: which of them.
        cluster: its servers.
    """
    record = state.clusters[b]
    now, count = float(record["now"]), int(record["num_jobs"])
    jobs = state.jobs[b, :count]
    written, rows = int(record["num_segments"]), state.segments.shape[1]
    kept = state.segments[b, : min(written, rows)].copy()
    kept["stop_seconds"][kept["stop_seconds"] > now] = np.inf  # a server that is down
    done = jobs["status"] == JobStatus.DONE
    return ScheduleHistory(
        cluster=cluster,
        now=now,
        held=np.concatenate([kept, _running_segments(state, b)]),
        submit_seconds=jobs["submit_seconds"].copy(),
        end_seconds=np.where(done, jobs["end_seconds"], np.inf),
        num_gpus=jobs["asked_gpus"].astype(np.int64),
        blocked=done & (jobs["outcome"] == JobOutcome.BLOCKED),
        is_whole=written <= rows,
    )


def _running_segments(state: State, b: int) -> NDArray[np.void]:
    """What running jobs hold now, as `ringyard.sim.engine.lifecycle` will write it when they stop."""
    jobs, slots = state.jobs[b], state.slots[b]
    rows = []
    for j in state.running[b, : state.clusters[b]["num_running"]].tolist():
        started = float(jobs["last_start_seconds"][j])
        if jobs["server"][j] >= 0:
            rows.append((j, int(jobs["server"][j]), 0, started, np.inf))
        bits: dict[int, int] = {}
        i = int(jobs["first_slot"][j])
        while i >= 0:
            server = int(slots["server"][i])
            here = int(slots["gpu"][i]) - int(state.servers["first_gpu"][b, server])
            bits[server] = bits.get(server, 0) | 1 << here if here < 64 else bits.get(server, 0)
            i = int(slots["next_slot"][i])
        rows += [(j, server, held, started, np.inf) for server, held in bits.items()]
    return np.array(rows, Segment.dtype)


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


def _allocations_until_now(history: ScheduleHistory) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """(rows of jobs on GPUs, none beyond now; [rows] number of the run that a row is part of)."""
    held = history.held[(history.held["job"] >= 0) & (history.held["gpu_bits"] > 0)].copy()
    held["stop_seconds"] = np.minimum(held["stop_seconds"], history.now)
    held = held[held["stop_seconds"] > held["start_seconds"]]
    _, run = np.unique(held[["job", "start_seconds"]], return_inverse=True)
    return held, run.ravel()


def _spans_several(group: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[rows] whether the row's group has more than one place."""
    if not len(group):
        return np.zeros(0, bool)
    pairs = np.unique(np.stack([group, place]), axis=1)
    return np.bincount(pairs[0])[group] > 1


def bars_of(history: ScheduleHistory) -> Bars:
    """Bars of every job on every GPU, as far back as the history goes."""
    held, run = _allocations_until_now(history)
    octets = np.ascontiguousarray(held["gpu_bits"]).astype("<u8").view(np.uint8).reshape(-1, 8)
    row, local = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little"))
    first = np.asarray(history.cluster.first_gpu_of_server)
    gpu = first[held["server"][row]] + local
    start, stop = held["start_seconds"][row], held["stop_seconds"][row]
    spans = _spans_several(run, held["server"])[row]
    if history.cluster.jobs_per_gpu == 1:
        lane, lanes, part = np.zeros(len(row), np.int64), np.ones(len(row), np.int64), np.arange(len(row))
    else:
        part, start, stop, lane, lanes = _split_at_changes(gpu, start, stop)
    return Bars(held["job"][row][part].astype(np.int64), gpu[part], start, stop, lane, lanes, spans[part])


def _split_at_changes(
    gpu: NDArray[np.int64], start: NDArray[np.float64], stop: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """(bar, start, stop, lane, lanes) of bars cut where neighbours on their GPU come and go."""
    bar = np.concatenate([np.arange(len(gpu))] * 2)
    comes = np.repeat([1, 0], len(gpu))
    time = np.concatenate([start, stop])
    order = np.lexsort((bar, comes, time, gpu[bar]))  # jobs leave before others come
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


def rings_of(history: ScheduleHistory) -> Rings:
    """Rings on each link: jobs that span servers on servers' links, jobs that span racks on uplinks."""
    held, run = _allocations_until_now(history)
    spans = _spans_several(run, held["server"])
    link, start, stop = (held[name][spans] for name in ("server", "start_seconds", "stop_seconds"))
    if history.cluster.rack_of_server:
        rack = np.asarray(history.cluster.rack_of_server)[held["server"]]
        far = _spans_several(run, rack)
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
