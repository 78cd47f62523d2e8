"""How a sweep ends: one table, one CSV, one plot, and which job is best."""

import importlib.util
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringyard_agents.report.tables import table_console
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.best_job import best_job
from ringyard_agents.runs.job_record import JobRecord
from ringyard_agents.runs.sweep_table import said, sweep_table, swept

__all__ = ["report_sweep"]

_MOST_ROWS = 30  # on the console; the CSV has all


def report_sweep(folder: Path, records: Sequence[JobRecord], logarithmic: Collection[str] = ()) -> None:
    """Print the table, the best first; write sweep.csv and sweep.png.

    Args:
        folder: of the sweep.
        records: of its jobs, one or more.
        logarithmic: settings that were searched on a logarithmic scale.
    """
    console = Console()
    table = sweep_table(folder, records)
    with atomic_write(folder / "sweep.csv") as partial:
        table.to_csv(partial, index=False)
    _print(console, table)
    names = swept(records)
    for record in records:
        if record.status != "done":
            console.print(f"failed: job {said(record, names)}: {record.why}", soft_wrap=True, markup=False)
    console.print(f"table: {folder / 'sweep.csv'}", soft_wrap=True, markup=False)
    _draw(console, folder, table, names, logarithmic)
    best = best_job(records)
    if best is not None:
        see = shlex.join(["ringyard", "best", str(folder)])
        line = f"best: job {said(best, names)}, {_shown(best.objective)}; see `{see}`"
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _shown(value: Any) -> str:
    """A value as the console has it: numbers by four digits or whole."""
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _print(console: Console, table: pd.DataFrame) -> None:
    best_first = table.sort_values("objective", na_position="last", kind="stable")
    title = f"{len(table)} job{'s' * (len(table) > 1)}, the best first; of the objective less is better"
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    names = [name for name in table.columns if name not in ("error", "folder")]
    for name in names:
        header = _short(name, names)
        shown.add_column(escape(header), justify="right" if name != "status" else "left")
    for row in best_first.head(_MOST_ROWS)[names].astype(object).itertuples(index=False):
        shown.add_row(*(escape(_shown(value)) for value in row))
    table_console(console).print(shown)
    if len(table) > _MOST_ROWS:
        console.print(f"and {len(table) - _MOST_ROWS} more in the CSV")


def _short(name: str, names: Sequence[str]) -> str:
    """A column as the console has it: agent.model.learning_rate is learning_rate, if no other is."""
    last = name.rpartition(".")[2]
    unique = sum(one.rpartition(".")[2] == last for one in names) == 1
    return (last if unique else name.replace(".", ".\n")).replace(" to ", " to\n")


def _draw(
    console: Console,
    folder: Path,
    table: pd.DataFrame,
    settings: Sequence[str],
    logarithmic: Collection[str],
) -> None:
    if np.isfinite(table["objective"].astype(float)).sum() < 2:
        return
    if importlib.util.find_spec("matplotlib") is None:
        console.print('no plot: it needs matplotlib, pip install "ringyard[agents]"', markup=False)
        return
    from ringyard_agents.report.sweep_plot import draw_sweep

    draw_sweep(table, settings, folder / "sweep.png", logarithmic)
    console.print(f"plot: {folder / 'sweep.png'}", soft_wrap=True, markup=False)
