"""Decisions of a preemptive scheduler as they are defined: all keys are read, all jobs are walked past."""

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, IntVector, bundle, kernel
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, place
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.lifecycle import preempt, start
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus
from ringyard_baselines.policies.ordered import raise_stalled
from ringyard_baselines.policies.priority_rule import PriorityRule, gpu_budget, report_invalid_key, wake_time

__all__ = ["run_plainly"]

_WAITING = int(JobStatus.WAITING)
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
def _refresh(state: State, b: int, memory: Memory, priority: PriorityRule) -> None:
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
        value = priority.key(state.jobs[b, j], now, priority.parameters)
        unordered |= np.isnan(value)
        k = i
        while k > 0 and memory.keys[k - 1] > value:
            memory.keys[k] = memory.keys[k - 1]
            memory.order[k] = memory.order[k - 1]
            k -= 1
        memory.keys[k] = value
        memory.order[k] = j
    if unordered:
        _complain_of_keys(memory, priority, now)


@kernel
def _complain_of_keys(memory: Memory, priority: PriorityRule, now: float) -> None:
    """Blame the key for the first job of which it is no number."""
    for i in range(memory.counts[0]):
        if np.isnan(memory.keys[i]):
            report_invalid_key(priority, memory.order[i], memory.keys[i], now)


@kernel
def _choose(state: State, b: int, memory: Memory, priority: PriorityRule, rule: PlacementRule) -> int:
    """Mark the jobs that shall hold GPUs; how many positions of the order were looked at."""
    _refresh(state, b, memory, priority)
    memory.counts[2] += 1
    decision = memory.counts[2]
    smallest = state.clusters[b].min_demand_gpus
    budget = gpu_budget(state, b, rule)
    i = 0
    while i < memory.counts[0] and budget >= smallest:
        j = memory.order[i]
        demand = state.jobs[b, j].num_gpus
        if demand <= budget:
            memory.chosen[j] = decision
            budget -= demand
        i += 1
    return i


@kernel
def _next_wake(state: State, b: int, memory: Memory, priority: PriorityRule) -> float:
    """Earliest future time at which a live job's key wants to be looked at."""
    now = state.clusters[b].now
    earliest = np.inf
    for i in range(memory.counts[0]):
        j = memory.order[i]
        time = wake_time(priority, state.jobs[b, j], j, now)
        if now < time < earliest:
            earliest = time
    return earliest


@kernel
def _rearrange(
    state: State, b: int, memory: Memory, priority: PriorityRule, rule: PlacementRule, physics: Physics
) -> None:
    """Stop the running jobs that were not chosen, then start the chosen ones in order."""
    looked_at = _choose(state, b, memory, priority, rule)
    decision = memory.counts[2]
    cluster = state.clusters[b]
    i = 0
    while i < cluster.num_running:
        j = state.running[b, i]
        if memory.chosen[j] != decision:
            preempt(state, b, j, physics)
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
    state: State, b: int, memory: Memory, priority: PriorityRule, rule: PlacementRule, physics: Physics
) -> bool:
    """Whole simulation; False if it stalls."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        _rearrange(state, b, memory, priority, rule, physics)
        if priority.wakes:
            cluster.wake_seconds = _next_wake(state, b, memory, priority)
        if not advance(state, b, physics):
            return False
    return True


def run_plainly(sim, scheduler):
    """Play a simulation to its end with a `PreemptiveScheduler`'s key, rule and nothing else of it."""
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    memory = _empty_memory(len(sim.jobs))
    if not _run_preemptive(sim.state, 0, memory, scheduler._priority, scheduler.placement, sim.physics):
        raise_stalled(sim)
