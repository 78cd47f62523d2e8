"""Figures in files: axes with a title, a grid and a legend beside them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.colors import TABLEAU_COLORS

from ringyard_agents.runs.atomic_write import atomic_write


def save_figure(file: Path, draw: Callable[[Any], None], title: str = "") -> Path:
    """Let `draw` draw into axes, write them in the format of the file's suffix, and return the file."""
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
