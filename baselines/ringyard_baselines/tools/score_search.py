"""Scores of jobs, tried out on copies of a cluster before an allocator goes by them."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from ringyard.checks import Count, checked
from ringyard.compiled import FloatMatrix, FloatVector, IntVector, UIntVector, bundle, kernel, linked_kernel
from ringyard.sim.allocator import Allocator, Plan, Rules, allocate, empty_plan, with_rates_of
from ringyard.sim.allocator.plan import num_live
from ringyard.sim.engine.physics import Physics
from ringyard.state.arrays import State
from ringyard.state.random_numbers import next_uniform
from ringyard.state.records import JobStatus
from ringyard_baselines.tools.imagined import believe, imagine, play_on, room_to_imagine

__all__ = ["Foresight", "Search", "foresight_of", "improve"]

_WAITING, _RUNNING = int(JobStatus.WAITING), int(JobStatus.RUNNING)


@checked("scheduler")
@dataclass(frozen=True)
class Search:
    """How many other scores are tried at a decision, and which are kept; all are assumptions.

    Attributes:
        candidates: scores of single jobs tried at a decision; 0: none.
        margin: share of the jobs' summed completion times that the first score to be kept has to save.
        spread: standard deviation of what is added to a score.
        every: search at every n-th decision point only.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    candidates: Annotated[int, "[0, 100000]"]
    margin: Annotated[float, "[0, 1)"]
    spread: Annotated[float, "(0, 1]"]  # agents' scores are between -1 and 1
    every: Count


@bundle
class Foresight:
    """What is searched with.

    Attributes:
        rules: of the allocator.
        candidates, margin, spread, every: of `Search`.
        most_score: scores are between -this and this.
        jobs: only the first so many live jobs by row get another score.
        state: `room_to_imagine`.
        plan: the allocator's notes there.
        left: [jobs] seconds that live jobs are thought to run still, alone as they ask.
        given: [jobs] scores before the search.
        generator: [1] random numbers.
        since: [1] decision points since the last search.
    """

    rules: Rules
    candidates: int
    margin: float
    spread: float
    every: int
    most_score: float
    jobs: int
    state: State
    plan: Plan
    left: FloatVector
    given: FloatVector
    generator: UIntVector
    since: IntVector


def foresight_of(
    state: State,
    plan: Plan,
    allocator: Allocator,
    search: Search,
    generator: UIntVector,
    most_score: float = np.inf,
    jobs: int | None = None,
) -> Foresight:
    """What to search with in a simulation.

    Args:
        state: of the simulation; so large are the copies.
        plan: the allocator's notes, with the rates of its jobs.
        allocator: serves the copies.
        search: how.
        generator: [1] of the random numbers of `ringyard.state.random_numbers`; goes on.
        most_score: scores stay between -this and this.
        jobs: live jobs that have a score; None: all.
    """
    sizes, types = plan.worth.shape[2] - 1, plan.type_score.shape[2]
    own = empty_plan(state, sizes, allocator.estimate.memory, type_scores=types)
    return Foresight(
        rules=allocator.rules,
        candidates=search.candidates,
        margin=search.margin,
        spread=search.spread,
        every=search.every,
        most_score=most_score,
        jobs=state.running.shape[1] if jobs is None else jobs,
        state=room_to_imagine(state),
        plan=replace(with_rates_of(own, plan), scored_as=plan.scored_as),
        left=np.zeros(state.running.shape[1]),
        given=np.zeros(state.running.shape[1]),
        generator=generator,
        since=np.zeros(1, np.int64),
    )


@kernel
def _copy_memory(memory: FloatMatrix, out: FloatMatrix) -> None:
    for j in range(memory.shape[0]):
        for i in range(memory.shape[1]):
            out[j, i] = memory[j, i]


@linked_kernel
def _total(state: State, b: int, plan: Plan, head: Foresight, most: float, physics: Physics) -> float:
    """Seconds that present jobs take together if the scores in `plan` count now, and none later."""
    _copy_memory(plan.memory[b], head.plan.memory[b])
    types = plan.type_score.shape[2]
    for j in range(state.clusters[b].next_arrival):
        head.plan.score[b, j] = plan.score[b, j]
        for kind in range(types):
            head.plan.type_score[b, j, kind] = plan.type_score[b, j, kind]
    imagine(state, b, head.state)
    allocate(head.state, b, head.plan, head.rules, physics)
    head.plan.score[b] = 0.0
    for j in range(state.clusters[b].next_arrival):
        for kind in range(types):
            head.plan.type_score[b, j, kind] = 0.0
    believe(head.state, b, head.left, physics)
    return play_on(head.state, b, head.plan, head.rules, most, physics)


@kernel
def _any_live(state: State, b: int, count: int, generator: UIntVector) -> int:
    """One of the first live jobs, drawn by row: the heap of running jobs has the order of their true ends."""
    after = int(next_uniform(generator) * count)
    found = -1
    while after >= 0:
        found += 1
        status = state.jobs[b, found].status
        after -= status == _WAITING or status == _RUNNING
    return found


@kernel
def _normal(generator: UIntVector) -> float:
    radius = np.sqrt(-2.0 * np.log(1.0 - next_uniform(generator)))
    return radius * np.cos(2.0 * np.pi * next_uniform(generator))


@linked_kernel
def improve(state: State, b: int, plan: Plan, head: Foresight, physics: Physics) -> None:
    """Change the scores in `plan` where that ends better on copies, one job at a time.

    A copy has the jobs that are there and no others, and each has as much work left as the estimate of the
    allocator says (`ringyard_baselines.tools.imagined`). There the decision is carried out, the allocator
    serves the jobs until all are done, with every score at 0, and the sum of their completion times counts.

    Args:
        state: the running simulation.
        b: cluster.
        plan: the allocator's notes, with the scores of this decision.
        head: of `foresight_of`.
        physics: performance model.
    """
    count = min(num_live(state, b), head.jobs)
    head.since[0] += 1
    if count < 2 or head.since[0] < head.every:
        return
    head.since[0] = 0
    for j in range(state.clusters[b].next_arrival):
        head.given[j] = plan.score[b, j]
    estimate = head.rules.estimate
    _copy_memory(plan.memory[b], head.plan.memory[b])
    estimate.seconds(state, b, estimate.parameters, head.plan.memory[b], head.left)
    most = _total(state, b, plan, head, np.inf, physics) * (1.0 - head.margin)
    for _ in range(head.candidates):
        j = _any_live(state, b, count, head.generator)
        before = plan.score[b, j]
        changed = head.given[j] + head.spread * _normal(head.generator)
        plan.score[b, j] = min(max(changed, -head.most_score), head.most_score)
        total = _total(state, b, plan, head, most, physics)
        if total < most:
            most = total
        else:
            plan.score[b, j] = before
