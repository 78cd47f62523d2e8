"""A sweep as a picture: the best so far over its jobs, and the objective over each setting."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from ringyard_agents.runs.atomic_write import atomic_write

__all__ = ["draw_sweep"]

_MOST_SETTINGS = 8
_LOG_FROM = 30.0  # largest over smallest value of an axis that is logarithmic
_DECADES_FROM = 100.0  # likewise, of one whose labels are decades
_PER_ROW = 3


def draw_sweep(
    table: pd.DataFrame, settings: Sequence[str], file: Path, logarithmic: Collection[str] = ()
) -> None:
    """Write the picture.

    Args:
        table: of `sweep_table`.
        settings: what was swept.
        file: a PNG.
        logarithmic: settings that were searched on a logarithmic scale; others have one if they reach far.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    done = table[np.isfinite(table["objective"].astype(float))]
    shown = [name for name in settings if done[name].nunique() > 1][:_MOST_SETTINGS]
    columns = min(_PER_ROW, 1 + len(shown))
    rows = -(-(1 + len(shown)) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(rows, columns, at + 1) for at in range(1 + len(shown))]
    _best_so_far(axes[0], done)
    best = done.sort_values("objective", kind="stable").iloc[0]
    for axis, name in zip(axes[1:], shown, strict=True):
        _over_setting(axis, done, name, best, name in logarithmic)
    for axis in axes[::columns]:
        axis.set_ylabel("objective (less is better)")
    figure.suptitle(f"{file.parent}: {len(done)} of {len(table)} jobs")
    with atomic_write(file) as partial:
        figure.savefig(partial, dpi=120)


def _best_so_far(axis: Any, done: pd.DataFrame) -> None:
    axis.scatter(done["job"], done["objective"], s=18, color="tab:gray", label="job")
    axis.step(done["job"], done["objective"].cummin(), where="post", color="tab:blue", label="best so far")
    axis.set_xlabel("job")
    axis.locator_params(axis="x", integer=True)
    axis.legend()


def _over_setting(axis: Any, done: pd.DataFrame, name: str, best: pd.Series, logarithmic: bool) -> None:
    column = done[name].infer_objects()
    from matplotlib.ticker import MaxNLocator

    numeric = is_numeric_dtype(column) and not is_bool_dtype(column)
    places: Any = column
    chosen: Any = best[name]
    if numeric:
        if column.min() > 0 and (logarithmic or column.max() / column.min() >= _LOG_FROM):
            _logarithmic_scale(axis, column.max() / column.min())
    else:
        labels = list(dict.fromkeys(str(value) for value in column))
        places, chosen = [labels.index(str(value)) for value in column], labels.index(str(chosen))
        axis.set_xticks(range(len(labels)), [_short(label) for label in labels], rotation=20, ha="right")
        axis.set_xlim(-0.5, len(labels) - 0.5)
    points = axis.scatter(places, done["objective"], s=22, c=done["job"], cmap="viridis")
    axis.scatter([chosen], [best["objective"]], s=90, facecolors="none", edgecolors="tab:red", label="best")
    axis.set_xlabel(name)
    axis.legend()
    axis.figure.colorbar(points, ax=axis, label="job", ticks=MaxNLocator(integer=True))


def _logarithmic_scale(axis: Any, reach: float) -> None:
    """With as many labels as fit: by 1, 2 and 5, or where an axis reaches far by decades."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if reach < _DECADES_FROM else (1.0,)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _short(label: str) -> str:
    return label if len(label) <= 24 else f"{label[:21]}..."
