"""Schedulers that choose each job's number of GPUs by profiled speeds. A placement rule places the jobs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.sim.speeds import BatchRule, SpeedTable, speed_table
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import Target, TimeSlots, apply_sizes


@dataclass(eq=False)
class SizingScheduler(Scheduler, ABC):
    """Base class: profile jobs, choose sizes at every decision point or once a round, and place the jobs."""

    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    name: str  #: name in tables
    observability: Observability  #: columns that `sizes` reads
    placement: PlacementRule  #: rule that places jobs
    batch: BatchRule  #: rule for the global batch on n GPUs
    #: length of a round, seconds. A round's end is a decision point. None: no rounds.
    round_seconds: float | None = None
    slotted: bool = False  #: choose sizes only when a round begins, or when no job runs
    #: largest number of GPUs profiled, unless a job asks for more. None: the largest that any job may use.
    max_gpus: int | None = None
    plan: int | None = None  #: execution plan profiled, as in `isolated_iteration_seconds`

    @abstractmethod
    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Choose the number of GPUs of each job.

        Args:
            view: the cluster and its jobs now.
            table: speeds of jobs by number of GPUs.

        Returns:
            Targets, the most urgent job first. GPU jobs without a target hold nothing afterwards.
        """

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles and time slots."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._table: SpeedTable | None = None

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Return the allocations that give jobs the chosen sizes."""
        if self.slotted and not self._slots.begins(view) and len(view.running):
            return []
        if self._table is None:
            self._table = speed_table(view, self.batch, self.max_gpus, self.plan)
        return apply_sizes(view, self.sizes(view, self._table), self.placement)
