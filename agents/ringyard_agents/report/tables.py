"""Tables of texts: as Markdown, as files, on a console; and the lines around them."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringyard_agents.evaluation.results_frame import write_frame
from ringyard_agents.runs.atomic_write import atomic_write

_MIN_FILE_WIDTH = 150  # characters of a table that goes to a file


def markdown(rows: Sequence[Mapping[Any, Any]]) -> str:
    """A Markdown table of one row or more."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "|".join(["---"] + ["---:"] * (len(names) - 1)) + "|"]
    lines += ["| " + " | ".join(row[name] for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_tables(
    folder: Path, frame: pd.DataFrame, rows: Sequence[Mapping[Any, Any]], below: Sequence[str] = ()
) -> list[str]:
    """Write table.csv for programs and table.md for people; return their names.

    Args:
        folder: of both.
        frame: numbers and names, for table.csv.
        rows: one row or more, by title of the column, for table.md.
        below: paragraphs after the Markdown table.
    """
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
) -> None:
    """Print some columns; a table that goes to a file is wide.

    Args:
        console: to print on.
        title: above the table.
        rows: texts by name of the column.
        names: of the columns to print. A line break in a name breaks the header.
        left: names of columns that are aligned left.
        wrapped: names of columns that may be broken into several lines.
        groups: of the rows; a gap is left where it changes. Empty: no gaps.
    """
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    for name in names:
        justify = "left" if name in left else "right"
        table.add_column(escape(name), justify=justify, no_wrap=name not in wrapped)  # type: ignore[arg-type]
    for number, row in enumerate(rows):
        ends = number + 1 < len(groups) and groups[number] != groups[number + 1]
        table.add_row(*(escape(row[name]) for name in names), end_section=ends)
    wide = console if console.is_terminal else Console(width=max(console.width, _MIN_FILE_WIDTH))
    wide.print(table)


def print_line(console: Console, line: str) -> None:
    """Print a line as it is, without markup or breaks."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def pluralize(number: int, what: str) -> str:
    """`1 workload`, `2 workloads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
