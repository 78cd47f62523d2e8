"""What a comparison prints and writes: tables, notes, CSV files, plots, TensorBoard runs."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ringyard.config_folder import config_files
from ringyard.sim.metrics import Window
from ringyard_agents.evaluation.ranking import Ranking, rank, schedulers_frame
from ringyard_agents.evaluation.results_frame import Results, write_frame
from ringyard_agents.report.comparison_table import (
    best_note,
    blocking_notes,
    equal_schedule_notes,
    interval_notes,
    loss_columns,
    printed_columns,
    printed_markdown,
    table_rows,
    window_notes,
)
from ringyard_agents.report.tables import pluralize, print_line, print_table, write_tables
from ringyard_agents.report.tenants import print_tenants, write_tenants

#: all that a comparison writes for an environment, beside the cache of its runs
_OUTPUTS = (
    *("table.csv", "table.md", "runs.csv", "jobs.csv", "tenants.csv", "tensorboard"),
    *("jct_distribution.png", "jct_over_time.png", "losses.png", "queue_length.png", "utilisation.png"),
    *("performance_profile.png", "interquartile_means.png"),
)

#: schedulers shown in plots, the best of a table; TensorBoard has all
_MAX_PLOTTED = 12


def _remove_stale(folder: Path, written: Collection[str]) -> None:
    """Remove what an earlier comparison of this name wrote and this one did not; other files stay."""
    for name in _OUTPUTS:
        if name in written:
            continue
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def remove_stale_tables(folder: Path, written: Collection[str]) -> None:
    """Remove tables and plots of environments that are not part of a comparison; other files stay.

    Args:
        folder: of the comparison.
        written: names of its environments; "" is the one that was configured.
    """
    if "" not in written:
        _remove_stale(folder, ())
    for name in config_files("experiment"):
        own = folder / name
        if name in written or not own.is_dir() or (own / "run.json").exists():  # a run of that name
            continue
        _remove_stale(own, ())
        if not any(own.iterdir()):
            own.rmdir()


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
) -> None:
    """Print the tables and write the files, in place of those of an earlier comparison.

    Args:
        console: to print on.
        folder: for the files; made if missing.
        results: of every scheduler on every workload.
        title: of the table; "": none.
        reference: label of the scheduler that the others are compared with; None: the default.
        options: {label: options that differ from the scheduler's yaml}.
        notes: to print below the table.
        window: shares of the jobs, in order of arrival, between which they count.
        plots: whether to draw plots.
        tensorboard: text of the TensorBoard run, before the table; None: write no TensorBoard runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_frame(folder / "runs.csv", results.runs)
    write_frame(folder / "jobs.csv", results.jobs)
    written = ["runs.csv", "jobs.csv"]
    ranking = rank(results.runs, reference)
    frame = schedulers_frame(results.runs, ranking)
    frame.insert(4, "options", [options.get(label, "") for label in frame["scheduler"]])
    rows = table_rows(frame, ranking)
    for row, chosen in zip(rows, frame["options"], strict=True):
        row["options"] = chosen
    workloads = results.runs["workload"].nunique()
    said = [f"{row['scheduler']}: {row['options']}" for row in rows if row["options"]]
    below = [
        best_note(rows),
        *blocking_notes(ranking),
        *([f"options: {'; '.join(said)}"] if said else []),
        *notes,
        *interval_notes(ranking, workloads),
        *(window_notes(window) or equal_schedule_notes(results.jobs)),  # in a window jobs are missing
    ]
    written += write_tables(folder, frame, rows, below)
    heading = f"{pluralize(workloads, 'workload')}, the same for all; means over workloads"
    _print_tables(console, f"{title}: {heading}" if title else heading, rows, below, ranking)
    jobs = results.jobs.set_index("scheduler").loc[ranking.rows].reset_index()
    written += ["tenants.csv"] if write_tenants(folder / "tenants.csv", jobs) else []
    print_tenants(console, jobs)
    images: list[Path] = []
    if plots:
        from ringyard_agents.report.plots import draw_plots

        images = draw_plots(results.only(ranking.order[:_MAX_PLOTTED]), folder)
        print_line(console, f"plots: {', '.join(str(file) for file in images)}")
    if tensorboard is not None:
        from ringyard_agents.report.tensorboard import write_tensorboard

        runs = folder / "tensorboard"
        write_tensorboard(results, runs, f"{tensorboard}\n\n{printed_markdown(rows, below)}", images)
        print_line(console, f"curves: tensorboard --logdir {runs}")
        written.append(runs.name)
    _remove_stale(folder, [*written, *(file.name for file in images)])
    tables = [str(folder / name) for name in ("table.csv", "runs.csv", "tenants.csv") if name in written]
    print_line(console, f"tables: {', '.join(tables)}")


def _print_tables(
    console: Console,
    title: str,
    rows: Sequence[Mapping[str, str]],
    notes: Sequence[str],
    ranking: Ranking,
) -> None:
    """Print the tables, the notes, and what the mean JCT is made of."""

    def table(heading: str, names: Sequence[str]) -> None:
        narrow = {name: "\n".join(name.rsplit(" ", 1)) for name in names}  # worst rho, makespan (s)
        texts = [{narrow[name]: row[name] for name in names} for row in rows]
        groups = [ranking.groups[row["scheduler"]] for row in rows]
        left, wrapped = (
            ("scheduler", "best", "capabilities", "observability"),
            ("capabilities", "observability"),
        )
        print_table(console, heading, texts, list(narrow.values()), left, wrapped, groups)

    for names in printed_columns(rows[0]):
        table(title, names)
    for note in notes:
        print_line(console, note)
    lost = ["scheduler", "queueing (s)", *loss_columns(rows)]
    table("what the mean JCT is made of, lost to ...; means over workloads", lost)
