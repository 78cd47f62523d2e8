"""The page of `python -m tools.validate`: errors of the shipped models on measured sets, with plots."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ringyard.profiles import catalogue
from ringyard_agents.measurements import COLUMNS, gpus_per_server, measurement_kinds
from ringyard_agents.runs.figures import plot_predictions, save_figure
from ringyard_agents.validation.shipped import ERROR_HEADER, PredictedSet, error_rows, percent, percents

_COLOURS, _LINES = 10, 40  # most colours of a plot, most lines of a grid


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table, with an empty line at the end."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def _place(placement: str) -> str:
    servers = gpus_per_server(placement)
    count, word = (len(servers), "server") if len(servers) > 1 else (servers[0], "GPU")
    return f"{count} {word}{'s' if count > 1 else ''}"


def _described(one: PredictedSet) -> PredictedSet:
    """Add columns to the rows of a set.

    They are `part` (kind of measurement), `place` (number of GPUs or servers), `measured` (seconds) and
    `derived` (whether the profile's figures for the GPU type are derived, not measured).
    """
    rows = one.rows
    figures = {(model.name, kind) for model in catalogue() for kind, gpu in model.gpus.items() if gpu.derived}
    jobs = zip(rows.model, rows.neighbour, rows.gpu_type, strict=True)
    derived = [(own, kind) in figures or (other, kind) in figures for own, other, kind in jobs]
    seconds = rows.seconds.fillna(rows.restart_seconds)
    rows = rows.assign(part=measurement_kinds(rows), place=rows.placement.map(_place), measured=seconds)
    return replace(one, rows=rows.assign(derived=derived))


def _errors_by(one: PredictedSet, columns: list[str]) -> Any:
    """Group errors by columns, small placements first."""
    sizes = one.predicted.placement.map(lambda text: (text.count("+"), sum(gpus_per_server(text))))
    order = one.predicted.assign(sizes=sizes).sort_values(["gpu_type", "sizes"], kind="stable")
    return order.groupby(columns, sort=False)["error"]


def _grid(one: PredictedSet) -> pd.DataFrame:
    """Return mean errors by model and GPU type, and by batch if a model has several at one placement."""
    rows = one.predicted
    batches = rows.groupby(["model", "gpu_type", "place"])["batch"].nunique().max()
    apart = batches > 1 and len(rows.drop_duplicates(["model", "batch"])) <= _LINES
    title = "model, samples per GPU" if apart else "model"
    names = rows.model + rows.batch.map(" {:g}".format) if apart else rows.model
    rows = rows.assign(**{title: names})
    order = rows.sort_values(["model", "batch"])[title].unique()
    table = rows.pivot_table("error", title, "gpu_type", "mean", sort=False, observed=True)
    return pd.DataFrame(table.reindex(order).reset_index())


def _draw(one: PredictedSet, axes: Any) -> None:
    """Plot predicted over measured seconds, coloured by model, GPU type or kind of measurement."""
    rows = one.predicted
    kinds = ("model", "gpu_type", "part", "place")
    columns = [name for name in kinds if 1 < rows[name].nunique() <= _COLOURS]
    groups = rows.groupby(columns[0] if columns else "gpu_type", sort=False)
    points = [(str(name), one.measured.to_numpy(), one.predicted.to_numpy()) for name, one in groups]
    plot_predictions(axes, points, "seconds")


def _parts(one: PredictedSet) -> list[str]:
    """Return the lines of a table of errors by kind of measurement and placement."""
    columns = ["part", "place", "gpu_type"]
    columns += [name for name in ("network", "interconnect") if one.predicted[name].nunique() > 1]
    rows = [[*key, *percents(errors), len(errors)] for key, errors in _errors_by(one, columns)]
    derived = one.predicted[one.predicted.derived].error
    if len(derived):
        empty = [""] * (len(columns) - 1)
        rows.append(["on derived figures", *empty, *percents(derived), len(derived)])
    return markdown_table([*columns, "mean", "median", "worst", "points"], rows)


def _set(one: PredictedSet, plot: str) -> list[str]:
    """Return the lines of a set's section."""
    lines = [f"### {one.about.title}", "", f"{one.about.source}.", ""]
    lines += [f"![{one.about.title}]({plot})", ""] if plot else []
    rows = one.predicted
    lines += [] if rows.empty else _parts(one)
    if rows.model.nunique() > 1:
        grid = _grid(one)
        cells = [[name, *map(percent, errors)] for name, *errors in grid.itertuples(index=False)]
        lines += ["Mean errors:", "", *markdown_table(list(grid.columns), cells)]
    unnamed = int((rows.placement.str.contains("+", regex=False) & (rows.network == "")).sum())
    if unnamed:
        lines += [f"{unnamed} rows span servers and name no network: the performance model's is used.", ""]
    if one.left_out:
        reasons = "; ".join(f"{why} ({count})" for why, count in one.left_out.items())
        lines += [f"Left out: {reasons}.", ""]
    if one.about.weak:
        lines += [f"Weak: {one.about.weak}", ""]
    return lines


def validation_page(
    sets: Sequence[PredictedSet],
    performance: str,
    plots: Mapping[str, str],
    absent: Mapping[str, str] | None = None,
    equations: str = "",
) -> str:
    """Return the Markdown of the page, with the section `equations` on those of performance models.

    `plots` are {set: path of its image}, `absent` {published set: why it is missing}.
    """
    lines = markdown_table(ERROR_HEADER, error_rows(sets))
    if absent:
        lines += ["Missing sets:", "", *(f"* {name}: {why}" for name, why in absent.items()), ""]
    for one in map(_described, sets):
        lines += _set(one, plots.get(one.name, ""))
    meanings = [[f"`{name}`", column.meaning] for name, column in COLUMNS.items()]
    columns = "\n".join(markdown_table(["column", "meaning"], meanings)[:-1])
    page = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    parts = {"performance": performance, "sets": "\n".join(lines), "equations": equations}
    return page.format(**parts, columns=columns)


def draw_sets(sets: Sequence[PredictedSet], folder: Path) -> dict[str, str]:
    """Draw predictions into images/ and return {name of a set: path of its image in the folder}."""
    plots: dict[str, str] = {}
    for one in map(_described, sets):
        if not one.predicted.empty:
            plots[one.name] = f"images/shipped_{one.name.replace('/', '_')}.png"
            save_figure(folder / plots[one.name], partial(_draw, one), one.about.title)
    return plots
