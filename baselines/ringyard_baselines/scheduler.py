"""What a scheduler is, what it may know, and how one is run."""

from collections.abc import Sequence
from enum import IntFlag
from typing import Protocol, runtime_checkable

import numpy as np

from ringyard import Allocation, Cluster, Information, JobTable, PlacementRule, SchedulingView, Simulator
from ringyard.errors import PluginError, SchedulerError
from ringyard.resources import RESOURCES


class Powers(IntFlag):
    """What a scheduler does besides starting each job once, as it asks to run, or refusing it.

    Many clusters never stop a job: tables compare first those that may do the same.

    Attributes:
        STARTS: nothing else.
        STOPS: stops running jobs, or moves them.
        RESIZES: gives jobs other numbers of GPUs or other batches than they ask for, at the start or later.
        CORES: gives jobs other CPU cores, RAM, parameter servers or memory bandwidth than they ask for.
    """

    STARTS = 0
    STOPS = 1
    RESIZES = 2
    CORES = 4

    @property
    def group(self) -> int:
        """Tables compare within one first: 0 only starts jobs, 1 also stops or changes cores, 2 resizes."""
        return 2 if self & Powers.RESIZES else int(self != Powers.STARTS)

    def __str__(self) -> str:
        """As tables print it."""
        said = {Powers.STOPS: "stop", Powers.RESIZES: "resize", Powers.CORES: "cores"}
        return ", ".join(["start", *(said[one] for one in self)])


#: {what an allocation may say: (the column of `Job` with what was asked, the power to give something else)}
ASKED = {
    "batch_size": ("base_batch", Powers.RESIZES),
    "parameter_servers": ("asked_parameter_servers", Powers.CORES),
    "cores_per_server_task": ("asked_cores_per_server_task", Powers.CORES),
} | {one.per_worker: (one.asked, Powers.CORES) for one in RESOURCES if one.can_change}


class Scheduler(Protocol):
    """Decides, at each decision point, which job gets which GPUs; schedulers inherit from it.

    Attributes:
        name: shown in tables.
        published: others know it by its name; comparisons take as references none that is not.
        information: what it decides by; views and job tables refuse the rest.
        may: what it does; a run that does more raises a SchedulerError at its end.
        round_seconds: it also wants to decide every this many seconds; None: events are enough.
    """

    name: str
    published: bool = True
    information: Information
    may: Powers = Powers.STARTS
    round_seconds: float | None

    @property
    def knows(self) -> Information:
        """All that its decisions depend on: its information, and what its placement rule takes."""
        rule = getattr(self, "placement", None)
        return self.information | (
            rule.observability if isinstance(rule, PlacementRule) else Information.NOTHING
        )

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


def require_powers(scheduler: Scheduler) -> None:
    """Raise a PluginError unless what a scheduler says it may do is made of `Powers`."""
    every = Powers.STOPS | Powers.RESIZES | Powers.CORES
    may = getattr(scheduler, "may", None)
    if not isinstance(may, Powers) or int(may) & ~int(every):
        raise PluginError(
            f"{scheduler.name}: may is {may!r}; expected Powers.STARTS (a Scheduler inherits it), or some of"
            " Powers.STOPS, Powers.RESIZES and Powers.CORES, joined by |"
        )


def powers_used(sim: Simulator, allocation: Allocation) -> Powers:
    """What an allocation takes beyond starting the job as it asks to run; stops are counted by the engine."""
    if allocation.stops or allocation.reject:
        return Powers.STARTS
    job = sim.state.jobs[0, allocation.job]
    capped = allocation.memory_bandwidth_cap
    used = Powers.STARTS if capped is None or capped == 1.0 else Powers.CORES
    if len(allocation.gpu_ids) != job["asked_gpus"]:
        used |= Powers.RESIZES
    for name, (asked, power) in ASKED.items():
        given = getattr(allocation, name)
        if given is not None and given != job[asked]:
            used |= power
    return used


def _check_powers(sim: Simulator, scheduler: Scheduler, used: Powers) -> None:
    """Raise a SchedulerError if a run that has ended took more than the scheduler says it may do."""
    cluster = sim.state.clusters[0]
    if cluster["num_preemptions"]:
        used |= Powers.STOPS
    if cluster["num_resizes"] and not scheduler.may & (Powers.RESIZES | Powers.CORES):
        used |= Powers.RESIZES
    undeclared = used & ~scheduler.may
    if undeclared:
        flags = " | ".join(f"Powers.{one.name}" for one in used)
        raise SchedulerError(
            f"{scheduler.name} declares may={scheduler.may!s}, but it also used"
            f" {', '.join(str(one.name) for one in undeclared)}; expected may = {flags}"
        )


def run(sim: Simulator, scheduler: Scheduler, rng: np.random.Generator, drive: bool = True) -> None:
    """Simulate until every job has finished.

    Args:
        sim: at time zero.
        scheduler: reset first.
        rng: for schedulers that draw.
        drive: let a `DrivingScheduler` run by itself; False calls `decide` each time.

    Raises:
        PluginError: the scheduler's `may` is not made of `Powers`; nothing has run then.
        SchedulerError: the scheduler leaves jobs waiting for ever, looks at what it did not declare, or has
            done what it did not declare.
        PlacementError: it names GPUs the cluster cannot give.
    """
    require_powers(scheduler)
    knows = scheduler.information
    scheduler.reset(sim.cluster, sim.jobs.as_known(knows), rng)
    if drive and isinstance(scheduler, DrivingScheduler):
        scheduler.drive(sim)
        _check_powers(sim, scheduler, Powers.STARTS)
        return
    used = Powers.STARTS
    while not sim.done:
        allocations = scheduler.decide(sim.view(knows))
        sim.apply(allocations)
        for allocation in allocations:
            used |= powers_used(sim, allocation)
        if not sim.done:
            sim.advance()
    _check_powers(sim, scheduler, used)
