"""`History`: who held what until some moment, and when jobs came and went."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.state.arrays import State
from ringyard.state.records import JobOutcome, JobStatus, Segment

__all__ = ["History", "history_of"]


@dataclass(frozen=True)
class History:
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
        is_whole: whether nothing of it is forgotten.
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
        """What was to be seen at an earlier moment."""
        held = self.held[self.held["start_seconds"] <= seconds].copy()
        held["stop_seconds"][held["stop_seconds"] > seconds] = np.inf
        end = np.where(self.end_seconds > seconds, np.inf, self.end_seconds)
        return replace(self, now=seconds, held=held, end_seconds=end)

    @cached_property
    def begins(self) -> float:
        """The first arrival; if something is forgotten, the oldest start that is not."""
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


def history_of(state: State, b: int, cluster: Cluster) -> History:
    """What cluster b remembers: the latest rows of `State.segments`, and what is still held.

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
    return History(
        cluster=cluster,
        now=now,
        held=np.concatenate([kept, _live(state, b)]),
        submit_seconds=jobs["submit_seconds"].copy(),
        end_seconds=np.where(done, jobs["end_seconds"], np.inf),
        num_gpus=jobs["asked_gpus"].astype(np.int64),
        blocked=done & (jobs["outcome"] == JobOutcome.BLOCKED),
        is_whole=written <= rows,
    )


def _live(state: State, b: int) -> NDArray[np.void]:
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
