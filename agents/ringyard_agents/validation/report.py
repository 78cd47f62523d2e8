"""`ringyard validate`: every comparison, as one page with plots."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from ringyard.errors import ConfigurationError
from ringyard_agents.validation.cpu import core_curves
from ringyard_agents.validation.elastic import batch_efficiency, placements
from ringyard_agents.validation.network import inside_a_server, rings
from ringyard_agents.validation.result import Comparison, MissingDataError
from ringyard_agents.validation.served import parameter_server_steps, restarts
from ringyard_agents.validation.sharing import pairs_on_a_gpu

__all__ = ["COMPARISONS", "compare_all", "validate"]

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

_HEAD = """# Validation: predicted against measured

Written by `ringyard validate FOLDER`, where FOLDER holds the measured profiles; do not edit. Predictions come
from the functions the simulator runs, named beside each equation. Constants are fitted to part of the data
and the errors below are those of the rest, which they have not seen (unless a row says otherwise); how
many constants were fitted stands beside each result. Error: |predicted - measured| / measured.

"""


def _verdict(comparison: Comparison) -> str:
    said = f"{comparison.statistic} error {comparison.error:.1%}"
    if comparison.aim is None:
        return said
    met = "met" if comparison.error <= comparison.aim else "**missed**"
    return f"{said}; the aim of {comparison.aim:.0%} is {met}"


def _section(comparison: Comparison, plot: str) -> str:
    lines = [
        f"## {comparison.title}",
        "",
        f"{comparison.source}.",
        f"Predicted by {comparison.form}.",
        "",
        f"Result: {_verdict(comparison)}, worst {comparison.errors.max():.1%}, over"
        f" {len(comparison.errors)} points.",
        "",
        "| | mean | median | worst | points | fitted to | constants | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part in comparison.parts:
        errors = part.errors
        numbers = f"{errors.mean():.1%} | {sorted(errors)[len(errors) // 2]:.1%} | {errors.max():.1%}"
        counts = f"{len(errors)} | {part.fitted} | {part.constants}"
        lines.append(f"| {part.name} | {numbers} | {counts} | {part.note} |")
    lines += ["", f"Weak: {comparison.weakness}", "", f"![{comparison.title}]({plot})", ""]
    return "\n".join(lines)


def compare_all(data: Path) -> dict[str, Comparison | str]:
    """{name: comparison, or why it was left out}.

    Raises:
        ConfigurationError: the folder does not exist.
    """
    if not data.is_dir():
        raise ConfigurationError(f"there is no folder {data}; give the one that holds the measured profiles")
    results: dict[str, Comparison | str] = {}
    for name, compare in COMPARISONS.items():
        try:
            results[name] = compare(data)
        except MissingDataError as missing:
            results[name] = str(missing)
    return results


def _summary(results: dict[str, Comparison | str]) -> list[str]:
    lines = ["| | result | held-out points | constants |", "|---|---|---|---|"]
    for name, result in results.items():
        if isinstance(result, str):
            lines.append(f"| {name} | left out: {result} | | |")
        else:
            constants = sum(part.constants for part in result.parts)
            lines.append(f"| {result.title} | {_verdict(result)} | {len(result.errors)} | {constants} |")
    return [*lines, ""]


def validate(data: str, out: str) -> Sequence[Path]:
    """Compare, draw, write; the files written.

    Args:
        data: folder of the measured profiles.
        out: folder for validation.md and images/.

    Raises:
        ConfigurationError: no such data folder.
    """
    results = compare_all(Path(data).expanduser())
    folder = Path(out).expanduser()
    (folder / "images").mkdir(parents=True, exist_ok=True)
    summary = _summary(results)
    page = [_HEAD, "\n".join(summary), ""]
    files = []
    for name, result in results.items():
        if isinstance(result, str):
            continue
        file = folder / "images" / f"validation_{name}.png"
        figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
        result.draw(axes)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        axes.set_title(result.title)
        figure.savefig(file, dpi=100)
        plt.close(figure)
        files.append(file)
        page.append(_section(result, f"images/{file.name}"))
    text = folder / "validation.md"
    text.write_text("\n".join(page))
    print("\n".join(summary), end="")
    return [text, *files]
