"""Preemptive schedulers: at every decision point the jobs with the lowest keys hold the GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled.bundles import by_reference
from ringyard.compiled.functions import CompiledFunction, kernel
from ringyard.compiled.reads import fields_read
from ringyard.errors import SchedulerError
from ringyard.information import COLUMNS, check_known
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.draft import Draft
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.life import start, stop
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView, live
from ringyard.state import progress
from ringyard.state.records import JOB_TYPE, PARAMETERS_TYPE, JobStatus
from ringyard_baselines.families.ordered import raise_stalled
from ringyard_baselines.scheduler import Information

__all__ = ["KEY", "PreemptiveScheduler"]

#: (job record, now, parameters) -> float64. As `key`: lower runs first (it may update the record's
#: `forgiven_service`); as `wake`: the time at which the key will have to be looked at again.
KEY = numba.types.float64(JOB_TYPE, numba.types.float64, PARAMETERS_TYPE)

_WAITING = int(JobStatus.WAITING)
_RUNNING = int(JobStatus.RUNNING)
_DONE = int(JobStatus.DONE)


@by_reference(numba.types.FunctionType(KEY), PARAMETERS_TYPE)
@dataclass(frozen=True, eq=False)
class Key:
    """A compiled function of signature `KEY` and its parameters."""

    value: CompiledFunction
    parameters: NDArray[np.float64]


@by_reference(
    numba.types.int32[::1], numba.types.float64[::1], numba.types.int64[::1], numba.types.int64[::1]
)
@dataclass(frozen=True, eq=False)
class Memory:
    """Live jobs in the order of the last decision, which breaks ties.

    Attributes:
        order: [jobs] rows, the first `counts[0]` valid.
        keys: [jobs] key of each position.
        chosen: [jobs] number of the last decision that chose the job.
        counts: (live jobs, rows seen, decisions).
    """

    order: NDArray[np.int32]
    keys: NDArray[np.float64]
    chosen: NDArray[np.int64]
    counts: NDArray[np.int64]


def _empty_memory(num_jobs: int) -> Memory:
    return Memory(
        np.zeros(num_jobs, np.int32), np.zeros(num_jobs), np.zeros(num_jobs, np.int64), np.zeros(3, np.int64)
    )


@kernel
def _refresh(state: Any, b: int, memory: Any, key: Any) -> None:
    """Drop finished jobs, append arrivals, recompute keys, restore the order by a stable sort."""
    now = state.clusters[b].now
    live = 0
    for i in range(memory.counts[0]):
        j = memory.order[i]
        if state.jobs[b, j].status != _DONE:
            memory.order[live] = j
            live += 1
    while memory.counts[1] < state.clusters[b].next_arrival:
        memory.order[live] = memory.counts[1]
        memory.counts[1] += 1
        live += 1
    memory.counts[0] = live
    for i in range(live):
        j = memory.order[i]
        value = key.value(state.jobs[b, j], now, key.parameters)
        k = i
        while k > 0 and memory.keys[k - 1] > value:
            memory.keys[k] = memory.keys[k - 1]
            memory.order[k] = memory.order[k - 1]
            k -= 1
        memory.keys[k] = value
        memory.order[k] = j


@kernel
def choose(state: Any, b: int, memory: Any, key: Any, strict: bool) -> int:
    """Mark the jobs that shall hold GPUs; how many positions of the order were looked at."""
    _refresh(state, b, memory, key)
    memory.counts[2] += 1
    decision = memory.counts[2]
    smallest = state.clusters[b].smallest_demand
    budget = state.clusters[b].num_gpus
    i = 0
    while i < memory.counts[0] and budget >= smallest:
        j = memory.order[i]
        demand = state.jobs[b, j].num_gpus
        if demand <= budget:
            memory.chosen[j] = decision
            budget -= demand
        elif strict:
            break
        i += 1
    return i


@kernel
def next_wake(state: Any, b: int, memory: Any, wake: Any) -> float:
    """Earliest future time at which a live job's key wants to be looked at."""
    now = state.clusters[b].now
    earliest = np.inf
    for i in range(memory.counts[0]):
        time = wake.value(state.jobs[b, memory.order[i]], now, wake.parameters)
        if now < time < earliest:
            earliest = time
    return earliest


@kernel
def _decide(state: Any, b: int, memory: Any, key: Any, strict: bool, rule: Any, rate: Any) -> None:
    """Stop the running jobs that were not chosen, then start the chosen ones in order."""
    looked_at = choose(state, b, memory, key, strict)
    decision = memory.counts[2]
    cluster = state.clusters[b]
    i = 0
    while i < cluster.num_running:
        j = state.running[b, i]
        if memory.chosen[j] != decision:
            stop(state, b, j, rate)
            i = 0
        else:
            i += 1
    out = state.gpu_scratch[b]
    for i in range(looked_at):
        j = memory.order[i]
        if memory.chosen[j] == decision and state.jobs[b, j].status == _WAITING:
            count = rule.place(state, b, j, rule.parameters, out)
            if count > 0:
                start(state, b, j, out, count, rate)


@kernel
def _run_preemptive(
    state: Any, b: int, memory: Any, keys: tuple[Any, Any, bool], strict: bool, rule: Any, rate: Any
) -> bool:
    """Whole simulation; False if it stalls. Keys are (key, wake, whether wake is used)."""
    key, wake, wakes = keys
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        _decide(state, b, memory, key, strict, rule, rate)
        if wakes:
            cluster.wake_seconds = next_wake(state, b, memory, wake)
        if not advance(state, b, rate):
            return False
    return True


class PreemptiveScheduler:
    """Lowest keys first over running and waiting jobs; whoever drops out is stopped.

    A job that does not fit into the GPUs left is skipped (or, if `strict`, ends the walk). A chosen job
    that the placement rule cannot place stays queued and its share of GPUs stays idle.

    Args:
        name: shown in tables.
        key: compiled function of signature `KEY`.
        parameters: [parameters] read by `key` and `wake`.
        placement: where a job goes.
        information: what `key` and `wake` read of a job's record; functions of `ringyard.state.progress`
            count as the column of their name.
        wake: compiled function of signature `KEY`: when a key needs another look; None if only events
            change the order.
        round_seconds: decide every this many seconds as well.
        strict: do not look past the first job that does not fit.

    Raises:
        SchedulerError: `key` or `wake` reads more than `information` names.
    """

    def __init__(
        self,
        name: str,
        key: CompiledFunction,
        parameters: NDArray[np.float64],
        placement: PlacementRule,
        information: Information,
        wake: CompiledFunction | None = None,
        round_seconds: float | None = None,
        strict: bool = False,
    ) -> None:
        self.name = name
        self.placement = placement
        self.information = information
        self.round_seconds = round_seconds
        self.strict = strict
        self._key = Key(key, parameters)
        self._wake = Key(wake or key, parameters)
        self._wakes = wake is not None
        self._check()
        self._memory = Memory(
            np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int64), np.zeros(3, np.int64)
        )

    def _check(self) -> None:
        """Compiled code cannot be refused a field while it runs: look at what its source names, now."""
        for function in (self._key.value, self._wake.value):
            for name in sorted(fields_read(function, progress.__name__) & COLUMNS.keys()):
                try:
                    check_known(name, self.information)
                except SchedulerError as error:
                    raise SchedulerError(f"{self.name}'s {function.python.__name__}: {error}") from None

    def use_parameters(self, parameters: NDArray[np.float64]) -> None:
        """Give `key` and `wake` other parameters, before a simulation begins."""
        self._key = Key(self._key.value, parameters)
        self._wake = Key(self._wake.value, parameters)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the order."""
        self._check()
        self._memory = _empty_memory(len(jobs))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Stop and start so that the chosen jobs hold the GPUs."""
        memory = self._memory
        state, b, _, _ = live(view)
        choose(state, b, memory, self._key, self.strict)
        chosen = memory.chosen == memory.counts[2]
        status = view.column("status")
        draft = Draft(view)
        allocations = []
        for job in view.running.tolist():
            if not chosen[job]:
                draft.release(job)
                allocations.append(Allocation(job, ()))
        for job in memory.order[: memory.counts[0]].tolist():
            if chosen[job] and status[job] == _WAITING:
                allocation = draft.place(self.placement, job)
                if allocation is not None:
                    allocations.append(allocation)
        if self._wakes:
            self._ask_to_wake(view, allocations)
        return allocations

    def _ask_to_wake(self, view: SchedulingView, allocations: list[Allocation]) -> None:
        """As the compiled loop does after its starts: keys of started jobs change while they run."""
        decided = {allocation.job: not allocation.stops for allocation in allocations}
        state, b, _, _ = live(view)
        times = []
        for job in self._memory.order[: self._memory.counts[0]].tolist():
            record = state.jobs[b, job : job + 1].copy()
            if decided.get(job):
                record["status"] = _RUNNING
                record["synced_seconds"] = view.now
            elif job in decided:
                record["attained_service"] += record["num_gpus"] * (view.now - record["synced_seconds"])
                record["status"] = _WAITING
                record["last_stop_seconds"] = view.now
            times.append(_evaluate(self._wake, record, view.now))
        future = [time for time in times if time > view.now and np.isfinite(time)]
        if future:
            view.wake_at(min(future))

    def drive(self, sim: Simulator) -> None:
        """The same decisions in one compiled loop."""
        keys = (self._key, self._wake, self._wakes)
        if not _run_preemptive(sim.state, 0, self._memory, keys, self.strict, self.placement, sim.rate):
            raise_stalled(sim)


@kernel
def _evaluate(key: Any, records: Any, now: float) -> float:
    return key.value(records[0], now, key.parameters)
