"""Schedulers that decide how many GPUs each job holds, by profiled speeds; a placement rule says where."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.sim.speeds import BatchRule, SpeedTable, speed_table
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import Target, apply_sizes
from ringyard_baselines.tools.time_slots import TimeSlots


class SizingScheduler(Scheduler, ABC):
    """Profiles jobs once, then names sizes, slot by slot or at every event.

    Args:
        name: shown in tables.
        observability: what it uses.
        placement: where jobs go.
        batch: rule of the global batch on n GPUs.
        round_seconds: decide every this many seconds as well; None: events are enough.
        slotted: decide only when a round begins (or the cluster is idle).
        max_gpus: most GPUs profiled, unless a job asks for more; None: as many as any job may use.
    """

    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    def __init__(
        self,
        name: str,
        observability: Observability,
        placement: PlacementRule,
        batch: BatchRule,
        round_seconds: float | None = None,
        slotted: bool = False,
        max_gpus: int | None = None,
    ) -> None:
        self.name = name
        self.observability = observability
        self.placement = placement
        self.round_seconds = round_seconds
        self._batch = batch
        self._slotted = slotted
        self._max_gpus = max_gpus

    @abstractmethod
    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Choose the GPUs of each job, the most urgent first; GPU jobs that are not named hold nothing."""

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles and slots."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._table: SpeedTable | None = None

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Sizes when it is time, and the allocations that lead there."""
        if self._slotted and not self._slots.begins(view) and len(view.running):
            return []
        if self._table is None:
            self._table = speed_table(view, self._batch, self._max_gpus)
        return apply_sizes(view, self.sizes(view, self._table), self.placement)
