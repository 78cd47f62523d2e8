"""`ScheduleHistory`: the allocations of a simulation until a time, as bars on GPUs and rings on links."""

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
    """A schedule until time `now`."""

    cluster: Cluster  #: servers and GPUs
    now: float  #: simulated time, seconds
    #: [rows] `Segment`. `stop_seconds` is inf for present allocations. `job` is -1 while a server is
    #: down.
    segments: NDArray[np.void]
    submit_seconds: NDArray[np.float64]  #: [jobs] arrival times, ascending
    end_seconds: NDArray[np.float64]  #: [jobs] end times, inf for jobs that have not ended
    num_gpus: NDArray[np.int64]  #: [jobs] GPUs asked for
    blocked: NDArray[np.bool_]  #: [jobs] whether the job was rejected. Means leave it out.
    is_complete: bool  #: whether all segments since the first arrival are recorded

    def until(self, seconds: float) -> Self:
        """Return the schedule at an earlier time `seconds`."""
        held = self.segments[self.segments["start_seconds"] <= seconds].copy()
        held["stop_seconds"][held["stop_seconds"] > seconds] = np.inf
        end = np.where(self.end_seconds > seconds, np.inf, self.end_seconds)
        return replace(self, now=seconds, segments=held, end_seconds=end)

    @cached_property
    def begins(self) -> float:
        """Time of the first arrival, or of the oldest recorded start if not all segments are recorded."""
        here = self.submit_seconds[self.submit_seconds <= self.now]
        known = np.concatenate([self.segments["start_seconds"], [self.now]])
        return float(min(known.min(), here[0]) if self.is_complete and len(here) else known.min())

    @cached_property
    def running(self) -> NDArray[np.int64]:
        """[running jobs] rows of jobs with resources now."""
        live = self.segments["job"][np.isinf(self.segments["stop_seconds"])]
        return np.unique(live[live >= 0]).astype(np.int64)

    @cached_property
    def waiting(self) -> NDArray[np.int64]:
        """[waiting jobs] rows of jobs that have arrived and hold no resources, in the order of arrival."""
        here = (self.submit_seconds <= self.now) & np.isinf(self.end_seconds)
        here[self.running] = False
        return np.flatnonzero(here)

    @cached_property
    def finished(self) -> NDArray[np.int64]:
        """[finished jobs] rows of jobs that have ended and were not rejected."""
        return np.flatnonzero(np.isfinite(self.end_seconds) & ~self.blocked)

    @cached_property
    def mean_jct(self) -> float:
        """Mean JCT of the finished jobs, seconds, NaN without any."""
        jct = (self.end_seconds - self.submit_seconds)[self.finished]
        return float(jct.mean()) if len(jct) else float("nan")


def history_of(state: State, b: int, cluster: Cluster) -> ScheduleHistory:
    """Return the schedule of a cluster: the latest rows of `State.segments` and present allocations.

    Args:
        state: simulation arrays, which record segments.
        b: index of the cluster.
        cluster: its servers and GPUs.
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
        segments=np.concatenate([kept, _running_segments(state, b)]),
        submit_seconds=jobs["submit_seconds"].copy(),
        end_seconds=np.where(done, jobs["end_seconds"], np.inf),
        num_gpus=jobs["asked_gpus"].astype(np.int64),
        blocked=done & (jobs["outcome"] == JobOutcome.BLOCKED),
        is_complete=written <= rows,
    )


def _running_segments(state: State, b: int) -> NDArray[np.void]:
    """Return the segments of present allocations, as `sim.engine.lifecycle` writes them at a stop."""
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
    """Columns [bars]: a job on a GPU while the jobs on the GPU do not change."""

    job: NDArray[np.int64]  #: row of the job
    gpu: NDArray[np.int64]  #: id of the GPU
    start: NDArray[np.float64]  #: seconds
    stop: NDArray[np.float64]  #: seconds, not after `now`
    lane: NDArray[np.int64]  #: position among the jobs on the GPU, from 0
    lanes: NDArray[np.int64]  #: number of jobs on the GPU
    spans: NDArray[np.bool_]  #: whether the job also has GPUs of another server


@dataclass(frozen=True)
class Rings:
    """Columns [intervals]: number of rings on a link, each of a job that spans servers (or racks)."""

    link: NDArray[np.int64]  #: server of the link, or `num_servers` + rack of an uplink
    start: NDArray[np.float64]  #: seconds
    stop: NDArray[np.float64]  #: seconds, not after `now`
    rings: NDArray[np.int64]  #: number of rings, 1 or more


def _allocations_until_now(history: ScheduleHistory) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return (segments of jobs on GPUs until now, number of the run that each is part of [rows])."""
    held = history.segments[(history.segments["job"] >= 0) & (history.segments["gpu_bits"] > 0)].copy()
    held["stop_seconds"] = np.minimum(held["stop_seconds"], history.now)
    held = held[held["stop_seconds"] > held["start_seconds"]]
    _, run = np.unique(held[["job", "start_seconds"]], return_inverse=True)
    return held, run.ravel()


def _spans_several(group: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return [rows] booleans, True where the group of a row has more than one place."""
    if not len(group):
        return np.zeros(0, bool)
    pairs = np.unique(np.stack([group, place]), axis=1)
    return np.bincount(pairs[0])[group] > 1


def bars_of(history: ScheduleHistory) -> Bars:
    """Return the bars of all jobs on all GPUs in a schedule."""
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
    """Return (bar, start, stop, lane, lanes) of bars, split where jobs on their GPU change."""
    bar = np.concatenate([np.arange(len(gpu))] * 2)
    comes = np.repeat([1, 0], len(gpu))
    time = np.concatenate([start, stop])
    order = np.lexsort((bar, comes, time, gpu[bar]))  # at equal times jobs leave before others come
    parts: list[tuple[int, float, float, int, int]] = []
    here: dict[int, tuple[float, int, int]] = {}  # bar: (start, lane, lanes) of its present part
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
    """Return the rings on each link: of jobs that span servers, and on uplinks of jobs that span racks."""
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
