"""The interface of a scheduler, what a scheduler declares, and the loop that runs one in a simulation.

A scheduler is a subclass of `Scheduler` with one method, `decide`: it looks at the cluster and its jobs
(`ringyard.SchedulingView`) and returns allocations (`ringyard.Allocation`). docs/tutorials/own_scheduler.md
writes one.
"""

from collections.abc import Sequence
from enum import IntFlag
from typing import Protocol, runtime_checkable

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView, Simulator
from ringyard.errors import PluginError, SchedulerError
from ringyard.resources import RESOURCES


class Capabilities(IntFlag):
    """What a scheduler may do besides starting each job once, as the job asks to run, or rejecting it.

    Many clusters never preempt a job, so tables compare schedulers with equal capabilities first.
    """

    START = 0  #: nothing else
    PREEMPT = 1  #: preempts running jobs, or migrates them
    RESIZE = 2  #: gives jobs other numbers of GPUs or other batches than they ask for, at the start or later
    CORES = 4  #: gives jobs other CPU cores, RAM, parameter servers or bandwidth than they ask for

    @property
    def group(self) -> int:
        """Group that tables compare within: 0 only starts jobs, 1 preempts or changes cores, 2 resizes."""
        return 2 if self & Capabilities.RESIZE else int(self != Capabilities.START)

    def __str__(self) -> str:
        """Return the text that tables print, such as "start, preempt"."""
        return ", ".join(["start", *(str(one.name).lower() for one in self)])


#: {field of an allocation: (column of `Job` with the request, capability to give something else)}
REQUESTED = {
    "batch_size": ("base_batch", Capabilities.RESIZE),
    "plan": ("asked_plan", Capabilities.RESIZE),
    "parameter_servers": ("asked_parameter_servers", Capabilities.CORES),
    "cores_per_server_task": ("asked_cores_per_server_task", Capabilities.CORES),
} | {one.per_worker: (one.asked, Capabilities.CORES) for one in RESOURCES if one.can_change}


class Scheduler(Protocol):
    """Base class of schedulers: decides at each decision point which job runs on which GPUs.

    Decision points are arrivals, completions, moments at which a job becomes predictable, failures and
    repairs of servers, the ends of rounds (`round_seconds`) and the times given to `view.wake_at`.

    A subclass sets `name` and `observability` and defines `decide`. The other members have defaults.

    Attributes:
        name: name in tables and plots.
        observability: columns of jobs that `reset` and `decide` may read. The job table and the view raise an
            `ObservabilityError` for every other column.
        capabilities: what the scheduler does beside starting jobs as they ask. A run in which it does more
            raises a `SchedulerError` at its end.
        round_seconds: length of a round, seconds. A round's end is a decision point. None: no rounds.
        published: whether the scheduler is known outside this project. Only published schedulers become the
            reference of a comparison.
    """

    name: str
    observability: Observability
    capabilities: Capabilities = Capabilities.START
    round_seconds: float | None = None
    published: bool = True

    @property
    def total_observability(self) -> Observability:
        """Everything that decisions depend on: `observability` and what the placement rule reads."""
        rule = getattr(self, "placement", None)
        reads = rule.observability if isinstance(rule, PlacementRule) else Observability.NOTHING
        return self.observability | reads

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Prepare for a new simulation and forget the last one.

        Args:
            cluster: servers and GPUs.
            jobs: all jobs of the workload, one row each in order of submission. Decisions may use a row only
                after the job's submission. A column outside `observability` raises an `ObservabilityError`.
            rng: source of all random numbers that the scheduler draws.
        """

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Return the allocations to carry out now, in this order.

        `Allocation(job, gpu_ids)` starts a waiting job. For a running job it changes place or shape.
        `Allocation(job)` preempts, `Allocation(job, reject=True)` rejects. Jobs without an allocation stay as
        they are. `ringyard.PlacementPlan(view)` turns "so many GPUs" into GPU ids and tries several starts on
        a copy.

        Args:
            view: the cluster and its jobs now. `view.waiting` and `view.running` are rows of the job table,
                `view.column(name)` is a column [jobs], `view.job_of_gpu` [gpus] is -1 for a free GPU,
                `view.now` is the time in seconds. Columns are live: copy what later decisions need.

        Returns:
            Allocations. An empty sequence leaves everything as it is.

        Raises:
            ObservabilityError: raised by the view, if a column outside `observability` is read.
        """


@runtime_checkable
class CompiledScheduler(Protocol):
    """A scheduler that can also run a whole simulation in compiled code, with the same decisions but faster.

    A compiled loop is not checked by the view. Tests compare its schedules with those of `decide`.
    """

    def run_compiled(self, sim: Simulator) -> None:
        """Simulate from time zero, after `reset`, until every job has finished."""


def check_capabilities(scheduler: Scheduler) -> None:
    """Raise a PluginError unless a scheduler's `capabilities` are made of `Capabilities`."""
    known = Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES
    declared = getattr(scheduler, "capabilities", None)
    if not isinstance(declared, Capabilities) or int(declared) & ~int(known):
        raise PluginError(
            f"{scheduler.name}: capabilities is {declared!r}; expected Capabilities.START (the default of a"
            " Scheduler), or some of Capabilities.PREEMPT, Capabilities.RESIZE and Capabilities.CORES, joined"
            " by |"
        )


def used_capabilities(sim: Simulator, allocation: Allocation) -> Capabilities:
    """Return what an allocation needs beyond starting the job as it asks. The engine counts preemptions."""
    if allocation.preempts or allocation.reject:
        return Capabilities.START
    job = sim.state.jobs[0, allocation.job]
    shares = (allocation.memory_bandwidth_cap, allocation.link_share)
    used = Capabilities.START if all(one in (None, 1.0) for one in shares) else Capabilities.CORES
    if len(allocation.gpu_ids) != job["asked_gpus"]:
        used |= Capabilities.RESIZE
    for name, (requested, capability) in REQUESTED.items():
        given = getattr(allocation, name)
        if given is not None and given != job[requested]:
            used |= capability
    return used


def _check_used_capabilities(sim: Simulator, scheduler: Scheduler, used: Capabilities) -> None:
    """Raise a SchedulerError if a run that has ended used capabilities that the scheduler lacks."""
    cluster = sim.state.clusters[0]
    if cluster["num_preemptions"]:
        used |= Capabilities.PREEMPT
    if cluster["num_resizes"] and not scheduler.capabilities & (Capabilities.RESIZE | Capabilities.CORES):
        used |= Capabilities.RESIZE
    undeclared = used & ~scheduler.capabilities
    if undeclared:
        flags = " | ".join(f"Capabilities.{one.name}" for one in used)
        raise SchedulerError(
            f"{scheduler.name} declares the capabilities {scheduler.capabilities!s}, but it also used"
            f" {', '.join(str(one.name) for one in undeclared)}; expected capabilities = {flags}"
        )


def run(sim: Simulator, scheduler: Scheduler, rng: np.random.Generator, compiled: bool = True) -> None:
    """Simulate with a scheduler until every job has finished.

    Args:
        sim: at time zero.
        scheduler: is reset first.
        rng: source of the scheduler's random numbers.
        compiled: let a `CompiledScheduler` run by itself; False calls `decide` at every decision point.

    Raises:
        PluginError: the scheduler's `capabilities` are not made of `Capabilities`. Nothing has run then.
        SchedulerError: the scheduler leaves jobs waiting for ever, or did what its `capabilities` exclude.
        ObservabilityError: the scheduler read a column that its `observability` excludes.
        PlacementError: an allocation names GPUs that are missing or taken.
    """
    check_capabilities(scheduler)
    observability = scheduler.observability
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(observability), rng)
    used = Capabilities.START
    if compiled and isinstance(scheduler, CompiledScheduler):
        scheduler.run_compiled(sim)
    else:
        while not sim.done:
            allocations = scheduler.decide(sim.view(observability))
            sim.apply(allocations)
            for allocation in allocations:
                used |= used_capabilities(sim, allocation)
            if not sim.done:
                sim.advance()
    _check_used_capabilities(sim, scheduler, used)
