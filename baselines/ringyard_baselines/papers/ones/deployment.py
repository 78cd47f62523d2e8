"""From ONES' schedule to allocations: jobs that start or stop, and how running jobs reach their new GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, PlacementPlan, SchedulingView
from ringyard.sim.speeds import SpeedTable

#: {job row: its GPUs, ascending}
GpusByJob = Mapping[int, tuple[int, ...]]


def gpus_by_job(genome: NDArray[np.integer[Any]]) -> dict[int, tuple[int, ...]]:
    """{job row: its GPUs} of a schedule, [GPUs] or [GPUs, places] job rows, -1 free."""
    order = np.argsort(genome, axis=None, kind="stable")
    jobs = genome.ravel()[order]
    gpus = (order // (genome.size // len(genome))).tolist()
    cuts = [0, *(np.flatnonzero(jobs[1:] != jobs[:-1]) + 1).tolist(), len(gpus)]
    parts = zip(jobs[cuts[:-1]].tolist(), cuts[:-1], cuts[1:], strict=True)
    return {job: tuple(gpus[begin:end]) for job, begin, end in parts if job >= 0}


def gpus_of_running_jobs(view: SchedulingView) -> dict[int, tuple[int, ...]]:
    """{job row: its GPUs} of the running GPU jobs."""
    return gpus_by_job(view.jobs_of_gpu)


def jobs_blocked_as_whole(wanted: GpusByJob, held: GpusByJob, unripe: bool) -> set[int]:
    """Jobs that cannot change now: all but starts on free GPUs, if one that would change is not ripe."""
    if not unripe:
        return set()
    busy = {gpu for gpus in held.values() for gpu in gpus}
    return set(held) | {job for job, gpus in wanted.items() if not busy.isdisjoint(gpus)}


def jobs_blocked_in_parts(wanted: GpusByJob, held: GpusByJob, unripe: Iterable[int]) -> set[int]:
    """Jobs that cannot change now: the unripe, jobs that want their GPUs, and so on."""
    blocked = set(unripe)
    while True:
        kept = {gpu: job for job, gpus in held.items() if job in blocked for gpu in gpus}
        more = {
            job
            for job, gpus in wanted.items()
            if job not in blocked and any(kept.get(gpu, job) != job for gpu in gpus)
        }
        if not more:
            return blocked
        blocked |= more


class Deployment:
    """Allocations found so far, on a draft.

    Args:
        draft: the present moment.
        held: what jobs hold then, see `gpus_of_running_jobs`.
        table: speeds and batches.
        elastic_moves: a move to as many other GPUs goes by way of another size: new workers join and old ones
            leave, two resizes at once that pause a job once. Else it is a restart.
    """

    def __init__(
        self, draft: PlacementPlan, held: GpusByJob, table: SpeedTable, elastic_migration: bool
    ) -> None:
        self._draft = draft
        self._table = table
        self._elastic_migration = elastic_migration
        self._held = dict(held)
        self.allocations: list[Allocation] = []

    def stop(self, job: int) -> None:
        """The running job waits again."""
        self.allocations += self._draft.preempt([job])

    def start(self, places: GpusByJob) -> None:
        """Jobs that hold nothing start, those that find room."""
        for job, gpus in places.items():
            shape = self._shape(job, gpus)
            if self._draft.allocate(shape):
                self.allocations.append(shape)

    def move(self, places: GpusByJob) -> None:
        """Running jobs come to their new GPUs as these become free, one by one.

        A job that cannot go on shrinks to what it keeps, to the fewest if it keeps nothing, and goes to those
        of its new GPUs that are free. A job that still blocks others stops and starts again.
        """
        left = self._advance(places)
        for step in (self._shrink, self._go_ahead):
            for job in left:
                step(job, left[job])
            left = self._advance(left)
        for job in left:
            self.stop(job)
        self.start(left)

    def _shape(self, job: int, gpus: Sequence[int]) -> Allocation:
        batch = self._table.batch_of(job, len(gpus))
        return Allocation(job, tuple(sorted(gpus)), batch_size=batch)

    def _allows(self, job: int, num_gpus: int) -> bool:
        place = self._table.place[job]
        return num_gpus <= self._table.sizes and bool(self._table.speed[place, num_gpus] > 0)

    def _take(self, job: int, shapes: Sequence[Allocation]) -> bool:
        """Let a running job take one shape after the other; False, and it stays as it is: no room for one."""
        if not self._draft.reallocate(*shapes):
            return False
        self._held[job] = shapes[-1].gpu_ids
        self.allocations += shapes
        return True

    def _advance(self, places: GpusByJob) -> dict[int, tuple[int, ...]]:
        """Move jobs as long as any can; return the jobs that are left."""
        left = dict(places)
        progress = True
        while left and progress:
            progress = False
            for job in list(left):
                if self._go(job, left[job]):
                    del left[job]
                    progress = True
        return left

    def _go(self, job: int, gpus: Sequence[int]) -> bool:
        """Let a running job go to these GPUs, elastically if it can; False: they are not free."""
        shape = self._shape(job, gpus)
        between = self._between(job, shape.gpu_ids)
        return (between is not None and self._take(job, [between, shape])) or self._take(job, [shape])

    def _between(self, job: int, gpus: tuple[int, ...]) -> Allocation | None:
        """Another size on the way to as many other GPUs; None: there is none, or it takes none."""
        held = self._held[job]
        if not self._elastic_migration or len(held) != len(gpus) or held == gpus:
            return None
        kept = [gpu for gpu in held if gpu in gpus] or list(held)
        for size in range(min(len(kept), len(held) - 1), 0, -1):
            if self._allows(job, size):
                return self._shape(job, kept[:size])
        grown = sorted({*held, *gpus})
        return self._shape(job, grown) if self._allows(job, len(grown)) else None

    def _shrink(self, job: int, gpus: tuple[int, ...]) -> None:
        """Keep the GPUs that it also will have; where there are none, as few as it may."""
        held = self._held[job]
        kept = [gpu for gpu in held if gpu in gpus]
        sizes = range(len(kept), 0, -1) if kept else range(1, len(held) if self._elastic_migration else 1)
        for size in sizes:
            if self._allows(job, size):
                chosen = (kept or held)[:size]
                if len(chosen) < len(held):
                    self._take(job, [self._shape(job, chosen)])
                return

    def _go_ahead(self, job: int, gpus: tuple[int, ...]) -> None:
        """Go to free ones of its new GPUs, as many as it has, so that others get those."""
        free = self._draft.gpu_is_free
        ahead = [gpu for gpu in gpus if free[gpu]][: len(self._held[job])]
        if (
            self._elastic_migration
            and len(ahead) == len(self._held[job])
            and not set(gpus) & set(self._held[job])
        ):
            self._go(job, ahead)
