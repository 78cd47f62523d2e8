"""Sources of the public traces, and a description of a local copy."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringyard.errors import WorkloadWarning
from ringyard.state.records import JobOutcome
from ringyard.workloads.readers import read_trace

_MAX_NAMES = 8  # of ends and tenants of a trace


@dataclass(frozen=True)
class TraceSource:
    """A public trace."""

    name: str  #: its name, and that of the workload config that reads it
    url: str  #: web page of the release
    file: str  #: file of the release that the reader reads
    jobs: int  #: published number of GPU jobs
    note: str  #: limits of the data, and conditions that `workload.reader.where` accepts
    licence: str = "CC-BY-4.0"  #: licence that the release states


SOURCES = (
    TraceSource(
        "philly",
        "https://github.com/msr-fiddle/philly-traces",
        "trace-data/cluster_job_log",
        117325,
        "JSON. Jobs that never ran are left out. CSV excerpts with submit_s, num_gpus, duration_s can be"
        " read, too. workload.reader.where accepts vc, user, status and submit_s",
    ),
    TraceSource(
        "helios",
        "https://github.com/S-Lab-System-Group/HeliosData",
        "data/Venus/cluster_log.csv",
        125303,
        "CPU-only jobs are left out. CSV excerpts with submit_s, num_gpus, duration_s can be read, too."
        " workload.reader.where accepts vc, user, state and submit_s",
    ),
    TraceSource(
        "pai",
        "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020",
        "a CSV excerpt of pai_task_table with start_s, num_gpus_roundedup, duration_s",
        732691,
        "Start times stand for submissions. Fractional GPUs are rounded up."
        " workload.reader.where accepts role and submit_s. There are no users and no virtual clusters",
    ),
)


def describe_trace(name: str, path: str) -> dict[str, str]:
    """Read a local copy of a public trace and describe it.

    Args:
        name: workload of `conf/workload` that reads it, such as "helios" or "csv".
        path: the file.

    Returns:
        {title: text} about jobs, their GPUs, run times and outcomes, tenants, and rows left out.

    Raises:
        WorkloadError: no such file, or the reader does not understand it.
        ConfigurationError: an unknown name.
    """
    published = {source.name: f" (published: {source.jobs:,})" for source in SOURCES}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WorkloadWarning)
        jobs = read_trace(path, name)
    ends = {end.name.lower(): int((jobs.outcome == end).sum()) for end in JobOutcome}
    tenants: dict[str, str] = {}
    for title, names in (("virtual clusters", jobs.vc), ("users", jobs.user)):
        found = {tenant: count for tenant, count in Counter(names.tolist()).most_common() if tenant}
        tenants |= {title: f"{len(found):,}: {_format_counts(found)}"} if found else {}
    notes = "\n".join(str(warning.message) for warning in caught)
    return {
        "jobs": f"{len(jobs):,}{published.get(name, '')}",
        "span": f"{jobs.submit_seconds[-1] / 86400.0:.1f} days",
        "GPUs per job": f"mean {jobs.num_gpus.mean():.2f}, largest {jobs.num_gpus.max()}",
        "median run time": f"{np.sort(jobs.duration_seconds)[len(jobs) // 2]:,.0f} s",
        "ends": _format_counts({end: count for end, count in ends.items() if count}),
        **tenants,
        "sha256": hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest(),
        **({"note": notes} if notes else {}),
    }


def _format_counts(names: Mapping[str, int]) -> str:
    """Text of the first names with their counts."""
    first = [f"{name} ({count:,})" for name, count in list(names.items())[:_MAX_NAMES]]
    return ", ".join(first + (["..."] if len(names) > _MAX_NAMES else []))
