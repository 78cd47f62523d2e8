"""Job lists from files: generic CSV and the public traces, as released and as commonly re-cut."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.errors import WorkloadError
from ringyard.jobs import JobTable
from ringyard.state.records import JobOutcome

__all__ = ["read_csv", "read_helios", "read_pai", "read_philly"]


def _frame(path: str | Path) -> pd.DataFrame:
    file = Path(path).expanduser()
    if not file.is_file():
        raise WorkloadError(f"there is no trace file {file}; see `ringyard traces` for where to get one")
    try:
        return pd.read_csv(file, low_memory=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{file} is not a readable CSV file: {error}") from error


def _column(frame: pd.DataFrame, name: str, path: str | Path) -> NDArray[np.float64]:
    if name not in frame.columns:
        raise WorkloadError(
            f"{path} has no column {name!r}; it has {', '.join(map(str, frame.columns))}"
            " (workload.reader.* names other columns)"
        )
    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise WorkloadError(
            f"{path}, row {row + 1}: {name} is {frame[name].iloc[row]!r}; expected a finite number"
        )
    return values


def _ids(frame: pd.DataFrame, name: str) -> NDArray[np.int64]:
    """The trace's job numbers if they are whole numbers, else row numbers."""
    if name in frame.columns:
        values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        if np.all(np.isfinite(values)) and np.all(values == np.floor(values)):
            return values.astype(np.int64)
    return np.arange(len(frame))


def read_csv(
    path: str | Path,
    job_id: str = "job_id",
    submit_time: str = "submit_time",
    gpus: str = "gpus",
    duration: str = "duration",
    sort: bool = False,
) -> JobTable:
    """A CSV file (.gz too) with one job a row, times in seconds.

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
    frame = _frame(path)
    if len(frame) == 0:
        raise WorkloadError(f"{path} has no rows")
    if sort and submit_time in frame.columns:
        frame = frame.sort_values(submit_time, kind="stable", ignore_index=True)
    return JobTable.from_columns(
        _column(frame, submit_time, path),
        _column(frame, gpus, path),
        _column(frame, duration, path),
        _ids(frame, job_id),
    )


def _from_frame(frame: pd.DataFrame, ids: str) -> JobTable:
    """Rows with GPUs and a positive run time, sorted by `submit`, the first at 0."""
    usable = (frame["gpus"] > 0) & (frame["duration"] > 0) & np.isfinite(frame["submit"])
    frame = frame[usable].sort_values("submit", kind="stable", ignore_index=True)
    if len(frame) == 0:
        raise WorkloadError("the trace has no job with GPUs and a positive run time")
    submit = frame["submit"].to_numpy(dtype=np.float64)
    jobs = JobTable.from_columns(
        submit - submit[0],
        frame["gpus"].to_numpy(dtype=np.float64),
        frame["duration"].to_numpy(dtype=np.float64),
        _ids(frame, ids),
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


def _pick(frame: pd.DataFrame, path: str | Path, submit: str, gpus: str, duration: str) -> pd.DataFrame:
    return frame.assign(
        submit=_column(frame, submit, path),
        gpus=_column(frame, gpus, path),
        duration=_column(frame, duration, path),
    )


def read_helios(path: str | Path) -> JobTable:
    """Helios (SenseTime): HeliosData's `cluster_log.csv`, or a cut with `submit_s` and `duration_s`.

    Jobs without GPUs are left out; times count from the first GPU job.

    Raises:
        WorkloadError: no such file, or columns of neither shape.
    """
    frame = _frame(path)
    if "submit_s" in frame.columns:
        return _from_frame(_pick(frame, path, "submit_s", "num_gpus", "duration_s"), "job_id")
    for name in ("submit_time", "gpu_num", "duration"):
        if name not in frame.columns:
            raise WorkloadError(
                f"{path} is neither HeliosData's cluster_log.csv (gpu_num, submit_time, duration, ...)"
                f" nor a cut with submit_s; it has {', '.join(map(str, frame.columns))}"
            )
    submit = pd.to_datetime(frame["submit_time"], errors="coerce")
    seconds = (submit - submit.min()).dt.total_seconds()
    frame = frame.assign(
        submit=seconds,
        gpus=_column(frame, "gpu_num", path),
        duration=pd.to_numeric(frame["duration"], errors="coerce"),
    )
    return _from_frame(frame, "job_id")


def read_pai(path: str | Path) -> JobTable:
    """Alibaba PAI 2020: a cut with `start_s`, `num_gpus_roundedup`, `duration_s`; submit = start.

    Raises:
        WorkloadError: no such file or column.
    """
    frame = _frame(path)
    return _from_frame(_pick(frame, path, "start_s", "num_gpus_roundedup", "duration_s"), "job_id")


def read_philly(path: str | Path) -> JobTable:
    """Microsoft Philly: the release's `cluster_job_log` (JSON), or a cut with `submit_s`.

    From the release, a job's GPUs are those of its last attempt and its duration is the sum of all
    attempts' run times; jobs that never started or never ended are left out.

    Raises:
        WorkloadError: no such file, or content of neither shape.
    """
    file = Path(path).expanduser()
    if file.is_file() and not file.name.endswith((".csv", ".csv.gz")):
        return _read_philly_log(file)
    return _from_frame(_pick(_frame(path), path, "submit_s", "num_gpus", "duration_s"), "job_id")


def _read_philly_log(file: Path) -> JobTable:
    try:
        log = json.loads(file.read_text())
        rows = [
            (
                job["submitted_time"],
                sum(len(detail["gpus"]) for detail in job["attempts"][-1]["detail"]),
                [(attempt["start_time"], attempt["end_time"]) for attempt in job["attempts"]],
                job.get("status"),
            )
            for job in log
            if job["attempts"] and job["attempts"][-1].get("detail")
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise WorkloadError(f"{file} is not Philly's cluster_job_log JSON: {error!r}") from error
    submit = pd.to_datetime(pd.Series([row[0] for row in rows]), errors="coerce")
    durations = []
    for _, _, attempts, _ in rows:
        times = pd.to_datetime(pd.Series([time for pair in attempts for time in pair]), errors="coerce")
        seconds = (times[1::2].to_numpy() - times[0::2].to_numpy()) / np.timedelta64(1, "s")
        durations.append(float(seconds.sum()))
    frame = pd.DataFrame(
        {
            "submit": (submit - submit.min()).dt.total_seconds(),
            "gpus": [row[1] for row in rows],
            "duration": durations,
            "status": [row[3] for row in rows],
        }
    )
    return _from_frame(frame, "job_id")
