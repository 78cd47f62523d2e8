"""What a comparison prints and writes: tables, notes, CSV files, plots, TensorBoard runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ringyard.sim.metrics import JobTimes, Window
from ringyard_agents.evaluation.ranking import Ranking, rank, schedulers_frame
from ringyard_agents.evaluation.results_frame import Results
from ringyard_agents.report.comparison_table import (
    best_line,
    blocking_notes,
    interval_notes,
    loss_names,
    notes_of_equal_rows,
    pluralize,
    printed_columns,
    printed_markdown,
    table_rows,
    window_notes,
)
from ringyard_agents.report.result_files import remove_stale, write_results
from ringyard_agents.report.tables import table_console, write_tables
from ringyard_agents.report.tenants import print_tenants, write_tenants

__all__ = ["ComparisonReport", "say"]

#: schedulers shown in plots, the best of a table; TensorBoard has all
MOST_PLOTTED = 12


def say(console: Console, line: str) -> None:
    """Print a line as it is, without markup or breaks.

    Args:
        console: to print on.
        line: to print.
    """
    console.print(line, soft_wrap=True, highlight=False, markup=False)


@dataclass(frozen=True)
class ComparisonReport:
    """What a report says beside the results.

    Attributes:
        title: of the table; "": none.
        reference: label of the scheduler that the others are compared with; None: the default.
        options: {label: options that differ from the scheduler's yaml}.
        notes: to print below the table.
        window: shares of the jobs between which they count.
        plots: whether to draw plots.
        tensorboard: text of the TensorBoard run, before the table; None: write no TensorBoard runs.
    """

    title: str
    reference: str | None
    options: Mapping[str, str]
    notes: Sequence[str]
    window: Window
    plots: bool
    tensorboard: str | None

    def write(
        self, console: Console, folder: Path, results: Results, times: Mapping[str, Sequence[JobTimes]]
    ) -> None:
        """Print the tables and write the files, in place of those of an earlier comparison.

        Args:
            console: to print on.
            folder: for the files; made if missing.
            results: of every scheduler on every workload.
            times: {label: times of the jobs of each workload}.
        """
        folder.mkdir(parents=True, exist_ok=True)
        written = write_results(folder, results)
        ranking = rank(results.runs, self.reference)
        frame = schedulers_frame(results.runs, ranking)
        frame.insert(4, "options", [self.options.get(label, "") for label in frame["scheduler"]])
        rows = table_rows(frame, ranking)
        for row, options in zip(rows, frame["options"], strict=True):
            row["options"] = options
        workloads = results.runs["workload"].nunique()
        notes = self._notes(ranking, rows, results, workloads)
        written += write_tables(folder, frame, rows, notes)
        title = f"{pluralize(workloads, 'workload')}, the same for all; means over workloads"
        _print_all(console, f"{self.title}: {title}" if self.title else title, rows, notes, ranking.groups)
        ordered = {label: times[label] for label in ranking.rows}
        written += ["tenants.csv"] if write_tenants(folder / "tenants.csv", ordered) else []
        print_tenants(table_console(console), ordered)
        written += self._draw(console, folder, results, ranking, printed_markdown(rows, notes))
        remove_stale(folder, written)
        tables = [str(folder / name) for name in ("table.csv", "runs.csv", "tenants.csv") if name in written]
        console.print(f"tables: {', '.join(tables)}", soft_wrap=True, markup=False)

    def _notes(
        self, ranking: Ranking, rows: Sequence[Mapping[str, str]], results: Results, workloads: int
    ) -> list[str]:
        options = [f"{row['scheduler']}: {row['options']}" for row in rows if row["options"]]
        window = window_notes(self.window)
        return [
            best_line(rows),
            *blocking_notes(ranking),
            *([f"options: {'; '.join(options)}"] if options else []),
            *self.notes,
            *interval_notes(ranking, workloads),
            *(window or notes_of_equal_rows(results.jobs)),  # in a window jobs are missing
        ]

    def _draw(
        self, console: Console, folder: Path, results: Results, ranking: Ranking, table: str
    ) -> list[str]:
        """Write the plots and the TensorBoard runs; return the names of what was written."""
        written: list[Path] = []
        if self.plots:
            from ringyard_agents.report.plots import draw_plots

            written += draw_plots(results.only(ranking.order[:MOST_PLOTTED]), folder)
            console.print(f"plots: {', '.join(str(file) for file in written)}", soft_wrap=True, markup=False)
        if self.tensorboard is not None:
            from ringyard_agents.report.tensorboard import write_tensorboard

            runs = folder / "tensorboard"
            write_tensorboard(results, runs, f"{self.tensorboard}\n\n{table}", written)
            console.print(f"curves: tensorboard --logdir {runs}", soft_wrap=True, markup=False)
            written.append(runs)
        return [file.name for file in written]


def _print_all(
    console: Console,
    title: str,
    rows: Sequence[Mapping[str, str]],
    notes: Sequence[str],
    groups: Mapping[str, int],
) -> None:
    """Print the tables, the notes, and what the mean JCT is made of."""
    for names in printed_columns(rows[0]):
        _print(table_console(console), title, rows, names, groups)
    for note in notes:
        say(console, note)
    parts = ["scheduler", "queueing (s)", *loss_names(rows)]
    lost = "what the mean JCT is made of, lost to ...; means over workloads"
    _print(table_console(console), lost, rows, parts, groups)


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
