"""The allocator, whose decisions are tried out on copies before they are made."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ringyard.checks import Count, checked
from ringyard.cluster import Cluster
from ringyard.compiled import FloatMatrix, FloatVector, IntVector, UIntVector, bundle, kernel, linked_kernel
from ringyard.jobs import JobTable
from ringyard.sim.allocation import Allocation
from ringyard.sim.allocator import (
    Allocator,
    Gamma,
    Plan,
    Rules,
    SizePower,
    Stay,
    UnknownSeconds,
    allocate,
    empty_plan,
    predicted,
    with_rates_of,
)
from ringyard.sim.allocator.plan import num_live
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.physics import Physics
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State
from ringyard.state.random_numbers import next_uniform
from ringyard.state.records import JobStatus
from ringyard_baselines.families.allocating import AllocatingScheduler
from ringyard_baselines.families.ordered import raise_stalled
from ringyard_baselines.tools.imagined import believe, imagine, play_on, room_to_imagine

__all__ = ["LookingAhead", "lookahead"]

_WAITING, _RUNNING = int(JobStatus.WAITING), int(JobStatus.RUNNING)

_Candidates = Annotated[int, "[0, 100000]"]
_Margin = Annotated[float, "[0, 1)"]
#: agents' scores are between -1 and 1
_Spread = Annotated[float, "(0, 1]"]


@bundle
class _Foresight:
    """What a scheduler looks ahead with.

    Attributes:
        rules: of its allocator.
        candidates: changes tried at a decision.
        margin: what a change has to save at least, as a share of all.
        spread: standard deviation of changed scores.
        every: look ahead at every n-th decision point.
        state: `room_to_imagine`.
        plan: the allocator's notes there.
        left: [jobs] seconds that live jobs are thought to run still, alone as they ask.
        generator: [1] random numbers.
        since: [1] decision points since the last look.
    """

    rules: Rules
    candidates: int
    margin: float
    spread: float
    every: int
    state: State
    plan: Plan
    left: FloatVector
    generator: UIntVector
    since: IntVector


@kernel
def _copy_memory(memory: FloatMatrix, out: FloatMatrix) -> None:
    for j in range(memory.shape[0]):
        for i in range(memory.shape[1]):
            out[j, i] = memory[j, i]


@linked_kernel
def _total(state: State, b: int, plan: Plan, head: _Foresight, most: float, physics: Physics) -> float:
    """Seconds that present jobs take together if the scores in `plan` count now, and none later."""
    _copy_memory(plan.memory[b], head.plan.memory[b])
    for j in range(state.clusters[b].next_arrival):
        head.plan.score[b, j] = plan.score[b, j]
    imagine(state, b, head.state)
    allocate(head.state, b, head.plan, head.rules, physics)
    head.plan.score[b] = 0.0
    believe(head.state, b, head.left, physics)
    return play_on(head.state, b, head.plan, head.rules, most, physics)


@kernel
def _any_live(state: State, b: int, generator: UIntVector) -> int:
    """A live job drawn by row: in the heap of running jobs they have the order of their true ends."""
    after = int(next_uniform(generator) * num_live(state, b))
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
def _look_ahead(state: State, b: int, plan: Plan, head: _Foresight, physics: Physics) -> None:
    """Write the scores of this decision into `plan`: 0, but for changes that end better on the copy."""
    plan.score[b] = 0.0
    head.since[0] += 1
    if num_live(state, b) < 2 or head.since[0] < head.every:
        return
    head.since[0] = 0
    estimate = head.rules.estimate
    _copy_memory(plan.memory[b], head.plan.memory[b])
    estimate.seconds(state, b, estimate.parameters, head.plan.memory[b], head.left)
    most = _total(state, b, plan, head, np.inf, physics) * (1.0 - head.margin)
    for _ in range(head.candidates):
        j = _any_live(state, b, head.generator)
        before = plan.score[b, j]
        plan.score[b, j] = head.spread * _normal(head.generator)
        total = _total(state, b, plan, head, most, physics)
        if total < most:
            most = total
        else:
            plan.score[b, j] = before


@kernel
def _run(state: State, b: int, plan: Plan, head: _Foresight, physics: Physics) -> bool:
    """Whole simulation; False if it stalls."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        _look_ahead(state, b, plan, head, physics)
        allocate(state, b, plan, head.rules, physics)
        if not advance(state, b, physics):
            return False
    return True


@checked("scheduler")
class LookingAhead(AllocatingScheduler):
    """At each decision, tries other scores of a few jobs on copies of the cluster and takes what ends best.

    A copy has the jobs that are there and no others, and each has as much work left as the estimate of the
    allocator says (`ringyard_baselines.tools.imagined`): nothing is seen that the allocator does not see.
    There the decision is carried out, the allocator serves the jobs until all are done, with every score at
    0, and the sum of their completion times is what counts. One job at a time gets a random score, and keeps
    it where that is better. All figures are assumptions, chosen on workloads that no table reports; those of
    `conf/scheduler/lookahead.yaml` are the usual ones.

    Args:
        allocator: its parameters.
        candidates: scores tried at a decision; 0: the plain allocator.
        margin: share of the sum that the first change has to save.
        spread: standard deviation of scores tried.
        every: look ahead at every n-th decision point only; decide as the plain allocator at the others.
        name: shown in tables.

    Raises:
        ConfigurationError: an argument of another kind, or out of its range.
    """

    def __init__(
        self,
        allocator: Allocator,
        candidates: _Candidates,
        margin: _Margin,
        spread: _Spread,
        every: Count,
        name: str = "lookahead",
    ) -> None:
        super().__init__(allocator, name)
        self.candidates = candidates
        self.margin = margin
        self.spread = spread
        self.every = every
        self._generator = np.zeros(1, np.uint64)
        self._head: _Foresight | None = None

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the speeds, and what the estimate has seen."""
        super().reset(cluster, jobs, rng)
        self._generator = rng.integers(1 << 63, size=1).astype(np.uint64)
        self._head = None

    def _prepared(self, view: SchedulingView, logged: bool) -> tuple[Plan, _Foresight]:
        plan = self._planned(view, logged)
        if self._head is None:
            state = live(view).state
            own = empty_plan(state, plan.worth.shape[2] - 1, self.allocator.estimate.memory)
            self._head = _Foresight(
                rules=self.allocator.rules,
                candidates=self.candidates,
                margin=self.margin,
                spread=self.spread,
                every=self.every,
                state=room_to_imagine(state),
                plan=with_rates_of(own, plan),
                left=np.zeros(state.running.shape[1]),
                generator=self._generator,
                since=np.zeros(1, np.int64),
            )
        return plan, self._head

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """What the allocator does with the scores that are best on copies, tried out on a copy."""
        plan, head = self._prepared(view, True)
        state, b, physics, _ = live(view)
        _look_ahead(state, b, plan, head, physics)
        return super().decide(view)

    def drive(self, sim: Simulator) -> None:
        """The same decisions in one compiled loop."""
        plan, head = self._prepared(sim.view(self.information), False)
        if not _run(sim.state, 0, plan, head, sim.physics):
            raise_stalled(sim)


@checked("scheduler")
def lookahead(
    gamma: Gamma,
    size_power: SizePower,
    stay: Stay,
    unknown_seconds: UnknownSeconds,
    candidates: _Candidates,
    margin: _Margin,
    spread: _Spread,
    every: Count,
) -> LookingAhead:
    """The allocator by predicted seconds left, looking ahead.

    Args:
        gamma, size_power, stay, unknown_seconds: as of `ringyard_baselines.families.allocating.allocator`.
        candidates, margin, spread, every: see `LookingAhead`.

    Raises:
        ConfigurationError: an argument out of its range.
    """
    rules = Allocator(gamma, size_power, stay=stay, estimate=predicted(unknown_seconds))
    return LookingAhead(rules, candidates, margin, spread, every)
