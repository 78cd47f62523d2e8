"""`ringyard compare`: several schedulers on the same workloads."""

import csv
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.sim.metrics import LOSSES
from ringyard_agents.configuration import Entry, plain, scheduler_config
from ringyard_agents.files import locked, replaced
from ringyard_agents.measuring.best import Best, at_best, read_best, shown_options
from ringyard_agents.measuring.evaluate import RunResult, Task, check
from ringyard_agents.measuring.selection import able, drawn_for, entries_of, wants_all, worlds_of
from ringyard_agents.measuring.series import run_series
from ringyard_agents.measuring.statistics import caution, holm, mean_interval, p_value, ratio_interval
from ringyard_agents.measuring.tables import markdown, wide, write_tables
from ringyard_agents.measuring.tenants import print_tenants, write_tenants
from ringyard_agents.record import again, run_folder, write_record
from ringyard_baselines.scheduler import Powers

__all__ = ["alike", "compare", "group_of", "table_rows"]

#: (title, metric, format) of the columns that are plain means over workloads
METRIC_COLUMNS = (
    ("makespan (s)", "makespan", "{:,.0f}"),
    ("queueing (s)", "mean_queueing", "{:,.0f}"),
    ("slowdown", "mean_slowdown", "{:.1f}"),
    ("mean rho", "mean_fairness", "{:.1f}"),
    ("worst rho", "worst_fairness", "{:.1f}"),
    ("p99 (s)", "p99_jct", "{:,.0f}"),
    ("p95 (s)", "p95_jct", "{:,.0f}"),
    ("median (s)", "median_jct", "{:,.0f}"),
    ("GPU use", "utilisation", "{:.0%}"),
    ("kernels", "kernel_utilisation", "{:.0%}"),
    ("stops", "preemptions", "{:.0f}"),
    ("fragmented", "fragmentation", "{:.1%}"),
    ("blocked", "blocking_rate", "{:.1%}"),
)
#: the same of what the mean JCT is made of, beside queueing
LOSS_COLUMNS = (
    *((f"{name.replace('_', ' ')} (s)", f"lost_to_{name}", "{:,.1f}") for name in LOSSES),
    ("work (s)", "mean_work", "{:,.1f}"),
)
_WIDEST_TABLE = 8  # columns printed side by side; the rest goes into more tables

#: schedulers shown in plots, the best by mean JCT; TensorBoard has all
MOST_PLOTTED = 12

#: workloads of comparisons are drawn from seeds no training uses
SEED_OFFSET = 2_000_000


def group_of(may: Powers) -> int:
    """0: only starts jobs; 1: also stops them, or changes cores; 2: also resizes them."""
    return 2 if may & Powers.RESIZES else int(may != Powers.STARTS)


#: {what a table says of a row: its group}
_GROUPS = {str(Powers(flags)): group_of(Powers(flags)) for flags in range(8)}


@dataclass(frozen=True)
class _Race:
    """What one table takes.

    Attributes:
        entries: {label: entry} of the schedulers that can serve the jobs.
        tasks: what to run.
        refused: {scheduler: why it is left out}.
        reference: label; None: the default.
        best: {scheduler: its best and what else was tried} where schedulers run at their best.
    """

    entries: Mapping[str, Entry]
    tasks: list[Task]
    refused: Mapping[str, str]
    reference: str | None
    best: Mapping[str, Best]


def _races(config: DictConfig) -> dict[str, _Race]:
    """{world: what its table takes}."""
    given = entries_of(config)
    return {name: _race(config, given, name, world) for name, world in worlds_of(config).items()}


def _race(config: DictConfig, given: Mapping[str, Entry], name: str, world: Mapping[str, Any]) -> _Race:
    best = _best_of(config, name)
    entries = at_best(given, best)
    seed = config.seed + SEED_OFFSET
    configs = {label: plain(scheduler_config(entry, config.trust)) for label, entry in entries.items()}
    fit, refused = able(configs, world, seed)
    if refused and not wants_all(config):
        raise SchedulerError("; ".join(refused.values()))
    drawn = [drawn_for(world, seed, workload) for workload in range(config.seeds)]
    tasks = [
        Task(label, configs[label], drawn[workload], workload, seed, tuple(config.measured_jobs))
        for workload in range(config.seeds)
        for label in fit
    ]
    return _Race({label: entries[label] for label in fit}, tasks, refused, _reference(config, entries), best)


def _best_of(config: DictConfig, preset: str) -> dict[str, Best]:
    """What `best` says; by default, for all schedulers on a preset, what ships for it."""
    if config.best is not None:
        return read_best(config.best)
    return read_best(preset) if wants_all(config) and preset in config_files("tuned") else {}


def _reference(config: DictConfig, entries: Mapping[str, Entry]) -> str | None:
    """The label that `reference` means: a label, or a scheduler that runs under another at its best."""
    if config.reference is None:
        return None
    for label, entry in entries.items():
        if config.reference in (label, entry.name):
            return label
    raise ConfigurationError(f"reference is {config.reference!r}; expected one of {', '.join(entries)}")


def _metric(results: Sequence[RunResult], label: str, name: str) -> NDArray[np.float64]:
    return np.array([float(getattr(r.metrics, name)) for r in results if r.label == label])


def _best_published(results: Sequence[RunResult], means: Mapping[str, float]) -> dict[int, str]:
    """{group: the best label in it that no agent has}, the groups in order."""
    groups = {result.label: group_of(result.may) for result in results if not result.learned}
    best: dict[int, str] = {}
    for label in sorted(groups, key=lambda one: (groups[one], means[one])):
        best.setdefault(groups[label], label)
    return best


def _adjusted(results: Sequence[RunResult], reference: str) -> dict[str, float]:
    """{label: p-value of its mean JCT against the reference's, adjusted for the number of rows}."""
    others = [label for label in dict.fromkeys(result.label for result in results) if label != reference]
    against = _metric(results, reference, "mean_jct")
    alone = [p_value(_metric(results, label, "mean_jct"), against) for label in others]
    return dict(zip(others, holm(np.array(alone)).tolist(), strict=True))


def _notes(reference: str, compared: int, workloads: int) -> list[str]:
    """What stands below a table: what its intervals mean."""
    notes = [
        f"vs {reference}: mean JCT / mean JCT of {reference}, workloads in pairs; each 95% interval is of its"
        " row alone (Student's t of the logarithm)",
        f"p (Holm): that the two means are equal, adjusted for {compared} rows; above 0.05 no difference is"
        " shown",
    ]
    warning = caution(workloads)
    return notes if warning is None else [*notes, warning]


def table_rows(results: Sequence[RunResult], reference: str | None) -> tuple[str, list[dict[str, str]]]:
    """(label of the reference, one row of texts per scheduler, group by group, best mean JCT first).

    Args:
        results: of every scheduler on every workload.
        reference: whom the others are compared with; None: the best of the first group that is no agent.
    """
    labels = list(dict.fromkeys(result.label for result in results))
    means = {label: float(_metric(results, label, "mean_jct").mean()) for label in labels}
    best = _best_published(results, means)
    reference = reference or next(iter(best.values()), min(means, key=means.__getitem__))
    groups = {result.label: group_of(result.may) for result in results}
    against = _metric(results, reference, "mean_jct")
    adjusted = _adjusted(results, reference)
    rows = []
    for label in sorted(labels, key=lambda one: (groups[one], means[one])):
        own = [result for result in results if result.label == label]
        jct = mean_interval(_metric(results, label, "mean_jct"))
        ratio = ratio_interval(_metric(results, label, "mean_jct"), against)
        change = "reference"
        if label != reference:
            low, high = (ratio.low - 1) * 100, (ratio.high - 1) * 100
            change = f"{(ratio.value - 1) * 100:+.1f}% [{low:+.1f}, {high:+.1f}]"
        bounds = np.array([result.bounds.mean_jct for result in own])
        row = {
            "scheduler": label,
            "best": "*" if label in best.values() else "",
            "may": str(own[0].may),
            "knows": own[0].information,
            "mean JCT [95% CI] (s)": f"{jct.value:,.0f} [{jct.low:,.0f}, {jct.high:,.0f}]",
            f"vs {reference}": change,
            "p (Holm)": f"{adjusted[label]:.3f}" if label in adjusted else "",
            "/ bound": f"{means[label] / bounds.mean():.2f}",
        }
        for title, name, form in (*METRIC_COLUMNS, *LOSS_COLUMNS):
            row[title] = form.format(_metric(results, label, name).mean())
        row["run (s)"] = f"{np.mean([result.wall_seconds for result in own]):.3f}"
        decisions = sum(result.num_decisions for result in own)
        row["per decision (ms)"] = f"{1e3 * sum(result.wall_seconds for result in own) / decisions:.3f}"
        rows.append(row)
    return reference, rows


def _write_csv(folder: Path, results: Sequence[RunResult]) -> None:
    """runs.csv: every metric of every run; jobs.csv: every job that counts of every run."""
    lost = [f"lost_to_{name}" for name in LOSSES]
    with replaced(folder / "runs.csv") as partial, partial.open("w", newline="") as stream:
        metrics = list(results[0].metrics.as_dict())
        writer = csv.writer(stream)
        writer.writerow(["scheduler", "workload", "information", *metrics, "bound_mean_jct", "wall_seconds"])
        for r in results:
            values = [repr(value) for value in r.metrics.as_dict().values()]
            bound = repr(r.bounds.mean_jct)
            writer.writerow([r.label, r.workload, r.information, *values, bound, f"{r.wall_seconds:.4f}"])
    with replaced(folder / "jobs.csv") as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream)
        times = ("submit_time", "gpus", "start_time", "end_time", "jct", "queueing", *lost, "work_seconds")
        writer.writerow(["scheduler", "workload", "job_id", *times])
        for r in results:
            t = r.times
            columns = (t.job_id, t.submit_seconds, t.num_gpus, t.start_seconds, t.end_seconds, t.jct)
            columns += (t.queueing_seconds, *(getattr(t, name) for name in lost), t.work_seconds)
            for job in zip(*(column.tolist() for column in columns), strict=True):
                writer.writerow([r.label, r.workload, *job])


def alike(results: Sequence[RunResult]) -> list[str]:
    """A note for each set of schedulers under which every job started and ended at the same times."""
    times: dict[str, list[bytes]] = {}
    for result in results:
        times.setdefault(result.label, []).append(
            np.stack([result.times.rows, result.times.start_seconds, result.times.end_seconds]).tobytes()
        )
    found: dict[tuple[bytes, ...], list[str]] = {}
    for label, of_workloads in times.items():
        found.setdefault(tuple(of_workloads), []).append(label)
    return [
        f"not active here: what sets {' and '.join(labels)} apart; all jobs start and end at the same times"
        for labels in found.values()
        if len(labels) > 1
    ]


def _best_line(rows: Sequence[Mapping[str, str]]) -> str:
    """What a table's stars say, and how much room the lower bound leaves above each."""
    best = [f"{row['scheduler']} ({row['may']}): {row['/ bound']} x bound" for row in rows if row["best"]]
    return f"* the best published of those that may do as much: {'; '.join(best) or 'none'}"


def _loss_names(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Titles of what the mean JCT is made of beside queueing, without what no scheduler loses anything to."""
    parts = {title: form.format(0.0) for title, _, form in LOSS_COLUMNS}
    return [title for title, none in parts.items() if any(row[title] != none for row in rows)]


def _options_lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """What differs from the yamls of the schedulers."""
    said = [f"{row['scheduler']}: {row['options']}" for row in rows if row["options"]]
    return [f"options: {'; '.join(said)}"] if said else []


def _folded(race: _Race) -> list[str]:
    """What else was tried of the schedulers at their best, for who unfolds it."""
    rows = [
        {
            "scheduler": label,
            "tried": " ".join([tried.entry.scheduler, shown_options(tried.entry)]).strip(),
            "vs best": f"{tried.change:+.1%}",
            "tuning workloads": str(tried.workloads),
        }
        for label, entry in race.entries.items()
        for tried in (race.best[entry.name].others if entry.name in race.best else ())
        if entry == race.best[entry.name].entry
    ]
    if not rows:
        return []
    table = markdown(rows)
    return [f"<details><summary>what else was tried, on other workloads</summary>\n\n{table}\n</details>"]


def _most_plotted(results: Sequence[RunResult]) -> set[str]:
    """The labels with the least mean JCT."""
    labels = dict.fromkeys(result.label for result in results)
    means = {label: float(_metric(results, label, "mean_jct").mean()) for label in labels}
    return set(sorted(means, key=means.__getitem__)[:MOST_PLOTTED])


def _print(console: Console, title: str, rows: Sequence[Mapping[str, str]], names: Sequence[str]) -> None:
    """Print some columns, a table for every few of them."""
    rest = range(_WIDEST_TABLE, len(names), _WIDEST_TABLE)
    for part in (names[:_WIDEST_TABLE], *(["scheduler", *names[i : i + _WIDEST_TABLE]] for i in rest)):
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        for name in part:
            left = name in ("scheduler", "best", "may", "knows")
            wraps = name in ("may", "knows")
            table.add_column(name, justify="left" if left else "right", no_wrap=not wraps)
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            ends = following is not None and _GROUPS[row["may"]] != _GROUPS[following["may"]]
            table.add_row(*(row[name] for name in part), end_section=ends)
        console.print(table)


def _report(
    console: Console,
    config: DictConfig,
    folder: Path,
    race: _Race,
    results: Sequence[RunResult],
    title: str,
) -> None:
    """Print one world's table and write its files."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder, results)
    reference, rows = table_rows(results, race.reference)
    for row in rows:
        row["options"] = shown_options(race.entries[row["scheduler"]])
    notes = [
        _best_line(rows),
        *_options_lines(rows),
        *_notes(reference, len(rows) - 1, len({result.workload for result in results})),
        *alike(results),
    ]
    write_tables(folder, rows, [*notes, *_folded(race)])
    _print_all(console, title, rows, notes)
    runs = {row["scheduler"]: [r.times for r in results if r.label == row["scheduler"]] for row in rows}
    by_tenant = write_tenants(folder / "tenants.csv", runs)
    print_tenants(wide(console), runs)
    _draw(console, config, folder, results)
    tables = ["table.csv", "runs.csv", *(["tenants.csv"] if by_tenant else [])]
    console.print(f"tables: {', '.join(str(folder / name) for name in tables)}", soft_wrap=True)


def _print_all(console: Console, title: str, rows: Sequence[Mapping[str, str]], notes: Sequence[str]) -> None:
    """Print the table, what stands below it, and what the mean JCT is made of."""
    apart = {"options", *(name for name, _, _ in LOSS_COLUMNS)}
    _print(wide(console), title, rows, [name for name in rows[0] if name not in apart])
    for note in notes:
        console.print(note, soft_wrap=True, highlight=False)
    parts = ["scheduler", "queueing (s)", *_loss_names(rows)]
    _print(wide(console), "what the mean JCT is made of, lost to ...; means over workloads", rows, parts)


def _draw(console: Console, config: DictConfig, folder: Path, results: Sequence[RunResult]) -> None:
    """Write the plots and the TensorBoard runs that the config asks for."""
    if config.plots:
        from ringyard_agents.measuring.plots import draw_plots

        shown = _most_plotted(results)
        for file in draw_plots([result for result in results if result.label in shown], folder):
            console.print(f"plot: {file}", soft_wrap=True)
    if config.tensorboard:
        from ringyard_agents.measuring.tensorboard import write_tensorboard

        write_tensorboard(results, folder / "tensorboard")
        console.print(f"curves: tensorboard --logdir {folder / 'tensorboard'}", soft_wrap=True)


def compare(config: DictConfig) -> None:
    """Run, print the tables, write CSV, plots and TensorBoard runs, world by world.

    Each run is kept as it ends; the same command in the same folder does not run it again.

    Raises:
        RingyardError: bad input, before anything runs; SchedulerError: a scheduler failed, at the end, when
            the others' results are written.
        OSError: files cannot be written.
    """
    _check_installed(config)
    races = _races(config)
    for race in races.values():
        check(race.tasks)
    folder = run_folder()
    with locked(folder):
        try:
            _compare(config, races, folder)
        except KeyboardInterrupt as stop:
            stop.add_note(f"what has ended is kept, and the same command with {again(folder)} goes on")
            raise


def _check_installed(config: DictConfig) -> None:
    """Raise a ConfigurationError if what shall be written needs a library that is not there."""
    for setting, library in (("plots", "matplotlib"), ("tensorboard", "tensorboard")):
        if config[setting] and importlib.util.find_spec(library) is None:
            raise ConfigurationError(
                f'{setting}=true needs {library}: pip install "ringyard[agents]", or say {setting}=false'
            )


def _compare(config: DictConfig, races: Mapping[str, _Race], folder: Path) -> None:
    file = folder / "measured.jsonl"
    if config.rerun:
        file.unlink(missing_ok=True)
    write_record(folder, "compare", config, {"seed": config.seed, "workloads": config.seeds})
    console = Console()
    failures = []
    for name, race in races.items():
        results, failed = run_series(race.tasks, file, config.workers, console, "comparing")
        where = f"on preset {name}, " if name else "on "
        failures += [f"{label} failed {where}{reason}" for label, reason in failed.items()]
        if not results:
            continue
        title = f"{config.seeds} workloads, the same for all; means over workloads"
        _report(console, config, folder / name, race, results, f"{name}: {title}" if name else title)
        for label, reason in race.refused.items():
            console.print(f"left out: {label}: {reason}", soft_wrap=True)
    if failures:
        raise SchedulerError("; ".join(failures))
