"""What a yaml of `conf/` says of itself: its settings, each with its comment, read without Hydra."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Setting", "defaults_of", "said_by", "settings_of"]


@dataclass(frozen=True)
class Setting:
    """A line of a yaml.

    Attributes:
        name: with dots for what is inside: evaluate.every.
        default: as it is written.
        comment: behind it, or on the lines above.
    """

    name: str
    default: str
    comment: str


def said_by(file: Path) -> str:
    """The comment at the beginning of a yaml: what it is."""
    said = []
    for line in file.read_text().splitlines():
        if line.startswith("# @package"):
            continue
        if not line.startswith("#"):
            break
        said.append(line.lstrip("# ").rstrip())
    return " ".join(said)


def defaults_of(file: Path) -> list[tuple[str, str | None]]:
    """(group, choice) of a yaml's defaults list; another file, with which it begins, is ("", name)."""
    found: list[tuple[str, str | None]] = []
    for one in yaml.safe_load(file.read_text()).get("defaults", ()):
        if isinstance(one, str):
            found += [("", one)] if one != "_self_" else []
        else:
            found += [(group, choice) for group, choice in one.items() if not group.startswith("override ")]
    return found


def settings_of(file: Path) -> list[Setting]:
    """The settings of a yaml, in its order; a table, a mapping of mappings of one line each, is one."""
    text = f"{file.read_text()}\n"
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    hidden = ("defaults", "hydra")
    return [one for one in _settings(root, text.split("\n"), "") if one.name.split(".")[0] not in hidden]


def _settings(node: Any, lines: list[str], prefix: str) -> Iterator[Setting]:
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        inside = isinstance(value, yaml.MappingNode) and not value.flow_style
        if inside and not any(isinstance(one, yaml.MappingNode) and one.flow_style for _, one in value.value):
            yield from _settings(value, lines, f"{name}.")
        elif inside:
            whole = "\n".join(lines[value.start_mark.line : value.end_mark.line])
            yield Setting(name, f"\n{textwrap.dedent(whole)}".rstrip(), _above(lines, key.start_mark.line))
        else:
            rest = lines[value.end_mark.line][value.end_mark.column :]
            written = "\n".join(lines)[value.start_mark.index : value.end_mark.index]
            said = rest.partition("# ")[2] or _above(lines, key.start_mark.line)
            yield Setting(name, " ".join(written.split()), said)


def _above(lines: list[str], row: int) -> str:
    """The comment that ends above a line, if that is not how the file begins."""
    first = row
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(line.strip().lstrip("# ") for line in lines[first:row]) if first > 0 else ""
