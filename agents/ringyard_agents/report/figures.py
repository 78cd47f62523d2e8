"""Figures as files: axes with a title, a grid, a legend beside them and bands around curves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.colors import TABLEAU_COLORS
from numpy.typing import NDArray

from ringyard_agents.report.time_series import Band
from ringyard_agents.runs.atomic_write import atomic_write

_BAND_ALPHA = 0.15


def save_figure(file: Path, draw: Callable[[Any], None], title: str = "") -> Path:
    """Write a figure in the format that the file's suffix says.

    Args:
        file: its folder exists.
        draw: draws into the axes that it is given.
        title: above the axes.
    """
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    axes.set_prop_cycle(cycler(linestyle=["-", "--", ":"]) * cycler(color=list(TABLEAU_COLORS.values())))
    draw(axes)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize="small", loc="outside right upper")
    with atomic_write(file) as partial:
        figure.savefig(partial, dpi=120)
    plt.close(figure)
    return file


def draw_band(axes: Any, x: NDArray[np.float64], band: Band, label: str) -> None:
    """Draw a curve, and its interval as a shade of the same colour where it has one.

    Args:
        axes: to draw into.
        x: [points].
        band: values and intervals at these points.
        label: for the legend.
    """
    (line,) = axes.plot(x, band.value, label=label)
    if (band.low < band.high).any():
        axes.fill_between(x, band.low, band.high, color=line.get_color(), alpha=_BAND_ALPHA, linewidth=0)
