"""A reusable copy of a simulation's state, on which placement plans try allocations."""

from typing import Any
from weakref import ref

import numpy as np

from ringyard.compiled import Int32Vector, kernel
from ringyard.state.arrays import State, close_holes, copy_state
from ringyard.state.records import JobStatus


@kernel
def _copy_rows(source: Any, target: Any) -> None:
    """Copy `source`, one cluster's row of a state array, to `target`."""
    for i in range(len(source)):
        target[i] = source[i]


@kernel
def _copy_jobs(state: State, b: int, copy: State, rows: Int32Vector) -> None:
    """Copy the job records `rows` of cluster `b` from `state` to `copy`."""
    for j in rows:
        copy.jobs[b, j] = state.jobs[b, j]


@kernel
def _copy_waiting(state: State, b: int, copy: State, rows: Int32Vector) -> None:
    """Copy those of job records `rows` that may differ: a record does not change while its job waits."""
    for j in rows:
        job, other = state.jobs[b, j], copy.jobs[b, j]
        stops = job.num_preemptions + job.num_failures
        if other.status != JobStatus.WAITING or other.num_preemptions + other.num_failures != stops:
            copy.jobs[b, j] = job


@kernel
def _refresh(state: State, b: int, copy: State, changed: Int32Vector) -> bool:
    """Bring `copy`, made earlier, up to date by `changed` jobs; return False if it is of another run.

    The time grows with jobs that run or have ended since. Time integrals are not copied.
    """
    cluster, other = state.clusters[b], copy.clusters[b]
    seen = other.num_done
    if cluster.num_jobs != other.num_jobs or cluster.seed != other.seed or cluster.num_done < seen:
        return False
    if cluster.next_arrival < other.next_arrival or cluster.now < other.now:
        return False
    if seen > 0:
        last = state.ended[b, seen - 1]
        before = copy.ended[b, seen - 1]
        if last != before or state.jobs[b, last].end_seconds != copy.jobs[b, last].end_seconds:
            return False
    for i in range(seen, cluster.num_done):
        copy.ended[b, i] = state.ended[b, i]
    _copy_jobs(state, b, copy, state.ended[b, seen : cluster.num_done])
    close_holes(state, b)
    first = cluster.first_waiting
    _copy_jobs(state, b, copy, changed)
    _copy_waiting(state, b, copy, state.waiting[b, first : first + cluster.num_waiting])
    _copy_jobs(state, b, copy, state.running[b, : cluster.num_running])
    copy.clusters[b] = cluster
    for i in range(state.slot_sharing.shape[1]):
        _copy_rows(state.slot_sharing[b, i], copy.slot_sharing[b, i])
    _copy_rows(state.gpus[b], copy.gpus[b])
    _copy_rows(state.slots[b], copy.slots[b])
    _copy_rows(state.servers[b], copy.servers[b])
    _copy_rows(state.links[b], copy.links[b])
    _copy_rows(state.waiting[b, first : first + cluster.num_waiting], copy.waiting[b, first:])
    _copy_rows(state.running[b, : cluster.num_running], copy.running[b])
    _copy_rows(state.class_waiting[b], copy.class_waiting[b])
    _copy_rows(state.class_marks[b], copy.class_marks[b])
    _copy_rows(state.free_bits[b], copy.free_bits[b])
    _copy_rows(state.num_with_free[b], copy.num_with_free[b])
    return True


class ScratchState:
    """One copy of a simulation's state, lent to one placement plan at a time.

    Refreshing it takes a fraction of the time of a new copy. Forks, pickles and deep copies of a simulation
    start without one.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._changed: set[int] = set()
        self._user: ref[object] | None = None

    def lend(self, live: State, b: int, plan: object, changed: set[int]) -> State:
        """Return a copy of the present that `plan` may change: the scratch, or a new one if it is lent."""
        if self._user is not None and self._user() is not None:
            return copy_state(live)
        rows = np.fromiter(self._changed, np.int32, len(self._changed))
        if self._state is None or not _refresh(live, b, self._state, rows):
            self._state = copy_state(live)
        self._user, self._changed = ref(plan), changed
        return self._state

    def __reduce__(self) -> tuple[Any, ...]:
        return ScratchState, ()
