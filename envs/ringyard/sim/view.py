"""What a scheduler sees: read-only columns of the running simulation, and what-if questions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.learning_curves import EPOCHS, loss_history, training_loss, validation_metric
from ringyard.performance import PerformanceModel
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.physics import physics_of
from ringyard.sim.engine.what_if import what_if
from ringyard.sim.fits import check_allocation, gpus_of, wanted
from ringyard.state.arrays import State
from ringyard.state.records import JobKind, JobStatus

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
        self.physics = physics_of(performance)
        self._num_jobs = int(state.clusters["num_jobs"][b])

    def column(self, name: str) -> NDArray[Any]:
        """[jobs] a column of `ringyard.state.records.Job`, read-only."""
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
    def gpu_jobs(self) -> NDArray[np.int64]:
        """[n] rows of the waiting and running jobs that use GPUs, by submission (rows are in that order)."""
        status = self.column("status")
        live = (status == JobStatus.WAITING) | (status == JobStatus.RUNNING)
        return np.flatnonzero(live & (self.column("kind") != JobKind.CPU_ONLY))

    @property
    def num_gpus(self) -> NDArray[np.int32]:
        """[jobs] GPUs each job holds while it runs, asks for while it waits; 0: CPU-only."""
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
        """[jobs] predicted seconds left if alone on consolidated GPUs; NaN for jobs not predictable now."""
        return self.remaining_iterations * self.column("isolated_iteration_seconds")

    @property
    def remaining_iterations(self) -> NDArray[np.float64]:
        """[jobs] predicted iterations (of the base batch) left; NaN for jobs not predictable now."""
        known = self.column("predictable") != 0
        return np.where(known, self._iterations_left * self.column("prediction_factor"), np.nan)

    @property
    def _iterations_left(self) -> NDArray[np.float64]:
        running = self.column("status") == JobStatus.RUNNING
        begin = np.maximum(self.column("synced_seconds"), self.column("progress_from_seconds"))
        ran = np.where(running, np.maximum(self.now - begin, 0.0), 0.0)
        seconds = np.where(running, self.column("iteration_seconds"), 1.0)
        return np.maximum(self.column("remaining_iterations") - ran / seconds, 0.0)

    @property
    def completed_iterations(self) -> NDArray[np.float64]:
        """[jobs] iterations (of the base batch) done so far: what any training log shows."""
        return self.column("total_iterations") - self._iterations_left

    @property
    def validation_metric(self) -> NDArray[np.float64]:
        """[jobs] validation metric at the last full epoch, NaN before it and for models without a curve.

        See `ringyard.learning_curves`; a job's epochs are a fixed share of its iterations.
        """
        return validation_metric(self.column("model"), self._done_share, self._seed)

    @property
    def training_loss(self) -> NDArray[np.float64]:
        """[jobs] normalised training loss at the last full epoch (`ringyard.learning_curves`): 1 at first."""
        return training_loss(self.column("model"), self._done_share, self._seed)

    def loss_log(self, job: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the job's training log shows so far: iterations [epochs], normalised loss [epochs]."""
        total = float(self.column("total_iterations")[job])
        epochs = np.arange(1, int(self.completed_iterations[job] / total * EPOCHS) + 1)
        loss = loss_history(int(self.column("model")[job]), job, epochs, self._seed)
        return epochs / EPOCHS * total, loss

    @property
    def _seed(self) -> int:
        return int(self.state.clusters["seed"][self.b])

    @property
    def _done_share(self) -> NDArray[np.float64]:
        return self.completed_iterations / self.column("total_iterations")

    @property
    def num_free_gpus(self) -> int:
        """Free GPUs of the whole cluster."""
        return int(self.state.clusters["free_gpus"][self.b])

    @property
    def num_gpus_up(self) -> int:
        """GPUs of the servers that are there."""
        return self.cluster.num_gpus - int(self.state.clusters["down_gpus"][self.b])

    @property
    def free_gpus_per_server(self) -> NDArray[np.int32]:
        """[servers] free GPUs."""
        return self.state.servers["free_gpus"][self.b].copy()

    @property
    def job_of_gpu(self) -> NDArray[np.int32]:
        """[gpus] row of a job on each GPU, -1 if free; `jobs_of_gpu` has all of them."""
        return self.jobs_of_gpu.max(axis=1)

    @property
    def gpu_is_free(self) -> NDArray[np.bool_]:
        """[gpus] whether a GPU holds no job and its server is up."""
        return self.state.gpus["num_jobs"][self.b] == 0

    @property
    def jobs_of_gpu(self) -> NDArray[np.int32]:
        """[gpus, K] rows of the jobs on each GPU, -1 for a free place."""
        return self.state.slots["job"][self.b].reshape(self.cluster.num_gpus, -1).copy()

    @property
    def free_cores_per_server(self) -> NDArray[np.int32]:
        """[servers] free CPU cores; very many where the cluster does not count them."""
        return self.state.servers["free_cores"][self.b].copy()

    @property
    def free_gpu_memory_bytes(self) -> NDArray[np.int64]:
        """[gpus] free memory; very much where the cluster does not tell GPU types apart."""
        return self.state.gpus["free_memory_bytes"][self.b].copy()

    @property
    def bandwidth_demand(self) -> NDArray[np.float64]:
        """[servers] memory bandwidth asked / there is."""
        servers = self.state.servers[self.b]
        return servers["bandwidth_demand"] / servers["memory_bandwidth"].astype(np.float64)

    @property
    def servers_up(self) -> NDArray[np.bool_]:
        """[servers] whether each is there; a failed one holds nothing until its repair."""
        return self.state.servers["up"][self.b] != 0

    def gpus_of(self, job: int) -> tuple[int, ...]:
        """GPU ids a job holds, ascending."""
        return tuple(int(gpu) for gpu in gpus_of(self.state, self.b, job, self.cluster.jobs_per_gpu))

    def allocation_of(self, job: int) -> Allocation:
        """What a running job holds, with nothing left open; () GPUs and no server if it does not run."""
        record = self.state.jobs[self.b, job]
        return Allocation(
            job,
            self.gpus_of(job),
            int(record["cores_per_worker"]),
            float(record["batch_size"]),
            int(record["parameter_servers"]),
            int(record["cores_per_server_task"]),
            int(record["server"]) if record["server"] >= 0 else None,
            float(record["memory_bandwidth_cap"]),
        )

    def iteration_seconds(self, allocation: Allocation) -> float:
        """Seconds per iteration of the base batch the job would have so, its neighbours as they are now.

        Raises:
            PlacementError: the cluster could not hold it.
        """
        check_allocation(self.state, self.b, self.cluster, allocation)
        shape, places = wanted(self.state, self.b, allocation)
        return float(what_if(self.state, self.b, allocation.job, shape, places, self.physics))

    def wake_at(self, seconds: float) -> None:
        """Ask for a decision point at `seconds`, if nothing else happens before."""
        if seconds > self.now:
            wake = self.state.clusters["wake_seconds"]
            wake[self.b] = min(wake[self.b], seconds)
