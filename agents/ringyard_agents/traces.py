"""`ringyard traces`: where the public traces are, and whether a local copy is one."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from ringyard.workloads.sources import SOURCES, check_trace

_MOST_NAMES = 8


def list_traces() -> None:
    """Print every source."""
    console = Console()
    for source in SOURCES:
        table = Table(title=f"workload={source.name}", show_header=False, title_justify="left")
        rows = {"release": source.url, "file": source.file, "licence": source.licence}
        rows |= {"GPU jobs": f"{source.jobs:,}", "note": source.note}
        for row in rows.items():
            table.add_row(*row)
        console.print(table)
    console.print("check a local copy: ringyard traces NAME FILE")


def report_trace(name: str, path: str) -> None:
    """Read a local copy and print what it holds."""
    report = check_trace(name, path)
    expected = next((source.jobs for source in SOURCES if source.name == name), 0)
    table = Table(title=f"{name}: {path}", show_header=False)
    published = f" (published: {expected:,})" if expected else ""
    table.add_row("jobs", f"{report.jobs:,}{published}")
    table.add_row("span", f"{report.span_days:.1f} days")
    table.add_row("GPUs per job", f"mean {report.mean_gpus:.2f}, largest {report.max_gpus}")
    table.add_row("median run time", f"{report.median_duration_seconds:,.0f} s")
    table.add_row("ends", _counts(report.ends))
    for title, names in (("virtual clusters", report.vcs), ("users", report.users)):
        if names:
            table.add_row(title, f"{len(names):,}: {_counts(names)}")
    table.add_row("sha256", report.sha256)
    for left_out in report.left_out:
        table.add_row("note", left_out)
    Console().print(table)


def _counts(names: Mapping[str, int]) -> str:
    """The first names and their jobs."""
    said = [f"{name} ({count:,})" for name, count in list(names.items())[:_MOST_NAMES]]
    return ", ".join(said + (["..."] if len(names) > _MOST_NAMES else []))
