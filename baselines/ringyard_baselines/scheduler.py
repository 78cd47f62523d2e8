"""What a scheduler is, what it may know, and how one is run."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import numpy as np

from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.sim.allocation import Allocation
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView

__all__ = ["DrivingScheduler", "Information", "Scheduler", "run"]


class Information(StrEnum):
    """What a scheduler knows of a job besides its arrival and what it asks for.

    Speeds: how fast the job would be in other shapes or places. Training curves: losses and validation
    metrics so far. Predicted durations: with the workload's prediction error, where it is predictable.
    """

    NONE = "nothing"
    ATTAINED_SERVICE = "attained service"
    SPEEDS = "speeds"
    ATTAINED_SERVICE_AND_SPEEDS = "attained service, speeds"
    DISTRIBUTION = "distribution of durations"
    CURVES_AND_SPEEDS = "training curves, speeds"
    PREDICTIONS = "predicted durations"
    PREDICTIONS_AND_SPEEDS = "predicted durations, speeds"
    DURATIONS = "durations"
    DURATIONS_AND_ARRIVALS = "durations, all jobs in advance"


class Scheduler(Protocol):
    """Decides, at each decision point, who gets which GPUs; schedulers inherit from it.

    Attributes:
        name: shown in tables.
        learned: it was trained; comparisons take the others as references.
        information: what it is allowed to know.
        round_seconds: it also wants to decide every this many seconds; None: events are enough.
    """

    name: str
    learned: bool = False
    information: Information
    round_seconds: float | None

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget everything; a simulation of `jobs` on `cluster` is about to begin."""
        ...

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Allocations to carry out now, in order."""
        ...


@runtime_checkable
class DrivingScheduler(Protocol):
    """A scheduler that can also drive a whole simulation itself, faster, with equal decisions."""

    def drive(self, sim: Simulator) -> None:
        """Simulate until every job has finished; `reset` was called before."""
        ...


def run(sim: Simulator, scheduler: Scheduler, rng: np.random.Generator, drive: bool = True) -> None:
    """Simulate until every job has finished.

    Args:
        sim: at time zero.
        scheduler: reset first.
        rng: for schedulers that draw.
        drive: let a `DrivingScheduler` run by itself; False calls `decide` each time.

    Raises:
        SchedulerError: the scheduler leaves jobs waiting for ever.
        PlacementError: it names GPUs the cluster cannot give.
    """
    scheduler.reset(sim.cluster, sim.jobs, rng)
    if drive and isinstance(scheduler, DrivingScheduler):
        scheduler.drive(sim)
        return
    while not sim.done:
        sim.apply(scheduler.decide(sim.view()))
        if not sim.done:
            sim.advance()
