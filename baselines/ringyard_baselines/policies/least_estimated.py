"""Least estimated work first: a preemptive order by any estimate of the seconds left."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Cluster, JobTable, Observability, PlacementRule, Simulator
from ringyard.allocator import Estimate
from ringyard.checks import NonNegative, Positive, checked
from ringyard.compiled import FloatVector, implements
from ringyard.observability import check_reads
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import FIRST_ESTIMATE, JobKey


@implements(JobKey)
def _estimated_work(job: Job, now: float, parameters: FloatVector) -> float:
    """Return estimated seconds left (a running job's times `running_factor`) x GPUs ** gpu_power."""
    left = parameters[FIRST_ESTIMATE + job.row]
    if job.status == JobStatus.RUNNING:
        left *= parameters[1]
    return left * max(job.num_gpus, 1) ** parameters[0]


@checked("scheduler")
class LeastEstimated(PreemptiveScheduler):
    """Preemptive order by the smallest product of estimated seconds left and GPUs ** gpu_power.

    Args:
        placement: rule that places a job.
        estimate: estimates the seconds that each job would still run.
        name: name in tables.
        gpu_power: exponent of the GPUs. 1: least work first. 0: least time first.
        running_factor: factor on the seconds left of running jobs. At 1, similar jobs preempt each other
            whenever one gets older, and each preemption costs a restart.
        round_seconds: length of a round, seconds. Estimates change while jobs run, so a decision is made at
            the end of each round.

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
        self._exponents = np.array([gpu_power, running_factor])  # `FIRST_ESTIMATE` numbers
        sees = estimate.observability | Observability.SIZES
        order = (name, _estimated_work, self._exponents, placement, sees)
        super().__init__(*order, round_seconds=round_seconds)
        self._priority = replace(self._priority, estimate=estimate)

    @property
    def estimate_memory(self) -> NDArray[np.float64]:
        """Memory of the estimate [jobs, numbers]."""
        return self._priority.estimate_memory

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the order, and clear the memory of the estimate."""
        super().reset(cluster, jobs, rng)
        estimate = self._priority.estimate
        check_reads(estimate.seconds, self.observability, f"{self.name}'s estimate {estimate.name}")
        parameters = np.concatenate([self._exponents, np.zeros(len(jobs))])
        memory = estimate.memory_of(jobs)
        self._priority = replace(self._priority, estimate_memory=memory, parameters=parameters)

    def step(self, sim: Simulator) -> None:
        """Make a decision in a simulation that this was reset for, and advance to the next decision point."""
        sim.apply(self.decide(sim.view(self.total_observability)))
        if not sim.done:
            sim.advance()
