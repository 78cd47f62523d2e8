"""95 % intervals around curves and aggregates over workloads or seeds: what plots shade."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, bootstrap, trim_mean
from scipy.stats import t as student

from ringyard_agents.evaluation.statistics import Interval

__all__ = ["Band", "band_of_means", "band_of_ratios", "band_of_shares", "interquartile_mean"]

_CONFIDENCE = 0.95
_TAILS = (0.025, 0.975)
_RESAMPLES = 2000


@dataclass(frozen=True)
class Band:
    """A curve with its interval at each point.

    Attributes:
        value: [points].
        low: [points], equal to `value` where there is one sample only.
        high: [points].
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def within(self, low: float, high: float) -> "Band":
        """The same with an interval that stays inside of what values can be."""
        return Band(self.value, np.clip(self.low, low, high), np.clip(self.high, low, high))


def band_of_means(values: NDArray[np.float64]) -> Band:
    """Mean of [points, samples] over samples, with Student's interval."""
    return band_of_ratios(values, np.ones_like(values))


def band_of_ratios(values: NDArray[np.float64], weights: NDArray[np.float64]) -> Band:
    """Sum of values over sum of weights, samples in pairs, with Student's interval by the delta method.

    Args:
        values: [points, samples].
        weights: [points, samples]; where all are 0 the ratio is NaN.
    """
    count = values.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = values.sum(axis=1) / weights.sum(axis=1)
        if count == 1:
            return Band(ratio, ratio, ratio)
        moved = (values - ratio[:, None] * weights) / weights.mean(axis=1, keepdims=True)
    error = moved.std(axis=1, ddof=1) / np.sqrt(count)
    half = error * float(student.ppf((1 + _CONFIDENCE) / 2, count - 1))
    return Band(ratio, ratio - half, ratio + half)


def band_of_shares(holds: NDArray[np.bool_]) -> Band:
    """Share of [points, samples] that hold, with the interval that a percentile bootstrap goes to.

    Samples that are drawn anew hold as often as a binomial number says, so nothing needs to be drawn.
    """
    count, share = holds.shape[1], holds.mean(axis=1)
    low, high = (binom.ppf(level, count, share) / count for level in _TAILS)
    return Band(share, low, high) if count > 1 else Band(share, share, share)


def interquartile_mean(strata: Sequence[NDArray[np.float64]]) -> Interval:
    """Mean of the middle half of all scores, with the percentile interval of a stratified bootstrap.

    What Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021), report
    of several tasks: scores are drawn anew within each task, and the tasks stay.

    Args:
        strata: [scores] of each task.
    """

    def statistic(*drawn: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return trim_mean(np.concatenate(drawn, axis=axis), 0.25, axis=axis)

    value = float(statistic(*strata, axis=-1))
    if min(len(scores) for scores in strata) < 2:
        return Interval(value, value, value)
    found = bootstrap(
        tuple(strata),
        statistic,
        method="percentile",
        confidence_level=_CONFIDENCE,
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(value, float(found.low), float(found.high))
