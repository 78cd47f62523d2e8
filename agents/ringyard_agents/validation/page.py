"""The page of `ringyard validate`: words and tables of what was judged."""

from collections.abc import Mapping, Sequence
from typing import Any

from ringyard_agents.measurements import COLUMNS
from ringyard_agents.validation.shipped_errors import Judged

__all__ = ["BRIEF_HEADER", "brief_rows", "markdown_table", "page", "percent", "shipped_rows"]

_HEAD = """# Validation: predicted against measured

Written by `ringyard validate CSV`, a tidy CSV or a folder of them (the format is at the end of this page), or
of published files by `python -m tools.validate FOLDER`; do not edit.
Error: |predicted - measured| / measured.

"""

_SHIPPED = """## What ships

What users run: a simulator with the shipped profiles, networks and performance model
(`performance={performance}`). Each row of a set is a job started on exactly that placement, its neighbour
beside it; the view says the seconds of an iteration. "Fitted to it" says which shipped constants were fitted
to the same rows: the errors of such a set are in sample. A row is left out where what it needs does not ship.

"""

_FORMAT = """## Measurements of your own

`ringyard validate FILE.csv` (or a folder of such files) judges what ships by them, `ringyard calibrate` makes
profiles and networks of them. One row a measurement; these columns, of which the first five must be there:

"""


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a table, with an empty line at the end."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def percent(value: float) -> str:
    """Format a share; "" for NaN."""
    return "" if value != value else f"{value:.1%}"


def _aim(one: Judged) -> str:
    aims = [
        f"{word} {aim:.0%}"
        for word, aim in (("mean", one.about.mean_aim), ("median", one.about.median_aim))
        if aim is not None
    ]
    verdict = {True: "met", False: "**missed**", None: ""}[one.met]
    return f"{', '.join(aims)}: {verdict}" if aims and verdict else ", ".join(aims) or "none"


SHIPPED_HEADER = ("set", "mean", "median", "worst", "points", "left out", "aim", "fitted to it")


def shipped_rows(judged: Sequence[Judged]) -> list[list[str]]:
    """[sets] cells of the first table."""
    rows = []
    for one in judged:
        errors = one.predicted.error
        numbers = [percent(value) for value in (errors.mean(), errors.median(), errors.max())]
        counts = [str(len(errors)), str(len(one.rows) - len(errors))]
        rows.append([one.about.title, *numbers, *counts, _aim(one), one.about.fitted or "nothing"])
    return rows


BRIEF_HEADER = ("set", "mean", "median", "worst", "points", "left out", "aim")


def brief_rows(judged: Sequence[Judged]) -> list[list[str]]:
    """[sets] cells of the first table where there is room for 80 characters."""
    words = {True: "met", False: "missed", None: ""}
    return [[*row[:-2], words[one.met]] for one, row in zip(judged, shipped_rows(judged), strict=True)]


def _parts(one: Judged) -> list[str]:
    columns = ["part", "place", "gpu_type"]
    for name in ("network", "interconnect"):
        columns += [name] if one.predicted[name].nunique() > 1 else []
    rows = []
    for group in one.by(columns).to_dict("records"):
        numbers = [percent(group[name]) for name in ("mean", "median", "max")]
        rows.append([*(group[name] for name in columns), *numbers, group["count"]])
    derived = one.predicted[one.predicted.derived].error
    if len(derived):
        numbers = [percent(value) for value in (derived.mean(), derived.median(), derived.max())]
        rows.append(["on derived figures", *[""] * (len(columns) - 1), *numbers, len(derived)])
    return markdown_table([*columns, "mean", "median", "worst", "points"], rows)


def _grid(one: Judged) -> list[str]:
    table = one.grid()
    rows = [
        [name, *(percent(value) for value in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    return [
        "Mean errors:",
        "",
        *markdown_table(["model, samples per GPU" if one.apart else "model", *table.columns], rows),
    ]


def _set(one: Judged, plot: str) -> list[str]:
    lines = [f"### {one.about.title}", "", f"{one.about.source}.", ""]
    if not one.predicted.empty:
        lines += _parts(one)
        if one.predicted.model.nunique() > 1:
            lines += _grid(one)
    unnamed = int(
        (one.predicted.placement.str.contains("+", regex=False) & (one.predicted.network == "")).sum()
    )
    if unnamed:
        lines += [
            f"{unnamed} rows span servers and name no network: predicted on the performance model's own.",
            "",
        ]
    if one.left_out:
        said = "; ".join(f"{why} ({count})" for why, count in one.left_out.items())
        lines += [f"Left out: {said}.", ""]
    if one.about.weak:
        lines += [f"Weak: {one.about.weak}", ""]
    return [*lines, *([f"![{one.about.title}]({plot})", ""] if plot else [])]


def page(
    judged: Sequence[Judged],
    performance: str,
    plots: Mapping[str, str],
    absent: Mapping[str, str] | None = None,
    equations: str = "",
) -> str:
    """The whole page.

    Args:
        judged: sets with what ships says of them.
        performance: what the sets were predicted by.
        plots: {name of a set: image}.
        absent: {published set: why it is not there}.
        equations: a section on the performance models' equations.
    """
    lines = markdown_table(SHIPPED_HEADER, shipped_rows(judged))
    if absent:
        lines += ["Not there:", "", *(f"* {name}: {why}" for name, why in absent.items()), ""]
    for one in judged:
        lines += _set(one, plots.get(one.name, ""))
    text = _HEAD + _SHIPPED.format(performance=performance) + "\n".join(lines)
    return f"{text}{equations}\n{_FORMAT}" + "\n".join(_format())


def _format() -> list[str]:
    """The columns of a tidy table."""
    return markdown_table(
        ["column", "what stands in it"], [[f"`{name}`", one.meaning] for name, one in COLUMNS.items()]
    )
