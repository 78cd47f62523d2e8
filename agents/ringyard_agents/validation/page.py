"""`docs/validation.md`: the words and tables of what was judged."""

from collections.abc import Mapping, Sequence
from typing import Any

from ringyard_agents.measured import COLUMNS
from ringyard_agents.validation.judged import Judged
from ringyard_agents.validation.result import Comparison

__all__ = ["brief_rows", "equation_rows", "page", "shipped_rows"]

_HEAD = """# Validation: predicted against measured

Written by `ringyard validate PLACE`; do not edit. PLACE is a folder with published files, a folder with tidy
CSVs (the format is at the end of this page), or one such CSV. Error: |predicted - measured| / measured.

"""

_SHIPPED = """## What ships

What users run: a simulator with the shipped profiles, networks and performance model
(`performance={performance}`). Each row of a set is a job started on exactly that placement, its neighbour
beside it; the view says the seconds of an iteration. "Fitted to it" says which shipped constants were fitted
to the same rows: the errors of such a set are in sample. A row is left out where what it needs does not ship.

"""

_EQUATIONS = """## The equations

How good the forms are when their constants may be chosen: constants are fitted to part of the data and the
errors below are those of the rest, which they have not seen (unless a row says otherwise); placements that
differ in order only, and the two sides of a pair, are on one side. Predictions come from the functions the
simulator runs, named beside each equation.

"""

_FORMAT = """## Measurements of your own

`ringyard validate FILE.csv` (or a folder of such files) judges what ships by them, `ringyard calibrate` makes
profiles and networks of them. One row a measurement; these columns, of which the first five must be there:

"""


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def _percent(value: float) -> str:
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
        numbers = [_percent(value) for value in (errors.mean(), errors.median(), errors.max())]
        counts = [str(len(errors)), str(len(one.rows) - len(errors))]
        rows.append([one.about.title, *numbers, *counts, _aim(one), one.about.fitted or "nothing"])
    return rows


BRIEF_HEADER = ("set", "mean", "median", "worst", "points", "left out", "aim")


def brief_rows(judged: Sequence[Judged]) -> list[list[str]]:
    """[sets] cells of the first table where there is room for 80 characters."""
    words = {True: "met", False: "missed", None: ""}
    return [[*row[:-2], words[one.met]] for one, row in zip(judged, shipped_rows(judged), strict=True)]


def equation_rows(results: Mapping[str, Comparison | str]) -> list[list[str]]:
    """[comparisons] cells of the equations' table."""
    rows = []
    for name, result in results.items():
        if isinstance(result, str):
            rows.append([name, f"left out: {result}", "", ""])
        else:
            constants = sum(part.constants for part in result.parts)
            rows.append([result.title, _verdict(result), str(len(result.errors)), str(constants)])
    return rows


EQUATION_HEADER = ("", "result", "held-out points", "constants")


def _parts(one: Judged) -> list[str]:
    columns = ["part", "place", "gpu_type"]
    for name in ("network", "interconnect"):
        columns += [name] if one.predicted[name].nunique() > 1 else []
    rows = []
    for group in one.by(columns).to_dict("records"):
        numbers = [_percent(group[name]) for name in ("mean", "median", "max")]
        rows.append([*(group[name] for name in columns), *numbers, group["count"]])
    derived = one.predicted[one.predicted.derived].error
    if len(derived):
        numbers = [_percent(value) for value in (derived.mean(), derived.median(), derived.max())]
        rows.append(["on derived figures", *[""] * (len(columns) - 1), *numbers, len(derived)])
    return _table([*columns, "mean", "median", "worst", "points"], rows)


def _grid(one: Judged) -> list[str]:
    table = one.grid()
    rows = [
        [name, *(_percent(value) for value in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    return [
        "Mean errors:",
        "",
        *_table(["model, samples per GPU" if one.apart else "model", *table.columns], rows),
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


def _verdict(comparison: Comparison) -> str:
    said = f"{comparison.statistic} error {comparison.error:.1%}"
    if comparison.aim is None:
        return said
    met = "met" if comparison.error <= comparison.aim else "**missed**"
    return f"{said}; the aim of {comparison.aim:.0%} is {met}"


def _equation(comparison: Comparison, plot: str) -> list[str]:
    rows = []
    for part in comparison.parts:
        errors = part.errors
        numbers = [
            _percent(value) for value in (errors.mean(), sorted(errors)[len(errors) // 2], errors.max())
        ]
        rows.append([part.name, *numbers, len(errors), part.fitted, part.constants, part.note])
    return [
        f"### {comparison.title}",
        "",
        f"{comparison.source}.",
        f"Predicted by {comparison.form}.",
        "",
        f"Result: {_verdict(comparison)}, worst {comparison.errors.max():.1%}, over"
        f" {len(comparison.errors)} points.",
        "",
        *_table(["", "mean", "median", "worst", "points", "fitted to", "constants", ""], rows),
        f"Weak: {comparison.weakness}",
        "",
        f"![{comparison.title}]({plot})",
        "",
    ]


def page(
    judged: Sequence[Judged],
    absent: Mapping[str, str],
    equations: Mapping[str, Comparison | str],
    performance: str,
    plots: Mapping[str, str],
) -> str:
    """The whole page.

    Args:
        judged: sets with what ships says of them.
        absent: {set: why it is not there}.
        equations: {name: comparison, or why it was left out}; {}: no such section.
        performance: what the sets were predicted by.
        plots: {name of a set or title of an equation: image}.
    """
    lines = _table(SHIPPED_HEADER, shipped_rows(judged))
    if absent:
        lines += ["Not there:", "", *(f"* {name}: {why}" for name, why in absent.items()), ""]
    for one in judged:
        lines += _set(one, plots.get(one.name, ""))
    text = _HEAD + _SHIPPED.format(performance=performance) + "\n".join(lines)
    if equations:
        text += "\n" + _EQUATIONS + "\n".join(_equations(equations, plots))
    return f"{text}\n{_FORMAT}" + "\n".join(_format())


def _format() -> list[str]:
    """The columns of a tidy table."""
    return _table(
        ["column", "what stands in it"], [[f"`{name}`", one.meaning] for name, one in COLUMNS.items()]
    )


def _equations(equations: Mapping[str, Comparison | str], plots: Mapping[str, str]) -> list[str]:
    lines = _table(EQUATION_HEADER, equation_rows(equations))
    for result in equations.values():
        if not isinstance(result, str):
            lines += _equation(result, plots[result.title])
    return lines
