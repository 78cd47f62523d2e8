"""Gandiva (Xiao et al., OSDI 2018): time slices, packing by trial, migration to consolidate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import Positive, checked
from ringyard.observability import Observability
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import TimeSlots, feasible, start_cpu_jobs, work_conserving


@checked("gandiva")
@dataclass(eq=False)
class Gandiva(Scheduler):
    """Gandiva of Xiao et al. (OSDI 2018): round-robin over all jobs, packing of pairs, migration.

    At the end of a slice pairs below the threshold split, waiting jobs with the fewest slices start, others
    join running jobs, and jobs that had more slices are suspended. If no job waits, one scattered job
    migrates.

    FOUND (public re-implementations): suspended jobs are time-sliced. Two jobs are packed only while the sum
    of their normalised throughputs is at least 1.0. Partners are picked at random, and only if demand exceeds
    the GPUs. Jobs migrate to consolidate.

    Assumed: a slice lasts 600 s, twenty times the 30 s restart of conf/experiment. (The paper's
    suspension takes well below a second and public simulators use 10 s slices: set `slice_seconds` with the
    restart cost.) Jobs take turns by the slices that they have had. A waiting job joins a running one of the
    same number of GPUs. A pair that fails the test splits and is not tried again. At most one job migrates
    per slice, the one with most servers beyond what it needs.
    """

    name = "gandiva"
    observability = Observability.SIZES | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT

    placement: PlacementRule  #: where jobs go
    slice_seconds: Positive = 600.0  #: length of a time slice in seconds. Assumption.
    #: smallest sum of normalised throughputs of a pair, 0 to 2
    packing_threshold: Annotated[float, "[0, 2]"] = 1.0
    migrate: bool = True  #: whether scattered jobs move

    def __post_init__(self) -> None:
        self.round_seconds = self.slice_seconds

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget slices and pairs (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._slices = np.zeros(len(jobs))
        self._partner: dict[int, int] = {}
        self._failed: set[frozenset[int]] = set()
        self._rng = rng

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Rotate at the end of a slice, otherwise fill free GPUs."""
        rotate = self._slots.begins(view)
        jobs = view.gpu_jobs
        self._slices[jobs] += np.isin(jobs, view.running) * rotate
        plan = PlacementPlan(view)
        allocations: list[Allocation] = []
        running = set(view.running.tolist())
        self._partner = {guest: host for guest, host in self._partner.items() if {guest, host} <= running}
        if rotate:
            # guests of pairs with a sum of normalised throughputs below the threshold
            isolated, now = view.column("isolated_iteration_seconds"), view.column("iteration_seconds")
            bad = [
                guest
                for guest, host in self._partner.items()
                if isolated[guest] / now[guest] + isolated[host] / now[host] < self.packing_threshold
            ]
            self._failed |= {frozenset((guest, self._partner[guest])) for guest in bad}
            allocations += self._preempt(plan, bad, running)
        allocations += start_cpu_jobs(view, plan, self.placement)
        begun = set(view.running.tolist())
        waiting = [job for job in self._by_slices(jobs) if job not in begun]
        started = plan.start(self.placement, waiting)
        allocations += started
        now_running = {one.job for one in started}
        waiting = [job for job in waiting if job not in now_running]
        if rotate and waiting and view.cluster.jobs_per_gpu > 1:
            packed = self._pack(view, plan, waiting, [job for job in jobs.tolist() if job in running])
            allocations += packed
            waiting = [job for job in waiting if job not in {one.job for one in packed}]
        if rotate and waiting:
            # running jobs that lose their turn, with the jobs packed onto them
            unpaired = [job for job in self._by_slices(jobs) if job not in self._partner]
            keep = {target.job for target in feasible(view, unpaired, self.placement)}
            over = [job for job in sorted(running) if job in set(unpaired) - keep]
            guests = [guest for guest, host in self._partner.items() if host in over and guest in running]
            allocations += self._preempt(plan, [*over, *sorted(guests)], running)
            allocations += plan.start(self.placement, waiting)
        elif rotate and self.migrate:
            allocations += self._migrate_one(view, plan, running)
        return work_conserving(view, plan, self.placement, self._by_slices(jobs), allocations)

    def _preempt(self, plan: PlacementPlan, jobs: Sequence[int], running: set[int]) -> list[Allocation]:
        for job in jobs:
            self._partner.pop(job, None)
            running.discard(job)
        return plan.preempt(jobs)

    def _by_slices(self, jobs: NDArray[np.int64]) -> list[int]:
        """Return the jobs by the slices that they have had, then by submission."""
        return jobs[np.lexsort((jobs, self._slices[jobs]))].tolist()

    def _pack(
        self, view: SchedulingView, plan: PlacementPlan, waiting: Sequence[int], hosts: Sequence[int]
    ) -> list[Allocation]:
        """Let waiting jobs join running jobs of their size that do not share yet."""
        taken = set(self._partner.values()) | set(self._partner)
        sizes = view.column("asked_gpus")
        found = []
        for job in waiting:
            free = [host for host in hosts if host not in taken and sizes[host] == sizes[job]]
            options = [host for host in free if frozenset((job, host)) not in self._failed]
            if not options:
                continue
            host = int(self._rng.choice(options))
            joined = Allocation(job, view.gpus_of(host))
            if plan.allocate(joined):
                found.append(joined)
                taken.add(host)
                self._partner[job] = host
        return found

    def _migrate_one(self, view: SchedulingView, plan: PlacementPlan, running: set[int]) -> list[Allocation]:
        """Move the job with most servers beyond what it needs, if that reduces its servers."""
        paired = set(self._partner) | set(self._partner.values())
        spans = view.column("num_servers")
        sizes = view.column("num_gpus")
        alone = [job for job in running - paired if sizes[job] > 0]
        fewest = view.cluster.fewest_servers
        candidates = [(int(spans[job] - fewest(sizes[job : job + 1])[0]), -job) for job in alone]
        if not candidates or max(candidates)[0] <= 0:
            return []
        job = -max(candidates)[1]
        found = plan.migrate(self.placement, job)
        if found is not None:
            servers = np.unique(view.cluster.server_of_gpu[list(found.gpu_ids)])
            if len(servers) < spans[job]:
                return [found]
        return []
