"""Paired comparison of schedulers over the same workloads: what is printed beside a mean, and why.

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
FEWEST_WORKLOADS = 20

_CONFIDENCE = 0.95

#: differences of less than this share are rounding, such as that of equal schedules
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class _Estimate:
    """A ratio of means on the scale where its error is symmetric.

    Attributes:
        ratio: of means; NaN beside a mean of 0.
        error: standard error of the ratio's logarithm, or of the ratio; infinite for one workload.
        logarithmic: which; the ratio itself only where values may be negative, or all are 0.
        count: workloads.
    """

    ratio: float
    error: float
    logarithmic: bool
    count: int

    @property
    def from_one(self) -> float:
        """Standard errors between the ratio and 1."""
        away = abs(np.log(self.ratio) if self.logarithmic else self.ratio - 1)
        if self.error == 0:
            return np.inf if away > _ROUNDING else 0.0
        return float(away / self.error)


def _estimate(values: NDArray[np.float64], reference: NDArray[np.float64]) -> _Estimate:
    own, other = float(values.mean()), float(reference.mean())
    count = len(values)
    if other == 0:
        return _Estimate(float("nan"), float("nan"), False, count)
    logarithmic = own > 0 and other > 0 and values.min() >= 0 and reference.min() >= 0
    moved = values / own - reference / other if logarithmic else (values - own / other * reference) / other
    spread = moved.std(ddof=1) / np.sqrt(count) if count > 1 else np.inf
    rounding = _ROUNDING if logarithmic else _ROUNDING * abs(own / other)
    return _Estimate(own / other, 0.0 if spread <= rounding else float(spread), bool(logarithmic), count)


def ratio_interval(values: NDArray[np.float64], reference: NDArray[np.float64]) -> Interval:
    """mean(values) / mean(reference) over the same workloads, paired.

    One workload says nothing about others: its interval is all there is. Beside a mean of 0 all is NaN.

    Args:
        values: [workloads].
        reference: [workloads] of whom they are compared with.
    """
    found = _estimate(values, reference)
    half = found.error * float(stdtrit(max(found.count - 1, 1), (1 + _CONFIDENCE) / 2))
    if found.logarithmic:
        with np.errstate(over="ignore"):
            return Interval(
                found.ratio, float(found.ratio * np.exp(-half)), float(found.ratio * np.exp(half))
            )
    return Interval(found.ratio, found.ratio - half, found.ratio + half)


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """Mean of [workloads] values."""
    return ratio_interval(values, np.ones(len(values)))


def p_value(values: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """How likely two equal means are to lie as far apart as these, two-sided.

    At most 0.05 where, and only where, 1 is outside of `ratio_interval`.

    Args:
        values: [workloads].
        reference: [workloads] of whom they are compared with.
    """
    found = _estimate(values, reference)
    return float(2 * stdtr(max(found.count - 1, 1), -found.from_one))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[comparisons] p-values adjusted for being several (Holm, Scand. J. Statist. 6, 1979).

    Whoever takes those of at most 0.05 for differences is wrong about any of them in at most 5 % of tables.
    """
    order = np.argsort(p_values)
    steps = (len(order) - np.arange(len(order))) * p_values[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def small_sample_warning(workloads: int) -> str | None:
    """A warning for tables of few workloads; None for enough."""
    if workloads >= FEWEST_WORKLOADS:
        return None
    if workloads == 1:
        return "warning: 1 workload, which says nothing of others"
    return (
        f"warning: {workloads} workloads; below {FEWEST_WORKLOADS} intervals are wide, and hold the truth"
        " less often than they say (docs/benchmarks.md)"
    )
