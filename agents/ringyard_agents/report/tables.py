"""Tables of text as Markdown, as files and on the console."""

from collections.abc import Collection, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringyard_agents.evaluation.results_frame import write_frame
from ringyard_agents.runs.atomic_write import atomic_write

#: how the names of metrics in seconds begin
SECONDS = ("mean_jct", "median", "p95", "p99", "makespan", "mean_queueing", "mean_work", "lost_to_")


def markdown(rows: Sequence[Mapping[Any, Any]]) -> str:
    """Return a Markdown table of one or more rows."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "|".join(["---"] + ["---:"] * (len(names) - 1)) + "|"]
    lines += ["| " + " | ".join(row[name] for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_tables(
    folder: Path, frame: pd.DataFrame, rows: Sequence[Mapping[Any, Any]], below: Sequence[str] = ()
) -> list[str]:
    """Write table.csv of numbers for programs and table.md for people, and return their names."""
    write_frame(folder / "table.csv", frame)
    with atomic_write(folder / "table.md") as partial:
        partial.write_text("\n\n".join([markdown(rows).rstrip(), *below]) + "\n")
    return ["table.csv", "table.md"]


def print_table(
    console: Console,
    title: str,
    rows: Sequence[Mapping[Any, Any]],
    names: Sequence[str],
    left: Collection[str] = (),
    wrapped: Collection[str] = (),
    groups: Sequence[object] = (),
    folds: bool = False,
) -> None:
    """Print the columns `names`, split into several tables if the console is too narrow for one.

    The first column is part of every table. Columns `left` are aligned left, texts `wrapped` may be broken
    into lines, and a gap separates `groups` of rows. With `folds` one table is printed, in which the first
    column is as narrow as the others need.
    """
    if title:
        console.print(title, style="italic", markup=False)
    texts = {name: [name, *(row[name] for row in rows)] for name in names}
    widths = {  # headers wrap; so do the texts of some columns
        name: max(map(len, (*name.split(), *(" ".join(own).split() if name in wrapped else own[1:]))))
        for name, own in texts.items()
    }
    for columns in [names] if folds else _fit_columns(names, widths, console.width):
        table = Table(box=SIMPLE_HEAD, collapse_padding=True)
        for name in columns:
            justify = "left" if name in left else "right"
            header = name if name in wrapped else "\n".join(wrap(name, widths[name]))
            fixed = name not in wrapped and not (folds and name == names[0])
            table.add_column(escape(header), justify=justify, no_wrap=fixed, overflow="fold")  # type: ignore[arg-type]
        room = console.width - sum(widths[name] + 2 for name in columns[1:]) - 4  # of the first column
        for number, row in enumerate(rows):
            first = row[columns[0]]
            texts_of_row = [first if len(first) <= room else first.replace("@", "@\n")]
            texts_of_row += (row[name] for name in columns[1:])
            ends = number + 1 < len(groups) and groups[number] != groups[number + 1]
            table.add_row(*map(escape, texts_of_row), end_section=ends)
        console.print(table)


def _fit_columns(names: Sequence[str], widths: Mapping[str, int], room: int) -> list[list[str]]:
    """Split columns into tables that fit into a number of characters. Each has the first column."""
    first, *rest = names
    tables = [[first]]
    for name in rest:
        if len(tables[-1]) > 1 and sum(widths[one] + 2 for one in (*tables[-1], name)) + 2 > room:
            tables.append([first])
        tables[-1].append(name)
    return tables


def print_line(console: Console, line: str) -> None:
    """Print a `line` with a path or a command on a `console`: no markup, highlighting or line breaks."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def print_note(console: Console, note: str) -> None:
    """Print a `note` on a `console`, broken between words."""
    console.print(note, highlight=False, markup=False)


def p_text(p_value: float) -> str:
    """Format a p-value with three digits, or as `<0.001`. NaN is an empty text."""
    return "" if isnan(p_value) else "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def change_text(ratio: float, low: float = nan, high: float = nan) -> str:
    """Format a ratio as a change, `-7.0%`, and with an interval as `-7.0% [-10.1, -3.9]`."""
    change, least, most = (f"{100 * (one - 1):+.1f}" for one in (ratio, low, high))
    return f"{change}%" + ("" if isnan(low) else f" [{least}, {most}]")


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 workload`, `2 workloads`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
