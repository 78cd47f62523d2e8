"""`ringyard validate`: what ships against every measured set, then the equations; one page with plots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from ringyard_agents.measured import MeasuredRows, columns_of, find_sets, measured_sets
from ringyard_agents.validation.cpu import core_curves
from ringyard_agents.validation.elastic import batch_efficiency, placements
from ringyard_agents.validation.judged import Judged, judge
from ringyard_agents.validation.network import inside_a_server, rings
from ringyard_agents.validation.page import BRIEF_HEADER, EQUATION_HEADER, brief_rows, equation_rows, page
from ringyard_agents.validation.result import Comparison, MissingDataError
from ringyard_agents.validation.served import parameter_server_steps, restarts
from ringyard_agents.validation.sharing import pairs_on_a_gpu
from ringyard_agents.validation.shipped import World

__all__ = ["COMPARISONS", "compare_all", "judge_all", "validate"]

COMPARISONS: dict[str, Callable[[Path], Comparison]] = {
    "rings": rings,
    "inside_a_server": inside_a_server,
    "sharing": pairs_on_a_gpu,
    "cpu": core_curves,
    "throughput": placements,
    "efficiency": batch_efficiency,
    "parameter_servers": parameter_server_steps,
    "restarts": restarts,
}


def compare_all(data: Path) -> dict[str, Comparison | str]:
    """{equation: comparison, or why it was left out}."""
    results: dict[str, Comparison | str] = {}
    for name, compare in COMPARISONS.items():
        try:
            results[name] = compare(data)
        except MissingDataError as missing:
            results[name] = str(missing)
    return results


def judge_all(found: Sequence[MeasuredRows], world: World, links: Mapping[str, str]) -> list[Judged]:
    """What ships against each set.

    Args:
        found: the sets.
        world: the performance model.
        links: {"network" or "interconnect": a name for all rows of all sets}.

    Raises:
        ConfigurationError: a network or interconnect that does not ship.
    """
    return [judge(replace(one, rows=one.rows.assign(**links)), world) for one in found]


def _plot(draw: Callable[[Any], None], title: str, file: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    draw(axes)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title(title)
    figure.savefig(file, dpi=100)
    plt.close(figure)


def _print(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    Console().print(table)


_LONGEST_REASON = 100  # characters on the console


def _print_left_out(judged: Sequence[Judged]) -> None:
    """Why rows have no prediction, a line for each set and reason."""
    for one in judged:
        for why, count in one.left_out.items():
            said = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}..."
            print(f"{one.name}: {count} left out: {said}")


def _check_choices(performance: str, links: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a name that does not ship."""
    for group, name in {"performance": performance, **links}.items():
        there = config_files(group)
        if name not in there:
            raise ConfigurationError(
                f"--{group} is {shown(name)}; expected one of conf/{group}: {', '.join(there)}"
            )


def _published(one: MeasuredRows | Judged) -> bool:
    """Whether the set is one of conf/measured."""
    return one.about is measured_sets().get(one.name)


def _predictions(judged: Sequence[Judged]) -> pd.DataFrame:
    """[rows] of tidy tables: set, what the file says, `predicted`, `error`, `reason` (why there is none)."""
    tables = [
        one.rows[[*columns_of(one.rows), "predicted", "error", "reason"]].assign(set=one.name)
        for one in judged
        if not _published(one)
    ]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"set": []})
    return table[["set", *table.columns.drop("set")]]


def validate(place: str, out: str, performance: str, links: Mapping[str, str]) -> Sequence[Path]:
    """Judge, compare, draw, write; the files written, the page first.

    Args:
        place: folder of published files or tidy CSVs, or one tidy CSV.
        out: folder for validation.md, images/ and, of tidy CSVs, predictions.csv.
        performance: name of conf/performance.
        links: as in `judge_all`.

    Raises:
        ConfigurationError: nothing there that can be judged, a bad table, or a name that does not ship.
    """
    _check_choices(performance, links)
    data = Path(place).expanduser()
    found, absent = find_sets(data)
    judged = judge_all(found, World(performance), links)
    _print("What ships", BRIEF_HEADER, brief_rows(judged))
    _print_left_out(judged)
    published = any(_published(one) and not one.about.collection for one in found)
    equations = compare_all(data) if published else {}
    if not equations and all(one.predicted.empty for one in judged):
        raise ConfigurationError(
            f"{place}: no row could be judged; the lines above say what each lacks, and `ringyard calibrate`"
            " makes profiles of models that do not ship"
        )
    if equations:
        _print("The equations, on held-out points", EQUATION_HEADER, equation_rows(equations))
    folder = Path(out).expanduser()
    (folder / "images").mkdir(parents=True, exist_ok=True)
    plots: dict[str, str] = {}
    for one in judged:
        if not one.predicted.empty:
            plots[one.name] = f"images/shipped_{one.name.replace('/', '_')}.png"
            _plot(one.draw, one.about.title, folder / plots[one.name])
    for name, result in equations.items():
        if not isinstance(result, str):
            plots[result.title] = f"images/validation_{name}.png"
            _plot(result.draw, result.title, folder / plots[result.title])
    text = folder / "validation.md"
    text.write_text(page(judged, absent, equations, performance, plots))
    predictions = _predictions(judged)
    tables = [] if predictions.empty else [folder / "predictions.csv"]
    for file in tables:
        predictions.to_csv(file, index=False)
    return [text, *tables, *(folder / image for image in plots.values())]
