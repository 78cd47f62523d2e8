"""The allocator, whose decisions are tried out on copies before they are made."""

from collections.abc import Sequence

import numpy as np

from ringyard.checks import Amount, checked
from ringyard.cluster import Cluster
from ringyard.compiled import kernel
from ringyard.jobs import JobTable
from ringyard.sim.allocation import Allocation
from ringyard.sim.allocator import (
    Allocator,
    Gamma,
    Plan,
    SizePower,
    Stay,
    UnknownSeconds,
    allocate,
    predicted,
)
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.physics import Physics
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State
from ringyard_baselines.families.allocating import AllocatingScheduler
from ringyard_baselines.families.ordered import raise_stalled
from ringyard_baselines.tools.score_search import Foresight, Search, foresight_of, improve

__all__ = ["LookingAhead", "lookahead"]


@kernel
def _look_ahead(state: State, b: int, plan: Plan, head: Foresight, physics: Physics) -> None:
    """Write the scores of this decision into `plan`: 0, but for changes that end better on the copy."""
    plan.score[b] = 0.0
    improve(state, b, plan, head, physics)


@kernel
def _run(state: State, b: int, plan: Plan, head: Foresight, physics: Physics) -> bool:
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

    What copies know, and how they end: `ringyard_baselines.tools.score_search.improve`; nothing is seen that
    the allocator does not see. The usual figures of the search, chosen on workloads that no table reports,
    are those of `conf/scheduler/lookahead.yaml`.

    Args:
        allocator: its parameters.
        search: how many scores are tried, and which are kept.
        name: shown in tables.

    Raises:
        ConfigurationError: an argument of another kind.
    """

    def __init__(self, allocator: Allocator, search: Search, name: str = "lookahead") -> None:
        super().__init__(allocator, name)
        self.search = search
        self._generator = np.zeros(1, np.uint64)
        self._head: Foresight | None = None

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the speeds, and what the estimate has seen."""
        super().reset(cluster, jobs, rng)
        self._generator = rng.integers(1 << 63, size=1).astype(np.uint64)
        self._head = None

    def _prepared(self, view: SchedulingView, logged: bool) -> tuple[Plan, Foresight]:
        plan = self._planned(view, logged)
        if self._head is None:
            self._head = foresight_of(live(view).state, plan, self.allocator, self.search, self._generator)
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
    candidates: int,
    margin: float,
    spread: float,
    every: int,
    stop_price: Amount = 0.0,
) -> LookingAhead:
    """The allocator by predicted seconds left, looking ahead.

    Args:
        gamma, size_power, stay, unknown_seconds, stop_price: as of
            `ringyard_baselines.families.allocating.allocator`.
        candidates, margin, spread, every: see `Search`.

    Raises:
        ConfigurationError: an argument out of its range.
    """
    estimate = predicted(unknown_seconds)
    rules = Allocator(gamma, size_power, stay=stay, stop_price=stop_price, estimate=estimate)
    return LookingAhead(rules, Search(candidates, margin, spread, every))
