"""What limits training beside GPUs and networks, by measured rows: cores, storage, restarts."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ringyard_agents.calibration.cpu import CoreCurve, fit_core_curves, fit_dataset, fit_storage

__all__ = ["core_curves", "dataset", "restart_growth"]

#: with so many cores per worker it is storage that limits, not the cores (Synergy)
_CORES_TO_SPARE = 9


def core_curves(rows: pd.DataFrame, serial_share: float | None = None) -> Mapping[str, CoreCurve]:
    """{model: curve} of the rows with the most main memory.

    Args:
        rows: tidy rows with cores.
        serial_share: see `fit_core_curves`.
    """
    measured = {}
    for name in sorted(set(rows.model)):
        mine = rows[rows.model == name]
        if mine.ram_bytes.notna().any():
            mine = mine[mine.ram_bytes == mine.ram_bytes.max()]
        if mine.cores.nunique() > 1:
            measured[name] = (mine.cores.to_numpy(), (mine.seconds / mine.batch).to_numpy())
    return fit_core_curves(measured, serial_share)


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


def restart_growth(gpus: Sequence[float], seconds: Sequence[float], first: float) -> float:
    """Seconds more at each doubling of the GPUs, least squares of relative errors.

    Args:
        gpus: [rows] GPUs, above 1.
        seconds: [rows] of a restart.
        first: of a restart on one GPU.
    """
    measured, doublings = np.array(seconds, dtype=np.float64), np.log2(np.array(gpus, dtype=np.float64))
    return float(((measured - first) * doublings / measured**2).sum() / (doublings**2 / measured**2).sum())
