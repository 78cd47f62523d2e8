"""Table of a comparison: its columns, its rows as texts, and the notes below it."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ringyard.sim.metrics import LOSS_NAMES, Window
from ringyard_agents.evaluation.ranking import Ranking
from ringyard_agents.evaluation.statistics import small_sample_warning
from ringyard_agents.report.tables import markdown, pluralize

#: a cell without a value: no job was served
NO_VALUE = "-"

#: (title, metric, format) of the columns that are plain means over workloads
METRIC_COLUMNS = (
    ("makespan (s)", "makespan", "{:,.0f}"),
    ("queueing (s)", "mean_queueing", "{:,.0f}"),
    ("slowdown", "mean_slowdown", "{:.1f}"),
    ("mean rho", "mean_fairness", "{:.1f}"),
    ("worst rho", "worst_fairness", "{:.1f}"),
    ("p99 (s)", "p99_jct", "{:,.0f}"),
    ("p95 (s)", "p95_jct", "{:,.0f}"),
    ("median (s)", "median_jct", "{:,.0f}"),
    ("GPU use", "utilisation", "{:.0%}"),
    ("kernels", "kernel_utilisation", "{:.0%}"),
    ("stops", "preemptions", "{:.0f}"),
    ("fragmented", "fragmentation", "{:.1%}"),
    ("blocked", "blocking_rate", "{:.1%}"),
)
#: the same of what the mean JCT is made of, beside queueing
LOSS_COLUMNS = (
    *((f"{name.replace('_', ' ')} (s)", f"lost_to_{name}", "{:,.1f}") for name in LOSS_NAMES),
    ("work (s)", "mean_work", "{:,.1f}"),
)

#: of the columns that are printed, those of the second table and of the third; the others stand in the first
_SECOND = ("capabilities", "observability", "p (Holm)", "mean rho", "p95 (s)", "median (s)")
_THIRD = (
    *("makespan (s)", "queueing (s)", "GPU use", "kernels", "stops", "fragmented", "blocked"),
    *("run (s)", "per decision (ms)"),
)


def printed_columns(row: Mapping[str, str]) -> list[list[str]]:
    """Titles of the columns of each printed table, given a row of `table_rows`.

    The first table has the mean JCT and, beside it, what it may cost: p99, slowdown and worst rho.
    """
    unprinted = {"options", *(title for title, _, _ in LOSS_COLUMNS)}
    first = [name for name in row if name not in {*_SECOND, *_THIRD, *unprinted}]
    return [first, *(["scheduler", *(name for name in some if name in row)] for some in (_SECOND, _THIRD))]


def printed_markdown(rows: Sequence[Mapping[str, str]], notes: Sequence[str]) -> str:
    """What the console prints, as Markdown: tables no wider than there, for pages that are no wider.

    Args:
        rows: one row or more, of `table_rows`.
        notes: what stands below.
    """
    columns = [*printed_columns(rows[0]), ["scheduler", "queueing (s)", *loss_columns(rows)]]
    tables = [markdown([{name: row[name] for name in names} for row in rows]).rstrip() for names in columns]
    return "\n\n".join([*tables, *notes, "All columns are in table.csv and table.md."])


def _text(form: str, value: float, nothing: str = NO_VALUE) -> str:
    return nothing if np.isnan(value) else form.format(value)


def interval_notes(ranking: Ranking, workloads: int) -> list[str]:
    """Notes below a table on its differences and intervals.

    Args:
        ranking: of the rows.
        workloads: on which each ran.
    """
    notes = []
    own = ranking.reference
    if ranking.compared:
        what = "blocked" if ranking.metric == "blocking_rate" else "mean JCT"
        notes.append(
            f"vs {own}: {what} / {what} of {own}" + (", workloads in pairs" if ranking.varied else "")
        )
    if ranking.varied:
        notes.append("95% intervals are of their row alone (Student's t of the logarithm)")
    if ranking.compared and ranking.varied:
        compared = pluralize(len(ranking.compared), "row")
        notes.append(
            f"p (Holm): that the two means are equal, adjusted for {compared}; above 0.05 the difference is"
            " within noise"
        )
    if workloads > 1 and not ranking.varied:
        notes.append(
            "every workload gave each row the same: no intervals, nothing is known of other workloads"
        )
        return notes
    warning = small_sample_warning(workloads)
    return notes if warning is None else [*notes, warning]


def equal_workload_notes(different: int, workloads: int) -> list[str]:
    """A note if all workloads have the same jobs on the same cluster.

    Args:
        different: how many of them differ (`ringyard_agents.evaluation.evaluate.check_tasks`).
        workloads: how many there are.
    """
    if workloads == 1 or different > 1:
        return []
    return [
        f"the jobs of all {workloads} workloads arrive, ask and take alike, as those of a whole trace do:"
        " intervals and p are of what else is drawn (models, failures, stragglers), if anything is, and of no"
        " other jobs; workload.window_jobs=N draws another part of a trace for each"
    ]


def blocking_notes(ranking: Ranking) -> list[str]:
    """Notes on jobs that are blocked: mean JCTs are of the others."""
    if ranking.metric == "blocking_rate":
        return [
            "every row blocks jobs: rows are ordered, marked and compared by the share that they block; times"
            f" are of the jobs that were served ({NO_VALUE}: none on some workload)"
        ]
    return [
        f"{label} blocks {ranking.blocked[label]:.1%} of the jobs: its mean JCT is of the others, and is not"
        " compared; no star, no bound"
        for label in ranking.rows
        if ranking.blocked[label]
    ]


def window_notes(measured: Window) -> list[str]:
    """A note on which jobs count, if not all do."""
    if tuple(measured) == (0.0, 1.0):
        return []
    first, last = (f"{share:.0%}" for share in measured)
    return [
        f"measured_jobs: times, bound and blocked are of the jobs between {first} and {last} of the arrivals;"
        " makespan, GPU use, kernels, stops and fragmented are of the whole run"
    ]


def table_rows(frame: pd.DataFrame, ranking: Ranking) -> list[dict[str, str]]:
    """Rows of `ringyard_agents.evaluation.ranking.schedulers_frame` as texts.

    Args:
        frame: one row per scheduler.
        ranking: of the schedulers.
    """
    return [_row_texts(row, ranking) for row in frame.to_dict("records")]


def _row_texts(row: Mapping[Hashable, Any], ranking: Ranking) -> dict[str, str]:
    blocked = "blocked " if ranking.metric == "blocking_rate" else ""
    mean = _text("{:,.0f}", row["mean_jct"])
    if ranking.varied and mean != NO_VALUE:
        mean += f" [{row['mean_jct_low']:,.0f}, {row['mean_jct_high']:,.0f}]"
    texts = {
        "scheduler": row["scheduler"],
        "best": "*" if row["best"] else "",
        "capabilities": row["capabilities"],
        "observability": row["observability"],
        "mean JCT [95% CI] (s)" if ranking.varied else "mean JCT (s)": mean,
        f"{blocked}vs {ranking.reference}": _change(row, ranking),
    }
    if ranking.varied:
        texts["p (Holm)"] = _text("{:.3f}", row["p_holm"], "")
    texts["/ bound"] = _text("{:.2f}", row["over_bound"], "")
    for title, name, form in (*METRIC_COLUMNS, *LOSS_COLUMNS):
        texts[title] = _text(form, row[name])
    texts["run (s)"] = f"{row['wall_seconds']:.3f}"
    texts["per decision (ms)"] = f"{row['milliseconds_per_decision']:.3f}"
    return texts


def _change(row: Mapping[Hashable, Any], ranking: Ranking) -> str:
    """How far a row is from the reference; "" if they cannot be compared."""
    if row["scheduler"] == ranking.reference:
        return "reference"
    if row["scheduler"] not in ranking.compared:
        return ""
    change, low, high = ((row[name] - 1) * 100 for name in ("ratio", "ratio_low", "ratio_high"))
    return f"{change:+.1f}%" + (f" [{low:+.1f}, {high:+.1f}]" if ranking.varied else "")


def equal_schedule_notes(jobs: pd.DataFrame) -> list[str]:
    """A note for each set of schedulers under which all jobs of `Results` start and end at the same times."""
    found: dict[bytes, list[str]] = {}
    for label, own in jobs.groupby("scheduler", sort=False):
        times = own[["workload", "start_time", "end_time"]].to_numpy(float).tobytes()
        found.setdefault(times + repr(own["job_id"].tolist()).encode(), []).append(str(label))
    return [
        f"the same schedule here: {' and '.join(labels)}; all jobs start and end at the same times"
        for labels in found.values()
        if len(labels) > 1
    ]


def best_note(rows: Sequence[Mapping[str, str]]) -> str:
    """A note on the starred rows, and how far each is above the lower bound."""

    def how_good(row: Mapping[str, str]) -> str:
        return f"{row['/ bound']} x bound" if row["/ bound"] else f"{row['blocked']} blocked"

    best = [f"{row['scheduler']} ({row['capabilities']}): {how_good(row)}" for row in rows if row["best"]]
    return f"* best published scheduler with equal capabilities: {'; '.join(best) or 'none'}"


def loss_columns(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Titles of what the mean JCT is made of beside queueing, without what no scheduler loses anything to."""
    parts = {title: form.format(0.0) for title, _, form in LOSS_COLUMNS}
    return [title for title, none in parts.items() if any(row[title] not in (none, NO_VALUE) for row in rows)]
