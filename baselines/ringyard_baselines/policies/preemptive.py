"""Preemptive schedulers: at every decision point the jobs with the lowest keys hold the GPUs."""

from collections.abc import Sequence
from dataclasses import replace

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
from ringyard_baselines.policies.key_order import KeyOrder, carry_out, choose, empty_order, rearrange
from ringyard_baselines.policies.ordered import raise_stalled
from ringyard_baselines.policies.ranking import (
    NO_ESTIMATE,
    JobKey,
    KeyChanges,
    Ranking,
    never,
)
from ringyard_baselines.scheduler import Capabilities, Scheduler


@kernel
def _run_preemptive(
    state: State, b: int, order: KeyOrder, ranking: Ranking, rule: PlacementRule, physics: Physics, most: int
) -> bool:
    """Whole simulation, or `most` decisions of it if it takes more; False if it stalls."""
    cluster = state.clusters[b]
    decisions = 0
    while cluster.num_done < cluster.num_jobs and decisions < most:
        decisions += 1
        rearrange(state, b, order, ranking, rule, physics)
        if not advance(state, b, physics):
            return False
    return True


class PreemptiveScheduler(Scheduler):
    """Lowest keys first over running and waiting jobs; a running job that drops out is preempted.

    A job that does not fit into the GPUs left is skipped. A chosen job that the placement rule cannot place
    stays queued and its share of GPUs stays idle.

    Args:
        name: shown in tables.
        key: fills `JobKey`.
        parameters: [parameters] read by `key` and `wake`.
        placement: where a job goes.
        observability: what `key` and `wake` read of a job's record; functions of `ringyard.state.progress`
            count as the column of their name.
        wake: fills `JobKey`: when a key needs another look; `never` if only events change the order.
        round_seconds: decide every this many seconds as well.
        key_changes: when keys change; unless at any time, a decision reads few of them.

    Raises:
        ObservabilityError: `key` or `wake` reads more than `observability` names.
    """

    capabilities = Capabilities.PREEMPT

    def __init__(
        self,
        name: str,
        key: JobKey,
        parameters: NDArray[np.float64],
        placement: PlacementRule,
        observability: Observability,
        wake: JobKey = never,
        round_seconds: float | None = None,
        key_changes: KeyChanges = KeyChanges.ANY_TIME,
    ) -> None:
        self.name = name
        self.placement = placement
        self.observability = observability
        self.round_seconds = round_seconds
        self._ranking = Ranking(
            key, wake, parameters, wake is not never, int(key_changes), NO_ESTIMATE, np.zeros((0, 0))
        )
        self._check()
        self._order: KeyOrder | None = None

    def _check(self) -> None:
        check_reads(self._ranking.key, self.observability, f"{self.name}'s key")
        check_reads(self._ranking.wake, self.observability, f"{self.name}'s wake")

    def use_parameters(self, parameters: NDArray[np.float64]) -> None:
        """Give `key` and `wake` other parameters, before a simulation begins."""
        self._ranking = replace(self._ranking, parameters=parameters)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the order."""
        self._check()
        self._order = None

    def _order_of(self, state: State, b: int) -> KeyOrder:
        """What is remembered between decisions."""
        if self._order is None:
            servers_fail = np.isfinite(state.clusters["mean_up_seconds"][b])  # and work is lost: keys jump
            if servers_fail and self._ranking.key_changes == KeyChanges.WHILE_RUNNING:
                self._ranking = replace(self._ranking, key_changes=int(KeyChanges.ANY_TIME))
            self._order = empty_order(state.jobs["num_gpus"][b, :-1], self._ranking.key_changes)
        return self._order

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Stop and start so that the chosen jobs hold the GPUs, tried out on a copy of the simulation."""
        now, b, physics, _ = unrestricted(view)
        order = self._order_of(now, b)
        choose(now, b, order, self._ranking, self.placement)
        totals = order.totals[0]
        changes = totals["num_starting"] + totals["num_stopping"] > 0
        after = copy_state(now) if changes else now
        carry_out(after, b, order, self._ranking, self.placement, physics)
        for column in ("rng", "wake_seconds"):
            now.clusters[column][b] = after.clusters[column][b]
        stopped = order.stopping[: totals["num_stopping"]].tolist()
        started = order.starting[: totals["num_starting"]].tolist()
        return [Allocation(job) for job in stopped] + [current_allocation(after, b, job) for job in started]

    def run_compiled(self, sim: Simulator) -> None:
        """The same decisions in one compiled loop."""
        self._drive(sim, 1 << 60)

    def _drive(self, sim: Simulator, most: int) -> None:
        """Simulate until every job has finished, or for so many decisions."""
        order = self._order_of(sim.state, 0)
        if not _run_preemptive(sim.state, 0, order, self._ranking, self.placement, sim.physics, most):
            raise_stalled(sim)
