"""Report of a sweep: table, CSV and the best job."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from ringyard_agents.evaluation.results_frame import write_frame
from ringyard_agents.report.tables import pluralize, print_line, print_note, print_table
from ringyard_agents.runs import sweep_table as sweep_tables
from ringyard_agents.runs.sweep_job import JobRecord

_MAX_ROWS = 30  # on the console


def report_sweep(folder: Path, records: Sequence[JobRecord]) -> None:
    """Print the table, the best job first, and write sweep.csv."""
    console = Console()
    table = sweep_tables.sweep_table(folder, records)
    write_frame(folder / "sweep.csv", table)
    several = [name for name in ("environment",) if name in table]
    best_first = table.sort_values([*several, "objective"], na_position="last", kind="stable")
    first = ["job", "status", "seconds"]
    names = [*first, *(name for name in table.columns if name not in (*first, "error", "folder"))]
    headers = {name: _header(name, names) for name in names}
    shown = best_first.head(_MAX_ROWS)[names].astype(object).to_dict("records")
    rows = [{headers[str(name)]: _value_text(value) for name, value in row.items()} for row in shown]
    of = " of each environment" if several else ""
    title = f"{pluralize(len(table), 'job')}, the best{of} first (a lower objective is better)"
    print_table(console, title, rows, list(headers.values()), ["status"], list(headers.values()))
    if len(table) > _MAX_ROWS:
        print_line(console, f"and {len(table) - _MAX_ROWS} more jobs in sweep.csv")
    swept = sweep_tables.swept_settings(records)
    for record in records:
        if record.status != "done":
            print_note(console, f"failed: job {sweep_tables.describe_job(record, swept)}: {record.failure}")
    print_line(console, f"table: {folder / 'sweep.csv'}")
    see = shlex.join(["ringyard", "best", str(folder)])
    for jobs in sweep_tables.jobs_by_environment(folder, records):
        if best := sweep_tables.best_job(jobs):
            found = f"best: job {sweep_tables.describe_job(best, swept)}, {_value_text(best.objective)}"
            print_line(console, f"{found}; see `{see}`")


def _value_text(value: Any) -> str:
    """Format a value for the console: numbers with four digits or whole."""
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _header(name: str, names: Sequence[str]) -> str:
    """Shorten a header: agent.model.learning_rate is learning_rate if no other setting is."""
    last = name.rpartition(".")[2]
    unique = sum(one.rpartition(".")[2] == last for one in names) == 1
    return (last if unique else name.replace(".", ".\n")).replace(" to ", " to\n")
