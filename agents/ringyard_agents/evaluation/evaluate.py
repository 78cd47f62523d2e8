"""Run schedulers on workloads, on all cores."""

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import OmegaConf

from ringyard.bounds import LowerBounds, simulation_bounds
from ringyard.errors import SchedulerError
from ringyard.sim.metrics import JobTimes, Metrics, Window, job_times, measured_rows, timeline
from ringyard.sim.simulator import Simulator
from ringyard.state.random_numbers import derive_seed
from ringyard_agents.config.compose import to_plain
from ringyard_agents.evaluation.process_pool import run_in_processes
from ringyard_baselines.scheduler import Capabilities, Scheduler, check_capabilities, run

#: rows of which job held what that a recorded simulation keeps at first, 32 bytes each
_SEGMENT_ROWS = 1 << 16


@dataclass(frozen=True)
class RunResult:
    """What one scheduler did on one workload.

    Attributes:
        label: the scheduler's entry.
        workload: its number.
        seed: of the comparison.
        observability: what the scheduler may see.
        capabilities: what it may do.
        published: whether it is neither an agent nor one of Ringyard's own schedulers.
        metrics: summary of the jobs that count.
        bounds: lower bounds of these jobs.
        times: per-job times of these jobs.
        timeline: (bin ends [bins] s, mean waiting jobs [bins], mean utilisation [bins]).
        wall_seconds: the run took, without set-up.
        num_decisions: decision points.
    """

    label: str
    workload: int
    seed: int
    observability: str
    capabilities: Capabilities
    published: bool
    metrics: Metrics
    bounds: LowerBounds
    times: JobTimes
    timeline: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
    wall_seconds: float
    num_decisions: int


@dataclass(frozen=True)
class EvaluationTask:
    """One scheduler on one workload, still to be run: plain configs for a worker process.

    Attributes:
        label: the scheduler's entry.
        scheduler: its config.
        world: configs, as of `make_simulator`.
        workload: number of the job table.
        seed: of the comparison.
        measured_jobs: shares of the jobs, in order of arrival, between which they count
            (`ringyard.sim.metrics.measured_rows`).
    """

    label: str
    scheduler: Mapping[str, Any]
    world: Mapping[str, Any]
    workload: int
    seed: int
    measured_jobs: Window = (0.0, 1.0)


@functools.lru_cache(maxsize=64)
def _cached_object(config: str) -> Any:
    return instantiate(OmegaConf.create(config), _convert_="all")


def _config_text(config: Mapping[str, Any]) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))


def build_object(config: Mapping[str, Any]) -> Any:
    """The object of a plain config; equal configs share one, so that files are read once per process."""
    return _cached_object(_config_text(config))


def make_simulator(
    world: Mapping[str, Any],
    workload: int,
    seed: int,
    round_seconds: float | None,
    rounds_only: bool = False,
    segment_rows: int = 0,
) -> Simulator:
    """A simulator at time zero, which counts what jobs lose time to.

    Args:
        world: configs of cluster, workload, performance, restart and failures.
        workload: number of the job table.
        seed: of the comparison.
        round_seconds: between two decisions at most; None: events are enough.
        rounds_only: decide at no other time.
        segment_rows: how many rows of which job held what to keep.

    Raises:
        WorkloadError: jobs that make no sense or do not fit the cluster.
    """
    cluster = build_object(world["cluster"])
    jobs = build_object(world["workload"]).sample(cluster, np.random.default_rng((seed, workload)))
    performance, restart, failures = (
        build_object(world[part]) for part in ("performance", "restart", "failures")
    )
    return Simulator(
        cluster,
        jobs,
        performance,
        restart,
        round_seconds,
        seed=derive_seed(seed, workload),
        failures=failures,
        rounds_only=rounds_only,
        segment_rows=segment_rows,
        losses=True,
    )


def run_to_end(
    scheduler: Scheduler,
    world: Mapping[str, Any],
    workload: int,
    seed: int,
    round_seconds: float | None = None,
    rounds_only: bool = False,
    segment_rows: int = _SEGMENT_ROWS,
) -> Simulator:
    """A run as `ringyard compare` makes it, which has ended and remembers all of which job held what.

    Args:
        scheduler: decides.
        world: as of `make_simulator`, with those below.
        workload: its number.
        seed: of the comparison.
        round_seconds: None: what the scheduler asks for.
        rounds_only: decide at no other time.
        segment_rows: kept at first; a run that needs more is played again. 0: remember nothing.
    """
    rounds = scheduler.round_seconds if round_seconds is None else round_seconds
    sim = make_simulator(world, workload, seed, rounds, rounds_only, segment_rows)
    run(sim, scheduler, np.random.default_rng((seed, workload, 1)))
    written = int(sim.state.clusters["num_segments"][0])
    if 0 < segment_rows < written:
        return run_to_end(scheduler, world, workload, seed, round_seconds, rounds_only, written)
    return sim


def check_tasks(tasks: Sequence[EvaluationTask]) -> int:
    """Build every scheduler and every job table, so that bad input is found before anything runs.

    Returns:
        How many workloads differ in their clusters, or in when jobs arrive, what they ask for and how long
        they take: one, if jobs are those of a whole trace.

    Raises:
        RingyardError: what `run_task` would raise before it simulates.
    """
    schedulers = {task.label: task.scheduler for task in tasks}
    for scheduler in schedulers.values():
        check_capabilities(build_object(scheduler))
    different = set()
    for task in {task.workload: task for task in tasks}.values():
        sim = make_simulator(task.world, task.workload, task.seed, None)
        measured_rows(len(sim.jobs), task.measured_jobs)
        jobs = (sim.jobs.submit_seconds, sim.jobs.num_gpus, sim.jobs.duration_seconds)
        different.add((sim.cluster, *(hashlib.sha256(column.tobytes()).digest() for column in jobs)))
    return len(different)


@functools.lru_cache(maxsize=4096)
def _bounds(world: str, workload: int, seed: int, measured: Window) -> LowerBounds:
    """Lower bounds of a workload, equal for all schedulers; they take longer than many a run."""
    return simulation_bounds(
        make_simulator(to_plain(OmegaConf.create(world)), workload, seed, None), measured
    )


def run_task(task: EvaluationTask) -> RunResult:
    """Run a task."""
    return run_scheduler(build_object(task.scheduler), task)


def run_scheduler(scheduler: Scheduler, task: EvaluationTask) -> RunResult:
    """Run a scheduler on the workload of a task, in place of the scheduler that the task names."""
    sim = make_simulator(task.world, task.workload, task.seed, scheduler.round_seconds)
    begin = time.perf_counter()
    run(sim, scheduler, np.random.default_rng((task.seed, task.workload, 1)))
    wall = time.perf_counter() - begin
    return RunResult(
        label=task.label,
        workload=task.workload,
        seed=task.seed,
        observability=str(scheduler.total_observability),
        capabilities=scheduler.capabilities,
        published=scheduler.published,
        metrics=sim.metrics(task.measured_jobs),
        bounds=_bounds(_config_text(task.world), task.workload, task.seed, tuple(task.measured_jobs)),
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
    """Run tasks in worker processes; their results, in the order of the tasks.

    Args:
        tasks: what to run.
        workers: processes; None: one per core.
        on_result: called in this process as results come in.
        on_error: called when a task fails, which then has no result; None: the first failure is raised.

    Raises:
        SchedulerError: a task failed; says which.
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
