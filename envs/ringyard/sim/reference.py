"""The simulator again, slow and plain: the oracle of the compiled engine's tests.

Everything is recomputed from scratch at every event: who spans which servers, every job's worst link,
every job's speed. No heap, no incremental counts, no arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from ringyard.cluster import Cluster
from ringyard.errors import PlacementError, SchedulerError
from ringyard.jobs import JobTable
from ringyard.performance import PerformanceModel
from ringyard.restart import RestartCost, constant
from ringyard.sim.allocation import Allocation

__all__ = ["ReferenceSimulator"]


@dataclass
class _Job:
    submit: float
    num_gpus: int
    compute_seconds: float
    gradient_bytes: float
    restart_seconds: float
    remaining: float = 0.0
    gpus: tuple[int, ...] = ()
    ready: float = 0.0  # progress begins here
    start: float | None = None
    end: float | None = None
    arrived: bool = False
    service: float = 0.0
    preemptions: int = 0
    seconds: float = field(default=float("nan"))


class ReferenceSimulator:
    """Same jobs, allocations and decision points as `ringyard.sim.simulator.Simulator`.

    Args: as there; random placement, timelines and forks are left out.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: JobTable,
        performance: PerformanceModel,
        restart: RestartCost | None = None,
        round_seconds: float | None = None,
    ) -> None:
        jobs.check(cluster)
        self.cluster = cluster
        self.now = 0.0
        self.jobs_in_system_integral = 0.0
        self.busy_gpu_integral = 0.0
        self._performance = performance
        self._round_seconds = round_seconds
        self._next_round = round_seconds or float("inf")
        costs = (restart or constant(0.0))(jobs)
        self.jobs = [
            _Job(
                float(jobs.submit_seconds[j]),
                int(jobs.num_gpus[j]),
                float(jobs.compute_seconds[j]),
                float(jobs.gradient_bytes[j]),
                float(costs[j]),
            )
            for j in range(len(jobs))
        ]
        fewest = cluster.fewest_servers(jobs.num_gpus)
        for j, job in enumerate(self.jobs):
            alone = self._iteration_seconds(job, int(fewest[j]), 1 if fewest[j] > 1 else 0)
            iterations = float(jobs.iterations[j])
            job.remaining = float(jobs.duration_seconds[j]) / alone if np.isnan(iterations) else iterations

    @property
    def done(self) -> bool:
        """Whether every job has finished."""
        return all(job.end is not None for job in self.jobs)

    @property
    def waiting(self) -> list[int]:
        """Rows of the waiting jobs."""
        return [j for j, job in enumerate(self.jobs) if job.arrived and job.end is None and not job.gpus]

    @property
    def running(self) -> list[int]:
        """Rows of the running jobs."""
        return [j for j, job in enumerate(self.jobs) if job.gpus]

    def _servers(self, job: _Job) -> set[int]:
        return {int(self.cluster.server_of_gpu[gpu]) for gpu in job.gpus}

    def _iteration_seconds(self, job: _Job, num_servers: int, worst_link_jobs: int) -> float:
        record = SimpleNamespace(
            num_gpus=job.num_gpus,
            compute_seconds=job.compute_seconds,
            gradient_bytes=job.gradient_bytes,
            num_servers=num_servers,
            worst_link_jobs=worst_link_jobs,
        )
        return float(self._performance.iteration_seconds.python(record, self._performance.parameters))

    def worst_link(self, job: _Job) -> int:
        """SJF-BCO eq. 6, term by term."""
        servers = self._servers(job)
        if len(servers) <= 1:
            return 0
        spanning = [self._servers(other) for other in self.jobs if len(self._servers(other)) > 1]
        return max(sum(server in other for other in spanning) for server in servers)

    def _rate_all(self) -> None:
        for j in self.running:
            job = self.jobs[j]
            job.seconds = self._iteration_seconds(job, len(self._servers(job)), self.worst_link(job))

    def apply(self, allocations: Sequence[Allocation]) -> None:
        """Carry out allocations in the given order."""
        for allocation in allocations:
            job = self.jobs[allocation.job]
            held = {gpu for other in self.jobs if other is not job for gpu in other.gpus}
            if held & set(allocation.gpu_ids):
                raise PlacementError(f"job {allocation.job} asks for GPUs that are held by others")
            if job.gpus:
                job.gpus = ()
                job.preemptions += 1
            if allocation.gpu_ids:
                job.gpus = tuple(allocation.gpu_ids)
                job.ready = self.now if job.start is None else self.now + job.restart_seconds
                if job.start is None:
                    job.start = self.now
        self._rate_all()

    def _end(self, job: _Job) -> float:
        return max(self.now, job.ready) + job.remaining * job.seconds

    def advance(self) -> None:
        """Move to the next decision point."""
        times = [self._end(self.jobs[j]) for j in self.running]
        times += [job.submit for job in self.jobs if not job.arrived]
        if self.waiting or self.running:
            times.append(self._next_round)
        time = min(times, default=float("inf"))
        if time == float("inf"):
            raise SchedulerError("nothing can happen any more")
        finished = [j for j in self.running if self._end(self.jobs[j]) <= time]
        elapsed = time - self.now
        self.jobs_in_system_integral += (len(self.waiting) + len(self.running)) * elapsed
        self.busy_gpu_integral += sum(self.jobs[j].num_gpus for j in self.running) * elapsed
        for j in self.running:
            job = self.jobs[j]
            job.remaining -= max(0.0, time - max(self.now, job.ready)) / job.seconds
            job.service += job.num_gpus * elapsed
        self.now = time
        for j in finished:
            self.jobs[j].gpus = ()
            self.jobs[j].end = time
            self.jobs[j].remaining = 0.0
        for job in self.jobs:
            if not job.arrived and job.submit <= time:
                job.arrived = True
        if self._round_seconds is not None and self._next_round <= time:
            self._next_round = (time // self._round_seconds + 1) * self._round_seconds
        self._rate_all()
