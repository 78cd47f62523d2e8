"""Constants of a user's own measurements: fits, errors of held-out rows, what is missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.profiles import catalogue
from ringyard_agents.calibration.lines import Line
from ringyard_agents.calibration.rings import RingFit, fit_rings, predict_rings
from ringyard_agents.calibration.sharing import Sharing, fit_sharing
from ringyard_agents.measurements import parts_of, twins

__all__ = ["FOLDS", "Constants", "fit_rows", "held_out", "missing", "predict_rows"]

#: rows are held out in so many parts, each predicted by constants that were fitted to the others
FOLDS = 4

_MEMORY = ("fixed_memory_bytes", "sample_memory_bytes")
_RINGS = ("one GPU", "inside a server", "between servers", "all-reduce")


@dataclass(frozen=True)
class Constants:
    """What was fitted to rows.

    Attributes:
        rings: lines, overlap, networks and interconnects.
        sharing: {GPU type: sensitivity and pressure}.
    """

    rings: RingFit
    sharing: Mapping[str, Sharing]


def fit_rows(rows: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> Constants:
    """Every constant that these rows determine.

    Args:
        rows: a tidy table with networks and interconnects.
        gradient_bytes: {model: bytes of one all-reduce}.
    """
    part = parts_of(rows)
    rings = fit_rings(rows[part.isin(_RINGS)], gradient_bytes, RingFit(lines=_held_lines(rows)))
    pairs = rows[part == "sharing a GPU"]
    speeds = pairs.assign(speed=_alone(pairs, rings) / pairs.seconds)
    speeds = speeds[speeds.speed.notna()]
    sharing = {str(gpu_type): fit_sharing(one) for gpu_type, one in speeds.groupby("gpu_type")}
    return Constants(rings, sharing)


def _held_lines(rows: pd.DataFrame) -> Mapping[tuple[str, str], Line]:
    """Measured lines of profiles, for models and GPU types of which no row is on one GPU."""
    alone = rows[parts_of(rows) == "one GPU"]
    said = set(zip(alone.model, alone.gpu_type, strict=True))
    return {
        (model.name, kind): Line(figures.fixed_seconds, figures.sample_seconds)
        for model in catalogue()
        for kind, figures in model.gpus.items()
        if not figures.derived and (model.name, kind) not in said
    }


def _alone(rows: pd.DataFrame, rings: RingFit) -> NDArray[np.float64]:
    """[rows] seconds on one GPU alone; NaN where no line is known."""
    lines = [rings.lines.get(key) for key in zip(rows.model, rows.gpu_type, strict=True)]
    return np.array(
        [
            float("nan") if line is None else line.fixed + line.sample * batch
            for line, batch in zip(lines, rows.batch, strict=True)
        ]
    )


def predict_rows(rows: pd.DataFrame, constants: Constants, gradient_bytes: Mapping[str, float]) -> Any:
    """[rows] predicted seconds; NaN where the constants do not reach."""
    part = parts_of(rows)
    predicted = np.full(len(rows), np.nan)
    ring = part.isin(_RINGS).to_numpy()
    predicted[ring] = predict_rings(rows[ring], constants.rings, gradient_bytes)
    shared = (part == "sharing a GPU").to_numpy()
    predicted[shared] = _beside(rows[shared], constants)
    return predicted


def _beside(rows: pd.DataFrame, constants: Constants) -> NDArray[np.float64]:
    """[rows] seconds beside a neighbour on one GPU."""
    predicted = _alone(rows, constants.rings)
    own, other = (rows.model, rows.batch), (rows.neighbour, rows.neighbour_batch)
    keys = zip(rows.gpu_type, zip(*own, strict=True), zip(*other, strict=True), strict=True)
    for row, (gpu_type, mine, theirs) in enumerate(keys):
        fit = constants.sharing.get(gpu_type, {})
        known = mine in fit and theirs in fit
        predicted[row] *= 1.0 + fit[mine][0] * fit[theirs][1] if known else float("nan")
    return predicted


def held_out(rows: pd.DataFrame, gradient_bytes: Mapping[str, float], seed: int = 0) -> pd.DataFrame:
    """The rows with `predicted` by constants that have not seen them, and `error`.

    Rows that say the same (4+1+2 and 1+2+4 at one batch) are held out together.
    """
    texts = _situations(rows)
    distinct = sorted(set(texts))
    order = np.random.default_rng(seed).permutation(len(distinct))
    fold_of = {distinct[key]: position % FOLDS for position, key in enumerate(order)}
    fold = np.array([fold_of[text] for text in texts])
    predicted = np.full(len(rows), np.nan)
    for number in range(min(FOLDS, len(distinct))):
        here = fold == number
        if here.any() and not here.all():
            constants = fit_rows(rows[~here], gradient_bytes)
            predicted[here] = predict_rows(rows[here], constants, gradient_bytes)
    error = np.abs(predicted - rows.seconds.to_numpy()) / rows.seconds.to_numpy()
    return rows.assign(predicted=predicted, error=error)


def _situations(rows: pd.DataFrame) -> list[str]:
    """[rows] `measured.twins`, each batch of a job alone and each size of a transfer by itself."""
    alone = rows.neighbour == ""
    size = rows.batch.fillna(0.0) + rows.transfer_bytes.fillna(0.0)
    return [
        f"{situation} | {one:g}" if by_itself else str(situation)
        for situation, one, by_itself in zip(twins(rows), size, alone, strict=True)
    ]


def missing(rows: pd.DataFrame) -> list[str]:
    """What the rows cannot say, and what to measure for it; a line each."""
    part, said = parts_of(rows), []
    modelled = rows[rows.model != ""]
    for name, mine in modelled.groupby(modelled.model + " on " + modelled.gpu_type):
        parts = part[mine.index]
        alone = mine[parts == "one GPU"]
        if alone.empty:
            said.append(f"{name}: no row on one GPU; measure one batch there, better two")
        elif alone.batch.nunique() == 1:
            said.append(
                f"{name}: only batch {alone.batch.iloc[0]:g}: fixed and per-sample seconds cannot be told"
                " apart (all counted per sample); measure a second batch"
            )
        if not (parts == "sharing a GPU").any():
            said.append(f"{name}: no row beside a neighbour; measure a pair if jobs shall share GPUs")
    lacks = {
        (
            "inside a server",
            "between servers",
        ): "no row on several GPUs, so nothing says how transfers overlap; measure one server and two",
        ("restart",): "no restart; add restart_seconds on one GPU and on several",
        ("cores",): "no row with cores; measure 1, 2, 4 and 8 cores per GPU if CPU may be scarce",
    }
    for wanted, why in lacks.items():
        have = set(modelled.model[part[modelled.index].isin(wanted)])
        without = sorted(set(modelled.model) - have)
        if without:
            said.append(f"{', '.join(without)}: {why}")
    lacking = [
        name for name in sorted(set(modelled.model)) if any(value is None for value in _shipped_memory(name))
    ]
    if lacking:
        said.append(
            f"{', '.join(lacking)}: no GPU memory, so the largest batches are taken to fill their GPUs"
            " (sources say so); measure the bytes at two batches and write them into the profile"
        )
    return said


def _shipped_memory(name: str) -> list[float | None]:
    """Both figures of the profile of that name; [None] without one."""
    return [getattr(model, field) for model in catalogue() if model.name == name for field in _MEMORY] or [
        None
    ]
