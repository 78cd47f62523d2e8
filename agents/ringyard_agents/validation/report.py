"""`ringyard validate`: what ships against every measured set, then the equations; one page with plots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from ringyard_agents.measured import MeasuredRows, find_sets, measured_sets
from ringyard_agents.validation.cpu import core_curves
from ringyard_agents.validation.elastic import batch_efficiency, placements
from ringyard_agents.validation.judged import Judged, judge
from ringyard_agents.validation.network import inside_a_server, rings
from ringyard_agents.validation.page import EQUATION_HEADER, SHIPPED_HEADER, equation_rows, page, shipped_rows
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
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    Console().print(table)


def validate(place: str, out: str, performance: str, links: Mapping[str, str]) -> Sequence[Path]:
    """Judge, compare, draw, write; the files written, the page first.

    Args:
        place: folder of published files or tidy CSVs, or one tidy CSV.
        out: folder for validation.md and images/.
        performance: name of conf/performance.
        links: as in `judge_all`.

    Raises:
        ConfigurationError: nothing to judge there, a bad table, or a name that does not ship.
    """
    data = Path(place).expanduser()
    found, absent = find_sets(data)
    judged = judge_all(found, World(performance), links)
    _print("What ships", SHIPPED_HEADER, shipped_rows(judged))
    published = any(one.about is measured_sets().get(one.name) and not one.about.collection for one in found)
    equations = compare_all(data) if published else {}
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
    return [text, *(folder / image for image in plots.values())]
