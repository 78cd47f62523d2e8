"""`TraceReader`: a file of jobs as a `JobTable`, and the sources of the public traces.

Its settings name the columns and say how values are written.
"""

import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import Positive, checked, shown, suggest
from ringyard.config_folder import config_files, config_folder
from ringyard.errors import ConfigurationError, WorkloadError, WorkloadWarning
from ringyard.jobs import JobTable
from ringyard.profiles import catalogue
from ringyard.renamed import explain_renamed
from ringyard.state.records import JobOutcome
from ringyard.workloads.cells import ENDS, UNITS
from ringyard.workloads.files import read_rows
from ringyard.workloads.reading import Reading, TraceRead
from ringyard.workloads.selection import Where

#: name of a column that the file must have, names of which the first that it has is taken, or no column
Column = str | Annotated[Sequence[str], "not empty"] | None


@checked("workload.reader")
@dataclass(frozen=True)
class TraceReader:
    """Reads a file of jobs: `TraceReader(tenant="team")("jobs.csv")`.

    The defaults are those of `conf/workload/csv.yaml`. Rows that cannot be jobs are an error that names file,
    line, column and value, or are left out and counted. `ringyard.workloads.files` lists the formats.

    Raises:
        ConfigurationError: a setting of the wrong kind.
    """

    #: ids, numbers or texts. None, or no such column: positions in the file, from 0
    job_id: Column = ("job_id",)
    #: submission times: numbers, or dates. None: the start, or without one 0 s for all jobs
    submit: Column = ("submit_time",)
    start: Column = None  #: times at which jobs started
    end: Column = None  #: times at which jobs ended
    duration: Column = ("duration",)  #: run times: numbers, or texts such as 1-02:03:04. Default: end - start
    iterations: Column = None  #: training iterations, for files without run times
    gpus: Column = ("gpus",)  #: GPUs of the job, or of each of its `workers`
    workers: Column = None  #: number of workers, each with so many `gpus` and `cores`
    cores: Column = None  #: CPU cores of the job, or of each of its `workers`
    state: Column = ("state", "status")  #: how jobs ended
    model: Column = None  #: models. Other jobs get one from `workload.models`
    batch_size: Column = None  #: samples of an iteration on all GPUs. Default: the base batch of the model
    samples_per_gpu: Column = None  #: the same for each GPU
    cluster: Column = ("cluster",)  #: clusters, for `where`
    tenant: Column = ("tenant", "vc")  #: tenants, such as virtual clusters: `vc` of the job table
    user: Column = ("user",)  #: users
    gpu_type: Column = None  #: types of GPUs, for `where`
    priority: Column = None  #: priorities, for `where`
    separator: str = ","  #: between cells: a character, or `\s+` for spaces
    #: names of the columns, for files without a header
    header: Annotated[Sequence[str], "not empty"] | None = None
    comment: str | None = None  #: lines that begin with this text are no rows
    dates: str | Sequence[str] = ()  #: formats of dates (strptime). Empty: ISO 8601
    zone: str = "UTC"  #: time zone of dates that name none, such as Europe/Berlin
    #: {column: unit of its numbers, a factor or one of us, ms, s, min, h, d, percent, milli}
    units: Mapping[str, str | float] = field(default_factory=dict)
    #: {column, or setting that names one: regular expression. Its first group that matches,
    #: or the match, is the value; of a group named `each`, all matches add up}
    patterns: Mapping[str, str] = field(default_factory=dict)
    #: {state: completed, failed, cancelled or unfinished}, beside those of Slurm, Philly, PAI and Kubernetes
    states: Mapping[str, str] = field(default_factory=dict)
    #: {model as the file writes it: name of a profile}
    model_names: Mapping[str, str] = field(default_factory=dict)
    #: {model: samples of a training at the smallest batch of its profile}, for files without run times and
    #: iterations. Larger batches need more, by the noise scale of the profile.
    samples: Mapping[str, Positive] = field(default_factory=dict)
    where: Where | None = None  #: read only rows that meet all conditions, see `ringyard.workloads.selection`
    leave_out: bool = False  #: leave out rows that cannot be jobs. False: they are an error
    sort: bool = False  #: accept rows in any order. False: unsorted times are an error
    unique_ids: bool = True  #: ids that repeat are an error
    from_zero: bool = False  #: times count from the first job. Those of dates always do
    round_up_gpus: bool = False  #: parts of a GPU count as a whole one. False: they are an error

    def __post_init__(self) -> None:
        one = len(self.separator) == 1 and self.separator.isascii() and self.separator not in "\r\n"
        if not one and self.separator not in ("\\t", "\\s+"):
            _refuse("separator", f"is {self.separator!r}", "a character, '\\t' or '\\s+'")
        named = {name for role in self.roles for name in self.column_names(role)}
        for setting in ("units", "patterns"):
            known = named | ({*self.roles} if setting == "patterns" else set())
            for name in getattr(self, setting).keys() - known:
                found = f"has {name!r}, which no setting names as a column"
                _refuse(setting, found, f"some of {shown(sorted(named))}")
        for setting, values, expected in (
            ("units", [one for one in self.units.values() if isinstance(one, str)], UNITS),
            ("states", self.states.values(), ENDS),
        ):
            for value in values:
                if value not in expected:
                    _refuse(setting, f"has {value!r}", f"some of {', '.join(expected)}")
        try:
            for pattern in self.patterns.values():
                re.compile(pattern)
            pd.Timestamp(0, tz=self.zone)
        except re.error as error:
            _refuse("patterns", f"has {pattern!r}: {error}", "a regular expression")
        except (LookupError, ValueError, OSError):
            _refuse("zone", f"is {self.zone!r}", "a time zone such as UTC or Europe/Berlin")
        for form in [self.dates] if isinstance(self.dates, str) else self.dates:
            try:
                pd.to_datetime(["-"], format=form, errors="coerce")
            except ValueError as error:
                _refuse("dates", f"has {form!r}: {error}", "a format such as '%d.%m.%Y %H:%M'")

    def __call__(self, path: str | Path) -> JobTable:
        """Return the jobs of a file.

        Args:
            path: the file.

        Raises:
            WorkloadError: no such file or column, a row that cannot be a job, or no row left.
            ConfigurationError: a condition of `where` of the wrong kind.

        Warns:
            WorkloadWarning: counts of rows that `where` keeps, of rows left out by reason, and of unknown
                states.
        """
        read = self.read(path)
        if read.notes:
            warnings.warn(f"{path}: {'; '.join(read.notes)}", WorkloadWarning, stacklevel=2)
        return read.jobs

    def read(self, path: str | Path) -> TraceRead:
        """Return the jobs of a file and what was understood, without a warning. See `__call__`."""
        try:
            known = {name for role in self.roles for name in self.column_names(role)}
            rows = read_rows(path, self.separator, self.header, self.comment, sorted(known))
            return Reading(self, rows).result()
        except WorkloadError as error:
            raise WorkloadError(f"{path}: {error}") from error

    @property
    def roles(self) -> list[str]:
        """Settings that name a column."""
        return [one.name for one in fields(self) if one.type == Column]

    def column_names(self, role: str) -> Sequence[str]:
        """Return the names that a setting gives for its column."""
        setting = getattr(self, role)
        return (setting,) if isinstance(setting, str) else setting or ()


def _refuse(setting: str, found: str, expected: str) -> NoReturn:
    raise ConfigurationError(f"workload.reader.{setting} {found}; expected {expected}")


def trace_configs() -> dict[str, Path]:
    """Return {workload that reads a file: its yaml}, those of the user's folders too."""
    files = config_files("workload")
    return {name: file for name, file in files.items() if "\nreader:" in file.read_text()}


def _reader_settings(name: str) -> dict[str, Any]:
    """Settings of the reader of a workload, over those of the workloads that it is based on."""
    import yaml

    files = config_files("workload")
    config = yaml.safe_load(files[name].read_text())
    bases = [_reader_settings(one) for one in config.get("defaults", ()) if str(one) in files]
    found: dict[str, Any] = {}
    for key, value in (pair for one in (*bases, config.get("reader", {})) for pair in one.items()):
        found[key] = found[key] | value if isinstance(value, dict) and found.get(key) else value
    return found


def trace_reader(name: str = "csv", **settings: Any) -> TraceReader:
    """Return the reader of a workload of `conf/workload`.

    Args:
        name: workload, such as "helios" or "acme".
        **settings: settings of `TraceReader` in place of those of the workload.

    Raises:
        ConfigurationError: no such workload or setting.
    """
    configs = trace_configs()
    if name not in configs:
        raise ConfigurationError(f"there is no trace {name!r}; expected {suggest(name, configs)}")
    given = _reader_settings(name)
    known = [one.name for one in fields(TraceReader)]
    for setting in settings.keys() - set(known):
        raise ConfigurationError(
            explain_renamed("settings", f"workload.reader.{setting}")
            or f"a reader has no setting {setting!r}; expected {suggest(setting, known)}"
        )
    return TraceReader(**{key: value for key, value in (given | settings).items() if key != "_target_"})


def read_trace(path: str | Path, name: str = "csv", **settings: Any) -> JobTable:
    """Return the jobs of a file, read with the settings of a workload of `conf/workload`.

    Args:
        path: the file.
        name: workload, such as "helios" or "acme".
        **settings: settings of `TraceReader` in place of those of the workload, such as
            `where={"tenant": "vcvGl"}`.

    Raises:
        WorkloadError, ConfigurationError: as `trace_reader` and `TraceReader`.
    """
    return trace_reader(name, **settings)(path)


read_csv = partial(read_trace, name="csv")
read_helios = partial(read_trace, name="helios")
read_philly = partial(read_trace, name="philly")
read_pai = partial(read_trace, name="pai")


#: {setting that only `where` uses: text}, because jobs have no cluster, priority or type of GPU
_FOR_WHERE = {role: f"{role} (used by where only)" for role in ("cluster", "gpu_type", "priority")}

_MAX_NAMES = 8  # of ends, models and tenants of a trace


def trace_sources() -> dict[str, dict[str, Any]]:
    """Return {workload that reads a trace: facts about its release}, as `conf/traces.yaml` has them."""
    import yaml

    return yaml.safe_load((config_folder() / "traces.yaml").read_text())


@dataclass(frozen=True)
class TraceDescription:
    """What a reader understood of a file."""

    facts: Mapping[str, str]  #: {title: text}
    columns: Mapping[str, tuple[str, str]]  #: {column of the file: (settings that it is read for, values)}
    left_out: Mapping[str, str]  #: {reason: number of rows}


def describe_trace(name: str, path: str, **settings: Any) -> TraceDescription:
    """Read a local copy of a trace and say, column by column, what was understood.

    Args:
        name: workload of `conf/workload` that reads it, such as "helios" or "csv".
        path: the file.
        **settings: settings of `TraceReader` in place of those of the workload.

    Raises:
        WorkloadError: no such file, or the reader does not understand it.
        ConfigurationError: an unknown name or setting.
    """
    read = trace_reader(name, **settings).read(path)
    jobs = read.jobs
    published = trace_sources().get(name, {}).get("jobs")
    roles = {name: [role for role, column in read.columns.items() if column == name] for name in read.names}
    units = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0}
    span = jobs.submit_seconds[-1] - jobs.submit_seconds[0]
    unit = next((one for one, seconds in units.items() if span >= 2 * seconds), "seconds")
    facts = {
        "rows": f"{read.num_rows:,}",
        "jobs": f"{len(jobs):,}" + (f" (published: {published:,})" if published else ""),
        "span": f"{span / units.get(unit, 1.0):,.1f} {unit}",
        "GPUs per job": f"mean {jobs.num_gpus.mean():.2f}, largest {jobs.num_gpus.max()}",
        "sha256": hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest(),
        **({"notes": "\n".join(read.notes)} if read.notes else {}),
    }
    read_as = {name: ", ".join(_FOR_WHERE.get(one, one) for one in found) for name, found in roles.items()}
    given = {name: [_values(jobs, one) for one in found] for name, found in roles.items()}
    columns = {name: (read_as[name] or "not read", "; ".join(filter(None, given[name]))) for name in roles}
    return TraceDescription(facts, columns, {reason: f"{count:,}" for reason, count in read.left_out.items()})


def _values(jobs: JobTable, role: str) -> str:
    """Text of the values that a setting's column gave the jobs, "" for settings that give none."""
    ranges = {
        "submit": (jobs.submit_seconds, "s"),
        "duration": (jobs.duration_seconds, "s"),
        "iterations": (jobs.iterations, "iterations"),
        "gpus": (jobs.num_gpus, "GPUs in all"),
        "cores": (jobs.cores_per_worker, "cores for each GPU"),
        "batch_size": (jobs.batch_size, "samples"),
        "samples_per_gpu": (jobs.batch_size / np.maximum(jobs.num_gpus, 1), "samples"),
    }
    if role in ranges:
        values, unit = ranges[role]
        low, middle, high = np.quantile(values, [0, 0.5, 1]).tolist()
        return f"{low:,.10g} to {high:,.10g} {unit}, median {middle:,.10g}"
    if role == "job_id":
        return f"{len(np.unique(jobs.job_id)):,} ids"
    if role in ("tenant", "user"):
        return _counts(jobs.user if role == "user" else jobs.vc)
    if role == "state":
        return _counts(np.array([JobOutcome(end).name.lower() for end in jobs.outcome.tolist()]))
    if role == "model":
        names = [*(model.name for model in catalogue()), "drawn from workload.models"]
        return _counts(np.array(names)[jobs.model_ids])
    return ""


def _counts(names: NDArray[np.str_]) -> str:
    """Text of the most frequent names with their counts."""
    found = Counter(name for name in names.tolist() if name)
    most = [f"{name} ({count:,})" for name, count in found.most_common(_MAX_NAMES)]
    return f"{len(found):,}: {', '.join(most)}{', ...' if len(found) > _MAX_NAMES else ''}"
