"""Sources of the public traces, and a description of a local copy."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.config_folder import config_folder
from ringyard.jobs import JobTable
from ringyard.profiles import catalogue
from ringyard.state.records import JobOutcome
from ringyard.workloads.readers import trace_reader

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
