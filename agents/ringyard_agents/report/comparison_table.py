"""The table of a comparison as text: columns, rows and the notes below it."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ringyard.sim.metrics import LOSS_NAMES, Window
from ringyard_agents.evaluation.notes import NOTES, TABLE
from ringyard_agents.evaluation.ranking import Ranking, small_sample_warning
from ringyard_agents.report.tables import change_text, p_text, pluralize

NO_VALUE = "-"  #: cell without a value, such as a mean over no jobs

#: (header, metric, format) of columns that are means over workloads
METRIC_COLUMNS = [(title, *column) for title, column in TABLE["metrics"].items()]
#: the same for the parts of the mean JCT other than queueing
LOSS_COLUMNS = (
    *((f"{name.replace('_', ' ')} (s)", f"lost_to_{name}", "{:,.1f}") for name in LOSS_NAMES),
    ("work (s)", "mean_work", "{:,.1f}"),
)

_FILE_NOTES = ("rho:", "p (Holm):", "options:")  #: beginnings of notes on columns that only the files have


def narrow_table(
    rows: Sequence[Mapping[str, str]], notes: Sequence[str], ranking: Ranking
) -> tuple[list[dict[str, str]], list[str]]:
    """Return (rows, notes) printed: mean JCT, difference, gap to the bound (or share of blocked jobs)."""
    last = "blocked" if ranking.metric == "blocking_rate" else "gap to bound"
    starts = ("scheduler", "mean JCT", "vs ", "blocked vs ", last)
    names = [name for name in rows[0] if name.startswith(starts)]
    found = [{name: row[name] for name in names} for row in rows]
    for short, row in zip(found, rows, strict=True):
        short["scheduler"] += f" {row['best']}".rstrip()
    shown = [note for note in notes if not note.startswith(_FILE_NOTES)]
    return found, [*shown, "all columns are in table.csv and table.md"]


def _text(form: str, value: float, missing: str = NO_VALUE) -> str:
    return missing if np.isnan(value) else form.format(value)


def notes_below(
    rows: Sequence[Mapping[str, str]], ranking: Ranking, workloads: int, about: Sequence[str]
) -> list[str]:
    """Return the notes below `rows` with their `options`, with those `about` the environment among them."""
    options = "; ".join(f"{row['scheduler']}: {row['options']}" for row in rows if row["options"])
    chosen = [NOTES["options"].format(options=options)] if options else []
    columns = [best_note(rows), NOTES["gap"], NOTES["rho"], *blocking_notes(ranking), *chosen]
    return [*columns, *about, *interval_notes(ranking, workloads)]


def interval_notes(ranking: Ranking, workloads: int) -> list[str]:
    """Return notes that explain the differences and intervals of a table."""
    notes = []
    if ranking.compared:
        metric = "share of blocked jobs" if ranking.metric == "blocking_rate" else "mean JCT"
        pairs = ", over pairs of the same workload" if ranking.varied else ""
        notes.append(NOTES["difference"].format(reference=ranking.reference, metric=metric, pairs=pairs))
    if ranking.varied:
        notes.append(NOTES["interval"])
    if ranking.compared and ranking.varied:
        compared = pluralize(len(ranking.compared), "comparison")
        notes.append(NOTES["p"].format(compared=compared))
    if workloads > 1 and not ranking.varied:
        notes.append("no intervals: every scheduler has equal results on all workloads")
        return notes
    warning = small_sample_warning(workloads)
    return notes if warning is None else [*notes, warning]


def equal_workload_notes(different: int, workloads: int) -> list[str]:
    """Return a note if all workloads have the same jobs on the same cluster (see `check_tasks`)."""
    same = workloads > 1 and different < 2
    return [NOTES["equal_workloads"].format(workloads=workloads)] if same else []


def blocking_notes(ranking: Ranking) -> list[str]:
    """Return notes on blocked jobs, which mean JCTs leave out."""
    if ranking.metric == "blocking_rate":
        return [NOTES["all_block"].format(no_value=NO_VALUE)]
    shares = {label: ranking.blocked[label] for label in ranking.rows}
    return [NOTES["blocks"].format(label=label, share=share) for label, share in shares.items() if share]


def window_notes(measured_jobs: Window) -> list[str]:
    """Return a note on the measured jobs, a (first, last) fraction in order of arrival, unless all are."""
    first, last = measured_jobs
    return [] if (first, last) == (0.0, 1.0) else [NOTES["window"].format(first=first, last=last)]


def table_rows(frame: pd.DataFrame, ranking: Ranking) -> list[dict[str, str]]:
    """Return the rows of a `schedulers_frame` as {header: text}."""
    return [_row_texts(row, ranking) for row in frame.to_dict("records")]


def _row_texts(row: Mapping[Hashable, Any], ranking: Ranking) -> dict[str, str]:
    blocked = "blocked " if ranking.metric == "blocking_rate" else ""
    mean = _text("{:,.0f}", row["mean_jct"])
    if ranking.varied and mean != NO_VALUE:
        mean += f" [{row['mean_jct_low']:,.0f}, {row['mean_jct_high']:,.0f}]"
    texts = {"scheduler": row["scheduler"], "best": "*" if row["best"] else ""}
    texts |= {name: row[name] for name in ("capabilities", "observability")}
    texts["mean JCT [95% CI] (s)" if ranking.varied else "mean JCT (s)"] = mean
    ratio = row["ratio"], row["ratio_low"], row["ratio_high"]  # NaN: not comparable
    change = "reference" if row["scheduler"] == ranking.reference else change_text(*ratio)
    texts[f"{blocked}vs {ranking.reference}"] = "" if np.isnan(row["ratio"]) else change
    if ranking.varied:
        texts["p (Holm)"] = p_text(row["p_holm"])
    texts["gap to bound"] = _text("{:.2f}", row["gap_to_bound"], "")
    for title, name, form in (*METRIC_COLUMNS, *LOSS_COLUMNS):
        if name in row:
            texts[title] = _text(form, row[name])
    texts["wall time (s)"] = f"{row['wall_seconds']:.3f}"
    texts["per decision (ms)"] = f"{row['milliseconds_per_decision']:.3f}"
    return {**texts, "options": row.get("options", "")}


def equal_schedule_notes(jobs: pd.DataFrame) -> list[str]:
    """Return a note for each set of schedulers under which all jobs start and end at the same times."""
    found: dict[bytes, list[str]] = {}
    for label, own in jobs.groupby("scheduler", sort=False):
        times = own[["workload", "start_time", "end_time"]].to_numpy(float).tobytes()
        found.setdefault(times + repr(own["job_id"].tolist()).encode(), []).append(str(label))
    equal = [" and ".join(labels) for labels in found.values() if len(labels) > 1]
    return [NOTES["equal_schedules"].format(labels=labels) for labels in equal]


def best_note(rows: Sequence[Mapping[str, str]]) -> str:
    """Return a note on the rows with a star, with their gaps to the lower bound."""

    def result(row: Mapping[str, str]) -> str:
        return f"gap {row['gap to bound']}" if row["gap to bound"] else f"{row['blocked']} blocked"

    best = [f"{row['scheduler']} ({row['capabilities']}): {result(row)}" for row in rows if row["best"]]
    return NOTES["best"].format(schedulers="; ".join(best) or "none")
