"""Preemptive schedulers: at every decision point the jobs with the lowest keys hold the GPUs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import FloatVector, Int32Vector, IntVector, Records1, bundle, kernel
from ringyard.information import check_reads
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule, place
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.life import start, stop
from ringyard.sim.engine.physics import Physics
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.families.ordered import raise_stalled
from ringyard_baselines.families.ranking import (
    QUEUE_SPAN,
    JobKey,
    Motion,
    Ranking,
    budget_of,
    complain_of_key,
    never,
    place_in_queue,
    wake_of,
)
from ringyard_baselines.families.standing import empty_books, play
from ringyard_baselines.scheduler import Information, Powers, Scheduler

__all__ = [
    "QUEUE_SPAN",
    "JobKey",
    "Memory",
    "Motion",
    "PreemptiveScheduler",
    "Ranking",
    "never",
    "place_in_queue",
    "rearrange",
]

_WAITING = int(JobStatus.WAITING)
_RUNNING = int(JobStatus.RUNNING)
_DONE = int(JobStatus.DONE)


@bundle
class Memory:
    """Live jobs in the order of the last decision, which breaks ties.

    Attributes:
        order: [jobs] rows, the first `counts[0]` valid.
        keys: [jobs] key of each position.
        chosen: [jobs] number of the last decision that chose the job.
        counts: (live jobs, rows seen, decisions).
    """

    order: Int32Vector
    keys: FloatVector
    chosen: IntVector
    counts: IntVector


def _empty_memory(num_jobs: int) -> Memory:
    return Memory(
        np.zeros(num_jobs, np.int32), np.zeros(num_jobs), np.zeros(num_jobs, np.int64), np.zeros(3, np.int64)
    )


@kernel
def _refresh(state: State, b: int, memory: Memory, ranking: Ranking) -> None:
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
    unordered = False
    for i in range(live):
        j = memory.order[i]
        value = ranking.key(state.jobs[b, j], now, ranking.parameters)
        unordered |= np.isnan(value)
        k = i
        while k > 0 and memory.keys[k - 1] > value:
            memory.keys[k] = memory.keys[k - 1]
            memory.order[k] = memory.order[k - 1]
            k -= 1
        memory.keys[k] = value
        memory.order[k] = j
    if unordered:
        _complain_of_keys(memory, ranking, now)


@kernel
def _complain_of_keys(memory: Memory, ranking: Ranking, now: float) -> None:
    """Blame the key for the first job of which it is no number."""
    for i in range(memory.counts[0]):
        if np.isnan(memory.keys[i]):
            complain_of_key(ranking, memory.order[i], memory.keys[i], now)


@kernel
def choose(state: State, b: int, memory: Memory, ranking: Ranking, rule: PlacementRule) -> int:
    """Mark the jobs that shall hold GPUs; how many positions of the order were looked at."""
    _refresh(state, b, memory, ranking)
    memory.counts[2] += 1
    decision = memory.counts[2]
    smallest = state.clusters[b].smallest_demand
    budget = budget_of(state, b, rule)
    i = 0
    while i < memory.counts[0] and budget >= smallest:
        j = memory.order[i]
        demand = state.jobs[b, j].num_gpus
        if demand <= budget:
            memory.chosen[j] = decision
            budget -= demand
        elif ranking.strict:
            break
        i += 1
    return i


@kernel
def next_wake(state: State, b: int, memory: Memory, ranking: Ranking) -> float:
    """Earliest future time at which a live job's key wants to be looked at."""
    now = state.clusters[b].now
    earliest = np.inf
    for i in range(memory.counts[0]):
        j = memory.order[i]
        time = wake_of(ranking, state.jobs[b, j], j, now)
        if now < time < earliest:
            earliest = time
    return earliest


@kernel
def rearrange(
    state: State, b: int, memory: Memory, ranking: Ranking, rule: PlacementRule, physics: Physics
) -> None:
    """Stop the running jobs that were not chosen, then start the chosen ones in order."""
    looked_at = choose(state, b, memory, ranking, rule)
    decision = memory.counts[2]
    cluster = state.clusters[b]
    i = 0
    while i < cluster.num_running:
        j = state.running[b, i]
        if memory.chosen[j] != decision:
            stop(state, b, j, physics)
            i = 0
        else:
            i += 1
    out = state.gpu_scratch[b]
    for i in range(looked_at):
        j = memory.order[i]
        if memory.chosen[j] == decision and state.jobs[b, j].status == _WAITING:
            if place(state, b, j, rule, out) > 0:
                start(state, b, j, out, physics)


@kernel
def _run_preemptive(
    state: State, b: int, memory: Memory, ranking: Ranking, rule: PlacementRule, physics: Physics
) -> bool:
    """Whole simulation; False if it stalls."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        rearrange(state, b, memory, ranking, rule, physics)
        if ranking.wakes:
            cluster.wake_seconds = next_wake(state, b, memory, ranking)
        if not advance(state, b, physics):
            return False
    return True


class PreemptiveScheduler(Scheduler):
    """Lowest keys first over running and waiting jobs; whoever drops out is stopped.

    A job that does not fit into the GPUs left is skipped (or, if `strict`, ends the walk). A chosen job
    that the placement rule cannot place stays queued and its share of GPUs stays idle.

    Args:
        name: shown in tables.
        key: fills `JobKey`.
        parameters: [parameters] read by `key` and `wake`.
        placement: where a job goes.
        information: what `key` and `wake` read of a job's record; functions of `ringyard.state.progress`
            count as the column of their name.
        wake: fills `JobKey`: when a key needs another look; `never` if only events change the order.
        round_seconds: decide every this many seconds as well.
        strict: do not look past the first job that does not fit.
        motion: what `key` promises; a compiled loop then looks at few jobs in each decision.

    Raises:
        InformationError: `key` or `wake` reads more than `information` names.
    """

    may = Powers.STOPS

    def __init__(
        self,
        name: str,
        key: JobKey,
        parameters: NDArray[np.float64],
        placement: PlacementRule,
        information: Information,
        wake: JobKey = never,
        round_seconds: float | None = None,
        strict: bool = False,
        motion: Motion = Motion.FREE,
    ) -> None:
        self.name = name
        self.placement = placement
        self.information = information
        self.round_seconds = round_seconds
        self._ranking = Ranking(key, wake, parameters, strict, wake is not never, int(motion))
        self._check()
        self._memory = _empty_memory(0)

    def _check(self) -> None:
        check_reads(self._ranking.key, self.information, f"{self.name}'s key")
        check_reads(self._ranking.wake, self.information, f"{self.name}'s wake")

    def use_parameters(self, parameters: NDArray[np.float64]) -> None:
        """Give `key` and `wake` other parameters, before a simulation begins."""
        self._ranking = replace(self._ranking, parameters=parameters)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the order."""
        self._check()
        self._memory = _empty_memory(len(jobs))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Stop and start so that the chosen jobs hold the GPUs."""
        memory = self._memory
        state, b, _, _ = live(view)
        choose(state, b, memory, self._ranking, self.placement)
        chosen = memory.chosen == memory.counts[2]
        status = view.column("status")
        draft = PlacementPlan(view)
        allocations = []
        for job in view.running.tolist():
            if not chosen[job]:
                allocations.append(draft.evict(job))
        for job in memory.order[: memory.counts[0]].tolist():
            if chosen[job] and status[job] == _WAITING:
                allocation = draft.place(self.placement, job)
                if allocation is not None:
                    allocations.append(allocation)
        if self._ranking.wakes:
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
                held = view.now - record["synced_seconds"]
                record["attained_service"] += record["num_gpus"] * held
                record["run_seconds"] += held
                record["status"] = _WAITING
                record["last_stop_seconds"] = view.now
            times.append(_first_wake(self._ranking, record, job, view.now))
        future = [time for time in times if time > view.now]
        # in place of what was asked for before: a look too many is one that the compiled loop does not take
        state.clusters["wake_seconds"][b] = min(future, default=np.inf)

    def drive(self, sim: Simulator) -> None:
        """The same decisions in one compiled loop."""
        own = (self._ranking, self.placement, sim.physics)
        motion = self._ranking.motion
        servers_fail = np.isfinite(sim.state.clusters["mean_up_seconds"][0])  # and work is lost: keys jump
        if motion == Motion.FREE or (servers_fail and motion != Motion.STEPS):
            went_on = _run_preemptive(sim.state, 0, self._memory, *own)
        else:
            went_on = play(sim.state, 0, empty_books(sim.state.jobs["num_gpus"][0, :-1]), *own)
        if not went_on:
            raise_stalled(sim)


@kernel
def _first_wake(ranking: Ranking, records: Records1[Job], j: int, now: float) -> float:
    return wake_of(ranking, records[0], j, now)
