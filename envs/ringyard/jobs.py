"""Job tables: one array per attribute (`JobTable`), and one job written by hand (`JobSpec`)."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.checks import NumberRange, shown
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.observability import COLUMNS, Observability, check_column
from ringyard.profiles import catalogue, model_id, profile_values
from ringyard.resources import RESOURCES
from ringyard.state.records import JobKind, JobOutcome


@dataclass(frozen=True)
class JobSpec:
    """One job, written by hand.

    Attributes:
        submit_seconds: when it arrives.
        num_gpus: GPUs (= ring workers) it asks for; all or nothing.
        duration_seconds: run time alone on consolidated GPUs.
        model: a name of `ringyard.profiles.catalogue()`.
        job_id: the user's own number or text; the position in the list if None.
        vc: the virtual cluster it belongs to; "": not named.
        user: the user that submits it; "": not named.
    """

    submit_seconds: float
    num_gpus: int
    duration_seconds: float
    model: str = "resnet50"
    job_id: int | str | None = None
    vc: str = ""
    user: str = ""


_Whole = NDArray[np.int64]
_Float = NDArray[np.float64]
_Text = NDArray[np.str_]

#: characters of an id, a virtual cluster or a user
MAX_TEXT_LENGTH = 128


def _column(name: str, values: ArrayLike, whole: bool = False) -> NDArray[Any]:
    """Convert a column of numbers to float64, or to int64 if they are whole.

    Raises:
        WorkloadError: another shape, something that is no number, or a whole number with a fraction.
    """
    try:
        given = np.asarray(values)
    except ValueError:
        given = np.asarray(values, dtype=object)
    if given.ndim != 1:
        raise WorkloadError(f"column {name} has shape {given.shape}; expected one number for each job")
    wanted = np.dtype(np.int64 if whole else np.float64)
    for row, value in enumerate(given.tolist() if not _converts_exactly(given, wanted) else ()):
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or (whole and not (-(2**63) <= value < 2**63 and value == int(value))):
            expected = "a whole number of at most 64 bits" if whole else "a number"
            raise WorkloadError(f"row {row} has {name} {shown(value)}; expected {expected}")
    return given.astype(wanted)


def _converts_exactly(given: NDArray[Any], wanted: np.dtype[Any]) -> bool:
    """Return whether the array's type holds only numbers of the wanted type, up to rounding."""
    return given.dtype.kind in "iuf" and (np.can_cast(given.dtype, wanted) or wanted.kind == "f")


def _ids(values: ArrayLike) -> _Whole | _Text:
    """Convert ids to whole numbers, or to texts if any of them is a text.

    Raises:
        WorkloadError: ids that are neither.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufU":
        return _texts("job_id", values) if values.dtype.kind == "U" else _column("job_id", values, whole=True)
    given = np.asarray(values, dtype=object).tolist()
    if not isinstance(given, list) or not any(isinstance(one, str) for one in given):
        return _column("job_id", values, whole=True)
    return _texts("job_id", [str(one) if type(one) is int else one for one in given])


def _texts(name: str, values: ArrayLike) -> _Text:
    """Convert a column of texts of limited length.

    Raises:
        WorkloadError: another shape, or something that is no text.
    """
    given = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if given.ndim != 1:
        raise WorkloadError(f"column {name} has shape {given.shape}; expected one text for each job")
    for row, value in enumerate(given.tolist() if given.dtype.kind != "U" else ()):
        if not isinstance(value, str):
            raise WorkloadError(f"row {row} has {name} {shown(value)}; expected text")
        if len(value) > MAX_TEXT_LENGTH:  # before an array as wide as the longest is made
            raise WorkloadError(
                f"row {row} has {name} {shown(value)}; expected at most {MAX_TEXT_LENGTH} characters"
            )
    return given.astype(np.str_)


@dataclass(frozen=True, eq=False)
class HistoricalJobs:
    """Jobs that ended before the first job of a table arrives, in the order of their ends.

    Attributes:
        num_gpus: [ended] GPUs asked for.
        run_seconds: [ended] run times, seconds, above 0.
        vc: [ended] virtual clusters, text; "": not named.
        user: [ended] users that submitted them, text; "": not named.

    Raises:
        WorkloadError: columns of different lengths, or a run time that is not above 0.
    """

    num_gpus: _Whole
    run_seconds: _Float
    vc: _Text
    user: _Text

    def __post_init__(self) -> None:
        lengths = [len(getattr(self, field.name)) for field in fields(self)]
        if len(set(lengths)) > 1:
            raise WorkloadError(f"the past has columns of {shown(lengths)} jobs; expected as many in each")
        bad = np.flatnonzero(~(self.run_seconds > 0))
        if len(bad):
            got = self.run_seconds[bad[0]]
            raise WorkloadError(f"job {bad[0]} of the past has run_seconds {got}; expected seconds above 0")

    def __len__(self) -> int:
        return len(self.run_seconds)


_NO_HISTORY = HistoricalJobs(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, "U1"), np.zeros(0, "U1"))


@functools.lru_cache(maxsize=16)
def _default_columns(count: int) -> Mapping[str, NDArray[Any]]:
    """Return columns that were not given, each [count] of its neutral value (a broadcast: read only)."""
    neutral = {**_column_rules()[1], "vc": "", "user": ""}
    return {name: np.broadcast_to(np.asarray(value), count) for name, value in neutral.items()}


def _unspecified_columns(num_gpus: NDArray[np.int64], only_read: bool = False) -> dict[str, NDArray[Any]]:
    """Return the columns that were not given; with `only_read`, constant ones may be broadcasts."""
    count = len(num_gpus)
    batch = np.maximum(num_gpus, 1).astype(np.float64)
    own: dict[str, NDArray[Any]] = {"min_gpus": num_gpus.copy(), "max_gpus": num_gpus.copy()}
    own |= {"batch_size": batch, "min_batch": batch, "max_batch": batch}
    return {
        name: column if only_read else column.copy() for name, column in _default_columns(count).items()
    } | own


def _values(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column, or its one value [1] if it is a broadcast."""
    return column[:1] if column.strides == (0,) else column


@dataclass(frozen=True)
class JobTable:
    """Jobs sorted by submission time, one array per attribute; row order breaks ties everywhere.

    Either `duration_seconds` or `iterations` is given for each job. The other is NaN and follows from the
    performance model: alone on consolidated GPUs a job takes `iterations` times its isolated seconds per
    iteration. An annotation holds the range of a column, and its value where it is not given: that of a rigid
    ring job without a model, neighbours or surprises.

    Attributes:
        job_id: [jobs] the user's own numbers or texts, shown in every output; nothing else depends on them.
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
        loading_serial_share: [jobs] of that work which more cores do not speed up.
        ram_per_worker: [jobs] bytes of main memory asked for each worker (CPU-only: in all).
        sample_bytes: [jobs] bytes of one sample on storage; 0: it reads nothing there.
        dataset_bytes: [jobs] bytes of all its samples, > 0; inf: too many to cache.
        memory_bandwidth: [jobs] bytes per second that each core moves.
        fixed_memory_bytes: [jobs] GPU memory of a worker whatever its batch.
        sample_memory_bytes: [jobs] GPU memory of a worker per sample.
        parameter_servers: [jobs] asked for by parameter-server jobs, else 0.
        cores_per_server_task: [jobs] CPU cores of each parameter server.
        predictable_from: [jobs] share of its iterations after which schedulers may see the remaining time;
            0: from the start, inf: never.
        prediction_factor: [jobs] predicted / true remaining time.
        cancel_seconds: [jobs] time at which the user withdraws it, wherever it is; inf: never.
        acceptable_jct: [jobs] largest acceptable completion time, seconds; a job that is late for it leaves,
            blocked (`ringyard.sim.engine.events` says when a job is late); inf: any.
        outcome: [jobs] `JobOutcome` once its work is done: a job that failed in the trace fails then.
        vc: [jobs] virtual cluster that each belongs to, text; "": not named.
        user: [jobs] user that submitted it, text; "": not named.
        past: jobs of the same cluster that ended earlier; they are not simulated.
    """

    job_id: _Whole | _Text
    submit_seconds: Annotated[_Float, "[0, 1e12]"]
    num_gpus: Annotated[_Whole, "[0, 2147483647]"]
    duration_seconds: Annotated[_Float, "(0, 1e12]"]
    iterations: Annotated[_Float, "(0, 1e15]", np.nan]
    compute_seconds: Annotated[_Float, "[1e-12, 1e9]", 1.0]
    gradient_bytes: Annotated[_Float, "[0, 1e18]", 0.0]
    model_ids: Annotated[_Whole, "[-1, 2147483647]", -1]
    kind: Annotated[_Whole, "[0, 2]", int(JobKind.RING)]
    fixed_fraction: Annotated[_Float, "[0, 1]", 0.0]
    min_gpus: Annotated[_Whole, "[0, 2147483647]"]
    max_gpus: Annotated[_Whole, "[0, 2147483647]"]
    batch_size: Annotated[_Float, "(0, 1e12]"]
    min_batch: Annotated[_Float, "(0, 1e12]"]
    max_batch: Annotated[_Float, "(0, 1e12]"]
    noise_scale: Annotated[_Float, "(0, inf]", np.inf]
    cores_per_worker: Annotated[_Whole, "[0, 1000000]", 0]
    samples_per_core_second: Annotated[_Float, "(0, inf]", np.inf]
    loading_serial_share: Annotated[_Float, "[0, 1e6]", 0.0]
    ram_per_worker: Annotated[_Float, "[0, 1e15]", 0.0]
    sample_bytes: Annotated[_Float, "[0, 1e15]", 0.0]
    dataset_bytes: Annotated[_Float, "[1, inf]", np.inf]
    memory_bandwidth: Annotated[_Float, "[0, 1e12]", 0.0]
    fixed_memory_bytes: Annotated[_Float, "[0, 1e15]", 0.0]
    sample_memory_bytes: Annotated[_Float, "[0, 1e15]", 0.0]
    parameter_servers: Annotated[_Whole, "[0, 1000000]", 0]
    cores_per_server_task: Annotated[_Whole, "[0, 1000000]", 0]
    predictable_from: Annotated[_Float, "[0, inf]", 0.0]
    prediction_factor: Annotated[_Float, "(0, inf)", 1.0]
    cancel_seconds: Annotated[_Float, "(0, inf]", np.inf]
    acceptable_jct: Annotated[_Float, "(0, inf]", np.inf]
    outcome: Annotated[_Whole, "[0, 2]", int(JobOutcome.COMPLETED)]
    vc: _Text
    user: _Text
    past: HistoricalJobs = _NO_HISTORY

    @classmethod
    def from_columns(
        cls,
        submit_seconds: ArrayLike,
        num_gpus: ArrayLike,
        duration_seconds: ArrayLike,
        job_id: ArrayLike | None = None,
        vc: ArrayLike | None = None,
        user: ArrayLike | None = None,
        *,
        table_starts: Sequence[int] = (0,),
    ) -> Self:
        """A table without model data: every job computes 1 s per iteration and sends nothing.

        `ringyard.workloads.ModelMix` gives rows a model.

        Args:
            submit_seconds: [jobs] ascending.
            num_gpus: [jobs] asked for.
            duration_seconds: [jobs] run time alone on consolidated GPUs.
            job_id: [jobs] whole numbers, or texts; None: positions.
            vc: [jobs] names of virtual clusters; None: not named.
            user: [jobs] names of users; None: not named.
            table_starts: see `check`; with several tables, columns that are not given are read only.

        Raises:
            WorkloadError: see `check`.
        """
        submit = _column("submit_seconds", submit_seconds)
        gpus = _column("num_gpus", num_gpus, whole=True)
        texts = {"vc": vc, "user": user}
        named = {name: _texts(name, given) for name, given in texts.items() if given is not None}
        table = cls(
            job_id=np.arange(len(submit)) if job_id is None else _ids(job_id),
            submit_seconds=submit,
            num_gpus=gpus,
            duration_seconds=_column("duration_seconds", duration_seconds),
            **_unspecified_columns(gpus, only_read=len(table_starts) > 1) | named,
            past=_NO_HISTORY,
        )
        table._check_columns(("submit_seconds", "num_gpus", "duration_seconds"))  # the others are neutral
        table._check_arrivals(table_starts)
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
        submit = _column("submit_seconds", submit_seconds)
        gpus = np.zeros(len(submit), dtype=np.int64)
        columns = _unspecified_columns(gpus)
        columns["kind"][:] = JobKind.CPU_ONLY
        columns["cores_per_worker"] = _column("cores_per_worker", cores, whole=True)
        columns["memory_bandwidth"] = _column("memory_bandwidth", bandwidth)
        duration = _column("duration_seconds", duration_seconds)
        table = cls(np.arange(len(submit)), submit, gpus, duration, **columns, past=_NO_HISTORY)
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
            [spec.vc for spec in specs],
            [spec.user for spec in specs],
        )
        return table.with_models(models)

    def __len__(self) -> int:
        return len(self.submit_seconds)

    def with_models(self, model_ids: NDArray[np.int64]) -> Self:
        """The same jobs with the figures of the given profiles; the batch is each worker's base batch.

        Args:
            model_ids: [jobs] positions in `ringyard.profiles.catalogue()`, -1 keeps a job as it is.
        """
        compute = profile_values("compute_seconds")[model_ids]
        batch = profile_values("batch_size")[model_ids] * self.num_gpus
        columns = {
            "compute_seconds": compute,
            "fixed_fraction": profile_values("fixed_seconds")[model_ids] / np.maximum(compute, 1e-300),
            **dict.fromkeys(("batch_size", "min_batch", "max_batch"), batch),
        }
        for column in (*_PROFILE_COLUMNS, "memory_bandwidth"):
            figure = column if column in _PROFILE_COLUMNS else "bandwidth_per_core"
            columns[column] = profile_values(figure, _column_rules()[1][column])[model_ids]
        without = model_ids < 0
        if without.any():
            columns = {name: np.where(without, getattr(self, name), new) for name, new in columns.items()}
        return replace(self, model_ids=model_ids, **columns)  # type: ignore[arg-type]

    def restricted_to(self, observability: Observability) -> "JobTable":
        """Return the same jobs for a scheduler; columns that it did not declare raise an ObservabilityError.

        The table includes jobs that have not arrived, because priorities are given to all rows at once. A
        decision may use a row only once its job is submitted.
        """
        return _RestrictedJobTable(self, observability)

    @property
    def gpu_seconds_distribution(self) -> NDArray[np.float64]:
        """[jobs] GPU seconds of isolated run time, ascending, so that they do not tell jobs apart."""
        return np.sort(self.duration_seconds * self.num_gpus)

    def rows(self, index: Any) -> Self:
        """Return the jobs at `index` (a slice, mask or index array that keeps the order)."""
        return replace(self, **{name: getattr(self, name)[index] for name in _columns()})

    def shifted(self, submit_seconds: NDArray[np.float64]) -> Self:
        """Return the same jobs with other submission times (ascending); cancellations move along."""
        patience = self.cancel_seconds - self.submit_seconds
        return replace(self, submit_seconds=submit_seconds, cancel_seconds=submit_seconds + patience)

    def merged(self, other: "JobTable") -> "JobTable":
        """Return the jobs of both tables by submission time, ties with this table's first.

        Jobs of the other table get new ids. The past is this table's.
        """
        order = np.argsort(np.concatenate([self.submit_seconds, other.submit_seconds]), kind="stable")
        other = replace(other, job_id=_new_ids(self.job_id, len(other)))
        columns = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])[order] for name in _columns()
        }
        return JobTable(**columns, past=self.past)

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Return the rows of many tables in one; times ascend only within each of them."""
        columns = {name: np.concatenate([getattr(one, name) for one in tables]) for name in _columns()}
        return cls(**columns, past=_NO_HISTORY)

    def check(self, cluster: Cluster | None = None, table_starts: Sequence[int] = (0,)) -> None:
        """Raise WorkloadError naming the first bad row, if any.

        Args:
            cluster: also check that every job fits it.
            table_starts: first rows of tables that stand one after the other; times may go back there.
        """
        self._check_columns(tuple(_column_rules()[0]))
        self._check_arrivals(table_starts)
        of = {name: _values(getattr(self, name)) for name in _column_rules()[0]}
        cpu_only, served = of["kind"] == JobKind.CPU_ONLY, of["kind"] == JobKind.PARAMETER_SERVER
        for name in ("num_gpus", "min_gpus", "max_gpus"):
            self._refuse((of[name] != 0) & cpu_only, name, "0, being a CPU-only job")
        self._refuse((of["min_gpus"] < 1) & ~cpu_only, "min_gpus", "1 or more")
        self._refuse(
            cpu_only & (of["cores_per_worker"] < 1), "cores_per_worker", "1 or more, being a CPU-only job"
        )
        self._refuse(~(of["cancel_seconds"] > of["submit_seconds"]), "cancel_seconds", "after its arrival")
        servers = of["parameter_servers"]
        self._refuse(served & (servers < 1), "parameter_servers", "1 or more, being such a job")
        self._refuse(~served & (servers > 0), "parameter_servers", "0, being no parameter-server job")
        memory = of["sample_memory_bytes"] * of["max_batch"]
        self._refuse(memory > 1e18, "sample_memory_bytes", "at most 1e18 bytes for max_batch samples")
        self._refuse(
            of["model_ids"] >= len(catalogue()), "model_ids", f"below {len(catalogue())}, or -1 for none"
        )
        sorted_columns = ("min_gpus", "num_gpus", "max_gpus"), ("min_batch", "batch_size", "max_batch")
        for name, above in (pair for names in sorted_columns for pair in itertools.pairwise(names)):
            self._refuse(of[name] > of[above], name, f"at most its {above}")
        if cluster is not None:
            self._check_fit(cluster)

    def _check_arrivals(self, table_starts: Sequence[int]) -> None:
        """Raise WorkloadError for times that descend, and for a job that asks for neither GPU nor cores."""
        unsorted = np.zeros(len(self), np.bool_)
        unsorted[1:] = self.submit_seconds[1:] < self.submit_seconds[:-1]
        unsorted[list(table_starts)] = False
        self._refuse(unsorted, "submit_seconds", "ascending submit times (sort the rows first)")
        wrong = (self.num_gpus < 1) & (_values(self.kind) != JobKind.CPU_ONLY)
        self._refuse(wrong, "num_gpus", "1 or more")

    def _check_columns(self, names: Sequence[str]) -> None:
        """Raise WorkloadError for a column of another shape, or a number that its annotation excludes.

        Args:
            names: columns of numbers; those of texts are all looked at.
        """
        count = len(self)
        if count == 0:
            raise WorkloadError("the workload has no jobs; expected at least 1")
        for name in ("job_id", "vc", "user"):
            self._check_texts(name)
        for name in names:
            values, interval = getattr(self, name), _column_rules()[0][name]
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf":
                raise WorkloadError(f"column {name} is {shown(values)}; expected an array of numbers")
            if values.shape != (count,):
                raise WorkloadError(f"column {name} has shape {values.shape}; expected ({count},)")
            low, high = interval.ends
            found = _values(values)
            least, most = (found[0], found[0]) if len(found) == 1 else (found.min(), found.max())
            if low <= least and most <= high and (values.dtype.kind == "i" or not interval.whole):
                continue
            bad = ~interval.holds(values)
            if name in _ALTERNATIVE_COLUMN:
                bad &= ~np.isnan(values) | np.isnan(getattr(self, _ALTERNATIVE_COLUMN[name]))
            self._refuse(bad, name, str(interval))
            if interval.whole:
                raise WorkloadError(f"column {name} is an array of {values.dtype}; expected one of int64")

    def _check_texts(self, name: str) -> None:
        """Raise WorkloadError unless the column holds a text for each job, or, as an id, a whole number."""
        values, count = getattr(self, name), len(self)
        numbers = name == "job_id" and isinstance(values, np.ndarray) and values.dtype == np.int64
        if not numbers and not (isinstance(values, np.ndarray) and values.dtype.kind == "U"):
            expected = "an array of texts" + (" or of int64" if name == "job_id" else "")
            raise WorkloadError(f"column {name} is {shown(values)}; expected {expected}")
        if values.shape != (count,):
            raise WorkloadError(f"column {name} has shape {values.shape}; expected ({count},)")
        if not numbers and values.dtype.itemsize > np.dtype(f"U{MAX_TEXT_LENGTH}").itemsize:
            self._refuse(
                np.char.str_len(values) > MAX_TEXT_LENGTH, name, f"at most {MAX_TEXT_LENGTH} characters"
            )

    def _check_fit(self, cluster: Cluster) -> None:
        limit = cluster.num_gpus
        advice = "(enlarge the cluster or drop the job)"
        self._refuse(self.num_gpus > limit, "num_gpus", f"at most the cluster's {limit} GPUs {advice}")
        for one in RESOURCES:
            if getattr(cluster, one.capacity):
                most = max(getattr(cluster, one.capacity))
                wanted = f"at most a server's {most} {one.unit}{one.name} {advice}"
                self._refuse(getattr(self, one.per_worker) > most, one.per_worker, wanted)
        if not cluster.cores_per_server and (self.kind == JobKind.CPU_ONLY).any():
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
            f"at most a GPU's {most_memory:.3g} bytes (smaller batch, more GPUs or other GPU types)",
            memory,
        )
        self._check_workers(cluster, memory)

    def _check_workers(self, cluster: Cluster, memory: NDArray[np.float64]) -> None:
        """Refuse gangs that the empty cluster cannot hold for lack of resources or of GPU memory."""
        counted = [one for one in RESOURCES if getattr(cluster, one.capacity)]
        if not counted and not cluster.gpu_types:
            return
        gpus = np.array(cluster.gpus_per_server)
        there = np.array([getattr(cluster, one.capacity) for one in counted]).reshape(-1, len(gpus))
        workers = [np.ceil(getattr(self, one.per_worker)) for one in counted]
        tasks = [
            self.parameter_servers * (getattr(self, one.per_server_task) if one.per_server_task else 0)
            for one in counted
        ]
        kinds, which = np.unique(np.stack([memory, *workers, *tasks], axis=1), axis=0, return_inverse=True)
        most = np.zeros(len(kinds), dtype=np.int64)
        for i, (size, *held) in enumerate(kinds):
            fits = np.where(cluster.gpu_memory_bytes >= size, gpus, 0)
            for amount, worker, served in zip(there, held, held[len(counted) :], strict=False):
                left = np.maximum(amount - served, 0)
                fits = np.minimum(fits, left // worker) if worker > 0 else np.where(amount >= served, fits, 0)
            most[i] = fits.sum()
        limit = most[which.reshape(-1)]
        self._refuse(
            self.num_gpus > limit,
            "num_gpus",
            "fewer: with the cores and memory it asks for, this cluster holds less of its workers"
            " (fewer cores or less RAM per worker, or other servers)",
        )

    def _refuse(
        self, bad: NDArray[np.bool_], what: str, expected: str, values: NDArray[Any] | None = None
    ) -> None:
        """Raise WorkloadError naming the first bad row and its value (of the column `what` if not given)."""
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            value = (getattr(self, what) if values is None else values)[row]
            raise WorkloadError(f"job {self.job_id[row]} (row {row}) has {what} {value}; expected {expected}")


#: columns that are fields of `ModelProfile`; neutral where a profile has no figure
_PROFILE_COLUMNS = (
    *("gradient_bytes", "noise_scale", "samples_per_core_second", "loading_serial_share"),
    *("sample_bytes", "dataset_bytes", "fixed_memory_bytes", "sample_memory_bytes"),
)

#: each job has one of the two; the other is NaN
_ALTERNATIVE_COLUMN = {"duration_seconds": "iterations", "iterations": "duration_seconds"}


@functools.cache
def _columns() -> list[str]:
    """Names of the columns, one value a job."""
    return [field.name for field in fields(JobTable) if field.name != "past"]


@functools.cache
def _column_rules() -> tuple[dict[str, NumberRange], dict[str, float]]:
    """{column of numbers: what they may be}, and {column: its value where it is not given}."""
    hints = get_type_hints(JobTable, include_extras=True)
    found = {name: hint for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    intervals = {
        name: NumberRange(hint.__metadata__[0], hint.__origin__ == _Whole) for name, hint in found.items()
    }
    neutral = {name: hint.__metadata__[1] for name, hint in found.items() if len(hint.__metadata__) > 1}
    return intervals, neutral


def _new_ids(taken: _Whole | _Text, count: int) -> _Whole | _Text:
    """Return ids [count] that are not in `taken`: the next whole numbers, or texts beside texts."""
    if taken.dtype.kind == "i" and taken.max() < 2**63 - 1 - count:
        return taken.max() + 1 + np.arange(count)
    prefix = "added-"
    while np.char.startswith(taken.astype(np.str_), prefix).any():
        prefix = f"_{prefix}"
    return np.array([f"{prefix}{position}" for position in range(count)])


class _RestrictedJobTable(JobTable):
    """A table that hides the columns that were not declared; made by `JobTable.restricted_to`."""

    def __init__(self, table: JobTable, observability: Observability) -> None:
        self.__dict__.update(_table=table, _observability=observability)

    def __getattribute__(self, name: str) -> Any:
        """Return a column of the table behind, if it was declared."""
        if name not in COLUMNS:
            return object.__getattribute__(self, name)
        hidden = object.__getattribute__(self, "__dict__")
        check_column(name, hidden["_observability"])
        return getattr(hidden["_table"], name)
