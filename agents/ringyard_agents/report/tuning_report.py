"""Report of `ringyard tune`: all configurations as a file, the best of each scheduler as a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from ringyard_agents.report.tables import markdown, print_line, print_note, print_table, write_tables


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
    """Write table.csv and table.md of all configurations, and print the best of each scheduler.

    `tried` has one row per configuration, grouped by scheduler with the best first: scheduler, tried,
    options, workloads, best, change (mean of the metric / that of the best on the same workloads - 1) and
    dropped (it ran on fewer workloads than the best). `means` are those of the best on workloads that all
    share. `notes` stand below the written table, `blocking_notes` below both.
    """
    texts = tried.astype(str)[["scheduler", "tried", "options", "workloads"]]
    texts["vs best"] = tried["change"].map("{:+.1%}".format).where(~tried["best"], "best")
    kept, dropped = (texts[tried["dropped"] == which].to_dict("records") for which in (False, True))
    apart = "Dropped after fewer workloads, on which they are compared with the best:"
    below = [apart, markdown(dropped).rstrip()] if dropped else []
    write_tables(folder, tried, kept, [*below, *notes, *blocking_notes])
    print_line(console, f"all configurations: {folder / 'table.md'}")
    rows = []
    for name in sorted(means, key=lambda one: means[one]):
        best, *others = (row for row in kept if row["scheduler"] == name)
        following = [f"{one['tried']} {one['options']}".rstrip() + f" {one['vs best']}" for one in others[:1]]
        mean = f"{means[name]:,.0f}" if means[name] >= 100 else f"{means[name]:.3g}"
        rows.append(
            {
                "scheduler": best["tried"],
                "options": best["options"],
                metric: mean,
                "chosen on": best["workloads"],
                "next best": "".join(following),
            }
        )
    print_table(console, title, rows, list(rows[0]), ("scheduler", "options"), list(rows[0]))
    for note in blocking_notes:
        print_note(console, note)
