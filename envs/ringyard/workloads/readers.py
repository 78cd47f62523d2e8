"""Job lists from files: generic CSV and the public traces, as released and as commonly re-cut.

Every reader refuses a file that it does not understand, naming the file, the row and the column; rows that it
leaves out are counted in a `WorkloadWarning`.
"""

import csv
import gzip
import io
import json
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import checked, shown
from ringyard.errors import WorkloadError, WorkloadWarning
from ringyard.jobs import JobTable
from ringyard.state.records import JobOutcome

__all__ = ["read_csv", "read_helios", "read_pai", "read_philly"]

_PACKED = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Errors about job data name the file."""
    try:
        yield
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from error


def _text(path: str | Path) -> str:
    """The text of a file, unpacked if it is gzip, whatever its name."""
    try:
        data = Path(path).expanduser().read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except FileNotFoundError as error:
        raise WorkloadError(
            "there is no such trace file; see `ringyard traces` for where to get one"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"is cut short or no gzip file ({error}); get it anew") from error
    except (OSError, RuntimeError, ValueError) as error:  # a folder, no permission, no such user, odd names
        raise WorkloadError(f"cannot be read: {error}") from error
    for magic, name in _PACKED.items():
        if data.startswith(magic):
            raise WorkloadError(f"is a {name} archive; expected text or gzip: unpack it first")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise WorkloadError(f"is no UTF-8 text (line {row}: {error.reason}); save it as UTF-8") from error
    if "\0" in text:
        row = text[: text.index("\0")].count("\n") + 1
        raise WorkloadError(f"is no text: line {row} has a zero byte; expected a text file")
    return text


def _frame(path: str | Path) -> pd.DataFrame:
    """The rows of a CSV file, one or more."""
    text = _text(path)
    try:
        header = next(csv.reader(io.StringIO(text)), [])
        names = [name.strip() for name in header]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise WorkloadError(f"has column {shown(twice[0])} twice; expected columns of different names")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(io.StringIO(text), low_memory=False, index_col=False, skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError, csv.Error) as error:
        raise WorkloadError(f"is not a readable CSV file: {error}") from error
    if len(frame) == 0:
        raise WorkloadError("has no rows; expected a job a row below the header")
    return frame.rename(columns=lambda name: str(name).strip())


def _numbers(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """[rows] a column; NaN where it holds no number."""
    if name not in frame.columns:
        raise WorkloadError(
            f"has no column {name!r}; it has {shown(list(frame.columns))}"
            " (workload.reader.* names other columns)"
        )
    values = frame[name]
    if values.dtype == bool:
        return np.full(len(frame), np.nan)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def _column(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """[rows] a column of finite numbers."""
    values = _numbers(frame, name)
    _refuse(frame, name, ~np.isfinite(values), "a finite number")
    return values


def _refuse(frame: pd.DataFrame, name: str, bad: NDArray[np.bool_], expected: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise WorkloadError(f"row {row + 1}: {name} is {shown(frame[name].iloc[row])}; expected {expected}")


def _dates(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """[rows] seconds from the first date of the column on; NaN where there is no date by ISO 8601."""
    if pd.api.types.is_numeric_dtype(frame[name]):
        _refuse(frame, name, np.ones(len(frame), np.bool_), "a date such as 2020-04-01 00:00:00")
    dates = pd.to_datetime(frame[name].astype(str), errors="coerce", utc=True, format="ISO8601")
    micros = dates.dt.as_unit("us").astype(np.int64).to_numpy()
    there = dates.notna().to_numpy()
    first = micros[there].min() if there.any() else 0
    return np.where(there, (micros - np.where(there, first, micros)) / 1e6, np.nan)


def _ids(frame: pd.DataFrame, name: str) -> NDArray[np.int64]:
    """The trace's job numbers if they are whole numbers, else row numbers.

    Raises:
        WorkloadError: whole numbers of more than 64 bits, or too long for the column's decimals.
    """
    if name not in frame.columns:
        return np.arange(len(frame))
    values = frame[name]
    if values.dtype == np.int64:
        return values.to_numpy()
    numbers = _numbers(frame, name)
    if not np.all(np.isfinite(numbers) & (numbers == np.floor(numbers))):
        return np.arange(len(frame))
    _refuse(frame, name, np.abs(numbers) > 2.0**53, "a whole number of at most 64 bits, all without decimals")
    return numbers.astype(np.int64)


@checked("workload.reader")
def read_csv(
    path: str | Path,
    job_id: str = "job_id",
    submit_time: str = "submit_time",
    gpus: str = "gpus",
    duration: str = "duration",
    sort: bool = False,
) -> JobTable:
    """A CSV file (gzip too) with one job a row, times in seconds.

    Args:
        path: the file.
        job_id: column of the jobs' own numbers; row numbers where absent or not whole.
        submit_time: column of arrival times.
        gpus: column of GPU counts.
        duration: column of run times.
        sort: accept rows in any order; otherwise unsorted times are an error.

    Raises:
        WorkloadError: no such file or column, a value that is no number, unsorted or negative times.
    """
    with _named(path):
        frame = _frame(path)
        columns = [*(_column(frame, name) for name in (submit_time, gpus, duration)), _ids(frame, job_id)]
        order = np.argsort(columns[0], kind="stable") if sort else slice(None)
        return JobTable.from_columns(*(column[order] for column in columns))


def _from_frame(frame: pd.DataFrame, path: str | Path) -> JobTable:
    """Rows with GPUs, a positive run time and a date, sorted by `submit`, the first at 0."""
    reasons = {
        "without GPUs": ~(frame["gpus"] > 0),
        "without a submission date (ISO 8601)": ~np.isfinite(frame["submit"]),
        "without a positive run time": ~(frame["duration"] > 0),
    }
    left = np.zeros(len(frame), dtype=np.bool_)
    said = []
    for reason, bad in reasons.items():
        rows = np.flatnonzero(bad.to_numpy() & ~left)
        left[rows] = True
        if len(rows):
            said.append(f"{len(rows):,} {reason} (the first is row {rows[0] + 1})")
    if left.all():
        raise WorkloadError(f"has no job with GPUs, a date and a run time: {', '.join(said)}")
    if said:
        text = f"{path}: left out {left.sum():,} of {len(frame):,} jobs: {', '.join(said)}"
        warnings.warn(text, WorkloadWarning, stacklevel=4)
    frame = frame[~left].sort_values("submit", kind="stable", ignore_index=True)
    submit = frame["submit"].to_numpy(dtype=np.float64)
    jobs = JobTable.from_columns(
        submit - submit[0],
        frame["gpus"].to_numpy(dtype=np.float64),
        frame["duration"].to_numpy(dtype=np.float64),
        _ids(frame, "job_id"),
    )
    return replace(jobs, outcome=_outcomes(frame))


_ENDS = {
    **dict.fromkeys(("CANCELLED", "KILLED"), JobOutcome.CANCELLED),
    **dict.fromkeys(("FAILED", "TIMEOUT", "NODE_FAIL"), JobOutcome.FAILED),
}


def _outcomes(frame: pd.DataFrame) -> NDArray[np.int64]:
    """[rows] how each job of the trace ended, where its `state` or `status` says so, else completed.

    A job that was cancelled or failed does so again once it has run as long as in the trace.
    """
    for name in ("state", "status"):
        if name in frame.columns:
            ends = frame[name].astype(str).str.upper().map(_ENDS)
            return np.asarray(ends.fillna(int(JobOutcome.COMPLETED)), dtype=np.int64)
    return np.full(len(frame), int(JobOutcome.COMPLETED), dtype=np.int64)


def _pick(frame: pd.DataFrame, submit: str, gpus: str, duration: str) -> pd.DataFrame:
    return frame.assign(
        submit=_column(frame, submit), gpus=_column(frame, gpus), duration=_column(frame, duration)
    )


@checked("workload.reader")
def read_helios(path: str | Path) -> JobTable:
    """Helios (SenseTime): HeliosData's `cluster_log.csv`, or a cut with `submit_s` and `duration_s`.

    Jobs without GPUs are left out; times count from the first GPU job.

    Raises:
        WorkloadError: no such file, or columns of neither shape.

    Warns:
        WorkloadWarning: how many rows were left out, and why.
    """
    with _named(path):
        frame = _frame(path)
        if "submit_s" in frame.columns:
            return _from_frame(_pick(frame, "submit_s", "num_gpus", "duration_s"), path)
        if not {"submit_time", "gpu_num", "duration"} <= set(frame.columns):
            raise WorkloadError(
                "is neither HeliosData's cluster_log.csv (gpu_num, submit_time, duration, ...) nor a cut with"
                f" submit_s; it has {shown(list(frame.columns))}"
            )
        dates, gpus = _dates(frame, "submit_time"), _column(frame, "gpu_num")
        return _from_frame(frame.assign(submit=dates, gpus=gpus, duration=_numbers(frame, "duration")), path)


@checked("workload.reader")
def read_pai(path: str | Path) -> JobTable:
    """Alibaba PAI 2020: a cut with `start_s`, `num_gpus_roundedup`, `duration_s`; submit = start.

    Raises:
        WorkloadError: no such file or column.

    Warns:
        WorkloadWarning: how many rows were left out, and why.
    """
    with _named(path):
        return _from_frame(_pick(_frame(path), "start_s", "num_gpus_roundedup", "duration_s"), path)


@checked("workload.reader")
def read_philly(path: str | Path) -> JobTable:
    """Microsoft Philly: the release's `cluster_job_log` (JSON), or a cut with `submit_s`.

    From the release, a job's GPUs are those of its last attempt and its duration is the sum of all
    attempts' run times; jobs that never started or never ended are left out.

    Raises:
        WorkloadError: no such file, or content of neither shape.

    Warns:
        WorkloadWarning: how many jobs were left out, and why.
    """
    with _named(path):
        if str(path).endswith((".csv", ".csv.gz")):
            return _from_frame(_pick(_frame(path), "submit_s", "num_gpus", "duration_s"), path)
        return _from_frame(_philly_log(_text(path)), path)


def _philly_log(text: str) -> pd.DataFrame:
    """One row a job of Philly's JSON; NaN seconds where it does not say when."""
    jobs: list[dict[str, Any]] = []
    ends: list[Any] = []
    try:
        for job in json.loads(text):
            attempts = job["attempts"]
            gpus = sum(len(detail["gpus"]) for detail in attempts[-1]["detail"]) if attempts else 0
            jobs.append({"when": job["submitted_time"], "gpus": gpus, "status": job.get("status")})
            ends += [(len(jobs) - 1, attempt["start_time"], attempt["end_time"]) for attempt in attempts]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise WorkloadError(f"is not Philly's cluster_job_log JSON: {error!r}") from error
    if not jobs:
        raise WorkloadError("has no jobs; expected Philly's cluster_job_log")
    log = pd.DataFrame(ends, columns=["job", "start", "end"])
    dates = pd.concat([log["start"], log["end"]], ignore_index=True)
    seconds = _dates(pd.DataFrame({"date": dates.astype(str)}), "date")
    ran = seconds[len(log) :] - seconds[: len(log)]
    frame = pd.DataFrame(jobs).astype({"when": str})
    durations = np.bincount(log["job"].to_numpy(dtype=np.int64), ran, len(frame))
    return frame.assign(submit=_dates(frame, "when"), duration=durations)
