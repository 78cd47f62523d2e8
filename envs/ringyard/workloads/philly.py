"""The jobs of Microsoft Philly's `cluster_job_log`, each with the attempts that ran."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ringyard.checks import shown
from ringyard.errors import WorkloadError


def philly_jobs(jobs: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return a record for each of the `jobs` of a log, and notes on attempts that are not counted.

    A job has the GPUs of the last attempt that lists some, and the run times of all attempts with a start and
    an end together. The log says that some starts and ends were not recorded.
    """
    records: list[dict[str, Any]] = []
    attempts: list[tuple[int, Any, Any]] = []
    for place, job in enumerate(jobs):
        try:
            tried = job["attempts"]
            used = [sum(len(server["gpus"]) for server in one.get("detail") or ()) for one in tried]
            attempts += [(place, one.get("start_time"), one.get("end_time")) for one in tried]
            job["submitted_time"]
        except (LookupError, TypeError, AttributeError) as error:
            raise WorkloadError(
                f"is not Philly's cluster_job_log: job {place + 1} is {shown(job)}; expected"
                f" submitted_time and attempts with start_time, end_time and detail ({error!r})"
            ) from error
        records.append(
            {name: value for name, value in job.items() if name != "attempts"}
            | {"num_gpus": str(next((gpus for gpus in reversed(used) if gpus), 0))}
        )
    log = pd.DataFrame(attempts, columns=["job", "start", "end"])
    dates = pd.concat([log["start"], log["end"]], ignore_index=True).astype(str)
    known = pd.to_datetime(dates, errors="coerce", utc=True, format="ISO8601")
    ran = (known[len(log) :].reset_index(drop=True) - known[: len(log)]).dt.total_seconds().to_numpy()
    counted = ran >= 0
    owner = log["job"].to_numpy(dtype=np.int64)
    seconds = np.bincount(owner[counted], ran[counted], len(records))
    for record, sum_of_runs in zip(records, seconds.tolist(), strict=True):
        record["duration_s"] = repr(sum_of_runs)
    lost = np.flatnonzero(np.bincount(owner[~counted], minlength=len(records)) * (seconds > 0))
    note = f"{len(lost):,} of {len(records):,} jobs have attempts without a start or an end: not counted"
    return records, (note,) if len(lost) else ()
