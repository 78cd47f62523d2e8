"""Least estimated work first: any estimate of the seconds left as a preemptive order."""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, Information, JobTable, PlacementRule, Simulator
from ringyard.allocator import Estimate
from ringyard.checks import Amount, Positive, checked
from ringyard.compiled import FloatMatrix, FloatVector, fills, kernel
from ringyard.information import check_reads
from ringyard.performance.model import Physics
from ringyard.sim.engine.events import advance
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.policies.key_order import KeyOrder, rearrange
from ringyard_baselines.policies.ordered import raise_stalled
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.ranking import JobKey, Ranking

_RUNNING = int(JobStatus.RUNNING)
_FIRST = 2  # parameter that is a job's estimate, after gpu_power and stay


@fills(JobKey)
def _estimated_work(job: Job, now: float, parameters: FloatVector) -> float:
    """Estimated seconds left (a part of them, if it runs) x GPUs ** power."""
    left = parameters[_FIRST + job.row]
    if job.status == _RUNNING:
        left *= parameters[1]
    return left * max(job.num_gpus, 1) ** parameters[0]


@kernel
def _estimate(state: State, b: int, estimate: Estimate, memory: FloatMatrix, parameters: FloatVector) -> None:
    estimate.seconds(state, b, estimate.parameters, memory, parameters[_FIRST:])


@kernel
def _turn(
    state: State,
    b: int,
    estimate: Estimate,
    notes: FloatMatrix,
    order: KeyOrder,
    ranking: Ranking,
    rule: PlacementRule,
    physics: Physics,
) -> bool:
    """One decision, and the time to the next; False if it stalls."""
    _estimate(state, b, estimate, notes, ranking.parameters)
    rearrange(state, b, order, ranking, rule, physics)
    return advance(state, b, physics)


@kernel
def _run(
    state: State,
    b: int,
    estimate: Estimate,
    notes: FloatMatrix,
    order: KeyOrder,
    ranking: Ranking,
    rule: PlacementRule,
    physics: Physics,
) -> bool:
    """Whole simulation; False if it stalls."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        if not _turn(state, b, estimate, notes, order, ranking, rule, physics):
            return False
    return True


@checked("scheduler")
class LeastEstimated(PreemptiveScheduler):
    """Least estimated seconds left x GPUs ** gpu_power first, preemptive.

    Args:
        placement: where a job goes.
        estimate: says how long jobs would still run.
        name: shown in tables.
        gpu_power: 1: least work first; 0: least time first.
        stay: a running job counts as having so much of its seconds left: at 1, jobs that are alike take turns
            whenever one gets older, and pay for a restart each time.
        round_seconds: decide every this many seconds as well: estimates change while jobs run.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    published = False

    def __init__(
        self,
        placement: PlacementRule,
        estimate: Estimate,
        name: str = "least_estimated",
        gpu_power: Amount = 1.0,
        stay: Annotated[float, "(0, 1]"] = 0.2,
        round_seconds: Positive = 300.0,
    ) -> None:
        self.estimate = estimate
        self._powers = [gpu_power, stay]
        takes = estimate.takes | Information.SIZES
        super().__init__(
            name, _estimated_work, self._parameters(0), placement, takes, round_seconds=round_seconds
        )
        #: [jobs, numbers] of the estimate
        self.notes = np.zeros((0, estimate.memory))

    def _parameters(self, num_jobs: int) -> NDArray[np.float64]:
        return np.concatenate([self._powers, np.zeros(num_jobs)])

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the order, and what the estimate has seen."""
        super().reset(cluster, jobs, rng)
        check_reads(self.estimate.seconds, self.information, f"{self.name}'s estimate {self.estimate.name}")
        self.notes = self.estimate.memory_of(jobs)
        self.use_parameters(self._parameters(len(jobs)))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Stop and start so that the jobs with the least work hold the GPUs."""
        state, b, _, _ = live(view)
        _estimate(state, b, self.estimate, self.notes, self._ranking.parameters)
        return super().decide(view)

    def turn(self, sim: Simulator) -> None:
        """One decision, and the time to the next: `drive` step by step, for who watches the notes."""
        self._play(_turn, sim)

    def drive(self, sim: Simulator) -> None:
        """The same decisions in one compiled loop."""
        self._play(_run, sim)

    def _play(self, kernel: Callable[..., bool], sim: Simulator) -> None:
        own = (self.estimate, self.notes, self._order_of(sim.state, 0), self._ranking, self.placement)
        if not kernel(sim.state, 0, *own, sim.physics):
            raise_stalled(sim)
