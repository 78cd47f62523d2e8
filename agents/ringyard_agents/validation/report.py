"""`ringyard validate`: what ships against measurements in tidy CSVs; a page with plots."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ringyard.checks import shown
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.measurements import COLUMNS, columns_of, find_csvs
from ringyard_agents.validation.page import BRIEF_HEADER, brief_rows, page
from ringyard_agents.validation.shipped import World
from ringyard_agents.validation.shipped_errors import Judged, judge_all

__all__ = [
    "check_choices",
    "draw_plot",
    "draw_sets",
    "print_judged",
    "print_table",
    "require_predictions",
    "validate",
    "write_predictions",
]


def draw_plot(draw: Callable[[Any], None], title: str, file: Path) -> None:
    """Write one plot.

    Args:
        draw: called with matplotlib axes.
        title: of the plot.
        file: to write.
    """
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    draw(axes)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title(title)
    figure.savefig(file, dpi=100)
    plt.close(figure)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of markdown cells."""
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    Console().print(table)


_LONGEST_REASON = 100  # characters on the console


def print_judged(judged: Sequence[Judged]) -> None:
    """Print the errors of each set, then a line for each reason why rows have no prediction."""
    print_table("What ships", BRIEF_HEADER, brief_rows(judged))
    for one in judged:
        for why, count in one.left_out.items():
            said = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}..."
            print(f"{one.name}: {count} left out: {said}")


def check_choices(performance: str, links: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a name that does not ship."""
    for group, name in {"performance": performance, **links}.items():
        there = config_files(group)
        if name not in there:
            raise ConfigurationError(
                f"--{group} is {shown(name)}; expected one of conf/{group}: {', '.join(there)}"
            )


def draw_sets(judged: Sequence[Judged], folder: Path) -> dict[str, str]:
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
            draw_plot(one.draw, one.about.title, folder / plots[one.name])
    return plots


def write_predictions(judged: Sequence[Judged], folder: Path) -> list[Path]:
    """Write predictions.csv: the rows with set, `predicted`, `error` and `reason` (why there is none).

    Args:
        judged: sets of users' files; without any, nothing is written.
        folder: of the page.

    Returns:
        The files written.
    """
    tables = [
        one.rows[[*columns_of(one.rows), "predicted", "error", "reason"]].assign(set=one.name)
        for one in judged
    ]
    if not tables:
        return []
    table = pd.concat(tables, ignore_index=True)
    file = folder / "predictions.csv"
    table[["set", *table.columns.drop("set")]].to_csv(file, index=False)
    return [file]


def require_predictions(judged: Sequence[Judged], place: str) -> None:
    """Raise a ConfigurationError if no row of any set has a prediction."""
    if all(one.predicted.empty for one in judged):
        raise ConfigurationError(
            f"{place}: no row could be judged; the lines above say what each lacks, and `ringyard calibrate`"
            " makes profiles of models that do not ship"
        )


def validate(place: str, out: str, performance: str, links: Mapping[str, str]) -> Sequence[Path]:
    """Judge, draw, write; the files written, the page first.

    Args:
        place: a tidy CSV, or a folder of tidy CSVs.
        out: folder for validation.md, images/ and predictions.csv.
        performance: name of conf/performance.
        links: as in `judge_all`.

    Raises:
        ConfigurationError: nothing there that can be judged, a bad table, or a name that does not ship.
    """
    check_choices(performance, links)
    data = Path(place).expanduser()
    found = find_csvs(data)
    if not found:
        required = ", ".join(name for name, column in COLUMNS.items() if column.required)
        raise ConfigurationError(
            f"{data} holds no measurements; expected CSVs with the columns {required} (published"
            " files are for `python -m tools.validate`, in a checkout of the repository)"
        )
    judged = judge_all(found, World(performance), links)
    print_judged(judged)
    require_predictions(judged, place)
    folder = Path(out).expanduser()
    plots = draw_sets(judged, folder)
    text = folder / "validation.md"
    text.write_text(page(judged, performance, plots))
    return [text, *write_predictions(judged, folder), *(folder / image for image in plots.values())]
