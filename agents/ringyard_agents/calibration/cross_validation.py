"""Fits of all constants to a user's measurements, and errors of held-out rows."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.profiles import catalogue
from ringyard_agents.calibration.fits import ComputeLine, fit_sharing
from ringyard_agents.calibration.rings import FittedConstants, fit_rings, predict_rings
from ringyard_agents.measurements import measurement_kinds, situations

#: number of folds of the cross-validation
_FOLDS = 4
_RINGS = ("one GPU", "inside a server", "between servers", "all-reduce")
_UNKNOWN = (float("nan"), float("nan"))


def fit_constants(rows: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> FittedConstants:
    """Fit all that tidy rows determine. Without a row on one GPU, the measured lines of profiles are kept."""
    part = measurement_kinds(rows)
    alone = rows[part == "one GPU"]
    measured = set(zip(alone.model, alone.gpu_type, strict=True))
    held = {
        (model.name, kind): ComputeLine(figures.fixed_seconds, figures.sample_seconds)
        for model in catalogue()
        for kind, figures in model.gpus.items()
        if not figures.derived and (model.name, kind) not in measured
    }
    rings = fit_rings(rows[part.isin(_RINGS)], gradient_bytes, FittedConstants(held))
    pairs = rows[part == "sharing a GPU"]
    speeds = pairs.assign(speed=_isolated_seconds(pairs, rings) / pairs.seconds).dropna(subset="speed")
    sharing = {str(gpu_type): fit_sharing(one) for gpu_type, one in speeds.groupby("gpu_type")}
    return replace(rings, sharing=sharing)


def _isolated_seconds(rows: pd.DataFrame, constants: FittedConstants) -> NDArray[np.float64]:
    """Predict isolated seconds on one GPU [rows], NaN where no line is known."""
    keys, unknown = zip(rows.model, rows.gpu_type, strict=True), ComputeLine(*_UNKNOWN)
    lines = [constants.lines.get(key, unknown) for key in keys]
    return np.array([line.seconds(batch) for line, batch in zip(lines, rows.batch, strict=True)])


def _predict(
    rows: pd.DataFrame, constants: FittedConstants, gradient_bytes: Mapping[str, float]
) -> NDArray[np.float64]:
    """Predict seconds [rows], NaN where a constant is missing."""
    part = measurement_kinds(rows)
    predicted = np.full(len(rows), np.nan)
    ring, shared = part.isin(_RINGS).to_numpy(), (part == "sharing a GPU").to_numpy()
    predicted[ring] = predict_rings(rows[ring], constants, gradient_bytes)
    pairs = rows[shared]
    own = zip(pairs.model, pairs.batch, strict=True)
    other = zip(pairs.neighbour, pairs.neighbour_batch, strict=True)
    fits = [constants.sharing.get(gpu_type, {}) for gpu_type in pairs.gpu_type]
    predicted[shared] = _isolated_seconds(pairs, constants) * [
        1.0 + fit.get(mine, _UNKNOWN)[0] * fit.get(theirs, _UNKNOWN)[1]
        for fit, mine, theirs in zip(fits, own, other, strict=True)
    ]
    return predicted


def cross_validate(rows: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> pd.DataFrame:
    """Add `predicted` seconds and relative `error` to each row, fitted to other rows, in four folds.

    Rows that measure the same situation (4+1+2 and 1+2+4 at one batch) are in one fold. Each batch of an
    isolated job and each size of a transfer is its own situation.
    """
    size = rows.batch.fillna(0.0) + rows.transfer_bytes.fillna(0.0)
    keys = situations(rows)
    texts = keys.where(rows.neighbour != "", keys + size.map(" | {:g}".format))
    distinct = sorted(set(texts))
    order = np.random.default_rng(0).permutation(len(distinct))
    fold_of = {distinct[key]: position % _FOLDS for position, key in enumerate(order)}
    fold = texts.map(fold_of).to_numpy()
    predicted = np.full(len(rows), np.nan)
    for here in (fold == number for number in set(fold.tolist())):
        if not here.all():
            constants = fit_constants(rows[~here], gradient_bytes)
            predicted[here] = _predict(rows[here], constants, gradient_bytes)
    return rows.assign(predicted=predicted, error=np.abs(predicted - rows.seconds) / rows.seconds)
