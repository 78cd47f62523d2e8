"""Where each public trace comes from, and whether a local file is one."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringyard.errors import WorkloadError, WorkloadWarning
from ringyard.jobs import JobTable
from ringyard.state.records import JobOutcome
from ringyard.workloads.readers import read_csv, read_helios, read_pai, read_philly


@dataclass(frozen=True)
class TraceSource:
    """A public trace.

    Attributes:
        name: also the name of the workload config that reads it.
        url: the release.
        file: the file of the release that the reader takes.
        jobs: GPU jobs as published.
        read: reader.
        note: what to know before use.
        licence: as the release states it.
    """

    name: str
    url: str
    file: str
    jobs: int
    read: Callable[[str], JobTable]
    note: str
    licence: str = "CC-BY-4.0"


SOURCES = (
    TraceSource(
        "philly",
        "https://github.com/msr-fiddle/philly-traces",
        "trace-data/cluster_job_log",
        117325,
        read_philly,
        "JSON; jobs that never ran are left out. CSV cuts with submit_s, num_gpus, duration_s work too."
        " workload.reader.where takes vc, user, status and submit_s",
    ),
    TraceSource(
        "helios",
        "https://github.com/S-Lab-System-Group/HeliosData",
        "data/Venus/cluster_log.csv",
        125303,
        read_helios,
        "CPU-only jobs are left out. CSV cuts with submit_s, num_gpus, duration_s work too."
        " workload.reader.where takes vc, user, state and submit_s",
    ),
    TraceSource(
        "pai",
        "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020",
        "a CSV cut of pai_task_table with start_s, num_gpus_roundedup, duration_s",
        732691,
        read_pai,
        "start times stand for submissions; fractional GPUs are rounded up."
        " workload.reader.where takes role and submit_s; no users, no virtual clusters",
    ),
)


@dataclass(frozen=True)
class TraceReport:
    """What a local copy holds.

    Attributes:
        ends: {how jobs ended in the trace: jobs}.
        vcs: {virtual cluster: jobs}, largest first, of the jobs that name one.
        users: {user: jobs}, likewise.
        left_out: which rows its reader did not take, and what it took for granted.
    """

    jobs: int
    span_days: float
    mean_gpus: float
    max_gpus: int
    median_duration_seconds: float
    sha256: str
    ends: dict[str, int]
    vcs: dict[str, int]
    users: dict[str, int]
    left_out: tuple[str, ...]


def check_trace(name: str, path: str) -> TraceReport:
    """Read a local copy of trace `name` and describe it.

    Raises:
        WorkloadError: an unknown name, no such file, or content the reader does not understand.
    """
    readers = {source.name: source.read for source in SOURCES} | {"csv": read_csv}
    if name not in readers:
        raise WorkloadError(f"unknown trace {name!r}; expected one of {', '.join(readers)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WorkloadWarning)
        jobs = readers[name](path)
    return TraceReport(
        jobs=len(jobs),
        span_days=float(jobs.submit_seconds[-1]) / 86400.0,
        mean_gpus=float(jobs.num_gpus.mean()),
        max_gpus=int(jobs.num_gpus.max()),
        median_duration_seconds=float(np.sort(jobs.duration_seconds)[len(jobs) // 2]),
        sha256=hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest(),
        ends={end.name.lower(): count for end in JobOutcome if (count := int((jobs.outcome == end).sum()))},
        vcs=_named(jobs.vc.tolist()),
        users=_named(jobs.user.tolist()),
        left_out=tuple(str(warning.message) for warning in caught),
    )


def _named(names: Sequence[str]) -> dict[str, int]:
    """{name: how often}, commonest first."""
    return {name: count for name, count in Counter(names).most_common() if name}
