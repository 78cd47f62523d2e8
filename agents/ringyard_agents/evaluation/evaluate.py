"""One run of an evaluation: a scheduler on a workload, alone or with others on all cores."""

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import OmegaConf

from ringyard.bounds import LowerBounds, simulation_bounds
from ringyard.errors import SchedulerError
from ringyard.gpu_types import REFERENCE_GPU
from ringyard.profiles import catalogue
from ringyard.sim.metrics import JobTimes, Metrics, Window, job_times, measured_rows, timeline
from ringyard.sim.simulator import Simulator
from ringyard.state.random_numbers import derive_seed
from ringyard_agents.evaluation.notes import NOTES
from ringyard_agents.evaluation.process_pool import run_in_processes
from ringyard_baselines.scheduler import Capabilities, Scheduler, check_capabilities, run

_SEGMENT_ROWS = 1 << 16  #: initial length of the record of which job held which GPUs; a row takes 32 bytes


@dataclass(frozen=True)
class RunResult:
    """Result of one scheduler on one workload."""

    label: str  #: name of the scheduler in tables
    workload: int  #: number of the workload
    seed: int  #: `EvaluationTask.seed`
    observability: str  #: what the scheduler may see
    capabilities: Capabilities  #: what the scheduler may do
    published: bool  #: False for agents and for Ringyard's own schedulers
    metrics: Metrics  #: summary of the measured jobs
    bounds: LowerBounds  #: lower bounds of the measured jobs
    times: JobTimes  #: times of each measured job
    #: (ends of the time bins [bins] in seconds, mean waiting jobs [bins], mean utilisation [bins])
    timeline: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
    wall_seconds: float  #: wall time of the run, without building the simulator
    num_decisions: int  #: number of decision points


@dataclass(frozen=True)
class EvaluationTask:
    """A scheduler and a workload to run it on, as plain configs that a worker process can unpickle."""

    label: str  #: name of the scheduler in tables
    scheduler: Mapping[str, Any]  #: config of the scheduler
    environment: Mapping[str, Any]  #: {config group: config}, see `make_simulator`
    workload: int  #: number of the workload, from 0
    seed: int  #: the user's seed + the offset of comparisons or of tuning (`COMPARISON_SEED_OFFSET`)
    #: (first, last) fraction of the jobs, in order of arrival, that are measured
    #: (`ringyard.sim.metrics.measured_rows`)
    measured_jobs: Window = (0.0, 1.0)


@dataclass(frozen=True)
class _CacheKey:
    """A config as the key of a cache, by its text."""

    text: str
    config: Mapping[str, Any] = field(compare=False)


@functools.lru_cache(maxsize=64)
def _cached_object(key: _CacheKey) -> Any:
    return instantiate(OmegaConf.create(dict(key.config)), _convert_="all")


def build_object(config: Mapping[str, Any]) -> Any:
    """Return the object of a plain config. Equal configs share one object, so files are read once."""
    return _cached_object(_CacheKey(repr(config), config))


def make_simulator(
    environment: Mapping[str, Any],
    workload: int,
    seed: int,
    round_seconds: float | None,
    rounds_only: bool = False,
    segment_rows: int = 0,
) -> Simulator:
    """Return a simulator at time zero that counts what jobs lose time to.

    `environment` is {config group: config} of cluster, workload, performance, restart and failures. Decisions
    are `round_seconds` apart at most (None: at events only), or only then with `rounds_only`. `segment_rows`
    is the length of the record of which job held which GPUs.
    """
    cluster = build_object(environment["cluster"])
    jobs = build_object(environment["workload"]).sample(cluster, np.random.default_rng((seed, workload)))
    parts = ("performance", "restart", "failures")
    performance, restart, failures = (build_object(environment[part]) for part in parts)
    options = {"failures": failures, "rounds_only": rounds_only, "segment_rows": segment_rows, "losses": True}
    number = derive_seed(seed, workload)
    return Simulator(cluster, jobs, performance, restart, round_seconds, seed=number, **options)


def sharing_notes(sim: Simulator) -> list[str]:
    """Return a line for each GPU type of a simulation `sim` that has the sharing figures of another type."""
    interference = sim.performance.interference
    if sim.cluster.jobs_per_gpu == 1 or not interference.slows:
        return []
    models = [catalogue()[i] for i in np.unique(sim.jobs.model_ids) if i >= 0]
    assumed = [
        kind
        for kind in sim.cluster.distinct_gpu_types
        if (interference.pairs is not None and kind != REFERENCE_GPU)
        or any("sharing: as on" in model.gpus[kind].source for model in models)
    ]
    return [NOTES["assumed"].format(kind=kind, reference=REFERENCE_GPU) for kind in assumed]


def run_to_end(
    scheduler: Scheduler,
    environment: Mapping[str, Any],
    workload: int,
    seed: int,
    round_seconds: float | None = None,
    rounds_only: bool = False,
    segment_rows: int = _SEGMENT_ROWS,
) -> Simulator:
    """Return a finished run with all of its record; one that needs more than `segment_rows` is repeated."""
    rounds = scheduler.round_seconds if round_seconds is None else round_seconds
    sim = make_simulator(environment, workload, seed, rounds, rounds_only, segment_rows)
    run(sim, scheduler, np.random.default_rng((seed, workload, 1)))
    written = int(sim.state.clusters["num_segments"][0])
    if 0 < segment_rows < written:
        return run_to_end(scheduler, environment, workload, seed, round_seconds, rounds_only, written)
    return sim


def check_tasks(tasks: Sequence[EvaluationTask]) -> int:
    """Build every scheduler and job table, so that invalid input is found before anything runs.

    Returns the number of workloads that differ: 1 if every workload replays one whole trace.
    """
    schedulers = {task.label: task.scheduler for task in tasks}
    for scheduler in schedulers.values():
        check_capabilities(build_object(scheduler))
    different = set()
    for task in {task.workload: task for task in tasks}.values():
        sim = make_simulator(task.environment, task.workload, task.seed, None)
        measured_rows(sim.jobs, task.measured_jobs)
        jobs = (sim.jobs.submit_seconds, sim.jobs.num_gpus, sim.jobs.duration_seconds)
        different.add((sim.cluster, *(hashlib.sha256(column.tobytes()).digest() for column in jobs)))
    return len(different)


@functools.lru_cache(maxsize=4096)
def _bounds(environment: _CacheKey, workload: int, seed: int, measured_jobs: Window) -> LowerBounds:
    """Lower bounds of a workload. They are equal for all schedulers and can take longer than a run."""
    sim = make_simulator(environment.config, workload, seed, None)
    return simulation_bounds(sim, measured_jobs)


def run_task(task: EvaluationTask) -> RunResult:
    """Run a task with the scheduler that its config describes."""
    return run_scheduler(build_object(task.scheduler), task)


def run_scheduler(scheduler: Scheduler, task: EvaluationTask) -> RunResult:
    """Run a scheduler object, in place of the one of the task's config, on the task's workload."""
    sim = make_simulator(task.environment, task.workload, task.seed, scheduler.round_seconds)
    begin = time.perf_counter()
    run(sim, scheduler, np.random.default_rng((task.seed, task.workload, 1)))
    wall = time.perf_counter() - begin
    environment = _CacheKey(repr(task.environment), task.environment)
    return RunResult(
        label=task.label,
        workload=task.workload,
        seed=task.seed,
        observability=str(scheduler.total_observability),
        capabilities=scheduler.capabilities,
        published=scheduler.published,
        metrics=sim.metrics(task.measured_jobs),
        bounds=_bounds(environment, task.workload, task.seed, tuple(task.measured_jobs)),
        times=job_times(sim.state, 0, sim.jobs, task.measured_jobs),
        timeline=timeline(sim.state, 0),
        wall_seconds=wall,
        num_decisions=int(sim.state.clusters["num_decisions"][0]),
    )


def run_tasks(
    tasks: list[EvaluationTask],
    workers: int | None,
    on_result: Callable[[RunResult], None],
    on_error: Callable[[EvaluationTask, Exception], None] | None = None,
) -> list[RunResult]:
    """Run tasks in processes and return the results in their order, without those of tasks that failed.

    `on_result` gets each result, `on_error` a failed task and its exception (None: raise a SchedulerError).
    """
    results: dict[tuple[str, int], RunResult] = {}
    with contextlib.closing(run_in_processes(run_task, tasks, workers)) as outcomes:
        for task, outcome in outcomes:
            if not isinstance(outcome, Exception):
                results[task.label, task.workload] = outcome
                on_result(outcome)
            elif on_error is None:
                raise SchedulerError(f"{task.label}, workload {task.workload}: {outcome}") from outcome
            else:
                on_error(task, outcome)
    keys = [(task.label, task.workload) for task in tasks]
    return [results[key] for key in keys if key in results]
