"""`ringyard validate`: errors of the shipped models on measurements in tidy CSVs, as a page with plots."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ringyard.checks import shown, suggest
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.measurements import COLUMNS, REQUIRED, filled_columns, read_measured_sets
from ringyard_agents.runs.figures import save_figure
from ringyard_agents.validation.shipped import MEAN_AIM, MEDIAN_AIM, PredictedSet, predict_sets

_HEADER = ("set", "mean", "median", "worst", "points", "left out", "aim", "fitted to it")
_LONGEST_REASON = 100  # characters on the console


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table, with an empty line at the end."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def percent(value: float) -> str:
    """Format a share as a percentage, NaN as an empty text."""
    return "" if value != value else f"{value:.1%}"


def _percents(errors: "pd.Series[Any]") -> list[str]:
    """Format the mean, median and largest error."""
    return [percent(value) for value in (errors.mean(), errors.median(), errors.max())]


def _rows(sets: Sequence[PredictedSet]) -> list[list[str]]:
    """Return the cells of the table of all sets."""
    rows = []
    for one in sets:
        errors = one.predicted.error
        aim = f"mean {MEAN_AIM:.0%}, median {MEDIAN_AIM:.0%}"
        if len(errors):
            met = errors.mean() <= MEAN_AIM and errors.median() <= MEDIAN_AIM
            aim += ": met" if met else ": **missed**"
        counts = [str(len(errors)), str(len(one.rows) - len(errors))]
        rows.append([one.about.title, *_percents(errors), *counts, aim, one.about.fitted or "nothing"])
    return rows


def _parts(one: PredictedSet) -> list[str]:
    """Return the lines of a table of errors by kind of measurement and placement."""
    columns = ["part", "place", "gpu_type"]
    columns += [name for name in ("network", "interconnect") if one.predicted[name].nunique() > 1]
    rows = [[*key, *_percents(errors), len(errors)] for key, errors in one.by(columns)]
    derived = one.predicted[one.predicted.derived].error
    if len(derived):
        empty = [""] * (len(columns) - 1)
        rows.append(["on derived figures", *empty, *_percents(derived), len(derived)])
    return markdown_table([*columns, "mean", "median", "worst", "points"], rows)


def _set(one: PredictedSet, plot: str) -> list[str]:
    """Return the lines of a set's section."""
    lines = [f"### {one.about.title}", "", f"{one.about.source}.", ""]
    lines += [f"![{one.about.title}]({plot})", ""] if plot else []
    rows = one.predicted
    lines += [] if rows.empty else _parts(one)
    if rows.model.nunique() > 1:
        grid = one.grid()
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
    lines = markdown_table(_HEADER, _rows(sets))
    if absent:
        lines += ["Missing sets:", "", *(f"* {name}: {why}" for name, why in absent.items()), ""]
    for one in sets:
        lines += _set(one, plots.get(one.name, ""))
    meanings = [[f"`{name}`", column.meaning] for name, column in COLUMNS.items()]
    columns = "\n".join(markdown_table(["column", "meaning"], meanings)[:-1])
    page = resources.files(__package__).joinpath("page.md").read_text(encoding="utf-8")
    parts = {"performance": performance, "sets": "\n".join(lines), "equations": equations}
    return page.format(**parts, columns=columns)


def print_markdown_rows(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of Markdown cells."""
    table = Table(*header, title=title, title_justify="left", box=SIMPLE)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    Console().print(table)


def _print_note(note: str) -> None:
    Console().print(note, highlight=False, markup=False)


def print_errors(sets: Sequence[PredictedSet]) -> None:
    """Print the errors of each set, then a line for each reason why rows have no prediction."""
    brief = [[*row[:-2], row[-2].partition(": ")[2]] for row in _rows(sets)]
    print_markdown_rows("Errors of the shipped models", _HEADER[:-1], brief)
    for one in sets:
        for why, count in one.left_out.items():
            text = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}..."
            _print_note(f"{one.name}: {count} left out: {text}")


def check_config_names(performance: str, links: Mapping[str, str]) -> None:
    """Raise a ConfigurationError unless conf has the performance model and {folder of conf: name}."""
    for group, name in {"performance": performance, **links}.items():
        if name not in (there := config_files(group)):
            expected = f"{suggest(name, there)} (conf/{group})"
            raise ConfigurationError(f"--{group} is {shown(name)}; expected {expected}")


def draw_sets(sets: Sequence[PredictedSet], folder: Path) -> dict[str, str]:
    """Draw predictions into images/ and return {name of a set: path of its image in the folder}."""
    plots: dict[str, str] = {}
    for one in sets:
        if not one.predicted.empty:
            plots[one.name] = f"images/shipped_{one.name.replace('/', '_')}.png"
            save_figure(folder / plots[one.name], one.draw, one.about.title)
    return plots


def write_predictions(sets: Sequence[PredictedSet], folder: Path) -> None:
    """Write predictions.csv, if there are any: rows with set, `predicted`, `error`, and `reason` for none."""
    added = ["predicted", "error", "reason"]
    tables = [one.rows[[*filled_columns(one.rows), *added]].assign(set=one.name) for one in sets]
    if tables:
        table = pd.concat(tables, ignore_index=True)
        table[["set", *table.columns.drop("set")]].to_csv(folder / "predictions.csv", index=False)


def require_predictions(sets: Sequence[PredictedSet], place: str) -> None:
    """Raise a ConfigurationError, which names the path of the measurements, if no row has a prediction."""
    if all(one.predicted.empty for one in sets):
        raise ConfigurationError(
            f"{place}: no row has a prediction. The lines above say what is missing. docs/calibration.md"
            " says how to fit profiles of models that do not ship"
        )


def validate(place: str, out: str, performance: str, network: str | None, interconnect: str | None) -> None:
    """Predict measurements, write validation.md, images/ and predictions.csv, and print the page's path."""
    named = {"network": network, "interconnect": interconnect}
    links = {name: leaf for name, leaf in named.items() if leaf is not None}
    check_config_names(performance, links)
    data = Path(place).expanduser()
    found = read_measured_sets(data)
    if not found:
        raise ConfigurationError(
            f"{data} holds no measurements; expected CSVs with the columns {', '.join(REQUIRED)} (for"
            " published files use `python -m tools.validate` in a checkout of the repository)"
        )
    sets = predict_sets(found, [f"performance={performance}"], links)
    print_errors(sets)
    require_predictions(sets, place)
    folder = Path(out).expanduser()
    plots = draw_sets(sets, folder)
    text = folder / "validation.md"
    text.write_text(validation_page(sets, performance, plots))
    write_predictions(sets, folder)
    print(f"page: {text}")
