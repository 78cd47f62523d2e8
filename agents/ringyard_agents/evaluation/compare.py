"""Command `ringyard compare`: several schedulers on the same workloads, in one environment or several."""

import contextlib
import importlib
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

from ringyard.checks import suggest
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.rendering.history import history_of
from ringyard_agents.config.compose import SchedulerEntry, accepts_placement, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import (
    EvaluationTask,
    build_object,
    check_tasks,
    make_simulator,
    run_to_end,
    sharing_notes,
)
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
from ringyard_agents.report.tables import print_line, print_note
from ringyard_agents.runs.run_folder import RunFolder

_DPI = 60  # of the image of a schedule

#: seconds; a schedule is drawn by another run, so schedulers that take longer are not drawn
_MAX_DRAWN_SECONDS = 60.0


@dataclass(frozen=True)
class Comparison:
    """A planned comparison in one environment."""

    entries: Mapping[str, SchedulerEntry]  #: {label: entry} of the schedulers to run
    tasks: list[EvaluationTask]  #: every scheduler on every workload
    refused: Mapping[str, str]  #: {scheduler that does not support the jobs: reason}
    reference: str | None  #: label of the scheduler that the others are compared with. None: the default.
    notes: Sequence[str]  #: lines to print below the table


def plan_comparisons(request: ComparisonRequest) -> dict[str, Comparison]:
    """Return {environment: its comparison} of a request. Hydra must be initialised."""
    entries = read_entries(request.schedulers)
    return {
        name: _plan_comparison(request, entries, name, one) for name, one in request.environments().items()
    }


def _plan_comparison(
    request: ComparisonRequest, given: Mapping[str, SchedulerEntry], name: str, environment: Mapping[str, Any]
) -> Comparison:
    tuned_name = request.tuned_name(environment)
    tuned = {} if tuned_name is None else read_tuned(tuned_name)
    agents, missing = pretrained_agents_for(environment) if request.wants_all else ({}, {})
    entries = with_tuned_options({**given, **agents}, tuned)
    reference = _reference(request.reference, entries)
    seed = request.seed + COMPARISON_SEED_OFFSET
    parts = (request.trust, request.interface_of(name))
    configs = {label: to_plain(scheduler_config(entry, *parts)) for label, entry in entries.items()}
    labels, refused = supported_schedulers(configs, environment, seed)
    if refused and not request.wants_all:
        raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
    environments = [workload_environment(environment, seed, workload) for workload in range(request.seeds)]
    tasks = [
        EvaluationTask(label, configs[label], environments[workload], workload, seed, request.measured_jobs)
        for workload in range(request.seeds)
        for label in labels
    ]
    supported = {label: entries[label] for label in labels}
    notes = _untuned_note(supported, tuned) + equal_workload_notes(check_tasks(tasks), request.seeds)
    notes += [] if tuned_name is None else environment_mismatch_notes(tuned_name, environment)
    notes += sharing_notes(make_simulator(environments[0], 0, seed, None))
    if agents:
        notes.append(f"pretrained agents, not published schedulers (docs/agents.md): {', '.join(agents)}")
    return Comparison(supported, tasks, {**refused, **missing}, reference, notes)


def _reference(given: str | None, entries: Mapping[str, SchedulerEntry]) -> str | None:
    """Return the label of the reference: a label, or a scheduler that tuned options relabelled."""
    if given is None:
        return None
    for label, entry in entries.items():
        if given in (label, entry.name):
            return label
    raise ConfigurationError(f"reference is {given!r}; expected {suggest(given, entries)}")


def _untuned_note(entries: Mapping[str, SchedulerEntry], tuned: Mapping[str, TunedScheduler]) -> list[str]:
    """Return a note on schedulers with a placement rule that tuning did not choose, if there are any."""
    tuned_entries = [one.entry for one in tuned.values()]
    labels = [
        label
        for label, entry in entries.items()
        if not entry.is_agent and entry not in tuned_entries and accepts_placement(entry.name)
    ]
    if not labels:
        return []
    return [
        f"not tuned for this environment: {', '.join(labels)}; their placement rules and options are those"
        " given or the defaults (`ringyard tune` searches for better ones, and tuning=FILE uses them)"
    ]


def compare_command(config: DictConfig) -> float | None:
    """Run the schedulers in each environment, print tables, write CSV files, plots and TensorBoard runs.

    Each result is stored when its run ends. The same command in the same folder does not repeat it. Bad input
    is an error before anything runs; a failed scheduler is one after the others' results are written.

    Returns:
        Mean JCT in seconds of the first agent among `schedulers`, or of the first scheduler if there is none.
        Over several environments it is the geometric mean. Sweeps minimise it.
    """
    plots = _output_enabled("plots", "matplotlib", config.plots)
    tensorboard = _output_enabled("tensorboard", "tensorboard", config.tensorboard)
    request = ComparisonRequest.read(config)
    planned = plan_comparisons(request)
    with RunFolder.of_job("compare").claim(config) as folder:
        if config.rerun:
            folder.cache.unlink(missing_ok=True)
        folder.record(config, {"seed": request.seed, "workloads": request.seeds})
        if config.overwrite:
            remove_stale_tables(
                folder.path, ()
            )  # tables of the replaced run must not stay while this one runs
        return _run_comparisons(planned, folder, config.workers, plots, tensorboard, config.wide)


def _output_enabled(setting: str, library: str, value: bool | None) -> bool:
    """Return whether to write an output. By default it is written if its library is installed."""
    if value is False:
        return False
    try:
        importlib.import_module(library)
    except ImportError:
        if value is None:
            return False
        raise ConfigurationError(
            f'{setting}=true needs {library}: pip install "ringyard[agents]", or set {setting}=false'
        ) from None
    return True


def _run_comparisons(
    planned: Mapping[str, Comparison],
    home: RunFolder,
    workers: int | None,
    plots: bool,
    tensorboard: bool,
    wide: bool,
) -> float | None:
    console = Console()
    cached = CachedRuns(home.cache, workers, console)
    text = None
    if tensorboard:
        from ringyard_agents.report.tensorboard import record_text

        text = record_text(home.path)
    failures, reported, means = [], [], []
    for name, comparison in planned.items():
        found, failed = cached.run(comparison.tasks, "comparing")
        where = f"in experiment {name} on " if name else "on "
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
            wide=wide,
        )
        if plots and tensorboard:
            runs = home.path / name / "tensorboard"
            _draw_schedules(console, runs, comparison.tasks, results.runs, workers)
        reported.append(name)
        means += _mean_of_first(comparison.entries, results.runs)
        for label, reason in comparison.refused.items():
            print_note(console, f"left out: {label}: {reason}")
    remove_stale_tables(home.path, reported)
    if failures:
        raise SchedulerError("; ".join(failures))
    return geometric_mean(means) if means and min(means) > 0 else None


def _draw_schedules(
    console: Console, folder: Path, tasks: Sequence[EvaluationTask], runs: pd.DataFrame, workers: int | None
) -> None:
    """Run each scheduler that took at most the limit again, and add an image to its TensorBoard run."""
    from ringyard_agents.report.tensorboard import add_schedule

    first = runs["workload"].min()
    took = runs.groupby("scheduler")["wall_seconds"].min()  # first runs may include compilation
    own = [task for task in tasks if task.workload == first and task.label in took.index]
    short = [task for task in own if took[task.label] <= _MAX_DRAWN_SECONDS]
    if len(short) < len(own):
        long = ", ".join(task.label for task in own if task not in short)
        print_note(
            console, f"schedules not drawn, since runs take long (`ringyard watch` draws them): {long}"
        )
    outcomes = run_in_processes(_schedule_image, short, workers)
    with contextlib.closing(outcomes), Progress(console=console, transient=True) as bar:
        for task, image in bar.track(outcomes, len(short), description="drawing schedules"):
            if isinstance(image, Exception):
                print_line(console, f"schedule of {task.label} not drawn: {image}")
            else:
                add_schedule(folder / task.label, image, task.workload)


def _schedule_image(task: EvaluationTask) -> NDArray[np.uint8]:
    """Return the schedule of a task as an image [height, width, 3]: which job held which GPUs over time."""
    from ringyard.rendering.chart import Chart

    sim = run_to_end(build_object(task.scheduler), task.environment, task.workload, task.seed)
    return Chart(history_of(sim.state, 0, sim.cluster), dpi=_DPI).pixels()


def _mean_of_first(entries: Mapping[str, SchedulerEntry], runs: pd.DataFrame) -> list[float]:
    """Return [mean JCT in seconds] of the first agent, else of the first scheduler; [] if it failed."""
    labels = [label for label, entry in entries.items() if entry.is_agent] or list(entries)
    found = runs.loc[runs["scheduler"] == labels[0], "mean_jct"]
    return [float(found.mean())] if len(found) else []
