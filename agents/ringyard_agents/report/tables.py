"""Tables of texts: as Markdown, as files, on a console."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from ringyard_agents.evaluation.results_frame import write_frame
from ringyard_agents.runs.atomic_write import atomic_write

__all__ = ["markdown", "table_console", "write_tables"]

_LEAST_WIDTH = 150  # characters of a table that goes to a file


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table of one row or more."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "|".join(["---"] + ["---:"] * (len(names) - 1)) + "|"]
    lines += ["| " + " | ".join(row[name] for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_tables(
    folder: Path, frame: pd.DataFrame, rows: Sequence[Mapping[str, str]], below: Sequence[str] = ()
) -> list[str]:
    """table.csv for programs and table.md for people; their names.

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


def table_console(console: Console) -> Console:
    """A console for tables: that one, or a wide one where nobody looks."""
    return console if console.is_terminal else Console(width=max(console.width, _LEAST_WIDTH))
