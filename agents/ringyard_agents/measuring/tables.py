"""Tables of texts: as Markdown, as files, on a console."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ringyard_agents.files import replaced

__all__ = ["markdown", "wide", "write_tables"]

_LEAST_WIDTH = 150  # characters of a table that goes to a file


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table of one row or more."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "|".join(["---"] + ["---:"] * (len(names) - 1)) + "|"]
    lines += ["| " + " | ".join(row[name] for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_tables(folder: Path, rows: Sequence[Mapping[str, str]], below: Sequence[str] = ()) -> list[str]:
    """table.csv and table.md of one row or more; their names.

    Args:
        folder: of both.
        rows: by title of the column.
        below: paragraphs after the Markdown table.
    """
    with replaced(folder / "table.csv") as partial, partial.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    with replaced(folder / "table.md") as partial:
        partial.write_text("\n\n".join([markdown(rows).rstrip(), *below]) + "\n")
    return ["table.csv", "table.md"]


def wide(console: Console) -> Console:
    """A console for tables: that one, or a wide one where nobody looks."""
    return console if console.is_terminal else Console(width=max(console.width, _LEAST_WIDTH))
