"""Report of a comparison: printed tables and notes, CSV files, plots and TensorBoard runs."""

import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ringyard.config_folder import config_files
from ringyard.sim.metrics import Window
from ringyard_agents.evaluation.ranking import Ranking, rank, schedulers_frame
from ringyard_agents.evaluation.results_frame import Results, write_frame
from ringyard_agents.report import comparison_table as texts
from ringyard_agents.report.tables import pluralize, print_line, print_note, print_table, write_tables
from ringyard_agents.report.tenants import print_tenants, write_tenants

#: files that a comparison writes for an environment
_OUTPUTS = (
    *("table.csv", "table.md", "runs.csv", "jobs.csv", "tenants.csv", "tensorboard"),
    *("jct_distribution.png", "jct_over_time.png", "losses.png", "queue_length.png", "utilisation.png"),
    *("performance_profile.png", "interquartile_means.png"),
)

#: number of schedulers in plots, the best of the table; TensorBoard has all
_MAX_PLOTTED = 12


def _remove_stale(folder: Path, written: Collection[str]) -> None:
    """Remove files of an earlier comparison in this folder that this one did not write."""
    for name in _OUTPUTS:
        if name in written:
            continue
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def remove_stale_tables(folder: Path, written: Collection[str]) -> None:
    """Remove tables and plots of environments that are not part of a comparison, `written`."""
    if "" not in written:
        _remove_stale(folder, ())
    for name in config_files("experiment"):
        inside = folder / name
        if name in written or not inside.is_dir() or (inside / "run.json").exists():  # a run of that name
            continue
        _remove_stale(inside, ())
        if not any(inside.iterdir()):
            inside.rmdir()


def report_comparison(
    console: Console,
    folder: Path,
    results: Results,
    title: str,
    reference: str | None,
    options: Mapping[str, str],
    notes: Sequence[str],
    window: Window,
    plots: bool,
    tensorboard: str | None,
    wide: bool,
) -> None:
    """Print the tables and write the files, in place of those of an earlier comparison.

    `options` are {label: options that differ from the scheduler's yaml}. `window` is the (first, last)
    fraction of the jobs, in order of arrival, that are measured. `tensorboard` is the text above the table of
    a TensorBoard run (None: no run). `wide` prints all columns, in several tables.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_frame(folder / "runs.csv", results.runs)
    write_frame(folder / "jobs.csv", results.jobs)
    written = ["runs.csv", "jobs.csv"]
    ranking = rank(results.runs, reference)
    frame = schedulers_frame(results.runs, ranking)
    frame.insert(4, "options", [options.get(label, "") for label in frame["scheduler"]])
    rows = texts.table_rows(frame, ranking)
    for row, chosen in zip(rows, frame["options"], strict=True):
        row["options"] = chosen
    workloads = results.runs["workload"].nunique()
    with_options = [f"{row['scheduler']}: {row['options']}" for row in rows if row["options"]]
    below = [
        texts.best_note(rows),
        "gap to bound: mean JCT / its lower bound (1: optimal)",
        "rho: finish-time fairness (above 1: unfair)",
        *texts.blocking_notes(ranking),
        *([f"options: {'; '.join(with_options)}"] if with_options else []),
        *notes,
        *texts.interval_notes(ranking, workloads),
        # `jobs` has only the measured ones
        *(texts.window_notes(window) or texts.equal_schedule_notes(results.jobs)),
    ]
    written += write_tables(folder, frame, rows, below)
    heading = f"means over {pluralize(workloads, 'workload')}, the same for all schedulers"
    _print_tables(console, f"{title}: {heading}" if title else heading, rows, below, ranking, wide)
    jobs = results.jobs.set_index("scheduler").loc[ranking.rows].reset_index()
    written += ["tenants.csv"] if write_tenants(folder / "tenants.csv", jobs) else []
    print_tenants(console, jobs)
    images: list[Path] = []
    if plots:
        from ringyard_agents.report.plots import draw_plots

        images = draw_plots(results.only(ranking.order[:_MAX_PLOTTED]), folder)
        for file in images:
            print_line(console, f"plot: {file}")
    if tensorboard is not None:
        from ringyard_agents.report.tensorboard import write_tensorboard

        runs = folder / "tensorboard"
        write_tensorboard(results, runs, f"{tensorboard}\n\n{texts.printed_markdown(rows, below)}", images)
        print_line(console, f"TensorBoard: {shlex.join(['tensorboard', '--logdir', str(runs)])}")
        written.append(runs.name)
    _remove_stale(folder, [*written, *(file.name for file in images)])
    for name in ("table.csv", "runs.csv", "tenants.csv"):
        if name in written:
            print_line(console, f"table: {folder / name}")


def _print_tables(
    console: Console,
    title: str,
    rows: Sequence[Mapping[str, str]],
    notes: Sequence[str],
    ranking: Ranking,
    wide: bool,
) -> None:
    """Print the table and the notes below it, or all tables with the parts of the mean JCT."""
    groups = [ranking.groups[row["scheduler"]] for row in rows]
    if not wide:
        narrow, notes = texts.narrow_table(rows, notes, ranking)
        print_table(console, title, narrow, list(narrow[0]), ["scheduler"], groups=groups, folds=True)

    def table(heading: str, names: Sequence[str]) -> None:
        wrapped = ("capabilities", "observability")
        print_table(console, heading, rows, names, ("scheduler", "best", *wrapped), wrapped, groups)

    for number, names in enumerate(texts.printed_columns(rows[0]) if wide else ()):
        table("" if number else title, names)
    for note in notes:
        print_note(console, note)
    if wide:
        parts = ["scheduler", "queueing (s)", *texts.loss_columns(rows)]
        table("parts of the mean JCT: queueing, seconds lost to ..., and work", parts)
