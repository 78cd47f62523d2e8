"""`ringyard watch`: run schedulers on one workload, and write a page that plays their schedules."""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console

from ringyard.checks import shown
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.profiles import catalogue
from ringyard.rendering.history import ScheduleHistory, bars_of, history_of, rings_of
from ringyard.sim.metrics import LOSS_NAMES, job_times
from ringyard.sim.simulator import Simulator
from ringyard_agents.config.compose import INTERFACE_GROUPS, plain_groups, scheduler_config, to_plain
from ringyard_agents.evaluation import selection
from ringyard_agents.evaluation.evaluate import build_object, run_to_end
from ringyard_agents.evaluation.results_frame import outcome_names
from ringyard_agents.report.tables import print_line
from ringyard_agents.runs.atomic_write import atomic_write, require_writable
from ringyard_agents.runs.run_folder import RunFolder
from ringyard_baselines.scheduler import Scheduler

PARTS = ("queueing", *LOSS_NAMES, "work")  #: parts of a completion time, in the order of docs/metrics.md

#: metrics in the header of a schedule
_METRICS = ("mean_jct", "p95_jct", "makespan", "mean_queueing", "utilisation", "preemptions", "blocking_rate")


def _numbers(column: NDArray[Any] | Iterable[float]) -> list[Any]:
    """Return JSON numbers rounded to two decimals, with None for NaN and infinity."""
    values = np.asarray(column, np.float64)
    rounded = np.round(values, 2).tolist()
    return [None if not np.isfinite(one) else int(one) if one == int(one) else one for one in rounded]


def workload_data(sim: Simulator) -> dict[str, Any]:
    """Return the cluster and the jobs, the same for all schedulers, as JSON columns, times in seconds."""
    cluster, jobs = sim.cluster, sim.jobs
    models = [profile.name for profile in catalogue()]
    return {
        "cluster": {
            "gpus": list(cluster.gpus_per_server),
            "types": list(cluster.gpu_types),
            "racks": list(cluster.rack_of_server),
            "jobs_per_gpu": cluster.jobs_per_gpu,
        },
        "parts": list(PARTS),
        "jobs": {
            "id": [str(one) for one in jobs.job_id.tolist()],
            "user": jobs.user.tolist(),
            "model": [models[i] if 0 <= i < len(models) else "" for i in jobs.model_ids.tolist()],
            "gpus": jobs.num_gpus.tolist(),
            "submit": _numbers(jobs.submit_seconds),
            "alone": _numbers(jobs.duration_seconds),
        },
    }


def schedule_data(label: str, scheduler: Scheduler, sim: Simulator) -> dict[str, Any]:
    """Return the columns of a finished schedule, simulated with `segment_rows` for all allocations."""
    history = history_of(sim.state, 0, sim.cluster)
    metrics = sim.metrics().as_dict()
    return {
        "label": label,
        "observability": str(scheduler.total_observability),
        "capabilities": str(scheduler.capabilities),
        "end": _numbers([history.now])[0],
        "metrics": {name: _numbers([metrics[name]])[0] for name in _METRICS},
        "jobs": _jobs(sim),
        "runs": _runs(history),
        "bars": {name: _numbers(column) for name, column in vars(bars_of(history)).items()},
        "rings": {name: _numbers(column) for name, column in vars(rings_of(history)).items()},
        "down": _rows(history, history.segments["job"] < 0),
        "cores": _rows(history, (history.segments["job"] >= 0) & (history.segments["gpu_bits"] == 0)),
    }


def _jobs(sim: Simulator) -> dict[str, Any]:
    """Return columns [jobs] in the order of the workload."""
    times = job_times(sim.state, 0, sim.jobs)
    lost = {name: getattr(times, f"lost_to_{name}") for name in LOSS_NAMES}
    parts = {"queueing": times.queueing_seconds, **lost, "work": times.work_seconds}
    return {
        "start": _numbers(times.start_seconds),
        "end": _numbers(times.end_seconds),
        "jct": _numbers(times.jct),
        "outcome": outcome_names(times.outcome.tolist()),
        "preemptions": times.num_preemptions.tolist(),
        "resizes": times.num_resizes.tolist(),
        "failures": times.num_failures.tolist(),
        "parts": [_numbers(parts[name]) for name in PARTS],
    }


def _rows(history: ScheduleHistory, which: NDArray[np.bool_]) -> dict[str, Any]:
    """Return columns of the times at which a server was down, or held a CPU-only job."""
    held = history.segments[which]
    times = {"start": held["start_seconds"], "stop": np.minimum(held["stop_seconds"], history.now)}
    places = {name: held[name].tolist() for name in ("job", "server")}
    return places | {name: _numbers(seconds) for name, seconds in times.items()}


def _runs(history: ScheduleHistory) -> dict[str, Any]:
    """Return columns of the times in which a job kept an allocation, with its numbers of GPUs and servers."""
    held = history.segments[history.segments["job"] >= 0]
    runs, which = np.unique(held[["job", "start_seconds", "stop_seconds"]], return_inverse=True)
    octets = np.ascontiguousarray(held["gpu_bits"]).view(np.uint8).reshape(-1, 8)
    gpus = np.bincount(which.ravel(), np.unpackbits(octets, axis=1).sum(axis=1), len(runs))
    times = {"start": runs["start_seconds"], "stop": np.minimum(runs["stop_seconds"], history.now)}
    sizes = {"gpus": gpus.astype(int), "servers": np.bincount(which.ravel(), minlength=len(runs))}
    lists = {name: column.tolist() for name, column in {"job": runs["job"], **sizes}.items()}
    return lists | {name: _numbers(seconds) for name, seconds in times.items()}


#: {placeholder in page.html: file of this folder}
_PARTS = {"STYLE": "page.css"} | {name.upper(): f"{name}.js" for name in ("model", "gantt", "panels", "main")}


def watch(config: DictConfig) -> None:
    """Simulate the schedulers, write the page, and print its path."""
    with RunFolder.of_job("watch").claim(config) as folder:
        file = folder.path / "watch.html" if config.out is None else Path(config.out).expanduser()
        if file.suffix.lower() not in (".html", ".htm"):
            raise ConfigurationError(f"out is {shown(config.out)}; expected FILE.html")
        if config.out is not None:
            require_writable("out", file)
        seed, number = config.seed + selection.COMPARISON_SEED_OFFSET, config.workload_number
        environment = selection.workload_environment(plain_groups(config), seed, number)
        entries = selection.read_entries(config.schedulers)
        parts = (config.trust, plain_groups(config, INTERFACE_GROUPS))
        configs = {label: to_plain(scheduler_config(entry, *parts)) for label, entry in entries.items()}
        _, refused = selection.supported_schedulers(configs, environment, seed)
        if refused:
            raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
        console = Console()
        schedules = []
        for label, one in configs.items():
            sim = run_to_end(build_object(one), environment, number, seed)
            schedules.append(schedule_data(label, build_object(one), sim))
            print_line(console, f"{label}: mean JCT {sim.metrics().mean_jct:,.0f} s")
        command = shlex.join(["ringyard", "watch", *sys.argv[1:]])
        data = workload_data(sim) | {"command": command, "schedules": schedules}
        folder.record(config, {"seed": config.seed, "workload": number})
        with atomic_write(file) as partial:
            partial.write_text(render_page(data), encoding="utf-8")
        print_line(console, f"page: {file}")


def render_page(data: Mapping[str, Any]) -> str:
    """Return the HTML of a page of `workload_data`, `command` and `schedules`, which fetches nothing."""
    folder = resources.files(__package__)
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    for mark, file in _PARTS.items():
        page = page.replace(f"/*{mark}*/", folder.joinpath(file).read_text(encoding="utf-8"))
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    # Escape what could end the script element that holds the data.
    return page.replace("/*DATA*/", text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))
