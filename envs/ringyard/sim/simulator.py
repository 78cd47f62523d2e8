"""`Simulator`: one cluster, one job table, driven decision by decision."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ringyard.cluster import Cluster
from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError, PlacementError, SchedulerError
from ringyard.jobs import JobTable
from ringyard.performance import PerformanceModel
from ringyard.records import JobStatus, copy_state, empty_state
from ringyard.restart import RestartCost, constant
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine import advance, start, stop
from ringyard.sim.metrics import Metrics, measure
from ringyard.sim.setup import load, prepare_jobs, set_up_clusters
from ringyard.sim.view import SchedulingView

__all__ = ["Simulator"]

TIMELINE_BINS = 512


@kernel
def _start(state: Any, b: int, j: int, gpus: Any, rate: Any) -> None:
    start(state, b, j, gpus, len(gpus), rate)


class Simulator:
    """An event-driven simulation of one job table on one cluster.

    Args:
        cluster: servers and GPUs.
        jobs: what arrives.
        performance: how fast jobs run where they are placed.
        restart: seconds without progress when a stopped job starts again; none by default.
        round_seconds: also decide every this many seconds while jobs are in the system.
        seed: of the random placement rule.
        segment_rows: how many (job, server, start, stop) rows to keep for drawing; 0 keeps none.

    Raises:
        WorkloadError: job data that makes no sense or does not fit the cluster.
        ConfigurationError: `round_seconds` not above 0.

    Examples:
        >>> from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
        >>> jobs = JobTable.from_columns([0.0], [2], [60.0])
        >>> sim = Simulator(Cluster.homogeneous(1, 4), jobs, ideal())
        >>> while not sim.done:
        ...     sim.apply([Allocation(int(j), (0, 1)) for j in sim.view().waiting])
        ...     sim.advance()
        >>> sim.metrics().mean_jct
        60.0
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: JobTable,
        performance: PerformanceModel,
        restart: RestartCost | None = None,
        round_seconds: float | None = None,
        seed: int = 0,
        segment_rows: int = 0,
    ) -> None:
        if round_seconds is not None and not round_seconds > 0:
            raise ConfigurationError(f"round_seconds is {round_seconds}; expected above 0, or none")
        self.cluster = cluster
        self.performance = performance
        self.rate = performance.rate
        records = prepare_jobs(jobs, cluster, performance, restart or constant(0.0))
        #: the table with every `duration_seconds` filled in
        self.jobs = replace(jobs, duration_seconds=records["isolated_seconds"].copy())
        num_classes = int(records["demand_class"].max()) + 1
        self.state = empty_state(
            1, len(jobs), cluster.num_gpus, cluster.num_servers, num_classes, TIMELINE_BINS, segment_rows
        )
        set_up_clusters(self.state, cluster, performance.network_coupled, round_seconds)
        load(self.state, 0, records, np.inf, seed)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return float(self.state.clusters["now"][0])

    @property
    def done(self) -> bool:
        """Whether every job has finished."""
        return bool(self.state.clusters["num_done"][0] == len(self.jobs))

    def view(self) -> SchedulingView:
        """What a scheduler sees now."""
        return SchedulingView(self.state, 0, self.cluster, self.performance)

    def prioritise(self, priority: Any) -> None:
        """Order the waiting list by `priority` ascending, ties by row; before the first `advance`.

        Args:
            priority: [jobs] float64.

        Raises:
            SchedulerError: jobs wait already.
        """
        if self.state.clusters["num_waiting"][0]:
            raise SchedulerError("the order of the waiting list is set before the simulation begins")
        self.state.jobs["priority"][0, :-1] = priority

    def apply(self, allocations: Sequence[Allocation]) -> None:
        """Carry out allocations in the given order, at the present time.

        Raises:
            PlacementError: an allocation the cluster cannot hold; those before it are in force.
        """
        for allocation in allocations:
            self._check(allocation)
            job = allocation.job
            if self.state.jobs["status"][0, job] == JobStatus.RUNNING:
                if set(allocation.gpu_ids) == set(self.view().gpus_of(job)):
                    continue
                stop(self.state, 0, job, self.rate)
            if allocation.gpu_ids:
                gpus = np.asarray(allocation.gpu_ids, dtype=np.int32)
                _start(self.state, 0, job, gpus, self.rate)

    def _check(self, allocation: Allocation) -> None:
        job, gpus = allocation.job, allocation.gpu_ids
        if not 0 <= job < len(self.jobs):
            raise PlacementError(f"there is no job {job}; expected a row in 0..{len(self.jobs) - 1}")
        status = JobStatus(int(self.state.jobs["status"][0, job]))
        if status not in (JobStatus.WAITING, JobStatus.RUNNING):
            raise PlacementError(
                f"job {job} is {status.name.lower()}; only waiting or running jobs take GPUs"
            )
        if not gpus:
            if status is not JobStatus.RUNNING:
                raise PlacementError(f"job {job} waits already; an empty allocation stops a running job")
            return
        asked = int(self.jobs.num_gpus[job])
        if len(gpus) != asked:
            raise PlacementError(f"job {job} asks for {asked} GPUs, the allocation names {len(gpus)}")
        if len(set(gpus)) != len(gpus):
            raise PlacementError(f"the allocation of job {job} names a GPU twice: {gpus}")
        for gpu in gpus:
            if not 0 <= gpu < self.cluster.num_gpus:
                raise PlacementError(f"there is no GPU {gpu}; expected 0..{self.cluster.num_gpus - 1}")
            holder = int(self.state.gpus["job"][0, gpu])
            if holder not in (-1, job):
                server = int(self.cluster.server_of_gpu[gpu])
                free = int(self.state.servers["free_gpus"][0, server])
                raise PlacementError(
                    f"job {job} asks for GPU {gpu}, held by job {holder} (server {server} has {free} free);"
                    " preempt first or choose another"
                )

    def advance(self) -> None:
        """Move to the next decision point.

        Raises:
            SchedulerError: jobs wait, but nothing runs and nothing will arrive.
        """
        if not advance(self.state, 0, self.rate):
            waiting = int(self.state.clusters["num_waiting"][0])
            raise SchedulerError(
                f"{waiting} jobs wait at {self.now:.0f} s, nothing runs and nothing will arrive;"
                " the scheduler must start one"
            )

    def metrics(self) -> Metrics:
        """Measures over the jobs finished so far."""
        return measure(self.state, 0, self.jobs)

    def fork(self) -> Self:
        """An independent copy at the same moment, for look-ahead."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.state = copy_state(self.state)
        return copy
