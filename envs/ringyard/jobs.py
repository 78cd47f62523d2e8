"""`JobTable`: jobs as arrays, one per attribute."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.checks import NumberRange, shown
from ringyard.cluster import Cluster
from ringyard.errors import WorkloadError
from ringyard.observability import COLUMNS, Observability, check_column
from ringyard.profiles import catalogue, profile_values
from ringyard.resources import RESOURCES
from ringyard.state.records import BatchSplit, JobKind, JobOutcome, LossCurve

_Whole = NDArray[np.int64]
_Float = NDArray[np.float64]
_Text = NDArray[np.str_]

MAX_TEXT_LENGTH = 128  #: largest number of characters of a `job_id`, `vc` or `user`
#: largest number of parameter servers of a job. Assumption: published jobs have up to 10.
MOST_PARAMETER_SERVERS = 64


def _column(name: str, values: ArrayLike, whole: bool = False) -> NDArray[Any]:
    """Return column `name` as float64 [jobs], or int64 if `whole`, or raise a WorkloadError."""
    try:
        given = np.asarray(values)
    except ValueError:
        given = np.asarray(values, dtype=object)
    if given.ndim != 1:
        raise WorkloadError(f"column {name} has shape {given.shape}; expected one number for each job")
    wanted = np.dtype(np.int64 if whole else np.float64)
    # any array of such a type converts to the wanted type, up to rounding
    converts = given.dtype.kind in "iuf" and (np.can_cast(given.dtype, wanted) or not whole)
    for row, value in enumerate(() if converts else given.tolist()):
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or (whole and not (-(2**63) <= value < 2**63 and value == int(value))):
            expected = "a whole number of at most 64 bits" if whole else "a number"
            raise WorkloadError(f"row {row} has {name} {shown(value)}; expected {expected}")
    return given.astype(wanted)


def _ids(values: ArrayLike) -> _Whole | _Text:
    """Return ids [jobs] as whole numbers, or as texts if any of them is a text; others are an error."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufU":
        return _texts("job_id", values) if values.dtype.kind == "U" else _column("job_id", values, whole=True)
    given = np.asarray(values, dtype=object).tolist()
    if not isinstance(given, list) or not any(isinstance(one, str) for one in given):
        return _column("job_id", values, whole=True)
    return _texts("job_id", [str(one) if type(one) is int else one for one in given])


def _texts(name: str, values: ArrayLike) -> _Text:
    """Return column `name` of texts as an array [jobs], or raise a WorkloadError, also if one is too long."""
    given = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if given.ndim != 1:
        raise WorkloadError(f"column {name} has shape {given.shape}; expected one text for each job")
    for row, value in enumerate(given.tolist() if given.dtype.kind != "U" else ()):
        if not isinstance(value, str):
            raise WorkloadError(f"row {row} has {name} {shown(value)}; expected text")
        if len(value) > MAX_TEXT_LENGTH:  # before NumPy allocates an array as wide as the longest text
            most = f"at most {MAX_TEXT_LENGTH} characters"
            raise WorkloadError(f"row {row} has {name} {shown(value)}; expected {most}")
    return given.astype(np.str_)


@dataclass(frozen=True, eq=False)
class HistoricalJobs:
    """Jobs that ended before the first job of a table arrives, in the order of their ends.

    Raises:
        WorkloadError: columns of different lengths, or a run time that is not above 0.
    """

    num_gpus: _Whole  #: [ended] GPUs asked for
    run_seconds: _Float  #: [ended] run times, seconds, above 0
    vc: _Text  #: [ended] virtual clusters, text. "": unknown.
    user: _Text  #: [ended] users that submitted them, text. "": unknown.

    def __post_init__(self) -> None:
        lengths = [len(getattr(self, field.name)) for field in fields(self)]
        if len(set(lengths)) > 1:
            raise WorkloadError(f"JobTable.past has columns of {shown(lengths)} jobs; expected equal lengths")
        bad = np.flatnonzero(~(self.run_seconds > 0))
        if len(bad):
            got = self.run_seconds[bad[0]]
            raise WorkloadError(f"row {bad[0]} of JobTable.past has run_seconds {got}; expected seconds > 0")

    def __len__(self) -> int:
        return len(self.run_seconds)


_NO_HISTORY = HistoricalJobs(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, "U1"), np.zeros(0, "U1"))


@functools.lru_cache(maxsize=16)
def _defaults(count: int) -> Mapping[str, NDArray[Any]]:
    """Return {column: [count] default value} as read-only broadcasts."""
    neutral = {**_column_rules()[1], "vc": "", "user": ""}
    return {name: np.broadcast_to(np.asarray(value), count) for name, value in neutral.items()}


def _unspecified_columns(num_gpus: NDArray[np.int64], only_read: bool = False) -> dict[str, NDArray[Any]]:
    """Return the optional columns of jobs with `num_gpus` [jobs], constant ones read-only if `only_read`."""
    count = len(num_gpus)
    batch = np.maximum(num_gpus, 1).astype(np.float64)
    own: dict[str, NDArray[Any]] = {"min_gpus": num_gpus.copy(), "max_gpus": num_gpus.copy()}
    own |= {"batch_size": batch, "min_batch": batch, "max_batch": batch}
    return {name: column if only_read else column.copy() for name, column in _defaults(count).items()} | own


def _values(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column [jobs], or its only value [1] if it is a broadcast."""
    return column[:1] if column.strides == (0,) else column


@dataclass(frozen=True)
class JobTable:
    """Jobs sorted by submission time, one array [jobs] per attribute. Row order breaks all ties.

    Either `duration_seconds` or `iterations` is given for each job. The other is NaN and follows from the
    performance model: on consolidated GPUs without neighbours a job takes `iterations` times its isolated
    seconds per iteration. The annotation of a column holds its range and its default, which is that of a
    rigid ring job without a model. Errors count rows from 0, as indices do.
    """

    job_id: _Whole | _Text  #: the user's own numbers or texts, for outputs only
    submit_seconds: Annotated[_Float, "[0, 1e12]"]  #: arrival times in seconds, ascending, >= 0
    num_gpus: Annotated[_Whole, "[0, 2147483647]"]  #: GPUs asked for, >= 1, or 0 for CPU-only jobs
    #: isolated run time in seconds on consolidated GPUs, > 0, or NaN
    duration_seconds: Annotated[_Float, "(0, 1e12]"]
    iterations: Annotated[_Float, "(0, 1e15]", np.nan]  #: training iterations at `batch_size`, > 0, or NaN
    #: GPU seconds of one iteration at `batch_size` on each worker, > 0
    compute_seconds: Annotated[_Float, "[1e-12, 1e9]", 1.0]
    gradient_bytes: Annotated[_Float, "[0, 1e18]", 0.0]  #: bytes of one all-reduce, >= 0
    #: position in `ringyard.profiles.catalogue()`, -1 for none
    model_ids: Annotated[_Whole, "[-1, 2147483647]", -1]
    #: `ringyard.state.records.JobKind`: ring, CPU-only or parameter servers.
    kind: Annotated[_Whole, "[0, 2]", int(JobKind.RING)]
    #: share of `compute_seconds` that does not depend on the batch, in [0, 1]
    fixed_fraction: Annotated[_Float, "[0, 1]", 0.0]
    #: `ringyard.state.records.BatchSplit` on unlike GPUs. AS_MODEL: `PerformanceModel.batch_split`.
    batch_split: Annotated[_Whole, "[0, 2]", int(BatchSplit.AS_MODEL)]
    #: smallest number of GPUs. Equal to `num_gpus` and `max_gpus` unless the job is elastic.
    min_gpus: Annotated[_Whole, "[0, 2147483647]"]
    max_gpus: Annotated[_Whole, "[0, 2147483647]"]  #: largest number of GPUs
    batch_size: Annotated[_Float, "(0, 1e12]"]  #: global batch in samples, M0 in papers
    min_batch: Annotated[_Float, "(0, 1e12]"]  #: smallest global batch, samples
    max_batch: Annotated[_Float, "(0, 1e12]"]  #: largest global batch, samples
    #: gradient noise scale phi, samples. inf: larger batches lose no efficiency.
    noise_scale: Annotated[_Float, "(0, inf]", np.inf]
    #: CPU cores asked for per worker, or in all if CPU-only
    cores_per_worker: Annotated[_Whole, "[0, 1000000]", 0]
    #: samples that a core prepares per second. inf: no limit.
    samples_per_core_second: Annotated[_Float, "(0, inf]", np.inf]
    #: share of that work which more cores do not speed up
    loading_serial_share: Annotated[_Float, "[0, 1e6]", 0.0]
    #: bytes of main memory asked for per worker, or in all if CPU-only
    ram_per_worker: Annotated[_Float, "[0, 1e15]", 0.0]
    #: bytes of a sample on storage. 0: the job reads nothing there.
    sample_bytes: Annotated[_Float, "[0, 1e15]", 0.0]
    dataset_bytes: Annotated[_Float, "[1, inf]", np.inf]  #: bytes of all samples. inf: too many to cache.
    #: bytes per second of main memory that each core moves
    memory_bandwidth: Annotated[_Float, "[0, 1e12]", 0.0]
    #: GPU memory of a worker that does not depend on the batch, bytes
    fixed_memory_bytes: Annotated[_Float, "[0, 1e15]", 0.0]
    sample_memory_bytes: Annotated[_Float, "[0, 1e15]", 0.0]  #: GPU memory of a worker per sample, bytes
    #: parameter servers asked for, 0 for other kinds of jobs
    parameter_servers: Annotated[_Whole, f"[0, {MOST_PARAMETER_SERVERS}]", 0]
    cores_per_server_task: Annotated[_Whole, "[0, 1000000]", 0]  #: CPU cores of each parameter server
    #: position in `ringyard.performance.plan_table.PlanTable.models`. -1: the job has no execution plans.
    plan_model: Annotated[_Whole, "[-1, 1000000]", -1]
    plan: Annotated[_Whole, "[0, 1000000]", 0]  #: execution plan asked for. 0: the fastest.
    #: share of the iterations after which schedulers may see the remaining time. 0: from the start. inf:
    #: never.
    predictable_from: Annotated[_Float, "[0, inf]", 0.0]
    prediction_factor: Annotated[_Float, "(0, inf)", 1.0]  #: predicted remaining time / true remaining time
    #: `ringyard.state.records.LossCurve`, the family of its loss curve
    loss_curve: Annotated[_Whole, "[0, 8]", int(LossCurve.HYPERBOLA)]
    #: standard deviation of a point about this curve, as a share of the way from start to target. Assumption:
    #: 0.03, the middle of four Pollux runs (1.4, 3.0, 3.1 and 7.6 %).
    loss_noise: Annotated[_Float, "[0, 1e3]", 0.03]
    #: number of its graph of operations (`ringyard.state.operations.draw_graph`). -1: none.
    graph: Annotated[_Whole, "[-1, 2147483647]", -1]
    #: time at which the user cancels the job, seconds. inf: never.
    cancel_seconds: Annotated[_Float, "(0, inf]", np.inf]
    #: largest acceptable completion time, seconds. A job that cannot meet it leaves, blocked
    #: (`ringyard.sim.engine.events` has the rule). inf: no limit.
    acceptable_jct: Annotated[_Float, "(0, inf]", np.inf]
    #: seconds after arrival within which a guaranteed job should end. A late job runs on and counts in
    #: `Metrics.sla_violations`. inf: no guarantee.
    deadline_seconds: Annotated[_Float, "(0, inf]", np.inf]
    #: `ringyard.state.records.JobOutcome` at the end of its work, such as a failure in the trace
    outcome: Annotated[_Whole, "[0, 2]", int(JobOutcome.COMPLETED)]
    #: seconds of its `duration_seconds` that lie before time 0. Jobs with such come first, at 0 s: they get
    #: GPUs before the first decision, and means of `Metrics` leave them out (`ringyard.workloads.Replay`).
    elapsed_seconds: Annotated[_Float, "[0, 1e12]", 0.0]
    vc: _Text  #: name of the virtual cluster. "": unknown.
    user: _Text  #: name of the user that submitted it. "": unknown.
    past: HistoricalJobs = _NO_HISTORY  #: jobs of the cluster that ended earlier. They are not simulated.

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
        """Create a table of rigid jobs without a model: 1 s per iteration, no communication.

        `ringyard.workloads.ModelMix` and `with_models` give the jobs a model.

        Args:
            submit_seconds: [jobs] arrival times, ascending.
            num_gpus: [jobs] GPUs asked for.
            duration_seconds: [jobs] isolated run time on consolidated GPUs.
            job_id: [jobs] whole numbers or texts. None: positions.
            vc: [jobs] virtual clusters. None: unknown.
            user: [jobs] users. None: unknown.
            table_starts: see `check`. With several tables, default columns are read-only.

        Raises:
            WorkloadError: a column of another shape or type, or a value out of its range.
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
        table._check_columns(("submit_seconds", "num_gpus", "duration_seconds"))  # others are defaults
        table._check_arrivals(table_starts)
        return table

    @classmethod
    def cpu_only(
        cls, submit_seconds: ArrayLike, cores: ArrayLike, duration_seconds: ArrayLike, bandwidth: ArrayLike
    ) -> Self:
        """Create a table of CPU-only jobs, each of which runs on the cores of one server.

        Args:
            submit_seconds: [jobs] arrival times, ascending.
            cores: [jobs] CPU cores asked for.
            duration_seconds: [jobs] run time on these cores without contention for memory bandwidth.
            bandwidth: [jobs] bytes per second of main memory that each core moves.

        Raises:
            WorkloadError: a column of another shape or type, or a value out of its range.
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

    def __len__(self) -> int:
        return len(self.submit_seconds)

    def with_models(
        self, model_ids: NDArray[np.int64], batch_size: NDArray[np.float64] | None = None
    ) -> Self:
        """Return the same jobs with the columns of model profiles.

        Args:
            model_ids: [jobs] positions in `ringyard.profiles.catalogue()`. -1 leaves a job unchanged.
            batch_size: [jobs] global batch in samples. None, or NaN: the base batch of each worker.
        """
        compute = profile_values("compute_seconds")[model_ids]
        fixed = profile_values("fixed_seconds")[model_ids]
        batch = profile_values("batch_size")[model_ids] * self.num_gpus
        if batch_size is not None:
            other = np.isfinite(batch_size) & (batch_size != batch)
            batch = np.where(other, batch_size, batch)
            each = fixed + profile_values("sample_seconds")[model_ids] * batch / self.num_gpus
            compute = np.where(other, each, compute)
        columns = {"compute_seconds": compute, "fixed_fraction": fixed / np.maximum(compute, 1e-300)}
        columns |= dict.fromkeys(("batch_size", "min_batch", "max_batch"), batch)
        for column in (*_PROFILE_COLUMNS, "memory_bandwidth"):
            figure = column if column in _PROFILE_COLUMNS else "bandwidth_per_core"
            columns[column] = profile_values(figure, _column_rules()[1][column])[model_ids]
        without = model_ids < 0
        if without.any():
            columns = {name: np.where(without, getattr(self, name), new) for name, new in columns.items()}
        return replace(self, model_ids=model_ids, **columns)  # type: ignore[arg-type]

    def restricted_to(self, observability: Observability) -> "JobTable":
        """Return a view of the table that raises an ObservabilityError for undeclared columns.

        It includes jobs that have not arrived, because schedulers set the priorities of all rows at once. A
        decision may use a row only once its job is submitted.

        Args:
            observability: flags that the scheduler declares.
        """
        return _RestrictedJobTable(self, observability)

    @property
    def gpu_seconds_distribution(self) -> NDArray[np.float64]:
        """[jobs] GPU seconds of isolated run time, ascending, which do not reveal the job of each."""
        return np.sort(self.duration_seconds * self.num_gpus)

    @property
    def num_warm(self) -> int:
        """Number of jobs that ran before time 0, the first rows."""
        return int((self.elapsed_seconds > 0).sum())

    def rows(self, index: Any) -> Self:
        """Return the jobs at `index`, a slice, a mask or ascending rows."""
        return replace(self, **{name: getattr(self, name)[index] for name in _columns()})

    def shifted(self, submit_seconds: NDArray[np.float64]) -> Self:
        """Return the same jobs with other `submit_seconds`. Times to cancellation stay the same."""
        patience = self.cancel_seconds - self.submit_seconds
        return replace(self, submit_seconds=submit_seconds, cancel_seconds=submit_seconds + patience)

    def merged(self, other: "JobTable") -> "JobTable":
        """Return the jobs of both tables by submission time. Of equal times, this table's come first.

        Jobs of the `other` table get new ids. The result has this table's `past`.
        """
        order = np.argsort(np.concatenate([self.submit_seconds, other.submit_seconds]), kind="stable")
        other = replace(other, job_id=_new_ids(self.job_id, len(other)))
        both = {name: [getattr(self, name), getattr(other, name)] for name in _columns()}
        columns = {name: np.concatenate(pair)[order] for name, pair in both.items()}
        return JobTable(**columns, past=self.past)

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Return one table with the rows of many `tables`, in which times ascend only within each of them."""
        columns = {name: np.concatenate([getattr(one, name) for one in tables]) for name in _columns()}
        return cls(**columns, past=_NO_HISTORY)

    def check(self, cluster: Cluster | None = None, table_starts: Sequence[int] = (0,)) -> None:
        """Raise an error that names the first invalid row.

        Args:
            cluster: also check that every job fits this cluster.
            table_starts: first rows of concatenated tables, where times may go back.

        Raises:
            WorkloadError: a column of another shape or type, a value out of its range, or a job that does
                not fit the cluster.
        """
        self._check_columns(tuple(_column_rules()[0]))
        self._check_arrivals(table_starts)
        of = {name: _values(getattr(self, name)) for name in _column_rules()[0]}
        cpu_only, served = of["kind"] == JobKind.CPU_ONLY, of["kind"] == JobKind.PARAMETER_SERVER
        for name in ("num_gpus", "min_gpus", "max_gpus"):
            self._refuse((of[name] != 0) & cpu_only, name, "0 for a CPU-only job")
        self._refuse((of["min_gpus"] < 1) & ~cpu_only, "min_gpus", "1 or more")
        self._refuse(cpu_only & (of["cores_per_worker"] < 1), "cores_per_worker", "1 or more if CPU-only")
        self._refuse(~(of["cancel_seconds"] > of["submit_seconds"]), "cancel_seconds", "after submit_seconds")
        servers = of["parameter_servers"]
        self._refuse(served & (servers < 1), "parameter_servers", "1 or more for a parameter-server job")
        self._refuse(~served & (servers > 0), "parameter_servers", "0 for a job of another kind")
        memory = of["sample_memory_bytes"] * of["max_batch"]
        self._refuse(memory > 1e18, "sample_memory_bytes", "at most 1e18 bytes for max_batch samples")
        self._refuse(of["model_ids"] >= len(catalogue()), "model_ids", f"below {len(catalogue())}, or -1")
        sorted_columns = ("min_gpus", "num_gpus", "max_gpus"), ("min_batch", "batch_size", "max_batch")
        for name, above in (pair for names in sorted_columns for pair in itertools.pairwise(names)):
            self._refuse(of[name] > of[above], name, f"at most its {above}")
        if cluster is not None:
            self._check_fit(cluster)

    def _check_arrivals(self, table_starts: Sequence[int]) -> None:
        """Raise a WorkloadError for descending times, and for a job without GPUs that is not CPU-only."""
        unsorted = np.zeros(len(self), np.bool_)
        unsorted[1:] = self.submit_seconds[1:] < self.submit_seconds[:-1]
        unsorted[list(table_starts)] = False
        self._refuse(unsorted, "submit_seconds", "ascending submit times (sort the rows first)")
        ran = self.elapsed_seconds > 0
        if ran.any():
            late, behind = self.submit_seconds > 0, ~np.concatenate([[True], ran[:-1]])
            behind[list(table_starts)] = False
            self._refuse(ran & (late | behind), "elapsed_seconds", "0 except for the first jobs, at 0 s")
            left = (self.duration_seconds > self.elapsed_seconds) & np.isnan(self.iterations)
            self._refuse(ran & ~left, "elapsed_seconds", "less than its duration_seconds, without iterations")
            self._refuse(ran & (self.num_gpus < 1), "elapsed_seconds", "0 for a CPU-only job")
        wrong = (self.num_gpus < 1) & (_values(self.kind) != JobKind.CPU_ONLY)
        self._refuse(wrong, "num_gpus", "1 or more")

    def _check_columns(self, names: Sequence[str]) -> None:
        """Raise a WorkloadError for a column of another shape or type, or a number out of its range.

        Of columns of numbers only those in `names` are checked, of texts all.
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
        """Raise a WorkloadError unless a column has a text for each job (`job_id`: or a whole number)."""
        values, count = getattr(self, name), len(self)
        numbers = name == "job_id" and isinstance(values, np.ndarray) and values.dtype == np.int64
        if not numbers and not (isinstance(values, np.ndarray) and values.dtype.kind == "U"):
            expected = "an array of texts" + (" or of int64" if name == "job_id" else "")
            raise WorkloadError(f"column {name} is {shown(values)}; expected {expected}")
        if values.shape != (count,):
            raise WorkloadError(f"column {name} has shape {values.shape}; expected ({count},)")
        if not numbers and values.dtype.itemsize > np.dtype(f"U{MAX_TEXT_LENGTH}").itemsize:
            long = np.char.str_len(values) > MAX_TEXT_LENGTH
            self._refuse(long, name, f"at most {MAX_TEXT_LENGTH} characters")

    def _check_fit(self, cluster: Cluster) -> None:
        limit = cluster.num_gpus
        fewer = f"(workload.max_gpus={limit} leaves out larger jobs of a trace; or enlarge the cluster)"
        self._refuse(self.num_gpus > limit, "num_gpus", f"at most the cluster's {limit} GPUs {fewer}")
        fewer = "(enlarge the servers; workload.reader.cores=null reads no cores from a trace)"
        for one in RESOURCES:
            if getattr(cluster, one.capacity):
                most = max(getattr(cluster, one.capacity))
                wanted = f"at most a server's {most} {one.unit}{one.name} {fewer}"
                self._refuse(getattr(self, one.per_worker) > most, one.per_worker, wanted)
        if not cluster.cores_per_server and (self.kind == JobKind.CPU_ONLY).any():
            row = int(np.flatnonzero(self.kind == JobKind.CPU_ONLY)[0])
            job = f"job {self.job_id[row]} (row {row})"
            raise WorkloadError(f"{job} is CPU-only; give the cluster cores_per_server")
        samples = self.batch_size / np.maximum(self.num_gpus, 1)
        memory = self.fixed_memory_bytes + self.sample_memory_bytes * samples
        most_memory = float(cluster.gpu_memory_bytes.max())
        expected = f"at most a GPU's {most_memory:.3g} bytes (smaller batch, more GPUs or other GPU types)"
        self._refuse(memory > most_memory, "GPU memory", expected, memory)
        self._check_workers(cluster, memory)

    def _check_workers(self, cluster: Cluster, memory: NDArray[np.float64]) -> None:
        """Raise a WorkloadError for a job with more workers than fit the cores and memory of the servers."""
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
        fewer = "fewer: the cluster holds fewer of its workers with the cores and memory that each asks for"
        advice = "(ask for less per worker, or enlarge the servers)"
        self._refuse(self.num_gpus > limit, "num_gpus", f"{fewer} {advice}")

    def _refuse(
        self, bad: NDArray[np.bool_], name: str, expected: str, values: NDArray[Any] | None = None
    ) -> None:
        """Raise a WorkloadError with the first bad row and its value, by default of the column `name`."""
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            value = (getattr(self, name) if values is None else values)[row]
            raise WorkloadError(f"job {self.job_id[row]} (row {row}) has {name} {value}; expected {expected}")


#: columns that are fields of `ModelProfile`, with their default where a profile has no value
_PROFILE_COLUMNS = (
    *("gradient_bytes", "noise_scale", "samples_per_core_second", "loading_serial_share"),
    *("sample_bytes", "dataset_bytes", "fixed_memory_bytes", "sample_memory_bytes"),
)

#: {column: the one that may be given in its place}
_ALTERNATIVE_COLUMN = {"duration_seconds": "iterations", "iterations": "duration_seconds"}


@functools.cache
def _columns() -> list[str]:
    """Return the names of the columns."""
    return [field.name for field in fields(JobTable) if field.name != "past"]


@functools.cache
def _column_rules() -> tuple[dict[str, NumberRange], dict[str, float]]:
    """Return {column of numbers: its range}, and {column: its default}."""
    hints = get_type_hints(JobTable, include_extras=True)
    found = {name: hint for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    ranges = {name: NumberRange(one.__metadata__[0], one.__origin__ == _Whole) for name, one in found.items()}
    defaults = {name: one.__metadata__[1] for name, one in found.items() if len(one.__metadata__) > 1}
    return ranges, defaults


def _new_ids(taken: _Whole | _Text, count: int) -> _Whole | _Text:
    """Return ids [count] that are not in `taken`: the next whole numbers, or texts if those are texts."""
    if taken.dtype.kind == "i" and taken.max() < 2**63 - 1 - count:
        return taken.max() + 1 + np.arange(count)
    prefix = "added-"
    while np.char.startswith(taken.astype(np.str_), prefix).any():
        prefix = f"_{prefix}"
    return np.array([f"{prefix}{position}" for position in range(count)])


class _RestrictedJobTable(JobTable):
    """A view of a table that hides undeclared columns, created by `JobTable.restricted_to`."""

    def __init__(self, table: JobTable, observability: Observability) -> None:
        self.__dict__.update(_table=table, _observability=observability)

    def __getattribute__(self, name: str) -> Any:
        """Return a column of the table if it is declared."""
        if name not in COLUMNS:
            return object.__getattribute__(self, name)
        hidden = object.__getattribute__(self, "__dict__")
        check_column(name, hidden["_observability"])
        return getattr(hidden["_table"], name)
