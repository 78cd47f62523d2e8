"""Readers of traces: generic CSV, and the public traces as released and as commonly excerpted.

Errors about a file name the file, the row and the column. A `WorkloadWarning` counts rows that `where` keeps,
rows that are left out, and job states that are unknown.
"""

import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import checked, shown
from ringyard.errors import WorkloadError, WorkloadWarning
from ringyard.jobs import JobTable
from ringyard.state.records import JobOutcome
from ringyard.workloads import files
from ringyard.workloads.files import SubmissionTimes, Where, select_rows

_OWNER_COLUMNS = {"cluster": "cluster", "vc": "vc", "user": "user"}
_STATES = ("state", "status")
_TEXT_COLUMNS = ("job_id", *_OWNER_COLUMNS, *_STATES, "role")

#: outcomes by final states of Slurm (sacct), Philly and PAI. Assumption: a preempted job was withdrawn
_OUTCOMES = {
    **dict.fromkeys(("COMPLETED", "PASS", "TERMINATED"), JobOutcome.COMPLETED),
    **dict.fromkeys(("CANCELLED", "CANCELED", "KILLED", "PREEMPTED"), JobOutcome.CANCELLED),
    **dict.fromkeys(
        ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"), JobOutcome.FAILED
    ),
}
_UNFINISHED = ("RUNNING", "PENDING", "WAITING", "SUSPENDED", "REQUEUED")


@checked("workload.reader")
def read_csv(
    path: str | Path,
    job_id: str | None = "job_id",
    submit_time: str = "submit_time",
    gpus: str = "gpus",
    duration: str = "duration",
    cluster: str = "cluster",
    vc: str = "vc",
    user: str = "user",
    sort: bool = False,
    where: Where | None = None,
) -> JobTable:
    """Read a CSV file (also gzip) with a job per row and times in seconds.

    Args:
        path: the file.
        job_id: column of unique ids, numbers or texts. None, or no column of the default name: row numbers
            from 0.
        submit_time: column of submission times, at least 0.
        gpus: column of numbers of GPUs.
        duration: column of run times.
        cluster: column of clusters, for `where`. It may be absent.
        vc: column of virtual clusters. It may be absent.
        user: column of users. It may be absent.
        sort: accept rows in any order. False: unsorted times are an error.
        where: read only rows that meet all conditions: {"cluster", "vc", "user" or any column: a value or a
            list of values, "submit_s": [from, to]}, `to` not included, None for an open end.

    Raises:
        WorkloadError: no such file or column, a value that is no number, an id twice, unsorted or negative
            times, or no row that `where` keeps.
        ConfigurationError: a condition of `where` of the wrong kind.

    Warns:
        WorkloadWarning: how many rows `where` keeps.
    """
    with files.name_file_in_errors(path):
        frame = files.read_rows(path, (job_id, cluster, vc, user))
        if job_id is not None and job_id != "job_id":
            _require_column(frame, job_id)
        times = SubmissionTimes(frame, submit_time, dated=False)
        rows, note = select_rows(frame, where, {"cluster": cluster, "vc": vc, "user": user}, times)
        columns = [files.finite_column(rows, name) for name in (submit_time, gpus, duration)]
        ids = files.id_column(rows, job_id)
        _reject_duplicate_ids(rows, job_id, ids)
        texts = [ids, files.name_column(rows, vc), files.name_column(rows, user)]
        order = np.argsort(columns[0], kind="stable") if sort else slice(None)
        jobs = JobTable.from_columns(*(column[order] for column in (*columns, *texts)))
    _warn(path, [note], stacklevel=4)
    return jobs


def _require_column(frame: pd.DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise WorkloadError(
            f"has no column {name!r}; it has {shown(list(frame.columns))}"
            " (workload.reader.job_id=null numbers the rows)"
        )


def _reject_duplicate_ids(frame: pd.DataFrame, name: str | None, ids: NDArray[Any]) -> None:
    """Raise a WorkloadError for two jobs with one id."""
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[which] != np.arange(len(ids)))
    if len(again):
        row, before = again[0], first[which[again[0]]]
        raise WorkloadError(
            f"row {frame.index[row] + 1}: {name} is {shown(ids[row])}, as in row {frame.index[before] + 1};"
            " expected an id of its own for each job (workload.reader.job_id=null numbers the rows)"
        )


def _warn(path: str | Path, notes: Sequence[str], stacklevel: int) -> None:
    """Issue all `notes` of a reader in one WorkloadWarning."""
    text = "; ".join(note for note in notes if note)
    if text:
        warnings.warn(f"{path}: {text}", WorkloadWarning, stacklevel=stacklevel)


@dataclass(frozen=True)
class _TraceColumns:
    """Columns of a trace. If it is `dated` (dates instead of seconds), run times may be missing."""

    submit: str = "submit_s"
    gpus: str = "num_gpus"
    duration: str = "duration_s"
    dated: bool = False


def _read_trace(
    path: str | Path, frame: pd.DataFrame, columns: _TraceColumns, where: Where | None
) -> JobTable:
    """Jobs of rows with GPUs, a run time above 0, a date and an end, by submission, the first at 0 s."""
    for name in (columns.submit, columns.gpus, columns.duration):
        files.numeric_column(frame[:0], name)  # an error without this column
    times = SubmissionTimes(frame, columns.submit, columns.dated)
    rows, kept = select_rows(frame, where, _OWNER_COLUMNS, times)
    if columns.dated:
        submit, duration = times.seconds[rows.index], files.numeric_column(rows, columns.duration)
    else:
        submit, duration = (files.finite_column(rows, name) for name in (columns.submit, columns.duration))
    gpus = files.finite_column(rows, columns.gpus)
    outcome, ended, doubtful = _outcomes(rows)
    left, dropped = _find_excluded(
        rows,
        {
            "without GPUs": ~(gpus > 0),
            "without a submission date (ISO 8601)": ~np.isfinite(submit),
            "that had not ended": ~ended,
            "without a positive run time": ~(duration > 0),
        },
    )
    order = np.flatnonzero(~left)[np.argsort(submit[~left], kind="stable")]
    jobs = JobTable.from_columns(
        submit[order] - submit[order[0]],
        gpus[order],
        duration[order],
        files.id_column(rows, "job_id")[order],
        files.name_column(rows, "vc")[order],
        files.name_column(rows, "user")[order],
    )
    _warn(path, [kept, dropped, _describe_unknown_states(doubtful, rows.index[order])], stacklevel=5)
    return replace(jobs, outcome=outcome[order])


def _find_excluded(
    frame: pd.DataFrame, reasons: Mapping[str, NDArray[np.bool_]]
) -> tuple[NDArray[np.bool_], str]:
    """([rows] whether there is a reason to leave it out, and a text with the counts).

    Args:
        frame: rows.
        reasons: {reason: [rows] whether it holds}.

    Raises:
        WorkloadError: every row is left out.
    """
    left = np.zeros(len(frame), dtype=np.bool_)
    parts = []
    for reason, bad in reasons.items():
        rows = np.flatnonzero(bad & ~left)
        left[rows] = True
        if len(rows):
            parts.append(f"{len(rows):,} {reason} (the first is row {frame.index[rows[0]] + 1})")
    if left.all():
        raise WorkloadError(f"has no job with GPUs, a date and a run time: {', '.join(parts)}")
    return left, f"left out {left.sum():,} of {len(frame):,} jobs: {', '.join(parts)}" if parts else ""


def _outcomes(frame: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.bool_], "pd.Series[str]"]:
    """([rows] outcome of each job, [rows] whether it had ended, missing and unknown states by row).

    A job that was cancelled or failed does so again after as long a run as in the trace. A job completes if
    its `state` (or `status`) is missing or unknown, or if there is no such column.
    """
    name = next((name for name in _STATES if name in frame.columns), "")
    states = files.text_column(frame, name) if name else pd.Series("COMPLETED", index=frame.index)
    words = states.str.upper().str.extract(r"^([A-Z_]+)", expand=False).fillna("")  # "CANCELLED by 1001"
    ends = words.map(_OUTCOMES)
    ended = ~words.isin(_UNFINISHED).to_numpy()
    outcome = np.asarray(ends.fillna(int(JobOutcome.COMPLETED)), dtype=np.int64)
    return outcome, ended, states[ends.isna().to_numpy() & ended]


def _describe_unknown_states(states: "pd.Series[str]", jobs: "pd.Index[int]") -> str:
    """Text about missing and unknown `states` of the `jobs` that are read, "" if there are none."""
    unknown = Counter(states[states.index.isin(jobs)])
    missing = unknown.pop("", 0)
    parts = [f"{missing:,} of {len(jobs):,} jobs have no state"] if missing else []
    if unknown:
        texts = ", ".join(f"{state!r} ({count:,})" for state, count in unknown.most_common(8))
        parts.append(f"{unknown.total():,} of {len(jobs):,} jobs have a state that is not known, {texts}")
    return f"{' and '.join(parts)}: taken as completed" if parts else ""


@checked("workload.reader")
def read_helios(path: str | Path, where: Where | None = None) -> JobTable:
    """Read Helios (SenseTime): HeliosData's `cluster_log.csv`, or an excerpt with `submit_s`.

    Jobs without GPUs are left out. Times count from the first GPU job.

    Args:
        path: the file.
        where: read only rows that meet all conditions: {"cluster", "vc", "user" or any column: a value or a
            list of values, "submit_s": [from, to]}, `to` not included, None for an open end. Ends are seconds
            of the excerpt. In cluster_log.csv they are dates, or seconds since its first date.

    Raises:
        WorkloadError: no such file, other columns, or no row that `where` keeps.
        ConfigurationError: a condition of `where` of the wrong kind.

    Warns:
        WorkloadWarning: counts of rows that `where` keeps, of rows left out by reason, and of unknown states.
    """
    with files.name_file_in_errors(path):
        frame = files.read_rows(path, _TEXT_COLUMNS)
        if "submit_s" in frame.columns:
            return _read_trace(path, frame, _TraceColumns(), where)
        if not {"submit_time", "gpu_num", "duration"} <= set(frame.columns):
            raise WorkloadError(
                "is neither HeliosData's cluster_log.csv (gpu_num, submit_time, duration, ...) nor an excerpt"
                f" with submit_s; it has {shown(list(frame.columns))}"
            )
        columns = _TraceColumns("submit_time", "gpu_num", "duration", dated=True)
        return _read_trace(path, frame, columns, where)


@checked("workload.reader")
def read_pai(path: str | Path, where: Where | None = None) -> JobTable:
    """Read Alibaba PAI 2020: an excerpt with `start_s`, `num_gpus_roundedup` and `duration_s`.

    Jobs count as submitted when they start. Rows are tasks, and those of one job have the same id.

    Args:
        path: the file.
        where: conditions as in `read_helios`. "submit_s" is `start_s`.

    Raises:
        WorkloadError, ConfigurationError: as `read_helios`, which also says what a WorkloadWarning tells.
    """
    with files.name_file_in_errors(path):
        columns = _TraceColumns("start_s", "num_gpus_roundedup")
        return _read_trace(path, files.read_rows(path, _TEXT_COLUMNS), columns, where)


@checked("workload.reader")
def read_philly(path: str | Path, where: Where | None = None) -> JobTable:
    """Read Microsoft Philly: the release's `cluster_job_log` (JSON), or an excerpt with `submit_s`.

    A job of the release has the GPUs of its last attempt and the run times of all attempts together. Jobs
    that never started or never ended are left out.

    Args:
        path: the file.
        where: conditions as in `read_helios`.

    Raises:
        WorkloadError, ConfigurationError: as `read_helios`, which also says what a WorkloadWarning tells.
    """
    with files.name_file_in_errors(path):
        if str(path).endswith((".csv", ".csv.gz")):
            return _read_trace(path, files.read_rows(path, _TEXT_COLUMNS), _TraceColumns(), where)
        log = _philly_log(files.read_text(path))
        return _read_trace(path, log, _TraceColumns("submitted_time", dated=True), where)


def _philly_log(text: str) -> pd.DataFrame:
    """A row per job of Philly's JSON, with NaN seconds where a date is missing."""
    jobs: list[dict[str, Any]] = []
    ends: list[Any] = []
    try:
        for job in json.loads(text):
            attempts = job["attempts"]
            gpus = sum(len(detail["gpus"]) for detail in attempts[-1]["detail"]) if attempts else 0
            jobs.append({"submitted_time": job["submitted_time"], "num_gpus": gpus})
            jobs[-1] |= {name: job[key] for key, name in _PHILLY_COLUMNS.items() if key in job}
            ends += [(len(jobs) - 1, attempt["start_time"], attempt["end_time"]) for attempt in attempts]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise WorkloadError(f"is not Philly's cluster_job_log JSON: {error!r}") from error
    if not jobs:
        raise WorkloadError("has no jobs; expected Philly's cluster_job_log")
    log = pd.DataFrame(ends, columns=["job", "start", "end"])
    dates = pd.concat([log["start"], log["end"]], ignore_index=True)
    seconds, _ = files.date_column(pd.DataFrame({"date": dates.astype(str)}), "date")
    ran = seconds[len(log) :] - seconds[: len(log)]
    frame = pd.DataFrame(jobs)
    texts = [name for name in ("submitted_time", *_PHILLY_COLUMNS.values()) if name in frame.columns]
    frame = frame.astype(dict.fromkeys(texts, str))
    return frame.assign(duration_s=np.bincount(log["job"].to_numpy(dtype=np.int64), ran, len(frame)))


#: {key of a job in Philly's release: column}
_PHILLY_COLUMNS = {"jobid": "job_id", "vc": "vc", "user": "user", "status": "status"}
