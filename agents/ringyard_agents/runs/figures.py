"""Figures in files: axes with a title, a grid and a legend beside them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")

from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.style import library

from ringyard_agents.runs.atomic_write import atomic_write

#: looks of curves: ten colours that people with a colour vision deficiency can tell apart, then other lines
LOOKS = cycler(linestyle=["-", "--", ":"]) * library["tableau-colorblind10"]["axes.prop_cycle"]


def save_figure(file: Path, draw: Callable[[Any], None], title: str = "") -> Path:
    """Let `draw` draw into axes, write them in the format of the file's suffix, and return the file."""
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    axes.set_prop_cycle(LOOKS)
    draw(axes)
    figure.suptitle(fill(title, 110), x=0.01, ha="left", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize="small", loc="outside right center")
    with atomic_write(file) as partial:
        figure.savefig(partial, dpi=120)
    plt.close(figure)
    return file


def plot_predictions(axes: Any, points: Sequence[Any], unit: str, ylabel: str = "") -> None:
    """Plot (label, measured, predicted) on logarithmic axes of a `unit` with the diagonal."""
    for name, measured, predicted in points:
        axes.loglog(measured, predicted, ".", label=name, alpha=0.6)
    if points:
        low = min(measured.min() for _, measured, _ in points)
        high = max(measured.max() for _, measured, _ in points)
        axes.plot([low, high], [low, high], "k-", linewidth=0.8)
    axes.set_xlabel(f"measured {unit}")
    axes.set_ylabel(ylabel or f"predicted {unit}")
