"""What a scheduler is, what it may know, and how one is run."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from ringyard.cluster import Cluster
from ringyard.information import Information
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView

__all__ = ["DrivingScheduler", "Information", "Scheduler", "run"]


class Scheduler(Protocol):
    """Decides, at each decision point, who gets which GPUs; schedulers inherit from it.

    Attributes:
        name: shown in tables.
        learned: it was trained; comparisons take the others as references.
        information: what it decides by; views and job tables refuse the rest.
        round_seconds: it also wants to decide every this many seconds; None: events are enough.
    """

    name: str
    learned: bool = False
    information: Information
    round_seconds: float | None

    @property
    def knows(self) -> Information:
        """All that its decisions depend on: its information, and what its placement rule takes."""
        rule = getattr(self, "placement", None)
        return self.information | (rule.takes if isinstance(rule, PlacementRule) else Information.NOTHING)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget everything; a simulation is about to begin.

        Args:
            cluster: its servers.
            jobs: all jobs, also those still to arrive: a row is for decisions after its submission. Columns
                that `information` does not name raise a SchedulerError.
            rng: for schedulers that draw.
        """
        ...

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Allocations to carry out now, in order."""
        ...


@runtime_checkable
class DrivingScheduler(Protocol):
    """A scheduler that can also drive a whole simulation itself, faster, with equal decisions.

    Nothing is hidden from a compiled loop: it shows its honesty by deciding as `decide` does, on a view.
    """

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
        SchedulerError: the scheduler leaves jobs waiting for ever, or looks at what it did not declare.
        PlacementError: it names GPUs the cluster cannot give.
    """
    knows = scheduler.information
    scheduler.reset(sim.cluster, sim.jobs.as_known(knows), rng)
    if drive and isinstance(scheduler, DrivingScheduler):
        scheduler.drive(sim)
        return
    while not sim.done:
        sim.apply(scheduler.decide(sim.view(knows)))
        if not sim.done:
            sim.advance()
