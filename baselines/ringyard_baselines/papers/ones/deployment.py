"""Deployment of ONES' schedules: starts, preemptions, and the way of running jobs to their new GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, PlacementPlan, SchedulingView
from ringyard.sim.speeds import SpeedTable

GpusByJob = Mapping[int, tuple[int, ...]]  #: {job row: its GPUs, ascending}


def gpus_by_job(genome: NDArray[np.integer[Any]]) -> dict[int, tuple[int, ...]]:
    """Return {job row: its GPUs} of a schedule, [GPUs] or [GPUs, places] of job rows, -1 free."""
    order = np.argsort(genome, axis=None, kind="stable")
    jobs = genome.ravel()[order]
    gpus = (order // (genome.size // len(genome))).tolist()
    cuts = [0, *(np.flatnonzero(jobs[1:] != jobs[:-1]) + 1).tolist(), len(gpus)]
    parts = zip(jobs[cuts[:-1]].tolist(), cuts[:-1], cuts[1:], strict=True)
    return {job: tuple(gpus[begin:end]) for job, begin, end in parts if job >= 0}


def gpus_of_running_jobs(view: SchedulingView) -> dict[int, tuple[int, ...]]:
    """Return {job row: its GPUs} of the running GPU jobs."""
    return gpus_by_job(view.jobs_of_gpu)


def jobs_blocked_as_whole(wanted: GpusByJob, held: GpusByJob, too_recent: bool) -> set[int]:
    """Return the jobs that cannot change now, if a schedule is deployed as a whole or not at all.

    `wanted` has the GPUs of each job in the schedule, `held` those of each running job. If a job that would
    change was deployed `too_recent`, only jobs whose GPUs are all free may start.
    """
    if not too_recent:
        return set()
    busy = {gpu for gpus in held.values() for gpu in gpus}
    return set(held) | {job for job, gpus in wanted.items() if not busy.isdisjoint(gpus)}


def jobs_blocked_in_parts(wanted: GpusByJob, held: GpusByJob, too_recent: Iterable[int]) -> set[int]:
    """Return the jobs that cannot change now, if each change is accepted or refused by itself.

    `wanted` has the GPUs of each job in the schedule, `held` those of each running job. Jobs that were
    deployed `too_recent` are blocked, jobs that want their GPUs too, and so on.
    """
    blocked = set(too_recent)
    while True:
        kept = {gpu: job for job, gpus in held.items() if job in blocked for gpu in gpus}
        others = {job: gpus for job, gpus in wanted.items() if job not in blocked}
        more = {job for job, gpus in others.items() if any(kept.get(gpu, job) != job for gpu in gpus)}
        if not more:
            return blocked
        blocked |= more


class Deployment:
    """Allocations found so far, tried on a placement plan, from the present GPUs `held` of jobs.

    Where `elastic`, a move to as many other GPUs goes through another size: new workers join and old ones
    leave, two resizes at once that pause a job once. Otherwise it is a restart.
    """

    def __init__(self, plan: PlacementPlan, held: GpusByJob, table: SpeedTable, elastic: bool) -> None:
        self._plan = plan
        self._table = table
        self._elastic = elastic
        self._held = dict(held)
        self.allocations: list[Allocation] = []

    def preempt(self, job: int) -> None:
        """Preempt a running job."""
        self.allocations += self._plan.preempt([job])

    def start(self, places: GpusByJob) -> None:
        """Start the jobs that find room."""
        for job, gpus in places.items():
            shape = self._shape(job, gpus)
            if self._plan.allocate(shape):
                self.allocations.append(shape)

    def migrate(self, places: GpusByJob) -> None:
        """Move running jobs to their new GPUs as these become free, one by one.

        A job that cannot move shrinks to the GPUs that it keeps, or to the fewest if it keeps none, and then
        moves to those of its new GPUs that are free. A job that still blocks others is preempted and starts
        again.
        """
        left = self._move_possible(places)
        for step in (self._shrink, self._move_ahead):
            for job in left:
                step(job, left[job])
            left = self._move_possible(left)
        for job in left:
            self.preempt(job)
        self.start(left)

    def _shape(self, job: int, gpus: Sequence[int]) -> Allocation:
        batch = self._table.batch_of(job, len(gpus))
        return Allocation(job, tuple(sorted(gpus)), batch_size=batch)

    def _allows(self, job: int, num_gpus: int) -> bool:
        place = self._table.place[job]
        return num_gpus <= self._table.sizes and bool(self._table.speed[place, num_gpus] > 0)

    def _apply(self, job: int, shapes: Sequence[Allocation]) -> bool:
        """Give a running job one shape after the other. False: one finds no room, and nothing changes."""
        if not self._plan.reallocate(*shapes):
            return False
        self._held[job] = shapes[-1].gpu_ids
        self.allocations += shapes
        return True

    def _move_possible(self, places: GpusByJob) -> dict[int, tuple[int, ...]]:
        """Move jobs as long as any can move, and return the jobs that are left."""
        left = dict(places)
        progress = True
        while left and progress:
            progress = False
            for job in list(left):
                if self._move_job(job, left[job]):
                    del left[job]
                    progress = True
        return left

    def _move_job(self, job: int, gpus: Sequence[int]) -> bool:
        """Move a running job to these GPUs, elastically if possible. False: they are not free."""
        shape = self._shape(job, gpus)
        between = self._intermediate_shape(job, shape.gpu_ids)
        return (between is not None and self._apply(job, [between, shape])) or self._apply(job, [shape])

    def _intermediate_shape(self, job: int, gpus: tuple[int, ...]) -> Allocation | None:
        """Return another size on the way to as many other GPUs. None: there is none or no need."""
        held = self._held[job]
        if not self._elastic or len(held) != len(gpus) or held == gpus:
            return None
        kept = [gpu for gpu in held if gpu in gpus] or list(held)
        for size in range(min(len(kept), len(held) - 1), 0, -1):
            if self._allows(job, size):
                return self._shape(job, kept[:size])
        grown = sorted({*held, *gpus})
        return self._shape(job, grown) if self._allows(job, len(grown)) else None

    def _shrink(self, job: int, gpus: tuple[int, ...]) -> None:
        """Keep the GPUs that the job also has later, or as few as it may if there are none."""
        held = self._held[job]
        kept = [gpu for gpu in held if gpu in gpus]
        sizes = range(len(kept), 0, -1) if kept else range(1, len(held) if self._elastic else 1)
        for size in sizes:
            if self._allows(job, size):
                chosen = (kept or held)[:size]
                if len(chosen) < len(held):
                    self._apply(job, [self._shape(job, chosen)])
                return

    def _move_ahead(self, job: int, gpus: tuple[int, ...]) -> None:
        """Move to free ones of the job's new GPUs, as many as it has, so that others get its old ones."""
        free = self._plan.gpu_is_free
        ahead = [gpu for gpu in gpus if free[gpu]][: len(self._held[job])]
        if self._elastic and len(ahead) == len(self._held[job]) and not set(gpus) & set(self._held[job]):
            self._move_job(job, ahead)
