"""Turn a number of GPUs for each job into allocations that can be applied in order."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, PlacementPlan, PlacementRule, SchedulingView
from ringyard.sim.engine.events import next_round
from ringyard.sim.feasibility import SHAPE_FIELDS, shape_values
from ringyard.state.records import JobKind
from ringyard_baselines.scheduler import REQUESTED, Capabilities


class TimeSlots:
    """Distinguishes decision points at which a time slot begins from those that events cause in between.

    Args:
        seconds: length of a slot. Slots begin at its multiples, the first one with the first job.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -np.inf

    def begins(self, view: SchedulingView) -> bool:
        """Return whether a slot has begun since the last call with jobs in the system."""
        empty = not len(view.waiting) and not len(view.running)
        if empty or view.now < self._next:
            return False
        self._next = next_round(view.now, self._seconds)
        return True


#: {field of an allocation that can fall back to the job's request: column of the request}
_FALLBACKS = {name: column for name, (column, kind) in REQUESTED.items() if kind is Capabilities.CORES}


class Target(NamedTuple):
    """Number of GPUs that one job shall hold. A placement rule chooses which."""

    job: int  #: row of the job
    num_gpus: int  #: number of GPUs
    #: batch, cores and parameter servers, as in `Allocation`. None: as the job asks.
    shape: Allocation | None = None
    rule: PlacementRule | None = None  #: places it. None: the rule of all
    moves: bool = False  #: a running job migrates even if it keeps its number of GPUs


def num_gpu_slots(view: SchedulingView, rule: PlacementRule, servers: NDArray[np.bool_] | None = None) -> int:
    """Return how many GPUs jobs can hold together.

    Args:
        view: the cluster and its jobs now. GPUs of failed servers do not count.
        rule: if it shares GPUs, each GPU counts `jobs_per_gpu` times.
        servers: [servers] whether a server's GPUs count. None: those of all servers.
    """
    num_gpus = view.num_gpus_up
    if servers is not None:
        num_gpus = int(np.array(view.cluster.gpus_per_server)[servers & view.servers_up].sum())
    return num_gpus * (view.cluster.jobs_per_gpu if rule.shares else 1)


def feasible(
    view: SchedulingView, order: Sequence[int] | NDArray[np.integer[Any]], rule: PlacementRule
) -> list[Target]:
    """Return the jobs that get the GPUs they ask for in `order`; jobs that do not fit are skipped.

    Args:
        view: the cluster and its jobs now.
        order: rows of GPU jobs, the most urgent first.
        rule: says whether jobs share GPUs.
    """
    left = num_gpu_slots(view, rule)
    rows = np.asarray(order, dtype=np.int64)
    asked = view.column("asked_gpus")[rows]
    targets = []
    for job, size in zip(rows.tolist(), asked.tolist(), strict=True):
        if size <= left:
            left -= size
            targets.append(Target(job, size))
            if left == 0:
                break
    return targets


def start_cpu_jobs(view: SchedulingView, plan: PlacementPlan, rule: PlacementRule) -> list[Allocation]:
    """Start waiting CPU-only jobs that find enough cores, first come, first served.

    Args:
        view: the cluster and its jobs now.
        plan: placements so far. The started jobs are added to it.
        rule: places a job.
    """
    rows = view.waiting
    rows = np.sort(rows[view.column("kind")[rows] == JobKind.CPU_ONLY])
    return plan.start(rule, rows) if len(rows) else []


def work_conserving(
    view: SchedulingView,
    plan: PlacementPlan,
    rule: PlacementRule,
    order: Iterable[int] | None,
    allocations: Sequence[Allocation],
) -> list[Allocation]:
    """Add a start to allocations that would leave the cluster idle while a waiting job fits.

    Args:
        view: the cluster and its jobs now.
        plan: the state after the allocations.
        rule: places the job.
        order: rows of jobs to try in the shape they ask for. The first that finds a place starts. None: GPU
            jobs by submission.
        allocations: preemptions, changes and starts.
    """
    idle = len(view.running) == len(allocations) == sum(allocation.preempts for allocation in allocations)
    for job in (view.gpu_jobs.tolist() if order is None else order) if idle else ():
        found = plan.place(rule, job)
        if found is not None:
            return [*allocations, found]
    return list(allocations)


def _with_gpus(target: Target, gpus: tuple[int, ...]) -> Allocation:
    return (target.shape or Allocation(target.job)).at(gpus)


def _shape_changes(view: SchedulingView, targets: Sequence[Target]) -> list[bool]:
    """Return whether each target of a running job names a shape that the job does not have [targets]."""
    if not targets:
        return []
    named = [shape_values(target.shape or Allocation(target.job)) for target in targets]
    wanted = np.array(named, dtype=np.float64)  # a field that is None becomes NaN
    columns = view.select([target.job for target in targets])
    current = np.column_stack([columns.column(name) for name in SHAPE_FIELDS])
    return ((wanted != current) & ~np.isnan(wanted)).any(axis=1).tolist()


def _resize(
    view: SchedulingView, plan: PlacementPlan, rule: PlacementRule, target: Target
) -> list[Allocation]:
    """Change a running job: in place if it keeps its number of GPUs, else where `rule` puts it.

    Without room for the wanted cores and servers it gets those that it asks for. Empty: it cannot change.
    """
    if view.column("num_gpus")[target.job] == target.num_gpus and not target.moves:
        wanted = _with_gpus(target, view.gpus_of(target.job))
        return [wanted] if plan.reallocate(wanted) else []
    wanted = _with_gpus(target, tuple(range(target.num_gpus)))  # only their number counts
    found = plan.migrate(target.rule or rule, target.job, [wanted, _as_asked(view, wanted)])
    return [] if found is None else [found]


def _as_asked(view: SchedulingView, shape: Allocation) -> Allocation:
    """Return a shape with the cores, RAM and parameter servers that its job asks for."""
    asked: dict[str, Any] = {
        name: int(view.column(column)[shape.job])
        for name, column in _FALLBACKS.items()
        if getattr(shape, name) is not None
    }
    return replace(shape, **asked)


def apply_sizes(view: SchedulingView, targets: Sequence[Target], rule: PlacementRule) -> list[Allocation]:
    """Return allocations after which the targets hold their GPUs and no other GPU job holds anything.

    Jobs that keep their size keep their place. Preempted and shrinking jobs come first, then waiting CPU-only
    jobs, first come, first served. Jobs that start or grow follow in the order of the targets. Where there is
    no room for their cores and parameter servers, they get those that they ask for. A job that finds no place
    keeps what it has. If nothing would run then, the first waiting job that finds a place as it asks starts.

    Args:
        view: the cluster and its jobs now.
        targets: GPU jobs and their sizes, the most urgent first.
        rule: places jobs that start or change their size.
    """
    plan = PlacementPlan(view)
    rows = view.running
    num_gpus, kinds = view.column("num_gpus")[rows], view.column("kind")[rows]
    held = dict(zip(rows.tolist(), num_gpus.tolist(), strict=True))
    wanted = {target.job for target in targets if target.num_gpus > 0}
    on_gpus = rows[kinds != JobKind.CPU_ONLY].tolist()
    allocations = plan.preempt([job for job in on_gpus if job not in wanted])
    less, more = [], []
    for target in targets:
        current = held.get(target.job, 0)
        if target.num_gpus > current or target.moves:
            more.append(target)
        elif target.num_gpus > 0 and (target.num_gpus < current or target.shape is not None):
            less.append(target)
    for target, changes in zip(less, _shape_changes(view, less), strict=True):
        if changes or target.num_gpus < held[target.job]:
            allocations += _resize(view, plan, rule, target)
    allocations += start_cpu_jobs(view, plan, rule)
    for target in more:
        if target.job in held:
            allocations += _resize(view, plan, rule, target)
        else:
            shape = _with_gpus(target, tuple(range(target.num_gpus)))
            own = target.rule or rule
            found = plan.place(own, target.job, shape) or plan.place(own, target.job, _as_asked(view, shape))
            allocations += [] if found is None else [found]
    return work_conserving(view, plan, rule, None, allocations)
