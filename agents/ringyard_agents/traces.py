"""`ringyard traces`: the public traces, and what a reader understands of a local copy."""

from collections.abc import Iterable, Sequence
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from ringyard.errors import ConfigurationError
from ringyard.workloads.readers import describe_trace, trace_sources


def _show(title: str, rows: Iterable[Sequence[str]], *header: str) -> None:
    columns = [Column(name, overflow="fold") for name in header or ("", "")]
    table = Table(*columns, title=escape(title), show_header=bool(header), title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def print_traces(name: str | None, file: str | None, settings: Sequence[str]) -> None:
    """Print the sources of all traces, or what the reader of a trace, with `settings`, finds in a file."""
    if name is None:
        for workload, facts in trace_sources().items():
            texts = [(title, f"{fact:,}" if isinstance(fact, int) else fact) for title, fact in facts.items()]
            _show(f"workload={workload}", texts)
        print("What is understood of a local copy: ringyard traces NAME FILE")
        return
    if file is None:
        raise ConfigurationError(f"there is no file of {name} to check; expected `ringyard traces NAME FILE`")
    for word in settings:
        if not word.lstrip("+").startswith("workload.reader.") or "=" not in word:
            raise ConfigurationError(
                f"{word!r} is no setting of a reader; expected workload.reader.NAME=VALUE"
            )
    words = [word.lstrip("+").removeprefix("workload.reader.") for word in settings]
    options: Any = OmegaConf.to_container(OmegaConf.from_dotlist(words))
    found = describe_trace(name, file, **options)
    _show(f"{name}: {file}", found.facts.items())
    _show("", [(column, *texts) for column, texts in found.columns.items()], "column", "read as", "values")
    if found.left_out:
        _show("", found.left_out.items(), "left out", "rows")
