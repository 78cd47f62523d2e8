"""What pages are made from: yamls of the registry and their comments, sections of pages, templates."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

__all__ = ["DOCS", "Leaf", "first_table", "leaf", "leaves", "page", "parts_of", "rendered", "section"]

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
DOCS = ROOT / "docs"

#: rows of cells, the heads first
Table = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Leaf:
    """One yaml of conf/.

    Attributes:
        group: its folder.
        name: its file, without the ending.
        text: of the file.
    """

    group: str
    name: str
    text: str

    @property
    def summary(self) -> str:
        """Its opening comment."""
        summary: list[str] = []
        for line in self.text.replace("# @package _global_\n", "").splitlines():
            if not line.startswith("# "):
                break
            summary.append(line.removeprefix("# "))
        return " ".join(summary)

    @property
    def said(self) -> dict[str, Any]:
        """What it holds."""
        return dict(yaml.safe_load(self.text) or {})

    @property
    def options(self) -> Iterator[tuple[str, str, str]]:
        """(name, default, comment) of each line at its top level that is an argument."""
        for line in self.text.splitlines():
            found = re.fullmatch(r"([a-z]\w*): *(.*?)(?: {2}# (.*))?", line)
            if found and found[1] != "defaults":
                yield found[1], found[2], found[3] or ""


@functools.cache
def leaf(group: str, name: str) -> Leaf:
    """One yaml."""
    return Leaf(group, name, (CONF / group / f"{name}.yaml").read_text())


def leaves(group: str) -> list[Leaf]:
    """Those of a group, by name."""
    return [leaf(group, file.stem) for file in sorted((CONF / group).glob("*.yaml"))]


def parts_of(experiment: Leaf) -> dict[str, str]:
    """{part: leaf} that an experiment chooses, those of the one it begins with included."""
    parts: dict[str, str] = {}
    for entry in experiment.said.get("defaults", []):
        if isinstance(entry, Mapping):
            [(key, value)] = entry.items()
            parts[key.removeprefix("override ").removeprefix("/").partition("@")[0]] = value
        elif entry != "_self_":
            parts |= parts_of(leaf("experiment", entry))
    return parts


@functools.cache
def page(name: str) -> str:
    """A written page of docs/."""
    return (DOCS / f"{name}.md").read_text()


def section(text: str, title: str) -> str:
    """What stands under a heading of the second level, up to the next one.

    Raises:
        KeyError: there is no such heading.
    """
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise KeyError(f"no heading {title!r}; expected what the pages in docs/ are known to have")
    return found[1].strip()


def first_table(text: str) -> list[list[str]]:
    """[row][cell] of the first Markdown table, its heads first; empty if there is none."""
    found = re.search(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    lines = found[0].strip().splitlines() if found else []
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [row for number, row in enumerate(rows) if number != 1]


def _table(rows: Table) -> str:
    """As Markdown."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _anchor(title: str) -> str:
    """Of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@functools.cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(DOCS / "_templates"),
        undefined=StrictUndefined,
        autoescape=False,  # Markdown
        keep_trailing_newline=True,
    )
    found.filters |= {"table": _table, "anchor": _anchor}
    return found


def rendered(template: str, **values: Any) -> str:
    """A page by one of the templates."""
    return _templates().get_template(f"{template}.md.jinja").render(values)
