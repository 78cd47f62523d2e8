"""What a comparison's table says: its columns, its rows in groups, and the notes below it."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.metrics import LOSSES
from ringyard_agents.measuring.evaluate import RunResult
from ringyard_agents.measuring.statistics import caution, holm, mean_interval, p_value, ratio_interval

__all__ = [
    "LOSS_COLUMNS",
    "best_line",
    "by_mean_jct",
    "interval_notes",
    "loss_names",
    "notes_of_equal_rows",
    "table_rows",
]

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
    *((f"{name.replace('_', ' ')} (s)", f"lost_to_{name}", "{:,.1f}") for name in LOSSES),
    ("work (s)", "mean_work", "{:,.1f}"),
)


def _metric(results: Sequence[RunResult], label: str, name: str) -> NDArray[np.float64]:
    return np.array([float(getattr(r.metrics, name)) for r in results if r.label == label])


def by_mean_jct(results: Sequence[RunResult]) -> dict[str, float]:
    """{label: its mean JCT over all workloads, seconds}, the least first."""
    labels = dict.fromkeys(result.label for result in results)
    means = {label: float(_metric(results, label, "mean_jct").mean()) for label in labels}
    return dict(sorted(means.items(), key=lambda one: one[1]))


def _best_published(results: Sequence[RunResult], means: Mapping[str, float]) -> dict[int, str]:
    """{group: the best label in it that no agent has}, the groups in order."""
    groups = {result.label: result.may.group for result in results if not result.learned}
    best: dict[int, str] = {}
    for label in sorted(groups, key=lambda one: (groups[one], means[one])):
        best.setdefault(groups[label], label)
    return best


def _adjusted(results: Sequence[RunResult], reference: str) -> dict[str, float]:
    """{label: p-value of its mean JCT against the reference's, adjusted for the number of rows}."""
    others = [label for label in dict.fromkeys(result.label for result in results) if label != reference]
    against = _metric(results, reference, "mean_jct")
    alone = [p_value(_metric(results, label, "mean_jct"), against) for label in others]
    return dict(zip(others, holm(np.array(alone)).tolist(), strict=True))


def interval_notes(reference: str, compared: int, workloads: int) -> list[str]:
    """What stands below a table: what its intervals mean."""
    notes = [
        f"vs {reference}: mean JCT / mean JCT of {reference}, workloads in pairs; each 95% interval is of its"
        " row alone (Student's t of the logarithm)",
        f"p (Holm): that the two means are equal, adjusted for {compared} rows; above 0.05 no difference is"
        " shown",
    ]
    warning = caution(workloads)
    return notes if warning is None else [*notes, warning]


def table_rows(results: Sequence[RunResult], reference: str | None) -> tuple[str, list[dict[str, str]]]:
    """(label of the reference, one row of texts per scheduler, group by group, best mean JCT first).

    Args:
        results: of every scheduler on every workload.
        reference: whom the others are compared with; None: the best of the first group that is no agent.
    """
    means = by_mean_jct(results)
    labels = list(means)
    best = _best_published(results, means)
    reference = reference or next(iter(best.values()), labels[0])
    groups = {result.label: result.may.group for result in results}
    against = _metric(results, reference, "mean_jct")
    adjusted = _adjusted(results, reference)
    rows = []
    for label in sorted(labels, key=lambda one: (groups[one], means[one])):
        own = [result for result in results if result.label == label]
        jct = mean_interval(_metric(results, label, "mean_jct"))
        ratio = ratio_interval(_metric(results, label, "mean_jct"), against)
        change = "reference"
        if label != reference:
            low, high = (ratio.low - 1) * 100, (ratio.high - 1) * 100
            change = f"{(ratio.value - 1) * 100:+.1f}% [{low:+.1f}, {high:+.1f}]"
        bounds = np.array([result.bounds.mean_jct for result in own])
        row = {
            "scheduler": label,
            "best": "*" if label in best.values() else "",
            "may": str(own[0].may),
            "knows": own[0].information,
            "mean JCT [95% CI] (s)": f"{jct.value:,.0f} [{jct.low:,.0f}, {jct.high:,.0f}]",
            f"vs {reference}": change,
            "p (Holm)": f"{adjusted[label]:.3f}" if label in adjusted else "",
            "/ bound": f"{means[label] / bounds.mean():.2f}",
        }
        for title, name, form in (*METRIC_COLUMNS, *LOSS_COLUMNS):
            row[title] = form.format(_metric(results, label, name).mean())
        row["run (s)"] = f"{np.mean([result.wall_seconds for result in own]):.3f}"
        decisions = sum(result.num_decisions for result in own)
        row["per decision (ms)"] = f"{1e3 * sum(result.wall_seconds for result in own) / decisions:.3f}"
        rows.append(row)
    return reference, rows


def notes_of_equal_rows(results: Sequence[RunResult]) -> list[str]:
    """A note for each set of schedulers under which every job started and ended at the same times."""
    times: dict[str, list[bytes]] = {}
    for result in results:
        times.setdefault(result.label, []).append(
            np.stack([result.times.rows, result.times.start_seconds, result.times.end_seconds]).tobytes()
        )
    found: dict[tuple[bytes, ...], list[str]] = {}
    for label, of_workloads in times.items():
        found.setdefault(tuple(of_workloads), []).append(label)
    return [
        f"not active here: what sets {' and '.join(labels)} apart; all jobs start and end at the same times"
        for labels in found.values()
        if len(labels) > 1
    ]


def best_line(rows: Sequence[Mapping[str, str]]) -> str:
    """What a table's stars say, and how much room the lower bound leaves above each."""
    best = [f"{row['scheduler']} ({row['may']}): {row['/ bound']} x bound" for row in rows if row["best"]]
    return f"* the best published of those that may do as much: {'; '.join(best) or 'none'}"


def loss_names(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Titles of what the mean JCT is made of beside queueing, without what no scheduler loses anything to."""
    parts = {title: form.format(0.0) for title, _, form in LOSS_COLUMNS}
    return [title for title, none in parts.items() if any(row[title] != none for row in rows)]
