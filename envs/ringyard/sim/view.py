"""What a scheduler sees: read-only columns of the running simulation, and what-if questions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.errors import PlacementError
from ringyard.jobs import JobTable
from ringyard.learning_curves import EPOCHS, training_loss, validation_metric
from ringyard.observability import COLUMNS, Observability, check_column
from ringyard.performance import PerformanceModel
from ringyard.performance.model import Physics
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.co_location import what_if
from ringyard.sim.feasibility import (
    PLACE,
    check_allocation,
    current_allocation,
    gpus_of,
    requested_shape,
)
from ringyard.sim.scratch import ScratchState
from ringyard.state.arrays import State, waiting_rows
from ringyard.state.gpu_effects import Workers, excess_between
from ringyard.state.records import Job, JobKind, JobStatus


class DerivedColumns:
    """Columns of n jobs at a decision point, limited to the declared observability."""

    _state: State
    _b: int

    def check(self, name: str) -> None:
        """Raise ObservabilityError unless column `name` is declared (`ringyard.observability.COLUMNS`)."""
        raise NotImplementedError

    def _column(self, name: str) -> NDArray[Any]:
        """[n] a column for reading, without `check`."""
        raise NotImplementedError

    def column(self, name: str) -> NDArray[Any]:
        """Return field `name` of `Job`, if observability shows it, as a read-only [n] array."""
        self.check(name)
        return self._column(name)

    @property
    def _now(self) -> float:
        return float(self._state.clusters["now"][self._b])

    @property
    def _runs(self) -> NDArray[np.bool_]:
        return self._column("status") == JobStatus.RUNNING

    @property
    def attained_service(self) -> NDArray[np.float64]:
        """[n] GPU seconds held so far."""
        service = self.column("attained_service").copy()
        runs = self._runs
        held = self._column("num_gpus")[runs] * (self._now - self._column("updated_seconds")[runs])
        service[runs] += held
        return service

    @property
    def predicted_seconds(self) -> NDArray[np.float64]:
        """[n] predicted remaining isolated run time in seconds. NaN where `predicted_iterations` is."""
        self.check("predicted_seconds")
        return self._predicted * self._column("isolated_iteration_seconds")

    @property
    def predicted_iterations(self) -> NDArray[np.float64]:
        """[n] predicted remaining iterations of the base batch. NaN for jobs not predictable or not live."""
        self.check("predicted_iterations")
        return self._predicted

    @property
    def _predicted(self) -> NDArray[np.float64]:
        status = self._column("status")
        known = (status == JobStatus.WAITING) | (status == JobStatus.RUNNING)
        known &= self._column("predictable") != 0
        return np.where(known, self._left * self._column("prediction_factor"), np.nan)

    @property
    def _left(self) -> NDArray[np.float64]:
        """[n] remaining iterations of the base batch, of jobs with any status."""
        left, runs = self._column("remaining_iterations").copy(), self._runs
        begin = np.maximum(self._column("updated_seconds")[runs], self._column("pause_ends_seconds")[runs])
        ran = np.maximum(self._now - begin, 0.0) / self._column("iteration_seconds")[runs]
        left[runs] = np.maximum(left[runs] - ran, 0.0)
        return left

    @property
    def completed_iterations(self) -> NDArray[np.float64]:
        """[n] iterations of the base batch done so far, as training logs show."""
        self.check("completed_iterations")
        return self._completed

    @property
    def _completed(self) -> NDArray[np.float64]:
        return self._column("total_iterations") - self._left

    @property
    def gpu_activity(self) -> NDArray[np.float64]:
        """[n] fraction of an iteration in which the GPUs compute, as monitors show. 0 if not running."""
        self.check("gpu_activity")
        present = self._column("iteration_seconds") * self._column("progress_per_iteration")
        computing = self._column("compute_seconds") / self._column("gpu_speed")
        return np.where(self._runs, np.minimum(computing / np.maximum(present, 1e-300), 1.0), 0.0)

    @property
    def validation_metric(self) -> NDArray[np.float64]:
        """[n] validation metric at the last full epoch. NaN before the first, and without a curve."""
        self.check("validation_metric")
        return validation_metric(self._column, self._epochs, self._seed)

    @property
    def training_loss(self) -> NDArray[np.float64]:
        """[n] normalised training loss at the last full epoch, 1 at first (`ringyard.learning_curves`)."""
        self.check("training_loss")
        return training_loss(self._column, self._epochs, self._seed)

    @property
    def epochs_logged(self) -> NDArray[np.int64]:
        """[n] number of points in each job's `SchedulingView.loss_log`."""
        self.check("loss_log")
        return self._epochs

    @property
    def _epochs(self) -> NDArray[np.int64]:
        return (self._completed / self._column("total_iterations") * EPOCHS).astype(np.int64)

    @property
    def _seed(self) -> int:
        return int(self._state.clusters["seed"][self._b])


class JobColumns(DerivedColumns):
    """Columns of the job rows `rows` of a view (`SchedulingView.select`), all of them copies.

    `check` raises ObservabilityError for columns that are not declared. `b` is the cluster of `state`.
    """

    def __init__(
        self, state: State, b: int, rows: NDArray[np.integer[Any]], check: Callable[[str], None]
    ) -> None:
        self._state, self._b, self._chosen, self._check = state, b, rows, check

    def check(self, name: str) -> None:
        """Raise ObservabilityError unless column `name` is declared."""
        self._check(name)

    def _column(self, name: str) -> NDArray[Any]:
        return self._state.jobs[self._b][name][self._chosen]


_REQUIRED_FLAGS = {name: takes.value for name, takes in COLUMNS.items()}


class Occupancy:
    """Which jobs hold which GPUs and what is free, in the simulation or in a placement plan.

    All arrays are copies. Where the cluster does not count a resource, free amounts are very large.
    """

    cluster: Cluster  #: servers and GPUs
    _state: State
    _b: int

    @property
    def num_free_gpus(self) -> int:
        """Number of GPUs of the cluster that hold no job and are up."""
        return int(self._state.clusters["free_gpus"][self._b])

    @property
    def free_gpus_per_server(self) -> NDArray[np.int32]:
        """[servers] number of free GPUs."""
        return self._state.servers["free_gpus"][self._b].copy()

    @property
    def gpu_is_free(self) -> NDArray[np.bool_]:
        """[gpus] whether a GPU holds no job and its server is up."""
        return self._state.gpus["num_jobs"][self._b] == 0

    @property
    def jobs_of_gpu(self) -> NDArray[np.int32]:
        """[gpus, K] rows of the jobs on each GPU, -1 for a free slot. K jobs may share a GPU."""
        return self._state.slots["job"][self._b].reshape(self.cluster.num_gpus, -1).copy()

    @property
    def free_cores_per_server(self) -> NDArray[np.int64]:
        """[servers] number of free CPU cores."""
        return self._state.servers["free_cores"][self._b].copy()


class SchedulingView(DerivedColumns, Occupancy):
    """The cluster and its jobs at a decision point, limited to the declared observability.

    Job columns are [jobs] arrays over the whole job table, NaN where a value does not exist yet. They show
    live data: copy what must survive the next `apply` or `advance`. Ignore rows of jobs that have not arrived
    (`num_arrived`).

    A column that needs more than the declared observability (`ringyard.observability.COLUMNS`) raises an
    ObservabilityError. This guards against mistakes, not against intent: names that begin with an underscore
    and the attribute `base` of a column reach everything.

    Args:
        state: state of the simulation.
        b: position of the cluster in the batch.
        cluster: servers and GPUs.
        jobs: job table.
        performance: performance model.
        observability: flags of what may be read.
        scratch: copy of the state that placement plans may reuse. None: a new one.
    """

    def __init__(
        self,
        state: State,
        b: int,
        cluster: Cluster,
        jobs: JobTable,
        performance: PerformanceModel,
        observability: Observability = Observability.EVERYTHING,
        scratch: ScratchState | None = None,
    ) -> None:
        self.cluster = cluster
        self._table = jobs
        self._observability = observability
        self._state = state
        self._b = b
        self._scratch = ScratchState() if scratch is None else scratch
        self._performance = performance
        self._physics = performance.physics
        self._num_jobs = int(state.clusters["num_jobs"][b])
        self._bits = observability.value
        self._columns: dict[str, NDArray[Any]] = {}

    @property
    def observability(self) -> Observability:
        """Flags of what may be read."""
        return self._observability

    def check(self, name: str) -> None:
        """Raise ObservabilityError unless the reader may see this key of `ringyard.observability.COLUMNS`."""
        takes = _REQUIRED_FLAGS.get(name, -1)
        if takes < 0 or (takes and not takes & self._bits):
            check_column(name, self._observability)

    def _column(self, name: str) -> NDArray[Any]:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._state.jobs[name][self._b, : self._num_jobs]
            column.flags.writeable = False
        return column

    def records(self, rows: NDArray[np.integer[Any]]) -> Records1[Job]:
        """Return copies of job records `rows` for compiled planners. Hidden fields are NaN, integers -1."""
        records = self._state.jobs[self._b][np.atleast_1d(rows)]
        for name in Job.dtype.names or ():
            if _REQUIRED_FLAGS[name] and not _REQUIRED_FLAGS[name] & self._bits:
                records[name] = np.nan if Job.dtype[name].kind == "f" else -1
        return records

    @property
    def physics(self) -> Physics:
        """The performance model, for compiled planners."""
        self.check("physics")
        return self._physics

    def workers(self, rows: ArrayLike) -> Workers:
        """Return the workers of job `rows`, with their present batch or that of their next start."""
        self.check("interference")
        chosen = np.atleast_1d(rows)
        samples = self._column("batch_size")[chosen] / np.maximum(self._column("num_gpus")[chosen], 1)
        return Workers(self._column("model")[chosen].astype(np.int64), samples)

    def interference(self, own: Workers, other: Workers, gpu_types: ArrayLike) -> NDArray[np.float64]:
        """Return by how much workers slow one another on a shared GPU.

        Args:
            own: [...] the slowed workers (`workers`). All arguments are broadcast.
            other: [...] their neighbours.
            gpu_types: [...] positions in `Cluster.distinct_gpu_types`. 0 where the cluster has no types.

        Returns:
            [...] extra compute time as a fraction of the time alone.

        Raises:
            ObservabilityError: SPEEDS is not declared.
        """
        self.check("interference")
        given = np.broadcast_arrays(*own, *other, np.asarray(gpu_types, dtype=np.int64))
        flat = [np.array(one).reshape(-1) for one in given]
        out = np.zeros(len(flat[0]))
        excess_between(self._state, Workers(*flat[:2]), Workers(*flat[2:4]), flat[4], out)
        return out.reshape(given[0].shape)

    @property
    def type_of_gpu(self) -> NDArray[np.int64]:
        """[gpus] position of each type in `Cluster.distinct_gpu_types`. 0 if the cluster has no types."""
        types = self._state.servers["gpu_type"][self._b].astype(np.int64)
        return types[self.cluster.server_of_gpu]

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""
        return float(self._state.clusters["now"][self._b])

    @property
    def waiting(self) -> NDArray[np.int32]:
        """[waiting] rows of the waiting jobs, in the order of the waiting list."""
        return waiting_rows(self._state, self._b).copy()

    @property
    def running(self) -> NDArray[np.int32]:
        """[running] rows of the running jobs, ascending."""
        return np.sort(self._state.running[self._b, : self._state.clusters["num_running"][self._b]])

    @property
    def gpu_jobs(self) -> NDArray[np.int64]:
        """[n] rows of the waiting and running jobs that use GPUs, ascending, in order of submission."""
        rows = np.sort(np.concatenate([self.waiting, self.running]).astype(np.int64))
        return rows[self._column("kind")[rows] != JobKind.CPU_ONLY]

    @property
    def num_gpus(self) -> NDArray[np.int32]:
        """[jobs] GPUs that a running job holds or a waiting job asks for. 0 for CPU-only jobs."""
        return self.column("num_gpus")

    @property
    def submit_seconds(self) -> NDArray[np.float64]:
        """[jobs] submission times in seconds, also of jobs that have not arrived."""
        return self.column("submit_seconds")

    @property
    def vc(self) -> NDArray[np.str_]:
        """[jobs] virtual cluster of each job, "" if none is named."""
        self.check("vc")
        return self._table.vc

    @property
    def user(self) -> NDArray[np.str_]:
        """[jobs] user of each job, "" if none is named."""
        self.check("user")
        return self._table.user

    def select(self, rows: ArrayLike) -> JobColumns:
        """Return the columns of some jobs, in time that grows with their number, not with the table.

        Args:
            rows: [n] rows of the jobs.
        """
        return JobColumns(self._state, self._b, np.atleast_1d(rows), self.check)

    def loss_log(self, job: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what the training log of `job` shows: ([epochs] iterations, [epochs] normalised loss)."""
        self.check("loss_log")
        epochs = np.arange(1, int(self.select(job).epochs_logged[0]) + 1)
        points = self.select(np.full(len(epochs), job))
        iterations = epochs / EPOCHS * points._column("total_iterations")
        return iterations, training_loss(points._column, epochs, self._seed)

    @property
    def num_arrived(self) -> int:
        """Number of jobs submitted so far, which are the first rows of the table."""
        return int(self._state.clusters["next_arrival"][self._b])

    @property
    def num_server_failures(self) -> int:
        """Number of server failures so far."""
        return int(self._state.servers["num_failures"][self._b].sum())

    @property
    def num_gpus_up(self) -> int:
        """Number of GPUs of servers that are up."""
        return self.cluster.num_gpus - int(self._state.clusters["down_gpus"][self._b])

    @property
    def job_of_gpu(self) -> NDArray[np.int32]:
        """[gpus] row of a job on each GPU, -1 if it is free. `jobs_of_gpu` has all jobs of a shared GPU."""
        return self.jobs_of_gpu.max(axis=1)

    @property
    def bandwidth_demand(self) -> NDArray[np.float64]:
        """[servers] memory bandwidth that the jobs ask for, as a fraction of what the server has."""
        return self._state.servers["bandwidth_demand"][self._b] / self.memory_bandwidth

    @property
    def memory_bandwidth(self) -> NDArray[np.float64]:
        """[servers] memory bandwidth in bytes per second."""
        return self._state.servers["memory_bandwidth"][self._b].astype(np.float64)

    @property
    def servers_up(self) -> NDArray[np.bool_]:
        """[servers] whether each server is up. A failed server holds nothing until its repair."""
        return self._state.servers["up"][self._b] != 0

    def gpus_of(self, job: int) -> tuple[int, ...]:
        """Return the ids of the GPUs that `job` holds, ascending."""
        return tuple(gpus_of(self._state, self._b, job).tolist())

    def allocation_of(self, job: int) -> Allocation:
        """Return what `job` holds, with all fields given. A job that does not run has no GPUs and no server.

        Raises:
            ObservabilityError: SIZES is not declared.
        """
        self.check("batch_size")
        return current_allocation(self._state, self._b, job)

    def iteration_seconds(self, allocation: Allocation) -> float:
        """Return the seconds per iteration of the base batch that a job would have with an allocation.

        Its neighbours stay where they are. Nothing is carried out.

        Args:
            allocation: allocation with GPUs, or with a server for a CPU-only job.

        Raises:
            PlacementError: the cluster cannot hold the allocation, or it names no GPUs.
            ObservabilityError: SPEEDS is not declared.
        """
        self.check("what_if")
        state, b = self._state, self._b
        request = check_allocation(state, b, self.cluster, allocation, self._performance.plans)
        if request.kind != PLACE:
            raise PlacementError(
                f"the allocation of job {allocation.job} names no GPUs; give gpu_ids (CPU-only: server)"
            )
        shape = requested_shape(state, b, request)
        return float(what_if(state, b, request.job, shape, request.places, self._physics))

    def wake_at(self, seconds: float) -> None:
        """Ask for a decision point at time `seconds`. It comes if no other does before."""
        if seconds > self.now:
            wake = self._state.clusters["wake_seconds"]
            wake[self._b] = min(wake[self._b], seconds)


class UnrestrictedSimulation(NamedTuple):
    """The arguments of compiled schedulers: cluster `b` of `state`, and its performance model."""

    state: State
    b: int
    physics: Physics
    performance: PerformanceModel


def unrestricted(view: SchedulingView) -> UnrestrictedSimulation:
    """Return the simulation behind a view, with nothing hidden. A test checks that schedulers do not call it.

    It is for code that checks elsewhere what is read: plans, what-if questions, compiled policies with
    checked keys, agents with a declared observation.
    """
    return UnrestrictedSimulation(view._state, view._b, view._physics, view._performance)
