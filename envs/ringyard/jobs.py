"""Jobs as columns (`JobTable`), and one job for people (`JobSpec`)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.information import COLUMNS, Information, check_known
from ringyard.profiles import catalogue, model_id
from ringyard.state.records import JobKind, JobOutcome

__all__ = ["JobSpec", "JobTable"]


@dataclass(frozen=True)
class JobSpec:
    """One job, written by hand.

    Attributes:
        submit_seconds: when it arrives.
        num_gpus: GPUs (= ring workers) it asks for; all or nothing.
        duration_seconds: run time alone on consolidated GPUs.
        model: a name of `ringyard.profiles.catalogue()`.
        job_id: the user's own number; the position in the list if None.
    """

    submit_seconds: float
    num_gpus: int
    duration_seconds: float
    model: str = "resnet50"
    job_id: int | None = None


def _neutral(num_gpus: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Columns that nobody gave: a rigid ring job that shares, starves and surprises nobody."""
    count = len(num_gpus)
    batch = np.maximum(num_gpus, 1).astype(np.float64)
    return {
        "iterations": np.full(count, np.nan),
        "compute_seconds": np.ones(count),
        "gradient_bytes": np.zeros(count),
        "model_ids": np.full(count, -1, dtype=np.int64),
        "kind": np.full(count, JobKind.RING, dtype=np.int64),
        "fixed_fraction": np.zeros(count),
        "min_gpus": num_gpus.copy(),
        "max_gpus": num_gpus.copy(),
        "batch_size": batch,
        "min_batch": batch,
        "max_batch": batch,
        "noise_scale": np.full(count, np.inf),
        "cores_per_worker": np.zeros(count, dtype=np.int64),
        "samples_per_core_second": np.full(count, np.inf),
        "memory_bandwidth": np.zeros(count),
        "fixed_memory_bytes": np.zeros(count),
        "sample_memory_bytes": np.zeros(count),
        "parameter_servers": np.zeros(count, dtype=np.int64),
        "cores_per_server_task": np.zeros(count, dtype=np.int64),
        "predictable_from": np.zeros(count),
        "prediction_factor": np.ones(count),
        "cancel_seconds": np.full(count, np.inf),
        "acceptable_jct": np.full(count, np.inf),
        "outcome": np.full(count, JobOutcome.COMPLETED, dtype=np.int64),
    }


@dataclass(frozen=True)
class JobTable:
    """Jobs sorted by submit time, one array per attribute; row order breaks ties everywhere.

    Either `duration_seconds` or `iterations` is given for each job, the other is NaN and follows
    from the performance model: alone on consolidated GPUs, as it asks to run, a job takes `iterations`
    times its isolated seconds per iteration.

    Attributes:
        job_id: [jobs] the user's own numbers.
        submit_seconds: [jobs] arrival times, ascending, >= 0.
        num_gpus: [jobs] GPUs asked for, >= 1; 0 for CPU-only jobs.
        duration_seconds: [jobs] run time alone on consolidated GPUs, > 0, or NaN.
        iterations: [jobs] training iterations at `batch_size`, > 0, or NaN.
        compute_seconds: [jobs] GPU seconds of one iteration at `batch_size` on each worker, > 0.
        gradient_bytes: [jobs] bytes of one all-reduce, >= 0.
        model_ids: [jobs] position in `ringyard.profiles.catalogue()`, -1 for none.
        kind: [jobs] `JobKind`.
        fixed_fraction: [jobs] share of `compute_seconds` that does not depend on the batch, in [0, 1].
        min_gpus: [jobs] an elastic job runs on min_gpus to max_gpus GPUs; equal to num_gpus: rigid.
        max_gpus: [jobs].
        batch_size: [jobs] M0, global batch, samples.
        min_batch: [jobs] an elastic job runs with min_batch to max_batch.
        max_batch: [jobs].
        noise_scale: [jobs] phi, samples; inf: larger batches lose nothing.
        cores_per_worker: [jobs] CPU cores asked for each worker (CPU-only: in all).
        samples_per_core_second: [jobs] what one core prepares; inf: no limit.
        memory_bandwidth: [jobs] bytes per second that each core moves.
        fixed_memory_bytes: [jobs] GPU memory of a worker whatever its batch.
        sample_memory_bytes: [jobs] GPU memory of a worker per sample.
        parameter_servers: [jobs] asked for by parameter-server jobs, else 0.
        cores_per_server_task: [jobs] CPU cores of each parameter server.
        predictable_from: [jobs] share of its iterations after which schedulers may see the remaining time;
            0: from the start, inf: never.
        prediction_factor: [jobs] predicted / true remaining time.
        cancel_seconds: [jobs] time at which the user withdraws it, wherever it is; inf: never.
        acceptable_jct: [jobs] largest acceptable completion time, seconds; a job leaves, blocked, as soon as
            it is clear that it will end later; inf: any.
        outcome: [jobs] `JobOutcome` once its work is done: a job that failed in the trace fails then.
    """

    job_id: NDArray[np.int64]
    submit_seconds: NDArray[np.float64]
    num_gpus: NDArray[np.int64]
    duration_seconds: NDArray[np.float64]
    iterations: NDArray[np.float64]
    compute_seconds: NDArray[np.float64]
    gradient_bytes: NDArray[np.float64]
    model_ids: NDArray[np.int64]
    kind: NDArray[np.int64]
    fixed_fraction: NDArray[np.float64]
    min_gpus: NDArray[np.int64]
    max_gpus: NDArray[np.int64]
    batch_size: NDArray[np.float64]
    min_batch: NDArray[np.float64]
    max_batch: NDArray[np.float64]
    noise_scale: NDArray[np.float64]
    cores_per_worker: NDArray[np.int64]
    samples_per_core_second: NDArray[np.float64]
    memory_bandwidth: NDArray[np.float64]
    fixed_memory_bytes: NDArray[np.float64]
    sample_memory_bytes: NDArray[np.float64]
    parameter_servers: NDArray[np.int64]
    cores_per_server_task: NDArray[np.int64]
    predictable_from: NDArray[np.float64]
    prediction_factor: NDArray[np.float64]
    cancel_seconds: NDArray[np.float64]
    acceptable_jct: NDArray[np.float64]
    outcome: NDArray[np.int64]

    @classmethod
    def from_columns(
        cls,
        submit_seconds: ArrayLike,
        num_gpus: ArrayLike,
        duration_seconds: ArrayLike,
        job_id: ArrayLike | None = None,
    ) -> Self:
        """A table without model data: every job computes 1 s per iteration and sends nothing.

        `ringyard.workloads.assignment` gives rows a model.

        Raises:
            WorkloadError: see `check`.
        """
        submit = np.asarray(submit_seconds, dtype=np.float64)
        gpus = np.asarray(num_gpus)
        if gpus.dtype.kind == "f" and not np.all(np.isfinite(gpus) & (gpus == np.floor(gpus))):
            row = int(np.flatnonzero(~(np.isfinite(gpus) & (gpus == np.floor(gpus))))[0])
            raise WorkloadError(f"job in row {row} asks for {gpus[row]} GPUs; expected a whole number")
        gpus = gpus.astype(np.int64)
        table = cls(
            job_id=np.arange(len(submit)) if job_id is None else np.asarray(job_id, dtype=np.int64),
            submit_seconds=submit,
            num_gpus=gpus,
            duration_seconds=np.asarray(duration_seconds, dtype=np.float64),
            **_neutral(gpus),
        )
        table.check()
        return table

    @classmethod
    def cpu_only(
        cls, submit_seconds: ArrayLike, cores: ArrayLike, duration_seconds: ArrayLike, bandwidth: ArrayLike
    ) -> Self:
        """Jobs without GPUs, each on the cores of one server.

        Args:
            submit_seconds: [jobs] ascending.
            cores: [jobs] asked for.
            duration_seconds: [jobs] run time on the cores asked for, memory bandwidth to spare.
            bandwidth: [jobs] bytes per second of main memory that each core moves.

        Raises:
            WorkloadError: see `check`.
        """
        submit = np.asarray(submit_seconds, dtype=np.float64)
        gpus = np.zeros(len(submit), dtype=np.int64)
        columns = _neutral(gpus)
        columns["kind"][:] = JobKind.CPU_ONLY
        columns["cores_per_worker"] = np.asarray(cores, dtype=np.int64)
        columns["memory_bandwidth"] = np.asarray(bandwidth, dtype=np.float64)
        duration = np.asarray(duration_seconds, dtype=np.float64)
        table = cls(np.arange(len(submit)), submit, gpus, duration, **columns)
        table.check()
        return table

    @classmethod
    def from_specs(cls, specs: Sequence[JobSpec]) -> Self:
        """A table of hand-written jobs, in the given order (ascending submit times).

        Raises:
            WorkloadError: a model that is not in the catalogue; see `check`.
        """
        try:
            models = np.array([model_id(spec.model) for spec in specs], dtype=np.int64)
        except ConfigurationError as error:
            raise WorkloadError(str(error)) from error
        table = cls.from_columns(
            [spec.submit_seconds for spec in specs],
            [spec.num_gpus for spec in specs],
            [spec.duration_seconds for spec in specs],
            [position if spec.job_id is None else spec.job_id for position, spec in enumerate(specs)],
        )
        return table.with_models(models)

    def __len__(self) -> int:
        return len(self.submit_seconds)

    def with_models(self, model_ids: NDArray[np.int64]) -> Self:
        """The same jobs with the figures of the given profiles; the batch is each worker's base batch.

        Args:
            model_ids: [jobs] positions in `ringyard.profiles.catalogue()`, -1 keeps a job as it is.
        """
        models = catalogue()

        def column(name: str, absent: float) -> NDArray[np.float64]:
            values = [getattr(model, name) for model in models]
            figures = np.array([absent if value is None else value for value in values] + [np.nan])
            return figures[model_ids]

        def kept(values: NDArray[np.float64], old: NDArray[Any]) -> NDArray[np.float64]:
            return np.where(model_ids < 0, old, values)

        compute = column("compute_seconds", np.nan)
        batch = column("batch_size", np.nan) * self.num_gpus
        return replace(
            self,
            model_ids=model_ids,
            compute_seconds=kept(compute, self.compute_seconds),
            gradient_bytes=kept(column("gradient_bytes", 0.0), self.gradient_bytes),
            fixed_fraction=kept(
                column("fixed_seconds", 0.0) / np.maximum(compute, 1e-300), self.fixed_fraction
            ),
            batch_size=kept(batch, self.batch_size),
            min_batch=kept(batch, self.min_batch),
            max_batch=kept(batch, self.max_batch),
            noise_scale=kept(column("noise_scale", np.inf), self.noise_scale),
            samples_per_core_second=kept(
                column("samples_per_core_second", np.inf), self.samples_per_core_second
            ),
            memory_bandwidth=kept(column("bandwidth_per_core", 0.0), self.memory_bandwidth),
            fixed_memory_bytes=kept(column("fixed_memory_bytes", 0.0), self.fixed_memory_bytes),
            sample_memory_bytes=kept(column("sample_memory_bytes", 0.0), self.sample_memory_bytes),
        )

    def as_known(self, knows: Information) -> "JobTable":
        """The same jobs for a scheduler: columns that it did not declare to know raise an InformationError.

        Rows of jobs still to arrive are there, as priorities are given to all rows at once; a decision may
        use a row only once its job is submitted.
        """
        return _KnownJobs(self, knows)

    @property
    def gpu_seconds_distribution(self) -> NDArray[np.float64]:
        """[jobs] GPU seconds of isolated run time, ascending: how much there is, not whose it is."""
        return np.sort(self.duration_seconds * self.num_gpus)

    def rows(self, index: Any) -> Self:
        """The jobs at `index` (a slice, mask or index array that keeps the order)."""
        columns = {field.name: getattr(self, field.name)[index] for field in fields(self)}
        return replace(self, **columns)

    def shifted(self, submit_seconds: NDArray[np.float64]) -> Self:
        """The same jobs submitted at other times (ascending); cancellations follow each job's submission."""
        patience = self.cancel_seconds - self.submit_seconds
        return replace(self, submit_seconds=submit_seconds, cancel_seconds=submit_seconds + patience)

    def merged(self, other: "JobTable") -> "JobTable":
        """Both tables' jobs by submit time, ties with this table's first; ids count anew."""
        order = np.argsort(np.concatenate([self.submit_seconds, other.submit_seconds]), kind="stable")
        columns = {
            field.name: np.concatenate([getattr(self, field.name), getattr(other, field.name)])[order]
            for field in fields(self)
        }
        columns["job_id"] = np.arange(len(order))
        return JobTable(**columns)

    def check(self, cluster: Cluster | None = None) -> None:
        """Raise WorkloadError naming the first bad row, if any.

        Args:
            cluster: also check that every job fits it.
        """
        count = len(self)
        if count == 0:
            raise WorkloadError("the workload has no jobs; expected at least 1")
        for field in fields(self):
            shape = getattr(self, field.name).shape
            if shape != (count,):
                raise WorkloadError(f"column {field.name} has shape {shape}; expected ({count},)")
        submit, gpus = self.submit_seconds, self.num_gpus
        cpu_only = self.kind == JobKind.CPU_ONLY
        self._refuse(~np.isfinite(submit), "submit time", submit, "a finite number")
        self._refuse(submit < 0, "submit time", submit, "0 or more")
        unsorted = np.concatenate([[False], np.diff(submit) < 0])
        self._refuse(unsorted, "submit time", submit, "ascending submit times (sort the rows first)")
        self._refuse((gpus < 1) & ~cpu_only, "GPU count", gpus, "1 or more")
        self._refuse((gpus != 0) & cpu_only, "GPU count", gpus, "0, being a CPU-only job")
        work = np.where(np.isnan(self.iterations), self.duration_seconds, self.iterations)
        self._refuse(~(np.isfinite(work) & (work > 0)), "duration", work, "a positive finite number")
        for name, what in (("compute_seconds", "seconds per iteration"), ("batch_size", "batch size")):
            values = getattr(self, name)
            self._refuse(~(np.isfinite(values) & (values > 0)), what, values, "a positive finite number")
        size = self.gradient_bytes
        self._refuse(~(np.isfinite(size) & (size >= 0)), "gradient size", size, "0 or more bytes")
        for name in ("noise_scale", "samples_per_core_second", "prediction_factor", "acceptable_jct"):
            values = getattr(self, name)
            self._refuse(~(values > 0), name, values, "above 0")
        for name in ("memory_bandwidth", "fixed_memory_bytes", "sample_memory_bytes", "predictable_from"):
            values = getattr(self, name)
            self._refuse(~(values >= 0), name, values, "0 or more")
        cores = self.cores_per_worker
        self._refuse(cores < 0, "cores_per_worker", cores, "0 or more")
        self._refuse(cpu_only & (cores < 1), "cores_per_worker", cores, "1 or more, being a CPU-only job")
        self._refuse(
            ~(self.cancel_seconds > submit), "cancel_seconds", self.cancel_seconds, "after its arrival"
        )
        served = self.kind == JobKind.PARAMETER_SERVER
        servers = self.parameter_servers
        self._refuse(served & (servers < 1), "parameter_servers", servers, "1 or more, being such a job")
        self._range("min_gpus", gpus, "num_gpus")
        self._range("num_gpus", self.max_gpus, "max_gpus")
        self._range("min_batch", self.batch_size, "batch_size")
        self._range("batch_size", self.max_batch, "max_batch")
        if cluster is not None:
            self._check_fit(cluster)

    def _range(self, name: str, above: NDArray[Any], above_name: str) -> None:
        values = getattr(self, name)
        self._refuse(values > above, name, values, f"at most its {above_name}")

    def _check_fit(self, cluster: Cluster) -> None:
        limit = cluster.num_gpus
        advice = "(enlarge the cluster or drop the job)"
        self._refuse(
            self.num_gpus > limit, "GPU count", self.num_gpus, f"at most the cluster's {limit} GPUs {advice}"
        )
        if cluster.cores_per_server:
            most = max(cluster.cores_per_server)
            cores = self.cores_per_worker
            self._refuse(cores > most, "cores_per_worker", cores, f"at most a server's {most} cores {advice}")
        elif (self.kind == JobKind.CPU_ONLY).any():
            row = int(np.flatnonzero(self.kind == JobKind.CPU_ONLY)[0])
            raise WorkloadError(
                f"job {self.job_id[row]} (row {row}) is CPU-only; give the cluster cores_per_server"
            )
        memory = self.fixed_memory_bytes + self.sample_memory_bytes * self.batch_size / np.maximum(
            self.num_gpus, 1
        )
        most_memory = float(cluster.gpu_memory_bytes.max())
        self._refuse(
            memory > most_memory,
            "GPU memory",
            memory,
            f"at most a GPU's {most_memory:.3g} bytes (smaller batch, more GPUs or other GPU types)",
        )
        self._check_workers(cluster, memory)

    def _check_workers(self, cluster: Cluster, memory: NDArray[np.float64]) -> None:
        """Refuse gangs that the empty cluster could not hold, for want of cores or large enough GPUs."""
        if not cluster.cores_per_server and not cluster.gpu_types:
            return
        gpus = np.array(cluster.gpus_per_server)
        cores = np.array(cluster.cores_per_server or [np.iinfo(np.int64).max] * len(gpus))
        tasks = self.parameter_servers * self.cores_per_server_task
        needs = np.stack([self.cores_per_worker, tasks, memory], axis=1)
        kinds, which = np.unique(needs, axis=0, return_inverse=True)
        most = np.zeros(len(kinds), dtype=np.int64)
        for i, (worker, served, size) in enumerate(kinds):
            fits = (cores - served) // max(worker, 1) if worker > 0 else np.where(cores >= served, gpus, 0)
            most[i] = np.minimum(gpus, np.maximum(fits, 0))[cluster.gpu_memory_bytes >= size].sum()
        limit = most[which.reshape(-1)]
        self._refuse(
            self.num_gpus > limit,
            "GPU count",
            self.num_gpus,
            "fewer: with the cores and memory it asks for, this cluster holds less of its workers"
            " (fewer cores per worker, or other servers)",
        )

    def _refuse(self, bad: NDArray[np.bool_], what: str, values: NDArray[Any], expected: str) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise WorkloadError(
                f"job {self.job_id[row]} (row {row}) has {what} {values[row]}; expected {expected}"
            )


class _KnownJobs(JobTable):
    """A table that hides what its reader did not declare to know; made by `JobTable.as_known`."""

    def __init__(self, table: JobTable, knows: Information) -> None:
        self.__dict__.update(_table=table, _knows=knows)

    def __getattribute__(self, name: str) -> Any:
        """A column of the table behind, if its reader may see it."""
        if name not in COLUMNS:
            return object.__getattribute__(self, name)
        hidden = object.__getattribute__(self, "__dict__")
        check_known(name, hidden["_knows"])
        return getattr(hidden["_table"], name)
