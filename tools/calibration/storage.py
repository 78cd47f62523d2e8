"""Bytes of a sample and of a data set, from iterations that are limited by storage."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.performance.host_resources import stored_bytes
from ringyard_agents.calibration.fits import fit_factor

#: with so many cores per worker it is storage that limits, not the cores (Synergy)
_CORES_TO_SPARE = 9

_stored = np.vectorize(stored_bytes, otypes=[float])


def dataset(
    rows: pd.DataFrame,
    model: str,
    storage_models: Sequence[str],
    sample_bytes: float,
    dataset_bytes: float,
    ram_bytes: Sequence[float],
) -> tuple[float, float]:
    """(bytes of a sample, bytes of the data set) of a model whose data nobody describes.

    The storage's rate comes from models whose data are known, at the smallest of `ram_bytes`.

    Args:
        rows: tidy rows with cores and RAM.
        model: the model.
        storage_models: the others.
        sample_bytes: of one sample of theirs.
        dataset_bytes: of all their samples.
        ram_bytes: sizes at which storage limits the model.
    """
    spare = rows[rows.cores >= _CORES_TO_SPARE]
    known = spare[spare.model.isin(list(storage_models)) & (spare.ram_bytes == min(ram_bytes))]
    sizes = (np.full(len(known), sample_bytes), np.full(len(known), dataset_bytes))
    rate = fit_storage(known.batch.to_numpy(), *sizes, known.ram_bytes.to_numpy(), known.seconds.to_numpy())
    mine = spare[(spare.model == model) & spare.ram_bytes.isin(list(ram_bytes))]
    return fit_dataset(mine.batch.to_numpy(), mine.ram_bytes.to_numpy(), mine.seconds.to_numpy(), rate)


def fit_storage(
    batch: NDArray[np.float64],
    sample_bytes: NDArray[np.float64],
    dataset_bytes: NDArray[np.float64],
    ram_bytes: NDArray[np.float64],
    seconds: NDArray[np.float64],
) -> float:
    """Bytes per second of storage that one worker had, from iterations that storage limits.

    Args:
        batch: [rows] samples of the worker.
        sample_bytes: [rows] of one sample on storage.
        dataset_bytes: [rows] of all samples.
        ram_bytes: [rows] in which the worker caches.
        seconds: [rows] measured, per iteration.
    """
    stored = _stored(sample_bytes, dataset_bytes, ram_bytes)
    return fit_factor(seconds / (batch * stored))


def fit_dataset(
    batch: NDArray[np.float64],
    ram_bytes: NDArray[np.float64],
    seconds: NDArray[np.float64],
    storage_bytes_per_second: float,
) -> tuple[float, float]:
    """(bytes of one sample, bytes of the data set), from iterations that storage limits at two RAM sizes.

    Args:
        batch: [rows] samples of the worker.
        ram_bytes: [rows] in which the worker caches; two different sizes at least.
        seconds: [rows] measured, per iteration.
        storage_bytes_per_second: that the worker had.
    """
    slope, sample_bytes = np.polyfit(ram_bytes, seconds / batch * storage_bytes_per_second, 1)
    return float(sample_bytes), float(-sample_bytes / slope)
