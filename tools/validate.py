"""`python -m tools.validate FOLDER`: compare the shipped models with published measurements."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.runs.figures import save_figure
from ringyard_agents.validation.shipped import (
    check_config_names,
    percent,
    predict_sets,
    print_errors,
    print_markdown_rows,
    require_predictions,
    write_predictions,
)
from tools.equations.comparisons import COMPARISONS
from tools.equations.result import Comparison
from tools.measured_sets.readers import MissingDataError
from tools.measured_sets.sets import PublishedSet, find_sets
from tools.validation_page import draw_sets, markdown_table, validation_page

_EQUATIONS = """## The equations

Constants are fitted to part of the data, errors are of the rest (unless a row says otherwise). The simulator
runs the functions that are named.

"""


def compare_all(data: Path) -> dict[str, Comparison | str]:
    """{equation: comparison, or why it was left out}."""
    results: dict[str, Comparison | str] = {}
    for name, compare in COMPARISONS.items():
        try:
            results[name] = compare(data)
        except MissingDataError as missing:
            results[name] = str(missing)
    return results


def validate(place: str, out: str, performance: str, links: Mapping[str, str]) -> Path:
    """Judge, compare, draw, write.

    Args:
        place: folder of published files and tidy CSVs.
        out: folder for validation.md, images/ and, of tidy CSVs, predictions.csv.
        performance: name of conf/performance.
        links: as in `predict_sets`.

    Returns:
        The page.

    Raises:
        ConfigurationError: nothing there has a prediction, a bad table, or a name that does not ship.
    """
    check_config_names(performance, links)
    data = Path(place).expanduser()
    found, absent = find_sets(data)
    predicted = predict_sets(found, [f"performance={performance}"], links)
    print_errors(predicted)
    profiles = any(isinstance(one.about, PublishedSet) and not one.about.collection for one in found)
    equations = compare_all(data) if profiles else {}
    if equations:
        print_markdown_rows("The equations, on held-out points", EQUATION_HEADER, equation_rows(equations))
        for name in ("plans", "plans_left_out"):
            if not isinstance(result := equations[name], str):
                print_markdown_rows(result.title, _PART_HEADER, _part_rows(result))
    else:
        require_predictions(predicted, place)
    folder = Path(out).expanduser()
    plots = draw_sets(predicted, folder)
    images: dict[str, str] = {}
    for name, result in equations.items():
        if not isinstance(result, str):
            images[result.title] = f"images/validation_{name}.png"
            save_figure(folder / images[result.title], result.draw, result.title)
    section = "\n" + _EQUATIONS + "\n".join(_equations(equations, images)) if equations else ""
    text = folder / "validation.md"
    text.write_text(validation_page(predicted, performance, plots, absent, section))
    write_predictions(
        [one for one in predicted if not isinstance(one.about, PublishedSet)], folder / "predictions.csv"
    )
    return text


def equation_rows(results: Mapping[str, Comparison | str]) -> list[list[str]]:
    """[comparisons] cells of the equations' table."""
    rows = []
    for name, result in results.items():
        if isinstance(result, str):
            rows.append([name, f"left out: {result}", "", "", ""])
        else:
            constants = sum(part.constants for part in result.parts)
            worst = percent(result.errors.max())
            rows.append([result.title, _verdict(result), worst, str(len(result.errors)), str(constants)])
    return rows


EQUATION_HEADER = ("", "result", "worst", "held-out points", "constants")
_PART_HEADER = ("", "mean", "median", "worst", "points", "fitted to", "constants", "")


def _verdict(comparison: Comparison) -> str:
    said = f"{comparison.statistic} error {comparison.error:.1%}"
    if comparison.aim is not None:
        met = "met" if comparison.error <= comparison.aim else "**missed**"
        said += f"; the aim of {comparison.aim:.0%} is {met}"
    return f"{said}; {comparison.note}" if comparison.note else said


def _part_rows(comparison: Comparison) -> list[list[str]]:
    rows = []
    for part in comparison.parts:
        errors = part.errors
        figures = errors.mean(), sorted(errors)[len(errors) // 2], errors.max()
        counts = map(str, (len(errors), part.fitted, part.constants))
        rows.append([part.name, *map(percent, figures), *counts, part.note])
    return rows


def _equation(comparison: Comparison, plot: str) -> list[str]:
    return [
        f"### {comparison.title}",
        "",
        f"{comparison.source}.",
        f"Predicted by {comparison.form}.",
        "",
        f"![{comparison.title}]({plot})",
        "",
        *markdown_table(_PART_HEADER, _part_rows(comparison)),
        f"Weak: {comparison.weakness}",
        "",
    ]


def _equations(equations: Mapping[str, Comparison | str], plots: Mapping[str, str]) -> list[str]:
    lines = markdown_table(EQUATION_HEADER, equation_rows(equations))
    for result in equations.values():
        if not isinstance(result, str):
            lines += _equation(result, plots[result.title])
    return lines


def main(words: Sequence[str]) -> int:
    """Run the command.

    Args:
        words: of the command line.

    Returns:
        The exit code: 2 for bad input.
    """
    return exit_code("tools.validate", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    parser = Arguments(
        prog="python -m tools.validate",
        description="Hold what ships against published measurements, then the equations.",
    )
    parser.add_argument("place", metavar="FOLDER", help="with published files (pollux/, gavel/, ...)")
    parser.add_argument(
        "--out", default="validation", help="folder for the page and its images (%(default)s)"
    )
    parser.add_argument("--performance", default="composite", help="of conf/performance (%(default)s)")
    parser.add_argument("--network", help="between servers, of conf/network; default: as each set says")
    parser.add_argument("--interconnect", help="inside servers, of conf/interconnect; likewise")
    given = parser.parse_args(words)
    links = {"network": given.network, "interconnect": given.interconnect}
    chosen = {name: leaf for name, leaf in links.items() if leaf is not None}
    print(f"page: {validate(given.place, given.out, given.performance, chosen)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
