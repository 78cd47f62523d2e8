"""PNG plots of a comparison."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.colors import TABLEAU_COLORS

from ringyard_agents.files import replaced
from ringyard_agents.measuring.evaluate import RunResult
from ringyard_agents.measuring.tensorboard import curves

__all__ = ["draw_plots"]


def _save(folder: Path, name: str, draw: Callable[[Any], None]) -> Path:
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.set_prop_cycle(cycler(linestyle=["-", "--", ":"]) * cycler(color=list(TABLEAU_COLORS.values())))
    draw(axes)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    file = folder / f"{name}.png"
    with replaced(file) as partial:
        figure.savefig(partial, dpi=120)
    plt.close(figure)
    return file


def draw_plots(results: Sequence[RunResult], folder: Path) -> list[Path]:
    """JCT distribution, running mean JCT, queue length and utilisation; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    by_label = curves(results)

    def distribution(axes: Any) -> None:
        for label in by_label:
            jcts = np.sort(np.concatenate([r.times.served().jct for r in results if r.label == label]))
            axes.plot(jcts, np.arange(1, len(jcts) + 1) / len(jcts), label=label)
        axes.set(xscale="log", xlabel="job completion time (s)", ylabel="share of jobs")

    def over_time(attribute: str, ylabel: str) -> Callable[[Any], None]:
        def draw(axes: Any) -> None:
            for label, curve in by_label.items():
                axes.plot(curve.seconds / 3600, getattr(curve, attribute), label=label)
            axes.set(xlabel="simulated time (h), until 99 % of the jobs have ended", ylabel=ylabel)

        return draw

    return [
        _save(folder, "jct_distribution", distribution),
        _save(folder, "jct_over_time", over_time("running_jct", "mean JCT of finished jobs (s)")),
        _save(folder, "queue_length", over_time("waiting", "waiting jobs")),
        _save(folder, "utilisation", over_time("utilisation", "share of busy GPUs")),
    ]
