"""`ringyard validate`: errors of the shipped models on measurements in tidy CSVs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ringyard.checks import shown, suggest
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.measurements import REQUIRED, filled_columns, read_measured_sets
from ringyard_agents.validation.shipped import MEAN_AIM, MEDIAN_AIM, PredictedSet, predict_sets

ERROR_HEADER = ("set", "mean", "median", "worst", "points", "left out", "aim", "fitted to it")
_LONGEST_REASON = 100  # characters on the console


def percent(value: float) -> str:
    """Format a share as a percentage, NaN as an empty text."""
    return "" if value != value else f"{value:.1%}"


def percents(errors: "pd.Series[Any]") -> list[str]:
    """Format the mean, median and largest error."""
    return [percent(value) for value in (errors.mean(), errors.median(), errors.max())]


def error_rows(sets: Sequence[PredictedSet]) -> list[list[str]]:
    """Return the cells of the table of all sets."""
    rows = []
    for one in sets:
        errors = one.predicted.error
        aim = f"mean {MEAN_AIM:.0%}, median {MEDIAN_AIM:.0%}"
        if len(errors):
            met = errors.mean() <= MEAN_AIM and errors.median() <= MEDIAN_AIM
            aim += ": met" if met else ": **missed**"
        counts = [str(len(errors)), str(len(one.rows) - len(errors))]
        rows.append([one.about.title, *percents(errors), *counts, aim, one.about.fitted or "nothing"])
    return rows


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
    brief = [[*row[:-2], row[-2].partition(": ")[2]] for row in error_rows(sets)]
    print_markdown_rows("Errors of the shipped models", ERROR_HEADER[:-1], brief)
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


def write_predictions(sets: Sequence[PredictedSet], file: Path) -> None:
    """Write the rows of sets, if there are any, with set, `predicted`, `error`, and `reason` for none."""
    added = ["predicted", "error", "reason"]
    tables = [one.rows[[*filled_columns(one.rows), *added]].assign(set=one.name) for one in sets]
    if tables:
        table = pd.concat(tables, ignore_index=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        table[["set", *table.columns.drop("set")]].to_csv(file, index=False)


def require_predictions(sets: Sequence[PredictedSet], place: str) -> None:
    """Raise a ConfigurationError, which names the path of the measurements, if no row has a prediction."""
    if all(one.predicted.empty for one in sets):
        raise ConfigurationError(
            f"{place}: no row has a prediction. The lines above say what is missing. `ringyard calibrate`"
            " writes profiles of models that do not ship"
        )


def validate(place: str, out: str, performance: str, network: str | None, interconnect: str | None) -> None:
    """Predict measurements, print their errors, and write predictions.csv."""
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
    file = Path(out).expanduser() / "predictions.csv"
    write_predictions(sets, file)
    print(f"rows: {file}")
