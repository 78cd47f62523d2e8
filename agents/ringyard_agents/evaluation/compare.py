"""`ringyard compare`: several schedulers on the same workloads."""

import contextlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import Progress

from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.rendering.history import history_of
from ringyard_agents.config.compose import SchedulerEntry, accepts_placement, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import EvaluationTask, build_object, check_tasks, run_to_end
from ringyard_agents.evaluation.process_pool import run_in_processes
from ringyard_agents.evaluation.result_cache import CachedRuns
from ringyard_agents.evaluation.results_frame import Results
from ringyard_agents.evaluation.selection import (
    COMPARISON_SEED_OFFSET,
    ComparisonRequest,
    pretrained_agents_for,
    read_entries,
    supported_schedulers,
    workload_environment,
)
from ringyard_agents.evaluation.tuned_configs import (
    TunedScheduler,
    environment_mismatch_notes,
    format_options,
    read_tuned,
    with_tuned_options,
)
from ringyard_agents.report.comparison_report import remove_stale_tables, report_comparison
from ringyard_agents.report.comparison_table import equal_workload_notes
from ringyard_agents.report.tables import print_line
from ringyard_agents.runs.run_folder import RunFolder

_DPI = 60  # of pictures of schedules

#: seconds; schedulers whose fastest run took longer are not played again to be drawn
_MAX_DRAWN_SECONDS = 60.0


@dataclass(frozen=True)
class Comparison:
    """What one table of schedulers needs.

    Attributes:
        entries: {label: entry} of the schedulers that can serve the jobs.
        tasks: what to run.
        refused: {scheduler: why it is left out}.
        reference: label, maybe of one left out; None: the default.
        notes: to print before the runs and below the table.
    """

    entries: Mapping[str, SchedulerEntry]
    tasks: list[EvaluationTask]
    refused: Mapping[str, str]
    reference: str | None
    notes: Sequence[str]


def plan_comparisons(request: ComparisonRequest) -> dict[str, Comparison]:
    """{environment: what its table needs}; Hydra must be initialised.

    Raises:
        RingyardError: bad input.
    """
    given = read_entries(request.schedulers)
    return {name: _plan_comparison(request, given, world) for name, world in request.worlds().items()}


def _plan_comparison(
    request: ComparisonRequest, given: Mapping[str, SchedulerEntry], world: Mapping[str, Any]
) -> Comparison:
    name = request.best_name(world)
    best = {} if name is None else read_tuned(name)
    agents, missing = pretrained_agents_for(world) if request.wants_all else ({}, {})
    entries = with_tuned_options({**given, **agents}, best)
    reference = _reference(request.reference, entries)
    seed = request.seed + COMPARISON_SEED_OFFSET
    configs = {label: to_plain(scheduler_config(entry, request.trust)) for label, entry in entries.items()}
    fit, refused = supported_schedulers(configs, world, seed)
    if refused and not request.wants_all:
        raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
    drawn = [workload_environment(world, seed, workload) for workload in range(request.seeds)]
    tasks = [
        EvaluationTask(label, configs[label], drawn[workload], workload, seed, request.measured_jobs)
        for workload in range(request.seeds)
        for label in fit
    ]
    fitting = {label: entries[label] for label in fit}
    notes = _untuned_note(fitting, best) + equal_workload_notes(check_tasks(tasks), request.seeds)
    notes += [] if name is None else environment_mismatch_notes(name, world)
    if agents:
        notes.append(f"agents that ship, no published schedulers (docs/agents.md): {', '.join(agents)}")
    return Comparison(fitting, tasks, {**refused, **missing}, reference, notes)


def _reference(given: str | None, entries: Mapping[str, SchedulerEntry]) -> str | None:
    """The label that `reference` means: a label, or a scheduler that runs under another at its best."""
    if given is None:
        return None
    for label, entry in entries.items():
        if given in (label, entry.name):
            return label
    raise ConfigurationError(f"reference is {given!r}; expected one of {', '.join(entries)}")


def _untuned_note(entries: Mapping[str, SchedulerEntry], best: Mapping[str, TunedScheduler]) -> list[str]:
    """A note if there are schedulers that take a placement rule, which was not chosen by tuning."""
    tuned = [one.entry for one in best.values()]
    labels = [
        label
        for label, entry in entries.items()
        if not entry.is_agent and entry not in tuned and accepts_placement(entry.name)
    ]
    if not labels:
        return []
    return [
        f"not tuned here: {', '.join(labels)}: rule and options as named, else the usual ones; `ringyard"
        " tune` finds better ones, and tuning=FILE takes them"
    ]


def compare_command(config: DictConfig) -> float | None:
    """Run the schedulers, print tables, write CSV files, plots and TensorBoard runs, for each environment.

    Each result is cached as its run ends; the same command in the same folder does not run it again.

    Returns:
        Mean JCT in seconds of the first agent among `schedulers`, else of the first scheduler; over several
        environments, the geometric mean.

    Raises:
        RingyardError: bad input, before anything runs; SchedulerError: a scheduler failed, at the end, when
            the others' results are written.
        OSError: files cannot be written.
    """
    plots = _output_enabled("plots", "matplotlib", config.plots)
    tensorboard = _output_enabled("tensorboard", "tensorboard", config.tensorboard)
    request = ComparisonRequest.read(config)
    wanted = plan_comparisons(request)
    with RunFolder.of_job("compare").claim(config) as folder:
        if config.rerun:
            folder.cache.unlink(missing_ok=True)
        folder.record(config, {"seed": request.seed, "workloads": request.seeds})
        if config.overwrite:
            remove_stale_tables(folder.path, ())  # no table or plot of another run while this one runs
        return _run_comparisons(wanted, folder, config.workers, plots, tensorboard)


def _output_enabled(setting: str, library: str, said: bool | None) -> bool:
    """Whether to write what a setting says, or by default if its library is installed.

    Raises:
        ConfigurationError: it is wanted, and the library is not installed.
    """
    installed = importlib.util.find_spec(library) is not None
    if said and not installed:
        raise ConfigurationError(
            f'{setting}=true needs {library}: pip install "ringyard[agents]", or say {setting}=false'
        )
    return installed if said is None else said


def _run_comparisons(
    wanted: Mapping[str, Comparison], home: RunFolder, workers: int | None, plots: bool, tensorboard: bool
) -> float | None:
    console = Console()
    cached = CachedRuns(home.cache, workers, console)
    text = None
    if tensorboard:
        from ringyard_agents.report.tensorboard import record_text

        text = record_text(home.path)
    failures, reported, means = [], [], []
    for name, comparison in wanted.items():
        for note in comparison.notes:
            print_line(console, note)
        found, failed = cached.run(comparison.tasks, "comparing")
        where = f"on environment {name}, " if name else "on "
        failures += [f"{label} failed {where}{reason}" for label, reason in failed.items()]
        if not found:
            continue
        results = Results.of(found)
        report_comparison(
            console,
            home.path / name,
            results,
            title=name,
            reference=comparison.reference,
            options={label: format_options(entry) for label, entry in comparison.entries.items()},
            notes=comparison.notes,
            window=comparison.tasks[0].measured_jobs,
            plots=plots,
            tensorboard=text,
        )
        if plots and tensorboard:
            runs = home.path / name / "tensorboard"
            _draw_schedules(console, runs, comparison.tasks, results.runs, workers)
        reported.append(name)
        means += _mean_of_first(comparison.entries, results.runs)
        for label, reason in comparison.refused.items():
            print_line(console, f"left out: {label}: {reason}")
    remove_stale_tables(home.path, reported)
    if failures:
        raise SchedulerError("; ".join(failures))
    return geometric_mean(means) if means and min(means) > 0 else None


def _draw_schedules(
    console: Console, folder: Path, tasks: Sequence[EvaluationTask], runs: pd.DataFrame, workers: int | None
) -> None:
    """Play each scheduler that finished once more, and draw the schedule into its TensorBoard run.

    Schedulers that took long are left out, and so are those that fail.
    """
    from ringyard_agents.report.tensorboard import add_schedule

    first = runs["workload"].min()
    took = runs.groupby("scheduler")["wall_seconds"].min()  # the first ones may have compiled something
    own = [task for task in tasks if task.workload == first and task.label in took.index]
    short = [task for task in own if took[task.label] <= _MAX_DRAWN_SECONDS]
    if len(short) < len(own):
        long = ", ".join(task.label for task in own if task not in short)
        print_line(console, f"schedules that took long are not drawn: {long}; `ringyard watch` shows them")
    outcomes = run_in_processes(_schedule_image, short, workers)
    with contextlib.closing(outcomes), Progress(console=console, transient=True) as bar:
        for task, picture in bar.track(outcomes, len(short), description="drawing schedules"):
            if isinstance(picture, Exception):
                print_line(console, f"no schedule of {task.label}: {picture}")
            else:
                add_schedule(folder / task.label, picture, task.workload)


def _schedule_image(task: EvaluationTask) -> NDArray[np.uint8]:
    """[height, width, 3] pixels of which job held which GPUs, from the first arrival to the last end."""
    from ringyard.rendering.chart import Chart

    sim = run_to_end(build_object(task.scheduler), task.world, task.workload, task.seed)
    chart = Chart(sim.cluster, live=False, dpi=_DPI)
    chart.draw(history_of(sim.state, 0, sim.cluster))
    return chart.pixels()


def _mean_of_first(entries: Mapping[str, SchedulerEntry], runs: pd.DataFrame) -> list[float]:
    """[1] mean JCT of the first agent, or of the first scheduler if there is none; [0] if it failed."""
    labels = [label for label, entry in entries.items() if entry.is_agent] or list(entries)
    found = runs.loc[runs["scheduler"] == labels[0], "mean_jct"]
    return [float(found.mean())] if len(found) else []
