"""Preemptive schedulers: at every decision point the jobs with the lowest priority keys hold the GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, Simulator
from ringyard.compiled import kernel
from ringyard.observability import check_reads
from ringyard.performance.model import Physics
from ringyard.sim.engine.events import advance
from ringyard.sim.feasibility import current_allocation
from ringyard.sim.view import SchedulingView, unrestricted
from ringyard.state.arrays import State, copy_state
from ringyard_baselines.policies.key_order import KeyOrder, apply_selection, empty_order, select_jobs
from ringyard_baselines.policies.ordered import raise_stalled
from ringyard_baselines.policies.priority_rule import NO_ESTIMATE, JobKey, KeyChanges, PriorityRule, never
from ringyard_baselines.scheduler import Capabilities, Scheduler


@kernel
def _run_preemptive(
    state: State, b: int, order: KeyOrder, priority: PriorityRule, rule: PlacementRule, physics: Physics
) -> bool:
    """Simulate until every job has finished. False: no event can follow."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        select_jobs(state, b, order, priority, rule)
        apply_selection(state, b, order, priority, rule, physics)
        if not advance(state, b, physics):
            return False
    return True


@dataclass(eq=False)
class PreemptiveScheduler(Scheduler):
    """Give the GPUs to the jobs with the lowest keys, and preempt running jobs that are not among them.

    A job that needs more GPUs than are left is skipped. If the placement rule finds no place for a selected
    job, the job waits and its share of the GPUs stays idle.

    Raises:
        ObservabilityError: `key` or `wake` reads more than `observability` names.
    """

    capabilities = Capabilities.PREEMPT

    name: str  #: name in tables
    key: JobKey  #: jobs with lower keys run first
    parameters: NDArray[np.float64]  #: [parameters] passed to `key` and `wake`
    placement: PlacementRule  #: rule that places a job
    #: what `key` and `wake` read of a job's record. Functions of `ringyard.state.progress` count as the
    #: column of their name.
    observability: Observability
    wake: JobKey = never  #: time at which a key must be read again. `never`: only events change the order.
    #: length of a round, seconds. A round's end is a decision point. None: no rounds.
    round_seconds: float | None = None
    #: when keys change. Unless they change at any time, a decision reads few of them.
    key_changes: KeyChanges = KeyChanges.ANY_TIME

    def __post_init__(self) -> None:
        changes, wakes = int(self.key_changes), self.wake is not never
        memory = (NO_ESTIMATE, np.zeros((0, 0)))
        self._priority = PriorityRule(self.key, self.wake, self.parameters, wakes, changes, *memory)
        self._check_reads()
        self._order: KeyOrder | None = None

    def _check_reads(self) -> None:
        check_reads(self._priority.key, self.observability, f"{self.name}'s key")
        check_reads(self._priority.wake, self.observability, f"{self.name}'s wake")

    def use_parameters(self, parameters: NDArray[np.float64]) -> None:
        """Replace the [parameters] of `key` and `wake` before a simulation begins."""
        self._priority = replace(self._priority, parameters=parameters)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the order of the last simulation."""
        self._check_reads()
        self._order = None

    def _order_of(self, state: State, b: int) -> KeyOrder:
        """Return the order of this simulation's jobs, which is updated from decision to decision."""
        if self._order is None:
            servers_fail = np.isfinite(state.clusters["mean_up_seconds"][b])  # lost work makes keys jump
            if servers_fail and self._priority.key_changes == KeyChanges.WHILE_RUNNING:
                self._priority = replace(self._priority, key_changes=int(KeyChanges.ANY_TIME))
            self._order = empty_order(state.jobs["num_gpus"][b, :-1], self._priority.key_changes)
        return self._order

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Return the preemptions and starts after which the selected jobs hold the GPUs."""
        now, b, physics, _ = unrestricted(view)
        order = self._order_of(now, b)
        select_jobs(now, b, order, self._priority, self.placement)
        counts = order.counts[0]
        changes = counts["num_starting"] + counts["num_stopping"] > 0
        after = copy_state(now) if changes else now
        apply_selection(after, b, order, self._priority, self.placement, physics)
        for column in ("rng", "wake_seconds"):
            now.clusters[column][b] = after.clusters[column][b]
        stopped = order.stopping[: counts["num_stopping"]].tolist()
        started = order.starting[: counts["num_starting"]].tolist()
        return [Allocation(job) for job in stopped] + [current_allocation(after, b, job) for job in started]

    def run_compiled(self, sim: Simulator) -> None:
        """Simulate until every job has finished, with the decisions of `decide` in one compiled loop."""
        state, order = sim.state, self._order_of(sim.state, 0)
        if not _run_preemptive(state, 0, order, self._priority, self.placement, sim.physics):
            raise_stalled(sim)
