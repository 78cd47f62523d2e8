"""Gandiva (Xiao et al., OSDI 2018): time slices, packing by trial, migration to consolidate."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import (
    Allocation,
    Cluster,
    JobTable,
    Observability,
    PlacementPlan,
    PlacementRule,
    SchedulingView,
)
from ringyard.checks import Positive, checked
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import feasible, start_cpu_jobs, work_conserving
from ringyard_baselines.tools.time_slots import TimeSlots


@checked("gandiva")
class Gandiva(Scheduler):
    """Round-robin over all jobs; pairs share GPUs while that pays; scattered jobs move together.

    FOUND (public re-implementations): suspended jobs are time-sliced; two jobs are packed only while the sum
    of their normalised throughputs is at least 1.0; partners are picked at random, and only when demand
    exceeds the GPUs; jobs migrate to consolidate. Assumed: a slice lasts 600 s, twenty times the 30 s
    restart of conf/experiment (the paper's takes well below a second, and public simulators use 10 s
    slices: set `slice_seconds` with the restart cost); jobs take turns by the slices they have had; a
    waiting job joins a running one of the same number of GPUs; a pair that fails the test is split and not
    tried again; at most one job migrates per slice, the one on most servers more than it needs.

    Args:
        placement: where a job goes.
        slice_seconds: length of a time slice. Assumption.
        threshold: packed jobs must reach this sum of normalised throughputs.
        migrate: whether scattered jobs move.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "gandiva"
    observability = Observability.SIZES | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT

    def __init__(
        self,
        placement: PlacementRule,
        slice_seconds: Positive = 600.0,
        packing_threshold: Annotated[float, "[0, 2]"] = 1.0,
        migrate: bool = True,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = slice_seconds
        self._packing_threshold = packing_threshold
        self._migrate = migrate

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget turns and pairs."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._slices = np.zeros(len(jobs))
        self._partner: dict[int, int] = {}
        self._failed: set[frozenset[int]] = set()
        self._rng = rng

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Rotate at the end of a slice; in between only fill free GPUs."""
        rotate = self._slots.begins(view)
        jobs = view.gpu_jobs
        self._slices[jobs] += np.isin(jobs, view.running) * rotate
        draft = PlacementPlan(view)
        allocations: list[Allocation] = []
        running = set(view.running.tolist())
        self._partner = {guest: host for guest, host in self._partner.items() if {guest, host} <= running}
        if rotate:
            allocations += self._stop(draft, self._unprofitable(view), running)
        allocations += start_cpu_jobs(view, draft, self.placement)
        begun = set(view.running.tolist())
        waiting = [job for job in self._turns(jobs) if job not in begun]
        waiting = self._start(draft, waiting, allocations)
        if rotate and waiting and view.cluster.jobs_per_gpu > 1:
            packed = self._pack(view, draft, waiting, [job for job in jobs.tolist() if job in running])
            allocations += packed
            waiting = [job for job in waiting if job not in {one.job for one in packed}]
        if rotate and waiting:
            allocations += self._stop(draft, self._over(view, jobs, running), running)
            self._start(draft, waiting, allocations)
        elif rotate and self._migrate:
            allocations += self._move(view, draft, running)
        return work_conserving(view, draft, self.placement, self._turns(jobs), allocations)

    def _stop(self, draft: PlacementPlan, jobs: Sequence[int], running: set[int]) -> list[Allocation]:
        for job in jobs:
            self._partner.pop(job, None)
            running.discard(job)
        return draft.preempt(jobs)

    def _start(
        self, draft: PlacementPlan, waiting: Sequence[int], allocations: list[Allocation]
    ) -> list[int]:
        """Start the jobs that find GPUs; return the others."""
        left = []
        for job in waiting:
            found = draft.place(self.placement, job)
            if found is not None:
                allocations.append(found)
            else:
                left.append(job)
        return left

    def _turns(self, jobs: NDArray[np.int64]) -> list[int]:
        """The jobs, fewest slices first, then by submission."""
        order: list[int] = jobs[np.lexsort((jobs, self._slices[jobs]))].tolist()
        return order

    def _over(self, view: SchedulingView, jobs: NDArray[np.int64], running: set[int]) -> list[int]:
        """Running jobs whose turn is over, with their guests."""
        alone = [job for job in self._turns(jobs) if job not in self._partner]
        keep = {target.job for target in feasible(view, alone, self.placement)}
        over = [job for job in sorted(running) if job in set(alone) - keep]
        guests = [guest for guest, host in self._partner.items() if host in over and guest in running]
        return [*over, *sorted(guests)]

    def _unprofitable(self, view: SchedulingView) -> list[int]:
        """Guests of pairs whose normalised throughputs sum to less than the threshold."""
        alone, now = view.column("isolated_iteration_seconds"), view.column("iteration_seconds")
        bad = [
            guest
            for guest, host in self._partner.items()
            if alone[guest] / now[guest] + alone[host] / now[host] < self._packing_threshold
        ]
        self._failed |= {frozenset((guest, self._partner[guest])) for guest in bad}
        return bad

    def _pack(
        self, view: SchedulingView, draft: PlacementPlan, waiting: Sequence[int], hosts: Sequence[int]
    ) -> list[Allocation]:
        """Waiting jobs join running ones of their size that do not share yet."""
        taken = set(self._partner.values()) | set(self._partner)
        sizes = view.column("asked_gpus")
        found = []
        for job in waiting:
            options = [
                host
                for host in hosts
                if host not in taken
                and sizes[host] == sizes[job]
                and frozenset((job, host)) not in self._failed
            ]
            if not options:
                continue
            host = int(self._rng.choice(options))
            joined = Allocation(job, view.gpus_of(host))
            if draft.allocate(joined):
                found.append(joined)
                taken.add(host)
                self._partner[job] = host
        return found

    def _move(self, view: SchedulingView, draft: PlacementPlan, running: set[int]) -> list[Allocation]:
        """The job that spans most servers more than it needs, if it finds a better place."""
        paired = set(self._partner) | set(self._partner.values())
        spans = view.column("num_servers")
        sizes = view.column("num_gpus")
        candidates = [
            (int(spans[job] - view.cluster.fewest_servers(sizes[job : job + 1])[0]), -job)
            for job in running - paired
            if sizes[job] > 0
        ]
        if not candidates or max(candidates)[0] <= 0:
            return []
        job = -max(candidates)[1]
        found = draft.migrate(self.placement, job)
        if found is not None:
            servers = np.unique(view.cluster.server_of_gpu[list(found.gpu_ids)])
            if len(servers) < spans[job]:
                return [found]
        return []
