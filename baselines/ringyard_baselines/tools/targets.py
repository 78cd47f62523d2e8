"""From sizes to places: the GPUs of each job become allocations that can be carried out in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, PlacementPlan, PlacementRule, SchedulingView
from ringyard.sim.feasibility import SHAPE_FIELDS
from ringyard.state.records import JobKind
from ringyard_baselines.scheduler import REQUESTED, Capabilities

#: fields of an allocation that fall back to what the job asks for, and the columns that say it
_BESIDE_GPUS = {name: column for name, (column, power) in REQUESTED.items() if power is Capabilities.CORES}

_named = attrgetter(*SHAPE_FIELDS)


class Target(NamedTuple):
    """What one job shall have; where is left to a placement rule.

    Attributes:
        job: row.
        num_gpus: how many GPUs.
        shape: batch, cores, parameter servers, as in `Allocation`; None: as asked.
    """

    job: int
    num_gpus: int
    shape: Allocation | None = None


def num_gpu_slots(view: SchedulingView, rule: PlacementRule) -> int:
    """GPUs that jobs can hold together: one that is up counts for every job that the rule puts on it."""
    return view.num_gpus_up * (view.cluster.jobs_per_gpu if rule.shares else 1)


def feasible(
    view: SchedulingView, order: Sequence[int] | NDArray[np.integer[Any]], rule: PlacementRule
) -> list[Target]:
    """The jobs that get the GPUs they ask for when `order` is walked; a job that does not fit is skipped.

    Args:
        view: the present moment.
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


def start_cpu_jobs(view: SchedulingView, draft: PlacementPlan, rule: PlacementRule) -> list[Allocation]:
    """Start waiting CPU-only jobs, first come first served, where there are cores."""
    rows = view.waiting
    rows = np.sort(rows[view.column("kind")[rows] == JobKind.CPU_ONLY])
    return draft.start(rule, rows) if len(rows) else []


def work_conserving(
    view: SchedulingView,
    draft: PlacementPlan,
    rule: PlacementRule,
    order: Iterable[int],
    allocations: Sequence[Allocation],
) -> list[Allocation]:
    """The allocations, and if nothing ran after them the first job of `order` that finds room as it asks.

    Args:
        view: the present moment.
        draft: after the allocations.
        rule: where the job goes.
        order: rows of jobs that hold nothing then.
        allocations: changes and stops of running jobs, and starts.
    """
    idle = len(view.running) == len(allocations) == sum(allocation.preempts for allocation in allocations)
    for job in order if idle else ():
        found = draft.place(rule, job)
        if found is not None:
            return [*allocations, found]
    return list(allocations)


def _submitted(view: SchedulingView) -> Iterator[int]:
    """Rows of GPU jobs by submission, looked up when the first is asked for."""
    yield from view.gpu_jobs.tolist()


def _with_gpus(target: Target, gpus: tuple[int, ...]) -> Allocation:
    return (target.shape or Allocation(target.job)).at(gpus)


def _differ(view: SchedulingView, targets: Sequence[Target]) -> list[bool]:
    """[n] whether a target names any shape that its running job does not have.

    Args:
        view: the present moment.
        targets: [n] of running jobs.
    """
    if not targets:
        return []
    named = [_named(target.shape or Allocation(target.job)) for target in targets]
    numbers = np.array(named, dtype=np.float64)  # None: NaN
    seen = view.select([target.job for target in targets])
    has = np.column_stack([seen.column(name) for name in SHAPE_FIELDS])
    differ: list[bool] = ((numbers != has) & ~np.isnan(numbers)).any(axis=1).tolist()
    return differ


def _reshaped(
    view: SchedulingView, draft: PlacementPlan, rule: PlacementRule, target: Target
) -> list[Allocation]:
    """Change a running job: in place if it keeps its size, else wherever the rule says; [] if it cannot.

    Where there is no room for what is wanted beside the GPUs, it has what it asks for.
    """
    if view.column("num_gpus")[target.job] == target.num_gpus:
        wanted = _with_gpus(target, view.gpus_of(target.job))
        return [wanted] if draft.reallocate(wanted) else []
    wanted = _with_gpus(target, tuple(range(target.num_gpus)))  # how many; the rule says which
    asked: dict[str, Any] = {
        name: int(view.column(column)[target.job])
        for name, column in _BESIDE_GPUS.items()
        if getattr(wanted, name) is not None
    }
    found = draft.migrate(rule, target.job, [wanted, replace(wanted, **asked)])
    return [] if found is None else [found]


def apply_sizes(view: SchedulingView, targets: Sequence[Target], rule: PlacementRule) -> list[Allocation]:
    """Allocations after which the targets hold what they shall, and no other GPU job holds anything.

    Jobs that keep their size keep their place. Preempted and shrinking jobs come first, then waiting CPU-only
    jobs, first come first served. Jobs that start or grow follow in the order of the targets, with the cores
    and parameter servers they ask for where there is no room for more. A job that finds no room at all keeps
    what it has. Should nothing run then, the first waiting job that finds room as it asked starts, so that
    no cluster idles while jobs wait.

    Args:
        view: the present moment.
        targets: GPU jobs and their sizes, the most urgent first.
        rule: where a job goes that starts or changes its size.
    """
    draft = PlacementPlan(view)
    rows = view.running
    num_gpus, kinds = view.column("num_gpus")[rows], view.column("kind")[rows]
    held = dict(zip(rows.tolist(), num_gpus.tolist(), strict=True))
    wanted = {job for job, size, _ in targets if size > 0}
    on_gpus = rows[kinds != JobKind.CPU_ONLY].tolist()
    allocations = draft.preempt([job for job in on_gpus if job not in wanted])
    less, more = [], []
    for target in targets:
        job, size, shape = target
        has = held.get(job, 0)
        if size > has:
            more.append(target)
        elif size > 0 and (size < has or shape is not None):
            less.append(target)
    for target, differs in zip(less, _differ(view, less), strict=True):
        if differs or target.num_gpus < held[target.job]:
            allocations += _reshaped(view, draft, rule, target)
    allocations += start_cpu_jobs(view, draft, rule)
    for runs, together in groupby(more, lambda target: target.job in held):
        if runs:
            for target in together:
                allocations += _reshaped(view, draft, rule, target)
        else:
            jobs, sizes, shapes = zip(*together, strict=True)
            wished = [shape or Allocation(job) for job, shape in zip(jobs, shapes, strict=True)]
            allocations += draft.start_in_shapes(rule, sizes, wished)
    return work_conserving(view, draft, rule, _submitted(view), allocations)
