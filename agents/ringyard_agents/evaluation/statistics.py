"""Statistics of schedulers on the same workloads: intervals and p-values of ratios of means.

A row is compared with its reference by the *ratio of their means*, the quantity that tables are sorted by
and papers claim. Its interval is Student's of the ratio's logarithm, by the delta method: each workload moves
the logarithm by x_i / mean(x) - y_i / mean(y) (van der Vaart, "Asymptotic Statistics", 1998, section 3.1). A
mean alone is the ratio to ones. `benchmarks/coverage.py` measures how often this interval and the bootstrap's
(percentile, BCa, studentised) hold the truth; docs/benchmarks.md has the figures.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit  # Student's t without scipy.stats, whose import takes half a second

#: fewer than these deserve a warning
MIN_WORKLOADS = 20

_CONFIDENCE = 0.95

#: differences of less than this share are rounding, such as that of equal schedules
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def _estimate(values: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, float, bool]:
    """(ratio of means, its standard error, whether the error is that of the ratio's logarithm).

    The ratio is NaN beside a mean of 0, and the error of one workload is infinite. The error is of the ratio
    itself where values may be negative, or all are 0.
    """
    own, other, count = float(values.mean()), float(reference.mean()), len(values)
    if other == 0:
        return float("nan"), float("nan"), False
    logarithmic = bool(own > 0 and other > 0 and values.min() >= 0 and reference.min() >= 0)
    moved = values / own - reference / other if logarithmic else (values - own / other * reference) / other
    spread = float(moved.std(ddof=1) / np.sqrt(count)) if count > 1 else float("inf")
    rounding = _ROUNDING if logarithmic else _ROUNDING * abs(own / other)
    return own / other, 0.0 if spread <= rounding else spread, logarithmic


def ratio_interval(values: NDArray[np.float64], reference: NDArray[np.float64]) -> Interval:
    """mean(values) / mean(reference) over the same workloads, paired.

    The interval of one workload is everything. Beside a mean of 0 all is NaN.

    Args:
        values: [workloads].
        reference: [workloads], of the scheduler to compare with.
    """
    ratio, error, logarithmic = _estimate(values, reference)
    half = error * float(stdtrit(max(len(values) - 1, 1), (1 + _CONFIDENCE) / 2))
    if not logarithmic:
        return Interval(ratio, ratio - half, ratio + half)
    with np.errstate(over="ignore"):
        return Interval(ratio, float(ratio * np.exp(-half)), float(ratio * np.exp(half)))


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """Mean of [workloads] values."""
    return ratio_interval(values, np.ones(len(values)))


def p_value(values: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Probability that two equal means lie as far apart as these, two-sided.

    It is at most 0.05 where, and only where, 1 is outside of `ratio_interval`.

    Args:
        values: [workloads].
        reference: [workloads], of the scheduler to compare with.
    """
    ratio, error, logarithmic = _estimate(values, reference)
    away = abs(float(np.log(ratio)) if logarithmic else ratio - 1)
    if error == 0:
        errors = float("inf") if away > _ROUNDING else 0.0
    else:
        errors = away / error
    return float(2 * stdtr(max(len(values) - 1, 1), -errors))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[comparisons] p-values adjusted for being several (Holm, Scand. J. Statist. 6, 1979).

    If adjusted values of at most 0.05 count as differences, at most 5 % of tables have a false one.
    """
    order = np.argsort(p_values)
    steps = (len(order) - np.arange(len(order))) * p_values[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def small_sample_warning(workloads: int) -> str | None:
    """A warning for tables of few workloads; None for enough."""
    if workloads >= MIN_WORKLOADS:
        return None
    if workloads == 1:
        return "warning: 1 workload, which says nothing of others"
    return (
        f"warning: {workloads} workloads; below {MIN_WORKLOADS} intervals are wide, and hold the truth"
        " less often than they say (docs/benchmarks.md)"
    )
