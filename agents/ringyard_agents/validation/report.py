"""`ringyard validate`: errors of the shipped models on measurements in tidy CSVs, as a page with plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ringyard.checks import shown
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.measurements import COLUMNS, REQUIRED, filled_columns, read_measured_sets
from ringyard_agents.runs.figures import save_figure
from ringyard_agents.validation.shipped_errors import MEAN_AIM, MEDIAN_AIM, PredictedSet, predict_sets

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


_HEADER = ("set", "mean", "median", "worst", "points", "left out", "aim", "fitted to it")
_LONGEST_REASON = 100  # characters on the console


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table, with an empty line at the end."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def percent(value: float) -> str:
    """Format a share; "" for NaN."""
    return "" if value != value else f"{value:.1%}"


def _percents(errors: "pd.Series[Any]") -> list[str]:
    """Format mean, median and largest."""
    return [percent(value) for value in (errors.mean(), errors.median(), errors.max())]


def _rows(judged: Sequence[PredictedSet]) -> list[list[str]]:
    """Return the cells of the first table [sets]."""
    rows = []
    for one in judged:
        errors = one.predicted.error
        aim = f"mean {MEAN_AIM:.0%}, median {MEDIAN_AIM:.0%}"
        if len(errors):
            aim += ": met" if one.met else ": **missed**"
        counts = [str(len(errors)), str(len(one.rows) - len(errors))]
        rows.append([one.about.title, *_percents(errors), *counts, aim, one.about.fitted or "nothing"])
    return rows


def _parts(one: PredictedSet) -> list[str]:
    """Return the table of a set by parts of the physics and places."""
    columns = ["part", "place", "gpu_type"]
    columns += [name for name in ("network", "interconnect") if one.predicted[name].nunique() > 1]
    rows = [[*key, *_percents(errors), len(errors)] for key, errors in one.by(columns)]
    derived = one.predicted[one.predicted.derived].error
    if len(derived):
        empty = [""] * (len(columns) - 1)
        rows.append(["on derived figures", *empty, *_percents(derived), len(derived)])
    return markdown_table([*columns, "mean", "median", "worst", "points"], rows)


def _set(one: PredictedSet, plot: str) -> list[str]:
    """Return the section of a set."""
    lines = [f"### {one.about.title}", "", f"{one.about.source}.", ""]
    rows = one.predicted
    if not rows.empty:
        lines += _parts(one)
    if rows.model.nunique() > 1:
        grid = one.grid()
        cells = [[name, *map(percent, errors)] for name, *errors in grid.itertuples(index=False)]
        lines += ["Mean errors:", "", *markdown_table(list(grid.columns), cells)]
    unnamed = int((rows.placement.str.contains("+", regex=False) & (rows.network == "")).sum())
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


def validation_page(
    judged: Sequence[PredictedSet],
    performance: str,
    plots: Mapping[str, str],
    absent: Mapping[str, str] | None = None,
    equations: str = "",
) -> str:
    """Return the whole page.

    Args:
        judged: sets with predictions.
        performance: name of the performance model.
        plots: {name of a set: image}.
        absent: {published set: why it is not there}.
        equations: a section on the performance models' equations.
    """
    lines = markdown_table(_HEADER, _rows(judged))
    if absent:
        lines += ["Not there:", "", *(f"* {name}: {why}" for name, why in absent.items()), ""]
    for one in judged:
        lines += _set(one, plots.get(one.name, ""))
    text = _HEAD + _SHIPPED.format(performance=performance) + "\n".join(lines)
    meanings = [[f"`{name}`", column.meaning] for name, column in COLUMNS.items()]
    form = markdown_table(["column", "what stands in it"], meanings)
    return f"{text}{equations}\n{_FORMAT}" + "\n".join(form)


def print_markdown_rows(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of markdown cells."""
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    Console().print(table)


def print_errors(judged: Sequence[PredictedSet]) -> None:
    """Print the errors of each set, then a line for each reason why rows have no prediction."""
    brief = [[*row[:-2], row[-2].partition(": ")[2]] for row in _rows(judged)]
    print_markdown_rows("What ships", _HEADER[:-1], brief)
    for one in judged:
        for why, count in one.left_out.items():
            said = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}..."
            print(f"{one.name}: {count} left out: {said}")


def check_config_names(performance: str, links: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a name that does not ship."""
    for group, name in {"performance": performance, **links}.items():
        there = config_files(group)
        if name not in there:
            raise ConfigurationError(
                f"--{group} is {shown(name)}; expected one of conf/{group}: {', '.join(there)}"
            )


def draw_sets(judged: Sequence[PredictedSet], folder: Path) -> dict[str, str]:
    """Draw a plot for each set with predictions.

    Args:
        judged: the sets.
        folder: of the page; images/ is made in it.

    Returns:
        {set: image, relative to the folder}.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    plots: dict[str, str] = {}
    for one in judged:
        if not one.predicted.empty:
            plots[one.name] = f"images/shipped_{one.name.replace('/', '_')}.png"
            save_figure(folder / plots[one.name], one.draw, one.about.title)
    return plots


def write_predictions(judged: Sequence[PredictedSet], folder: Path) -> None:
    """Write predictions.csv: the rows with set, `predicted`, `error` and `reason` (why there is none).

    Args:
        judged: sets of users' files; without any, nothing is written.
        folder: of the page.
    """
    tables = [
        one.rows[[*filled_columns(one.rows), "predicted", "error", "reason"]].assign(set=one.name)
        for one in judged
    ]
    if tables:
        table = pd.concat(tables, ignore_index=True)
        table[["set", *table.columns.drop("set")]].to_csv(folder / "predictions.csv", index=False)


def require_predictions(judged: Sequence[PredictedSet], place: str) -> None:
    """Raise a ConfigurationError if no row of any set has a prediction."""
    if all(one.predicted.empty for one in judged):
        raise ConfigurationError(
            f"{place}: no row could be judged; the lines above say what each lacks, and `ringyard calibrate`"
            " makes profiles of models that do not ship"
        )


def validate(place: str, out: str, performance: str, links: Mapping[str, str]) -> Path:
    """Predict, draw, write; return the page.

    Args:
        place: a tidy CSV, or a folder of tidy CSVs.
        out: folder for validation.md, images/ and predictions.csv.
        performance: name of conf/performance.
        links: as in `predict_sets`.

    Raises:
        ConfigurationError: nothing there that can be judged, a bad table, or a name that does not ship.
    """
    check_config_names(performance, links)
    data = Path(place).expanduser()
    found = read_measured_sets(data)
    if not found:
        raise ConfigurationError(
            f"{data} holds no measurements; expected CSVs with the columns {', '.join(REQUIRED)} (published"
            " files are for `python -m tools.validate`, in a checkout of the repository)"
        )
    judged = predict_sets(found, [f"performance={performance}"], links)
    print_errors(judged)
    require_predictions(judged, place)
    folder = Path(out).expanduser()
    plots = draw_sets(judged, folder)
    text = folder / "validation.md"
    text.write_text(validation_page(judged, performance, plots))
    write_predictions(judged, folder)
    return text
