"""`ringyard compare`: several schedulers on the same workloads."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import pandas as pd
from omegaconf import DictConfig
from rich.console import Console

from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.config.compose import Entry, plain, scheduler_config, takes_rule
from ringyard_agents.evaluation.cached_runs import CachedRuns
from ringyard_agents.evaluation.evaluate import Task, check
from ringyard_agents.evaluation.results_frame import Results
from ringyard_agents.evaluation.selection import (
    SEED_OFFSET,
    ComparisonRequest,
    agents_for,
    drawn_for,
    entries_of,
    supported_schedulers,
)
from ringyard_agents.evaluation.tuned_configs import (
    Best,
    at_best,
    format_options,
    found_elsewhere,
    read_best,
)
from ringyard_agents.report.comparison_report import ComparisonReport, say
from ringyard_agents.report.comparison_table import notes_of_equal_workloads
from ringyard_agents.report.result_files import remove_stale_worlds
from ringyard_agents.runs.run_folder import RunFolder

__all__ = ["Comparison", "compare", "comparisons"]


@dataclass(frozen=True)
class Comparison:
    """What one table takes.

    Attributes:
        entries: {label: entry} of the schedulers that can serve the jobs.
        tasks: what to run.
        refused: {scheduler: why it is left out}.
        reference: label, maybe of one left out; None: the default.
        notes: to print before the runs and below the table.
        untuned: labels of schedulers whose rule or options were not chosen by tuning.
    """

    entries: Mapping[str, Entry]
    tasks: list[Task]
    refused: Mapping[str, str]
    reference: str | None
    notes: Sequence[str]
    untuned: Sequence[str]


def comparisons(request: ComparisonRequest) -> dict[str, Comparison]:
    """{environment: what its table takes}; Hydra must be initialised.

    Args:
        request: of the command.

    Raises:
        RingyardError: bad input.
    """
    given = entries_of(request.schedulers)
    return {name: _comparison(request, given, world) for name, world in request.worlds().items()}


def _comparison(
    request: ComparisonRequest, given: Mapping[str, Entry], world: Mapping[str, Any]
) -> Comparison:
    name = request.best_name(world)
    best = {} if name is None else read_best(name)
    agents, missing = agents_for(world) if request.wants_all else ({}, {})
    entries = at_best({**given, **agents}, best)
    reference = _reference(request.reference, entries)
    seed = request.seed + SEED_OFFSET
    configs = {label: plain(scheduler_config(entry, request.trust)) for label, entry in entries.items()}
    fit, refused = supported_schedulers(configs, world, seed)
    if refused and not request.wants_all:
        raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
    drawn = [drawn_for(world, seed, workload) for workload in range(request.seeds)]
    tasks = [
        Task(label, configs[label], drawn[workload], workload, seed, request.measured_jobs)
        for workload in range(request.seeds)
        for label in fit
    ]
    notes = notes_of_equal_workloads(check(tasks), request.seeds)
    notes += [] if name is None else found_elsewhere(name, world)
    if agents:
        notes.append(f"agents that ship, no published schedulers (docs/agents.md): {', '.join(agents)}")
    fitting = {label: entries[label] for label in fit}
    return Comparison(fitting, tasks, {**refused, **missing}, reference, notes, _untuned(fitting, best))


def _reference(given: str | None, entries: Mapping[str, Entry]) -> str | None:
    """The label that `reference` means: a label, or a scheduler that runs under another at its best."""
    if given is None:
        return None
    for label, entry in entries.items():
        if given in (label, entry.name):
            return label
    raise ConfigurationError(f"reference is {given!r}; expected one of {', '.join(entries)}")


def _untuned(entries: Mapping[str, Entry], best: Mapping[str, Best]) -> list[str]:
    """Labels of schedulers that take a rule, which was not chosen by tuning."""
    tuned = [one.entry for one in best.values()]
    return [
        label
        for label, entry in entries.items()
        if not entry.is_agent and entry not in tuned and takes_rule(entry.name)
    ]


def compare(config: DictConfig) -> float | None:
    """Run, print the tables, write CSV, plots and TensorBoard runs, one environment after the other.

    Each result is cached as its run ends; the same command in the same folder does not run it again.

    Args:
        config: of the command.

    Returns:
        Mean JCT in seconds of the first agent among `schedulers`, else of the first scheduler; over several
        environments, the geometric mean.

    Raises:
        RingyardError: bad input, before anything runs; SchedulerError: a scheduler failed, at the end, when
            the others' results are written.
        OSError: files cannot be written.
    """
    plots = _wanted("plots", config.plots)
    tensorboard = _wanted("tensorboard", config.tensorboard)
    request = ComparisonRequest.read(config)
    wanted = comparisons(request)
    with RunFolder.of_job("compare").claim(config) as folder:
        if config.rerun:
            folder.cache.unlink(missing_ok=True)
        folder.record(config, {"seed": request.seed, "workloads": request.seeds})
        if config.overwrite:
            remove_stale_worlds(folder.path, ())  # no table or plot of another run while this one runs
        return _compare(wanted, folder, config.workers, plots, tensorboard)


#: {setting: the library that writes it}; a base install has neither
_WRITTEN_BY = {"plots": "matplotlib", "tensorboard": "tensorboard"}


def _wanted(setting: str, said: bool | None) -> bool:
    """Whether to write something: by default, if its library is installed.

    Args:
        setting: of the command.
        said: its value.

    Raises:
        ConfigurationError: it is wanted, and the library is not installed.
    """
    library = _WRITTEN_BY[setting]
    installed = importlib.util.find_spec(library) is not None
    if said and not installed:
        raise ConfigurationError(
            f'{setting}=true needs {library}: pip install "ringyard[agents]", or say {setting}=false'
        )
    return installed if said is None else said


def _compare(
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
            say(console, note)
        found, failed = cached.run(comparison.tasks, "comparing")
        where = f"on preset {name}, " if name else "on "
        failures += [f"{label} failed {where}{reason}" for label, reason in failed.items()]
        if not found:
            continue
        results = Results.of(found)
        times = {label: [one.times for one in found if one.label == label] for label in comparison.entries}
        _report_of(name, comparison, plots, text).write(console, home.path / name, results, times)
        if plots and tensorboard:
            _draw_schedules(console, home, name, comparison, results, workers)
        reported.append(name)
        means += _mean_of_first(comparison.entries, results.runs)
        for label, reason in comparison.refused.items():
            console.print(f"left out: {label}: {reason}", soft_wrap=True, markup=False)
    remove_stale_worlds(home.path, reported)
    if failures:
        raise SchedulerError("; ".join(failures))
    return geometric_mean(means) if means and min(means) > 0 else None


def _report_of(name: str, comparison: Comparison, plots: bool, tensorboard: str | None) -> ComparisonReport:
    untuned = []
    if comparison.untuned:
        untuned = [
            f"not tuned here: {', '.join(comparison.untuned)}: rule and options as named, else the usual"
            " ones; `ringyard tune` finds better ones, and best=FILE takes them"
        ]
    return ComparisonReport(
        title=name,
        reference=comparison.reference,
        options={label: format_options(entry) for label, entry in comparison.entries.items()},
        notes=[*untuned, *comparison.notes],
        window=comparison.tasks[0].measured_jobs,
        plots=plots,
        tensorboard=tensorboard,
    )


def _draw_schedules(
    console: Console,
    home: RunFolder,
    name: str,
    comparison: Comparison,
    results: Results,
    workers: int | None,
) -> None:
    """Write one schedule of each scheduler into its TensorBoard run, after everything else."""
    from ringyard_agents.evaluation.schedule_pictures import add_schedules, schedules_of

    tasks, left_out = schedules_of(comparison.tasks, results.runs)
    if left_out:
        say(
            console,
            f"schedules that took long are not drawn: {', '.join(left_out)}; `ringyard watch` shows them",
        )
    if tasks:
        add_schedules(tasks, home.path / name / "tensorboard", workers, console)


def _mean_of_first(entries: Mapping[str, Entry], runs: pd.DataFrame) -> list[float]:
    """[1] mean JCT of the first agent, or of the first scheduler if there is none; [0] if it failed."""
    labels = [label for label, entry in entries.items() if entry.is_agent] or list(entries)
    found = runs.loc[runs["scheduler"] == labels[0], "mean_jct"]
    return [float(found.mean())] if len(found) else []
