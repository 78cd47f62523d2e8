"""Paired comparison of schedulers over the same workloads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "mean_interval", "ratio_interval"]

RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def _resampled(count: int) -> NDArray[np.int64]:
    """[RESAMPLES, count] rows drawn with replacement, the same for every caller."""
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """Mean of [workloads] values with a percentile bootstrap interval."""
    means = values[_resampled(len(values))].mean(axis=1)
    return Interval(float(values.mean()), *(float(q) for q in np.percentile(means, [2.5, 97.5])))


def ratio_interval(values: NDArray[np.float64], reference: NDArray[np.float64]) -> Interval:
    """mean(values) / mean(reference) over the same workloads; workloads are resampled in pairs."""
    rows = _resampled(len(values))
    ratios = values[rows].mean(axis=1) / reference[rows].mean(axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return Interval(float(values.mean() / reference.mean()), float(low), float(high))
