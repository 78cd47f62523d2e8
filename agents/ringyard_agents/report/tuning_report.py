"""What `ringyard tune` prints and writes of all that it tried."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from ringyard_agents.report.tables import print_line, print_table, write_tables


def report_tuning(
    console: Console,
    folder: Path,
    tried: pd.DataFrame,
    means: Mapping[str, float],
    metric: str,
    title: str,
    notes: Sequence[str],
    blocking_notes: Sequence[str],
) -> None:
    """Write table.csv and table.md of everything that was tried; print the best of each scheduler.

    Args:
        console: to print on.
        folder: for the tables.
        tried: columns scheduler, tried, options, workloads, best and change (mean of the metric over that of
            the best, minus 1); scheduler by scheduler, the best first.
        means: {scheduler: mean of the metric at its best}.
        metric: field of `Metrics`.
        title: of the printed table.
        notes: below the written table.
        blocking_notes: likewise, and to print.
    """
    texts = tried.astype(str)[["scheduler", "tried", "options", "workloads"]]
    texts["vs best"] = tried["change"].map("{:+.1%}".format).where(~tried["best"], "best")
    write_tables(folder, tried, texts.to_dict("records"), [*notes, *blocking_notes])
    print_line(console, f"everything that was tried: {folder / 'table.md'}")
    rows = []
    for name in sorted(means, key=lambda one: means[one]):
        best, *others = texts[texts["scheduler"] == name].to_dict("records")
        following = [f"{one['tried']} {one['options']}".rstrip() + f" {one['vs best']}" for one in others[:1]]
        mean = f"{means[name]:,.0f}" if means[name] >= 100 else f"{means[name]:.3g}"
        rows.append(
            {
                "scheduler": best["tried"],
                "options": best["options"],
                metric: mean,
                "workloads": best["workloads"],
                "next best": "".join(following),
            }
        )
    print_table(console, title, rows, list(rows[0]), ("scheduler", "options"), list(rows[0]))
    for note in blocking_notes:
        print_line(console, note)
