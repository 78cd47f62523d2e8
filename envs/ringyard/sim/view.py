"""What a scheduler sees: read-only columns of the running simulation, and what-if questions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.performance import PerformanceModel
from ringyard.records import JobStatus, State
from ringyard.sim.allocation import Allocation
from ringyard.sim.what_if import what_if

__all__ = ["SchedulingView"]


class SchedulingView:
    """The cluster and its jobs at a decision point.

    Job columns are [jobs] arrays over the whole table, NaN where a value does not exist yet. They are
    windows on live data: copy what must survive the next `advance`.
    """

    def __init__(self, state: State, b: int, cluster: Cluster, performance: PerformanceModel) -> None:
        self.state = state
        self.b = b
        self.cluster = cluster
        self.performance = performance
        #: the performance model, for schedulers that plan in compiled code
        self.rate = performance.rate
        self._num_jobs = int(state.clusters["num_jobs"][b])

    def column(self, name: str) -> NDArray[Any]:
        """[jobs] a column of `ringyard.records.JOB`, read-only."""
        column: NDArray[Any] = self.state.jobs[name][self.b, : self._num_jobs]
        column.flags.writeable = False
        return column

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return float(self.state.clusters["now"][self.b])

    @property
    def waiting(self) -> NDArray[np.int32]:
        """[waiting] rows of the waiting jobs, in the order of the waiting list."""
        return self.state.waiting[self.b, : self.state.clusters["num_waiting"][self.b]].copy()

    @property
    def running(self) -> NDArray[np.int32]:
        """[running] rows of the running jobs, ascending."""
        return np.sort(self.state.running[self.b, : self.state.clusters["num_running"][self.b]])

    @property
    def num_gpus(self) -> NDArray[np.int32]:
        """[jobs] GPUs each job asks for."""
        return self.column("num_gpus")

    @property
    def submit_seconds(self) -> NDArray[np.float64]:
        """[jobs] arrival times; jobs still to arrive are the scheduler's to ignore."""
        return self.column("submit_seconds")

    @property
    def attained_service(self) -> NDArray[np.float64]:
        """[jobs] GPU seconds held so far."""
        running = self.column("status") == JobStatus.RUNNING
        held = np.where(running, self.now - self.column("synced_seconds"), 0.0)
        return self.column("attained_service") + self.num_gpus * held

    @property
    def remaining_seconds(self) -> NDArray[np.float64]:
        """[jobs] seconds left if alone on consolidated GPUs; NaN for jobs that are not predictable."""
        left = self.remaining_iterations * self.column("isolated_iteration_seconds")
        return np.where(self.column("predictable") != 0, left, np.nan)

    @property
    def remaining_iterations(self) -> NDArray[np.float64]:
        """[jobs] iterations left; NaN for jobs that are not predictable."""
        running = self.column("status") == JobStatus.RUNNING
        begin = np.maximum(self.column("synced_seconds"), self.column("progress_from_seconds"))
        ran = np.where(running, np.maximum(self.now - begin, 0.0), 0.0)
        seconds = np.where(running, self.column("iteration_seconds"), 1.0)
        left = np.maximum(self.column("remaining_iterations") - ran / seconds, 0.0)
        return np.where(self.column("predictable") != 0, left, np.nan)

    @property
    def num_free_gpus(self) -> int:
        """Free GPUs of the whole cluster."""
        return int(self.state.clusters["free_gpus"][self.b])

    @property
    def free_gpus_per_server(self) -> NDArray[np.int32]:
        """[servers] free GPUs."""
        return self.state.servers["free_gpus"][self.b].copy()

    @property
    def job_of_gpu(self) -> NDArray[np.int32]:
        """[gpus] row of the job on each GPU, -1 if free."""
        return self.state.gpus["job"][self.b].copy()

    def gpus_of(self, job: int) -> tuple[int, ...]:
        """GPU ids a job holds, ascending."""
        return tuple(int(gpu) for gpu in np.flatnonzero(self.state.gpus["job"][self.b] == job))

    def iteration_seconds(self, allocation: Allocation) -> float:
        """Seconds per iteration the job would have on these GPUs, contention as it is now."""
        gpus = np.sort(np.asarray(allocation.gpu_ids, dtype=np.int32))
        return float(what_if(self.state, self.b, allocation.job, gpus, self.rate))

    def wake_at(self, seconds: float) -> None:
        """Ask for a decision point at `seconds`, if nothing else happens before."""
        if seconds > self.now:
            wake = self.state.clusters["wake_seconds"]
            wake[self.b] = min(wake[self.b], seconds)
