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

from ringyard.sim.metrics import LOSSES, Metrics
from ringyard_agents.files import replaced
from ringyard_agents.measuring.evaluate import RunResult
from ringyard_agents.measuring.tensorboard import curves

__all__ = ["draw_plots", "save_plot"]


def save_plot(folder: Path, name: str, draw: Callable[[Any], None]) -> Path:
    """Write `name`.png into a folder; `draw` draws into its axes."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.set_prop_cycle(cycler(linestyle=["-", "--", ":"]) * cycler(color=list(TABLEAU_COLORS.values())))
    draw(axes)
    axes.grid(alpha=0.3)
    if not figure.legends:
        axes.legend(fontsize="small")
    file = folder / f"{name}.png"
    with replaced(file) as partial:
        figure.savefig(partial, dpi=120)
    plt.close(figure)
    return file


#: parts of the mean JCT from the left, and their colours
_PARTS = {
    "work": ("mean_work", "#bab0ac"),
    "queueing": ("mean_queueing", "#4e79a7"),
} | {
    name.replace("_", " "): (f"lost_to_{name}", colour)
    for name, colour in zip(
        LOSSES,
        ("#f28e2b", "#b07aa1", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#ff9da7", "#9c755f", "#1f1f1f"),
        strict=True,
    )
}


def _draw_parts(axes: Any, results: Sequence[RunResult]) -> None:
    """One bar for each scheduler, stacked: what its mean JCT is made of; gains hang to the left of zero."""
    runs: dict[str, list[Metrics]] = {}
    for result in results:
        runs.setdefault(result.label, []).append(result.metrics)

    def mean(label: str, field: str) -> float:
        return float(np.mean([getattr(one, field) for one in runs[label]]))

    labels = sorted(runs, key=lambda label: mean(label, "mean_jct"))
    means = np.array([mean(label, "mean_jct") for label in labels])
    rows = range(len(labels))
    right, left = np.zeros(len(labels)), np.zeros(len(labels))
    for name, (field, colour) in _PARTS.items():
        widths = np.array([mean(label, field) for label in labels])
        if (np.abs(widths) < 1e-3 * means).all():
            continue
        axes.barh(rows, widths, left=np.where(widths < 0, left, right), color=colour, label=name)
        right, left = right + np.maximum(widths, 0.0), left + np.minimum(widths, 0.0)
    if (left < 0).any():
        axes.axvline(0.0, color="black", linewidth=0.8)
    axes.plot(means, rows, "k|", markersize=14, label="mean JCT")
    axes.set_yticks(rows, labels)
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.use_sticky_edges = False
    axes.autoscale_view()
    axes.set(xlabel="mean seconds of a job: work, and what else its time was lost to (below 0: gained)")
    axes.figure.legend(fontsize="small", loc="outside right upper")


def draw_plots(results: Sequence[RunResult], folder: Path) -> list[Path]:
    """JCT distribution, running mean JCT, its parts, queue length and utilisation; the files written."""
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
        save_plot(folder, "jct_distribution", distribution),
        save_plot(folder, "jct_over_time", over_time("running_jct", "mean JCT of finished jobs (s)")),
        save_plot(folder, "losses", lambda axes: _draw_parts(axes, results)),
        save_plot(folder, "queue_length", over_time("waiting", "waiting jobs")),
        save_plot(folder, "utilisation", over_time("utilisation", "share of busy GPUs")),
    ]
