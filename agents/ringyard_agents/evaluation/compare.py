"""`ringyard compare`: several schedulers on the same workloads."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from omegaconf import DictConfig
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.configuration import Entry, plain, scheduler_config, takes_rule
from ringyard_agents.evaluation.cached_runs import CachedRuns
from ringyard_agents.evaluation.evaluate import RunResult, Task, check
from ringyard_agents.evaluation.ranking import Ranking, rank
from ringyard_agents.evaluation.results_frame import schedulers_frame
from ringyard_agents.evaluation.selection import (
    agents_for,
    drawn_for,
    entries_of,
    supported_schedulers,
    wants_all,
    worlds_of,
)
from ringyard_agents.evaluation.tuned_configs import (
    Best,
    at_best,
    format_options,
    found_elsewhere,
    read_best,
    tuned_for,
)
from ringyard_agents.report.comparison_table import (
    best_line,
    blocking_notes,
    interval_notes,
    loss_names,
    notes_of_equal_rows,
    notes_of_equal_workloads,
    pluralize,
    printed_columns,
    printed_markdown,
    table_rows,
    window_notes,
)
from ringyard_agents.report.result_files import remove_stale, remove_stale_worlds, write_results
from ringyard_agents.report.tables import table_console, write_tables
from ringyard_agents.report.tenants import print_tenants, write_tenants
from ringyard_agents.runs.run_folder import RunFolder

__all__ = ["SEED_OFFSET", "Comparison", "best_name", "compare", "comparisons"]

#: schedulers shown in plots, the best of a table; TensorBoard has all
MOST_PLOTTED = 12

#: workloads of comparisons are drawn from seeds no training uses
SEED_OFFSET = 2_000_000


@dataclass(frozen=True)
class Comparison:
    """What one table takes.

    Attributes:
        entries: {label: entry} of the schedulers that can serve the jobs.
        tasks: what to run.
        refused: {scheduler: why it is left out}.
        reference: label, maybe of one left out; None: the default.
        best: {scheduler: its best and what else was tried} where schedulers run at their best.
        notes: what to know of the workloads, and of where `best` is from.
    """

    entries: Mapping[str, Entry]
    tasks: list[Task]
    refused: Mapping[str, str]
    reference: str | None
    best: Mapping[str, Best]
    notes: Sequence[str]


def comparisons(config: DictConfig) -> dict[str, Comparison]:
    """{world: what its table takes} of a config of `ringyard compare`; Hydra must be initialised.

    Raises:
        RingyardError: bad input.
    """
    given = entries_of(config)
    return {name: _race(config, given, world) for name, world in worlds_of(config).items()}


def _race(config: DictConfig, given: Mapping[str, Entry], world: Mapping[str, Any]) -> Comparison:
    name = best_name(config, world)
    best = {} if name is None else read_best(name)
    agents, missing = agents_for(world) if wants_all(config) else ({}, {})
    entries = at_best({**given, **agents}, best)
    reference = _reference(config, entries)
    seed = config.seed + SEED_OFFSET
    configs = {label: plain(scheduler_config(entry, config.trust)) for label, entry in entries.items()}
    fit, refused = supported_schedulers(configs, world, seed)
    if refused and not wants_all(config):
        raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
    measured = tuple(config.measured_jobs)
    drawn = [drawn_for(world, seed, workload) for workload in range(config.seeds)]
    tasks = [
        Task(label, configs[label], drawn[workload], workload, seed, measured)
        for workload in range(config.seeds)
        for label in fit
    ]
    notes = notes_of_equal_workloads(check(tasks), config.seeds)
    notes += [] if name is None else found_elsewhere(name, world)
    if agents:
        notes.append(f"agents that ship, no published schedulers (docs/agents.md): {', '.join(agents)}")
    left_out = {**refused, **missing}
    return Comparison({label: entries[label] for label in fit}, tasks, left_out, reference, best, notes)


def best_name(config: DictConfig, world: Mapping[str, Any]) -> str | None:
    """What `best` says; by default, for all schedulers and on presets, what ships for this world.

    Args:
        config: of the command.
        world: configs.

    Returns:
        A file or a name in conf/tuned; None: schedulers run with their usual rules and options.
    """
    if config.best is None and (wants_all(config) or config.presets):
        return tuned_for(world)
    return None if config.best is None else str(config.best)


def _reference(config: DictConfig, entries: Mapping[str, Entry]) -> str | None:
    """The label that `reference` means: a label, or a scheduler that runs under another at its best."""
    if config.reference is None:
        return None
    for label, entry in entries.items():
        if config.reference in (label, entry.name):
            return label
    raise ConfigurationError(f"reference is {config.reference!r}; expected one of {', '.join(entries)}")


def _options_lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """What differs from the yamls of the schedulers."""
    said = [f"{row['scheduler']}: {row['options']}" for row in rows if row["options"]]
    return [f"options: {'; '.join(said)}"] if said else []


def _untuned_line(race: Comparison) -> list[str]:
    """Which rows could be better than they are: schedulers with a choice that nobody has made by trying."""
    best = [one.entry for one in race.best.values()]
    rest = [
        label
        for label, entry in race.entries.items()
        if not entry.is_agent and entry not in best and takes_rule(entry.name)
    ]
    if not rest:
        return []
    return [
        f"not tuned here: {', '.join(rest)}: rule and options as named, else the usual ones; `ringyard tune`"
        " finds better ones, and best=FILE takes them"
    ]


def _print(
    console: Console,
    title: str,
    rows: Sequence[Mapping[str, str]],
    names: Sequence[str],
    groups: Mapping[str, int],
) -> None:
    """Print some columns, with a gap between groups of schedulers."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    for name in names:
        left = name in ("scheduler", "best", "may", "knows")
        wraps = name in ("may", "knows")
        header = "\n".join(name.rsplit(" ", 1))  # narrow: worst rho, makespan (s)
        table.add_column(header, justify="left" if left else "right", no_wrap=not wraps)
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        ends = following is not None and groups[row["scheduler"]] != groups[following["scheduler"]]
        table.add_row(*(row[name] for name in names), end_section=ends)
    console.print(table)


def _report(
    console: Console,
    config: DictConfig,
    folder: Path,
    name: str,
    race: Comparison,
    results: Sequence[RunResult],
) -> None:
    """Print one world's table and write its files, in place of those of an earlier comparison."""
    folder.mkdir(parents=True, exist_ok=True)
    written = write_results(folder, results)
    ranking = rank(results, race.reference)
    frame = schedulers_frame(results, ranking)
    frame.insert(4, "options", [format_options(race.entries[label]) for label in frame["scheduler"]])
    rows = table_rows(frame, ranking)
    for row, options in zip(rows, frame["options"], strict=True):
        row["options"] = options
    workloads = len({result.workload for result in results})
    notes = _notes(race, ranking, rows, results, workloads)
    written += write_tables(folder, frame, rows, notes)
    title = f"{pluralize(workloads, 'workload')}, the same for all; means over workloads"
    _print_all(console, f"{name}: {title}" if name else title, rows, notes, ranking.groups)
    runs = {label: [r.times for r in results if r.label == label] for label in ranking.rows}
    written += ["tenants.csv"] if write_tenants(folder / "tenants.csv", runs) else []
    print_tenants(table_console(console), runs)
    written += _draw(console, config, folder, results, ranking, printed_markdown(rows, notes))
    remove_stale(folder, written)
    tables = [str(folder / name) for name in ("table.csv", "runs.csv", "tenants.csv") if name in written]
    console.print(f"tables: {', '.join(tables)}", soft_wrap=True, markup=False)
    _draw_schedules(console, config, folder, race, results)


def _notes(
    race: Comparison,
    ranking: Ranking,
    rows: Sequence[Mapping[str, str]],
    results: Sequence[RunResult],
    workloads: int,
) -> list[str]:
    """What stands below a table."""
    window = window_notes(race.tasks[0].measured_jobs)
    return [
        best_line(rows),
        *blocking_notes(ranking),
        *_options_lines(rows),
        *_untuned_line(race),
        *race.notes,
        *interval_notes(ranking, workloads),
        *(window or notes_of_equal_rows(results)),  # beside a window not all jobs are there to compare
    ]


def _print_all(
    console: Console,
    title: str,
    rows: Sequence[Mapping[str, str]],
    notes: Sequence[str],
    groups: Mapping[str, int],
) -> None:
    """Print the tables, what stands below them, and what the mean JCT is made of."""
    for names in printed_columns(rows[0]):
        _print(table_console(console), title, rows, names, groups)
    for note in notes:
        console.print(note, soft_wrap=True, highlight=False, markup=False)
    parts = ["scheduler", "queueing (s)", *loss_names(rows)]
    _print(
        table_console(console),
        "what the mean JCT is made of, lost to ...; means over workloads",
        rows,
        parts,
        groups,
    )


def _draw(
    console: Console,
    config: DictConfig,
    folder: Path,
    results: Sequence[RunResult],
    ranking: Ranking,
    text: str,
) -> list[str]:
    """Write the plots and the TensorBoard runs that the config asks for; the names of what was written."""
    written: list[Path] = []
    if _wanted(config, "plots"):
        from ringyard_agents.report.plots import draw_plots

        shown = set(ranking.order[:MOST_PLOTTED])
        written += draw_plots([result for result in results if result.label in shown], folder)
        console.print(f"plots: {', '.join(str(file) for file in written)}", soft_wrap=True, markup=False)
    if _wanted(config, "tensorboard"):
        from ringyard_agents.report.tensorboard import record_text, write_tensorboard

        write_tensorboard(
            results,
            folder / "tensorboard",
            f"{record_text(RunFolder.of_job('compare').path)}\n\n{text}",
            written,
        )
        console.print(f"curves: tensorboard --logdir {folder / 'tensorboard'}", soft_wrap=True, markup=False)
        written.append(folder / "tensorboard")
    return [file.name for file in written]


def _draw_schedules(
    console: Console, config: DictConfig, folder: Path, race: Comparison, results: Sequence[RunResult]
) -> None:
    """One schedule of each scheduler into its TensorBoard run, when all else is written."""
    if not (_wanted(config, "plots") and _wanted(config, "tensorboard")):
        return
    from ringyard_agents.report.schedule_pictures import add_schedules, schedules_of

    tasks, left_out = schedules_of(race.tasks, results)
    if left_out:
        console.print(
            f"schedules that took long are not drawn: {', '.join(left_out)}; `ringyard watch` shows them",
            soft_wrap=True,
            markup=False,
        )
    if tasks:
        add_schedules(tasks, folder / "tensorboard", config.workers, console)


def compare(config: DictConfig) -> float | None:
    """Run, print the tables, write CSV, plots and TensorBoard runs, world by world.

    Each run is kept as it ends; the same command in the same folder does not run it again.

    Returns:
        Mean JCT in seconds of the first agent among `schedulers`, else of the first scheduler; over several
        worlds, the geometric mean.

    Raises:
        RingyardError: bad input, before anything runs; SchedulerError: a scheduler failed, at the end, when
            the others' results are written.
        OSError: files cannot be written.
    """
    _check_installed(config)
    wanted = comparisons(config)
    with RunFolder.of_job("compare").claim(config) as folder:
        return _compare(config, wanted, folder)


#: {setting: the library that writes it}; a base install has neither
_WRITTEN_BY = {"plots": "matplotlib", "tensorboard": "tensorboard"}


def _wanted(config: DictConfig, setting: str) -> bool:
    """Whether something shall be written: by default, if its library is there."""
    said = config[setting]
    return bool(importlib.util.find_spec(_WRITTEN_BY[setting]) is not None if said is None else said)


def _check_installed(config: DictConfig) -> None:
    """Raise a ConfigurationError if what shall be written needs a library that is not there."""
    for setting, library in _WRITTEN_BY.items():
        if config[setting] and importlib.util.find_spec(library) is None:
            raise ConfigurationError(
                f'{setting}=true needs {library}: pip install "ringyard[agents]", or say {setting}=false'
            )


def _compare(config: DictConfig, wanted: Mapping[str, Comparison], home: RunFolder) -> float | None:
    folder = home.path
    if config.rerun:
        home.cache.unlink(missing_ok=True)
    home.record(config, {"seed": config.seed, "workloads": config.seeds})
    if config.overwrite:
        remove_stale_worlds(folder, ())  # there is no table or plot of another while this one runs
    console = Console()
    series = CachedRuns(home.cache, config.workers, console)
    failures, reported, means = [], [], []
    for name, race in wanted.items():
        for note in race.notes:
            console.print(note, soft_wrap=True, highlight=False, markup=False)
        results, failed = series.run(race.tasks, "comparing")
        where = f"on preset {name}, " if name else "on "
        failures += [f"{label} failed {where}{reason}" for label, reason in failed.items()]
        if not results:
            continue
        _report(console, config, folder / name, name, race, results)
        reported.append(name)
        means += _mean_of_first(race, results)
        for label, reason in race.refused.items():
            console.print(f"left out: {label}: {reason}", soft_wrap=True, markup=False)
    remove_stale_worlds(folder, reported)
    if failures:
        raise SchedulerError("; ".join(failures))
    return geometric_mean(means) if means and min(means) > 0 else None


def _mean_of_first(race: Comparison, results: Sequence[RunResult]) -> list[float]:
    """[1] mean JCT of the first agent, or of the first scheduler if there is none; [0] if it failed."""
    labels = [label for label, entry in race.entries.items() if entry.is_agent] or list(race.entries)
    found = [one.metrics.mean_jct for one in results if one.label == labels[0]]
    return [fmean(found)] if found else []
