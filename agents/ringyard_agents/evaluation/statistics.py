"""Statistics of schedulers on the same workloads: intervals and p-values for ratios of means.

A scheduler is compared with the reference by the *ratio of their means*, the quantity that tables sort by
and papers claim. Its interval is Student's t of the ratio's logarithm by the delta method: each workload
moves the logarithm by x_i / mean(x) - y_i / mean(y) (van der Vaart, "Asymptotic Statistics", 1998, 3.1). The
interval of a mean is that of its ratio to ones. `benchmarks/coverage.py` measures how often this interval and
those of the bootstrap (percentile, BCa, studentised) cover the true value, see docs/benchmarks.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit  # Student's t; importing scipy.stats takes half a second

from ringyard_agents.evaluation.notes import NOTES

MIN_WORKLOADS = 20  #: fewer workloads than these print a warning

_CONFIDENCE = 0.95

_ROUNDING = 1e-12  #: relative differences below this are rounding errors between equal schedules


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def _estimate(values: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, float, bool]:
    """Return (ratio of means, its standard error, whether that is of its logarithm: no value below 0)."""
    own, other, count = float(values.mean()), float(reference.mean()), len(values)
    if other == 0:
        return float("nan"), float("nan"), False
    logarithmic = bool(own > 0 and other > 0 and values.min() >= 0 and reference.min() >= 0)
    moved = values / own - reference / other if logarithmic else (values - own / other * reference) / other
    spread = float(moved.std(ddof=1) / np.sqrt(count)) if count > 1 else float("inf")
    rounding = _ROUNDING if logarithmic else _ROUNDING * abs(own / other)
    return own / other, 0.0 if spread <= rounding else spread, logarithmic


def ratio_interval(
    values: NDArray[np.float64], reference: NDArray[np.float64], confidence: float = _CONFIDENCE
) -> Interval:
    """Return mean(values) / mean(reference) of paired workloads (NaN: by 0), with its interval."""
    ratio, error, logarithmic = _estimate(values, reference)
    half = error * float(stdtrit(max(len(values) - 1, 1), (1 + confidence) / 2))
    if not logarithmic:
        return Interval(ratio, ratio - half, ratio + half)
    with np.errstate(over="ignore"):
        return Interval(ratio, float(ratio * np.exp(-half)), float(ratio * np.exp(half)))


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """Return the mean of [workloads] values with its 95 % interval."""
    return ratio_interval(values, np.ones(len(values)))


def p_value(values: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Return the two-sided p-value of equal means: at most 0.05 just if 1 is outside of `ratio_interval`."""
    ratio, error, logarithmic = _estimate(values, reference)
    away = abs(float(np.log(ratio)) if logarithmic else ratio - 1)
    if error == 0:
        errors = float("inf") if away > _ROUNDING else 0.0
    else:
        errors = away / error
    return float(2 * stdtr(max(len(values) - 1, 1), -errors))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjust p-values [comparisons] for multiple comparisons (Holm, Scand. J. Statist. 6, 1979)."""
    order = np.argsort(p_values)
    steps = (len(order) - np.arange(len(order))) * p_values[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def holm_confidences(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the confidence of each comparison's interval that excludes 1 just if Holm's test rejects.

    A rejected comparison has the level at which it was tested, the others that of the first not rejected.
    """
    ranks, alpha = np.argsort(np.argsort(p_values)), 1 - _CONFIDENCE
    return 1 - alpha / (len(ranks) - np.minimum(ranks, (holm(p_values) <= alpha).sum()))


def small_sample_warning(workloads: int) -> str | None:
    """Return a warning if a table has few workloads, else None."""
    if workloads >= MIN_WORKLOADS:
        return None
    return NOTES["one" if workloads == 1 else "few"].format(workloads=workloads, enough=MIN_WORKLOADS)
