"""`ScheduleHistory`: the allocations of a simulation until a time, as bars on GPUs and rings on links."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

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
    def _runs(self) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
        """(segments of jobs, by job and start, whether each is the first of a run of its job) [rows]."""
        rows = self.segments[np.lexsort((self.segments["start_seconds"], self.segments["job"]))]
        rows = rows[np.searchsorted(rows["job"], 0) :]
        jobs, starts = np.diff(rows["job"], prepend=-1), np.diff(rows["start_seconds"], prepend=-1.0)
        return rows, (jobs != 0) | (starts != 0)

    @cached_property
    def held(self) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """(segments of jobs on GPUs until now, by job and start, number of the run of each) [rows]."""
        rows, first = self._runs
        stop = np.minimum(rows["stop_seconds"], self.now)
        kept = (rows["gpu_bits"] > 0) & (stop > rows["start_seconds"])
        held = rows[kept]
        held["stop_seconds"] = stop[kept]
        return held, (np.cumsum(first) - 1)[kept]

    @cached_property
    def spans(self) -> NDArray[np.bool_]:
        """[rows of `held`] whether the run of a row is on several servers."""
        held, run = self.held
        return _spans_several(run, held["server"])

    @cached_property
    def mean_jct(self) -> float:
        """Mean JCT of the finished jobs, seconds, NaN without any."""
        jct = (self.end_seconds - self.submit_seconds)[self.finished]
        return float(jct.mean()) if len(jct) else float("nan")

    def waiting_at(self, seconds: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """Return the number of waiting jobs at each of some times, none after `now`. `seconds`: [times]."""
        rows, first = self._runs
        runs = rows[first]
        more = self.submit_seconds, runs["stop_seconds"]
        fewer = self.end_seconds, runs["start_seconds"]

        def count(columns: tuple[NDArray[np.float64], ...], times: Any) -> Any:
            return sum(np.searchsorted(np.sort(column), times, side="right") for column in columns)

        waiting: NDArray[np.int64] = count(more, seconds) - count(fewer, seconds)
        if self.is_complete:
            return waiting
        counted = int(count(more, self.now) - count(fewer, self.now))
        return waiting + len(self.waiting) - counted  # counted back from the jobs that wait now


def history_of(state: State, b: int, cluster: Cluster) -> ScheduleHistory:
    """Return the schedule of a cluster: the latest rows of `State.segments` and present allocations."""
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


def _spans_several(group: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return [rows] booleans, True where the group of a row has more than one place. Groups are sorted."""
    differs = (np.diff(group, prepend=-1) == 0) & (np.diff(place, prepend=-1) != 0)
    return np.bincount(group, differs)[group] > 0


def gpus_of(history: ScheduleHistory) -> Bars:
    """Return the bars of all jobs on all GPUs by start, each whole: all have lane 0 of 1."""
    held, _ = history.held
    order = np.argsort(held["start_seconds"], kind="stable")
    held, spans = held[order], history.spans[order]
    octets = np.ascontiguousarray(held["gpu_bits"]).astype("<u8").view(np.uint8)
    row, local = np.divmod(np.flatnonzero(np.unpackbits(octets, bitorder="little").view(np.bool_)), 64)
    gpu = np.asarray(history.cluster.first_gpu_of_server)[held["server"][row]] + local
    start, stop = held["start_seconds"][row], held["stop_seconds"][row]
    lane, lanes = np.zeros(len(row), np.int64), np.ones(len(row), np.int64)
    return Bars(held["job"][row].astype(np.int64), gpu, start, stop, lane, lanes, spans[row])


def bars_of(history: ScheduleHistory) -> Bars:
    """Return the bars of a schedule, cut where the jobs on their GPU change."""
    bars = gpus_of(history)
    if history.cluster.jobs_per_gpu == 1:
        return bars
    part, start, stop, lane, lanes = _split_at_changes(bars.gpu, bars.start, bars.stop)
    return Bars(bars.job[part], bars.gpu[part], start, stop, lane, lanes, bars.spans[part])


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
    held, run = history.held
    link, start, stop = (held[name][history.spans] for name in ("server", "start_seconds", "stop_seconds"))
    if history.cluster.rack_of_server:
        rack = np.asarray(history.cluster.rack_of_server)[held["server"]]
        far = _spans_several(run, rack)
        _, once = np.unique(run[far] * history.cluster.num_racks + rack[far], return_index=True)
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
