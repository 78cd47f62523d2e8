"""Report of a sweep: table, CSV, plot and the best job."""

import importlib.util
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from rich.console import Console

from ringyard_agents.evaluation.results_frame import write_frame
from ringyard_agents.report.tables import pluralize, print_line, print_note, print_table
from ringyard_agents.runs import sweep_table as sweep_tables
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.sweep_job import JobRecord

_MAX_ROWS = 30  # on the console
_MAX_PLOTTED_SETTINGS = 8
_LOG_SCALE_RATIO = 30.0  # largest / smallest value from which an axis is logarithmic
_DECADE_LABEL_RATIO = 100.0  # largest / smallest value from which its labels are decades
_PLOTS_PER_ROW = 3


def report_sweep(folder: Path, records: Sequence[JobRecord], logarithmic: Collection[str] = ()) -> None:
    """Print the table, the best job first. Write sweep.csv and sweep.png, some settings `logarithmic`."""
    console = Console()
    table = sweep_tables.sweep_table(folder, records)
    write_frame(folder / "sweep.csv", table)
    _print(console, table)
    names = sweep_tables.swept_settings(records)
    for record in records:
        if record.status != "done":
            print_note(console, f"failed: job {sweep_tables.describe_job(record, names)}: {record.failure}")
    print_line(console, f"table: {folder / 'sweep.csv'}")
    several = np.isfinite(table["objective"].astype(float)).sum() > 1
    if several and importlib.util.find_spec("matplotlib") is None:
        print_line(console, 'no plot, which needs matplotlib: pip install "ringyard[agents]"')
    elif several:
        draw_sweep(table, names, folder / "sweep.png", logarithmic)
        print_line(console, f"plot: {folder / 'sweep.png'}")
    see = shlex.join(["ringyard", "best", str(folder)])
    for jobs in sweep_tables.jobs_by_environment(folder, records):
        if best := sweep_tables.best_job(jobs):
            found = f"best: job {sweep_tables.describe_job(best, names)}, {_value_text(best.objective)}"
            print_line(console, f"{found}; see `{see}`")


def _value_text(value: Any) -> str:
    """Format a value for the console: numbers with four digits or whole."""
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _print(console: Console, table: pd.DataFrame) -> None:
    several = [name for name in ("environment",) if name in table]
    best_first = table.sort_values([*several, "objective"], na_position="last", kind="stable")
    names = [name for name in table.columns if name not in ("error", "folder")]
    headers = {name: _header(name, names) for name in names}
    records = best_first.head(_MAX_ROWS)[names].astype(object).to_dict("records")
    rows = [{headers[str(name)]: _value_text(value) for name, value in row.items()} for row in records]
    of = " of each environment" if several else ""
    title = f"{pluralize(len(table), 'job')}, the best{of} first (a lower objective is better)"
    print_table(console, title, rows, list(headers.values()), ["status"], list(headers.values()))
    if len(table) > _MAX_ROWS:
        print_line(console, f"and {len(table) - _MAX_ROWS} more jobs in sweep.csv")


def _header(name: str, names: Sequence[str]) -> str:
    """Shorten a header: agent.model.learning_rate is learning_rate if no other setting is."""
    last = name.rpartition(".")[2]
    unique = sum(one.rpartition(".")[2] == last for one in names) == 1
    return (last if unique else name.replace(".", ".\n")).replace(" to ", " to\n")


def draw_sweep(
    table: pd.DataFrame, settings: Sequence[str], file: Path, logarithmic: Collection[str] = ()
) -> None:
    """Draw the best objective so far over the jobs, and the objective over each setting."""
    from matplotlib.figure import Figure

    done = table[np.isfinite(table["objective"].astype(float))]
    shown = [name for name in settings if done[name].nunique() > 1][:_MAX_PLOTTED_SETTINGS]
    columns = min(_PLOTS_PER_ROW, 1 + len(shown))
    rows = -(-(1 + len(shown)) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.3 * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, at + 1) for at in range(1 + len(shown))]
    _best_so_far(axes[0], done)
    for axis, name in zip(axes[1:], shown, strict=True):
        _over_setting(axis, done, name, name in logarithmic)
    for axis in axes[::columns]:
        axis.set_ylabel("objective (lower is better)")
    figure.suptitle(f"{file.parent}: {len(done)} of {len(table)} jobs")
    with atomic_write(file) as partial:
        figure.savefig(partial, dpi=120)


def _best_so_far(axis: Any, done: pd.DataFrame) -> None:
    axis.scatter(done["job"], done["objective"], s=18, color="tab:gray", label="job")
    for number, some in done.groupby(_environments(done)):
        of = f" in environment {number:g}" if "environment" in done else ""
        axis.step(some["job"], some["objective"].cummin(), where="post", label=f"best so far{of}")
    axis.set_xlabel("job")
    axis.locator_params(axis="x", integer=True)
    axis.legend()


def _environments(done: pd.DataFrame) -> Any:
    """Return the number of each job's environment. Objectives compare only within one."""
    return done.get("environment", pd.Series(0, done.index))


def _over_setting(axis: Any, done: pd.DataFrame, name: str, logarithmic: bool) -> None:
    column = done[name].infer_objects()
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    numeric = is_numeric_dtype(column) and not is_bool_dtype(column)
    places: Any = column
    if numeric:
        reach = column.max() / column.min() if column.min() > 0 else 0.0
        if column.min() > 0 and (logarithmic or reach >= _LOG_SCALE_RATIO):
            axis.set_xscale("log")  # with labels at 1, 2 and 5, or at decades if it spans many
            labelled = (1.0, 2.0, 5.0) if reach < _DECADE_LABEL_RATIO else (1.0,)
            axis.xaxis.set_major_locator(LogLocator(subs=labelled))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        labels = list(dict.fromkeys(str(value) for value in column))
        places = column.map(lambda value: labels.index(str(value)))
        short = [label if len(label) <= 24 else f"{label[:21]}..." for label in labels]
        axis.set_xticks(range(len(labels)), short, rotation=20, ha="right")
        axis.set_xlim(-0.5, len(labels) - 0.5)
    points = axis.scatter(places, done["objective"], s=22, c=done["job"], cmap="viridis")
    best = done["objective"].groupby(_environments(done)).idxmin()
    marks: Any = dict(s=90, facecolors="none", edgecolors="tab:red", label="best")
    axis.scatter(places[best], done["objective"][best], **marks)
    axis.set_xlabel(name)
    axis.legend()
    axis.figure.colorbar(points, ax=axis, label="job", ticks=MaxNLocator(integer=True))
