"""Sources of the public traces, and a description of a local copy."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringyard.jobs import JobTable
from ringyard.profiles import catalogue
from ringyard.state.records import JobOutcome
from ringyard.workloads.readers import trace_reader

_MAX_NAMES = 8  # of ends, models and tenants of a trace
_CLUSTERDATA = "https://github.com/alibaba/clusterdata/tree/master/"


@dataclass(frozen=True)
class TraceSource:
    """A public trace, or a format in which traces are written."""

    name: str  #: of the workload that reads it
    url: str  #: web page of the release
    file: str  #: file of the release that the reader reads
    note: str  #: limits of the data
    jobs: int | None = None  #: published number of GPU jobs
    licence: str = "see the page"  #: licence that the release states


SOURCES = (
    TraceSource(
        "philly",
        "https://github.com/msr-fiddle/philly-traces",
        "trace-data/cluster_job_log",
        "JSON. Jobs that never ran are left out. Also CSV excerpts with submit_s, num_gpus, duration_s",
        117325,
        "CC-BY-4.0",
    ),
    TraceSource(
        "helios",
        "https://github.com/S-Lab-System-Group/HeliosData",
        "data/Venus/cluster_log.csv",
        "CPU-only jobs are left out. Also CSV excerpts with submit_s, num_gpus, duration_s",
        125303,
        "CC-BY-4.0",
    ),
    TraceSource(
        "acme",
        "https://github.com/InternLM/AcmeTrace",
        "data/job_trace/trace_seren.csv or trace_kalos.csv",
        "Language models. Published: Seren 663,813 GPU jobs, Kalos 19,907. CPU-only jobs are left out",
        licence="CC-BY-4.0",
    ),
    TraceSource(
        "pai",
        _CLUSTERDATA + "cluster-trace-gpu-v2020",
        "pai_task_table.csv",
        "Start times stand for submissions. Parts of a GPU are rounded up. No users, no virtual clusters",
        licence="CC-BY-4.0",
    ),
    TraceSource(
        "openb",
        _CLUSTERDATA + "cluster-trace-gpu-v2023",
        "csv/openb_pod_list_default.csv",
        "Pods, most of them services. Pods that share a GPU count as one GPU",
        7064,
    ),
    TraceSource(
        "spot",
        _CLUSTERDATA + "cluster-trace-v2026-spot-gpu",
        "job_info_df.csv",
        "A job's GPUs are its workers times the GPUs of each",
    ),
    TraceSource(
        "gpu_v2026",
        _CLUSTERDATA + "cluster-trace-gpu-v2026",
        "asi_opensource_job_execution_summary",
        "Parquet (pip install pyarrow) or CSV. No submission times: all jobs are submitted at once",
    ),
    TraceSource(
        "supercloud",
        "https://dcc.mit.edu/",
        "scheduler-log.csv",
        "MIT Supercloud. Slurm's numbers of states and GPU types",
    ),
    TraceSource(
        "pollux",
        "https://github.com/petuum/adaptdl/tree/osdi21-artifact/simulator/workloads",
        "workload-1.csv to workload-8.csv",
        "Models and batch sizes. Iterations follow from Pollux's own trainings",
        160,
    ),
    TraceSource(
        "gavel",
        "https://github.com/stanford-futuredata/gavel/tree/master/scheduler/traces",
        "physical_cluster/*.trace",
        "Models, batch sizes and iterations",
        licence="MIT",
    ),
    TraceSource(
        "tiresias",
        "https://github.com/SymbioticLab/Tiresias/tree/master/simulator",
        "60_job.csv",
        "Models and run times",
        60,
        "Apache-2.0",
    ),
    TraceSource(
        "sacct",
        "https://slurm.schedmd.com/sacct.html",
        "output of sacct -aPX --format=JobID,User,Account,Partition,Submit,Start,End,Elapsed,State,NCPUS,"
        "AllocTRES",
        "Your own Slurm cluster. Steps and jobs without GPUs are left out",
        licence="your own",
    ),
    TraceSource(
        "swf",
        "https://www.cs.huji.ac.il/labs/parallel/workload/",
        "*.swf, also .gz",
        "Parallel Workloads Archive. A processor counts as a GPU",
    ),
    TraceSource(
        "csv",
        "",
        "your own CSV, JSON lines, JSON or Parquet",
        "Settings name the columns: workload.reader.gpus=NAME (conf/workload/csv.yaml has all)",
        licence="your own",
    ),
)


@dataclass(frozen=True)
class TraceDescription:
    """What a reader understood of a file."""

    facts: Mapping[str, str]  #: {title: text}
    columns: Mapping[str, tuple[str, str]]  #: {column of the file: (settings that it is read for, values)}
    left_out: Mapping[str, str]  #: {reason: number of rows}


def describe_trace(name: str, path: str) -> TraceDescription:
    """Read a local copy of a trace and say, column by column, what was understood.

    Args:
        name: workload of `conf/workload` that reads it, such as "helios" or "csv".
        path: the file.

    Raises:
        WorkloadError: no such file, or the reader does not understand it.
        ConfigurationError: an unknown name.
    """
    read = trace_reader(name).read(path)
    jobs = read.jobs
    published = {source.name: f" (published: {source.jobs:,})" for source in SOURCES if source.jobs}
    roles = {name: [role for role, column in read.columns.items() if column == name] for name in read.names}
    facts = {
        "rows": f"{read.num_rows:,}",
        "jobs": f"{len(jobs):,}{published.get(name, '')}",
        "span": f"{jobs.submit_seconds[-1] / 86400.0:.1f} days",
        "GPUs per job": f"mean {jobs.num_gpus.mean():.2f}, largest {jobs.num_gpus.max()}",
        "sha256": hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest(),
        **({"notes": "\n".join(read.notes)} if read.notes else {}),
    }
    columns = {
        name: (", ".join(found) or "not read", "; ".join(filter(None, (_values(jobs, one) for one in found))))
        for name, found in roles.items()
    }
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
    if role in ("vc", "user"):
        return _counts(getattr(jobs, role))
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
