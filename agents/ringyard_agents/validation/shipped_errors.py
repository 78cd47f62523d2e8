"""Errors of the shipped models on a measured set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ringyard.profiles import catalogue
from ringyard_agents.measurements import MeasuredRows, gpus_per_server, measurement_kinds
from ringyard_agents.validation.shipped import check_fabric_names, predict_rows

MEAN_AIM, MEDIAN_AIM = 0.15, 0.10  # largest mean and median error aimed at
_COLOURS, _LINES = 10, 40  # most colours of a plot, most lines of a grid


class PredictedSet(MeasuredRows):
    """A measured set with predictions.

    Its rows also hold `part` (kind of measurement), `place` (number of GPUs or servers), `measured`,
    `predicted`, `error` (relative, NaN without a prediction), `reason` (why there is no prediction) and
    `derived` (the profile's figures for that GPU type are derived, not measured).
    """

    @property
    def predicted(self) -> pd.DataFrame:
        """Rows with a prediction."""
        return self.rows[self.rows.reason == ""]

    @property
    def left_out(self) -> dict[str, int]:
        """{reason: number of rows without a prediction}."""
        return {str(why): int(count) for why, count in self.rows.reason.value_counts().items() if why}

    @property
    def met(self) -> bool:
        """Whether mean and median error are within the aims."""
        error = self.predicted.error
        return bool(error.mean() <= MEAN_AIM and error.median() <= MEDIAN_AIM)

    def by(self, columns: list[str]) -> Any:
        """Group errors by columns, small placements first."""
        sizes = self.predicted.placement.map(lambda text: (text.count("+"), sum(gpus_per_server(text))))
        order = self.predicted.assign(sizes=sizes).sort_values(["gpu_type", "sizes"], kind="stable")
        return order.groupby(columns, sort=False)["error"]

    def grid(self) -> pd.DataFrame:
        """Return mean errors by model and GPU type, and by batch if a model has several at one placement."""
        rows = self.predicted
        batches = rows.groupby(["model", "gpu_type", "place"])["batch"].nunique().max()
        apart = batches > 1 and len(rows.drop_duplicates(["model", "batch"])) <= _LINES
        title = "model, samples per GPU" if apart else "model"
        names = rows.model + rows.batch.map(" {:g}".format) if apart else rows.model
        rows = rows.assign(**{title: names})
        order = rows.sort_values(["model", "batch"])[title].unique()
        table = rows.pivot_table("error", title, "gpu_type", "mean", sort=False, observed=True)
        return pd.DataFrame(table.reindex(order).reset_index())

    def draw(self, axes: Any) -> None:
        """Plot predicted over measured seconds, coloured by model, GPU type or kind of measurement."""
        rows = self.predicted
        kinds = ("model", "gpu_type", "part", "place")
        columns = [name for name in kinds if 1 < rows[name].nunique() <= _COLOURS]
        groups = rows.groupby(columns[0] if columns else "gpu_type", sort=False)
        points = [(str(name), one.measured.to_numpy(), one.predicted.to_numpy()) for name, one in groups]
        plot_predictions(axes, points, "seconds")


def plot_predictions(axes: Any, points: Any, unit: str) -> None:
    """Plot (label, measured, predicted) on logarithmic axes of a `unit` with the diagonal."""
    for name, measured, predicted in points:
        axes.loglog(measured, predicted, ".", label=name, alpha=0.6)
    low = min(measured.min() for _, measured, _ in points)
    high = max(measured.max() for _, measured, _ in points)
    axes.plot([low, high], [low, high], "k-", linewidth=0.8)
    axes.set_xlabel(f"measured {unit}")
    axes.set_ylabel(f"predicted {unit}")


def _derived(rows: pd.DataFrame) -> "pd.Series[Any]":
    """Return whether a model of the row has derived figures for its GPU type [rows]."""
    known = {(m.name, kind): one.derived for m in catalogue() for kind, one in m.gpus.items()}
    sides = [zip(rows[name], rows.gpu_type, strict=True) for name in ("model", "neighbour")]
    flags = np.array([[known.get(one, False) for one in side] for side in sides])
    return pd.Series(flags.any(axis=0), index=rows.index)


def _place(placement: str) -> str:
    servers = gpus_per_server(placement)
    count, word = (len(servers), "server") if len(servers) > 1 else (servers[0], "GPU")
    return f"{count} {word}{'s' if count > 1 else ''}"


def _predict_set(measured: MeasuredRows, overrides: Sequence[str]) -> PredictedSet:
    """Predict every row of a set; `overrides` choose the performance model, those of the set follow them."""
    rows = measured.rows
    check_fabric_names(rows, measured.name)
    predicted, reasons = predict_rows(rows, [*overrides, *measured.about.overrides])
    seconds = rows.seconds.fillna(rows.restart_seconds)
    error = (predicted - seconds).abs() / seconds
    rows = rows.assign(part=measurement_kinds(rows), place=rows.placement.map(_place), measured=seconds)
    rows = rows.assign(predicted=predicted, reason=reasons, derived=_derived(rows), error=error)
    return PredictedSet(measured.name, measured.about, rows)


def predict_sets(
    found: Sequence[MeasuredRows], overrides: Sequence[str], links: Mapping[str, str]
) -> list[PredictedSet]:
    """Predict every row of all sets; `overrides` of the model stand before those of a set.

    `links` are {"network" or "interconnect": name for all rows}.
    """
    return [_predict_set(replace(one, rows=one.rows.assign(**links)), overrides) for one in found]
