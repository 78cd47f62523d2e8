"""Docstrings with parts in Gymnasium's manner (headings and tables in Markdown) as reStructuredText."""

from typing import Any

__all__ = ["process"]


def process(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Make bold lines of headings, leave tables out, keep the * of `[*shape]`; called for each docstring."""
    lines[:] = [line.replace("[*", "[\\*") for line in lines]
    if not any(line.startswith("## ") for line in lines):
        return
    plain: list[str] = []
    for line in lines:
        if line.startswith("## "):
            plain += [f"**{line.removeprefix('## ')}**", ""]
        elif not line.startswith("|"):
            plain.append(line)
        elif not plain or plain[-1] != "":
            plain.append("")
    lines[:] = plain
