"""What limits training beside GPUs and networks, by measured rows: cores, storage, restarts."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ringyard_agents.calibration.cpu import CoreCurve, fit_core_curves

__all__ = ["core_curves", "restart_growth"]


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


def restart_growth(gpus: Sequence[float], seconds: Sequence[float], first: float) -> float:
    """Seconds more at each doubling of the GPUs, least squares of relative errors.

    Args:
        gpus: [rows] GPUs, above 1.
        seconds: [rows] of a restart.
        first: of a restart on one GPU.
    """
    measured, doublings = np.array(seconds, dtype=np.float64), np.log2(np.array(gpus, dtype=np.float64))
    return float(((measured - first) * doublings / measured**2).sum() / (doublings**2 / measured**2).sum())
