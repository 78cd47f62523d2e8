"""Fits of training speed by CPU cores."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from ringyard.performance.host import input_seconds, useful_cores

__all__ = ["CoreCurve", "best_factor", "core_curves", "fit_core_curves"]

_useful = np.vectorize(useful_cores, otypes=[float])
_input = np.vectorize(input_seconds, otypes=[float])
#: a curve that changes less than this has no limit that cores lift
_FLAT = 1.02


@dataclass(frozen=True)
class CoreCurve:
    """How fast one worker trains by CPU cores.

    Attributes:
        samples_per_core_second: what one core prepares without serial work; inf: cores are no limit.
        loading_serial_share: s of `ringyard.performance.host.useful_cores`.
        sample_seconds: of one sample with cores to spare.
    """

    samples_per_core_second: float
    loading_serial_share: float
    sample_seconds: float

    def seconds(self, cores: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] predicted seconds of one sample on so many cores per worker."""
        useful = _useful(cores, self.loading_serial_share)
        return np.maximum(_input(1.0, useful, self.samples_per_core_second, 1.0), self.sample_seconds)


def best_factor(values: NDArray[np.float64]) -> float:
    """The factor a for which the sum of (a x values - 1)^2 is least."""
    return float(values.sum() / (values**2).sum())


def _error(curve: CoreCurve, cores: NDArray[np.float64], seconds: NDArray[np.float64]) -> float:
    return float(((seconds / curve.seconds(cores) - 1.0) ** 2).sum())


def _curve(cores: NDArray[np.float64], seconds: NDArray[np.float64], share: float) -> CoreCurve:
    """Least squared relative errors of throughput, by trying how many of the rows cores limit."""
    useful = _useful(cores, share)
    order = np.argsort(useful, kind="stable")
    prepared = (useful * seconds)[order]  # rate x these = predicted / measured throughput
    computed = seconds[order]
    found = [
        CoreCurve(best_factor(prepared[:split]), share, 1.0 / best_factor(computed[split:]))
        for split in range(1, len(order))
    ]
    return min(found, key=lambda curve: _error(curve, cores, seconds))


def fit_core_curves(
    measured: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], serial_share: float | None = None
) -> dict[str, CoreCurve]:
    """One curve for each model, t = max(1 / (c / (1 + s c) x rate), t_gpu), with one s for all of them.

    Args:
        measured: {model: ([rows] cores per worker, [rows] seconds of one sample)}, memory to spare; two
            different numbers of cores at least.
        serial_share: s; None: the one that fits them best together.

    Returns:
        {model: curve}; a model whose measurements do not differ has no limit.
    """
    tables = {name: (np.asarray(c, float), np.asarray(t, float)) for name, (c, t) in measured.items()}
    bent = {name: table for name, table in tables.items() if table[1].max() >= _FLAT * table[1].min()}

    def error(log_share: float) -> float:
        share = float(np.exp(log_share))
        return sum(_error(_curve(*table, share), *table) for table in bent.values())

    if serial_share is None and bent:
        tried = np.log(np.geomspace(1e-3, 1.0, 31))
        near = int(np.argmin([error(one) for one in tried]))
        ends = tried[max(near - 1, 0)], tried[min(near + 1, len(tried) - 1)]
        serial_share = float(np.exp(minimize_scalar(error, bounds=ends, method="bounded").x))
    flat = {name: CoreCurve(float("inf"), 0.0, float(t.mean())) for name, (_, t) in tables.items()}
    return flat | {name: _curve(*table, serial_share or 0.0) for name, table in bent.items()}


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
