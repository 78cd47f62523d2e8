"""Least estimated work first: any estimate of the seconds left as a preemptive order."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Cluster, JobTable, Observability, PlacementRule, Simulator
from ringyard.allocator import Estimate
from ringyard.checks import NonNegative, Positive, checked
from ringyard.compiled import FloatVector, fills
from ringyard.observability import check_reads
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.ranking import FIRST_ESTIMATE, JobKey


@fills(JobKey)
def _estimated_work(job: Job, now: float, parameters: FloatVector) -> float:
    """Estimated seconds left (a part of them, if it runs) x GPUs ** power."""
    left = parameters[FIRST_ESTIMATE + job.row]
    if job.status == JobStatus.RUNNING:
        left *= parameters[1]
    return left * max(job.num_gpus, 1) ** parameters[0]


@checked("scheduler")
class LeastEstimated(PreemptiveScheduler):
    """Least estimated seconds left x GPUs ** gpu_power first, preemptive.

    Args:
        placement: where a job goes.
        estimate: says how long jobs would still run.
        name: shown in tables.
        gpu_power: 1: least work first; 0: least time first.
        running_factor: factor of a running job's seconds left. At 1, jobs that are alike take turns
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
        gpu_power: NonNegative = 1.0,
        running_factor: Annotated[float, "(0, 1]"] = 0.2,
        round_seconds: Positive = 300.0,
    ) -> None:
        self._powers = [gpu_power, running_factor]  # as many as `FIRST_ESTIMATE`
        observability = estimate.observability | Observability.SIZES
        super().__init__(
            name,
            _estimated_work,
            np.array([gpu_power, running_factor]),
            placement,
            observability,
            round_seconds=round_seconds,
        )
        self._ranking = replace(self._ranking, estimate=estimate)

    @property
    def notes(self) -> NDArray[np.float64]:
        """[jobs, numbers] of the estimate."""
        return self._ranking.notes

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the order, and what the estimate has seen."""
        super().reset(cluster, jobs, rng)
        estimate = self._ranking.estimate
        check_reads(estimate.seconds, self.observability, f"{self.name}'s estimate {estimate.name}")
        parameters = np.concatenate([self._powers, np.zeros(len(jobs))])
        self._ranking = replace(self._ranking, notes=estimate.memory_of(jobs), parameters=parameters)

    def turn(self, sim: Simulator) -> None:
        """Make one decision and advance to the next: `drive` step by step, to watch the notes."""
        self._drive(sim, 1)
