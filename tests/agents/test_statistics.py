"""Intervals, p-values and what they promise."""

import numpy as np
import pytest
from scipy import stats

from ringyard_agents.evaluation.ranking import (
    Interval,
    holm,
    mean_interval,
    p_value,
    ratio_interval,
    small_sample_warning,
)

NOTHING = Interval(pytest.approx(np.nan, nan_ok=True), *[pytest.approx(np.nan, nan_ok=True)] * 2)


def test_a_mean_by_hand():
    found = mean_interval(np.array([1.0, 3.0]))
    half = (
        12.7062 * 0.5
    )  # Student's quantile of 1 degree of freedom; workloads move the logarithm by -0.5 and 0.5
    assert found == Interval(2.0, *(pytest.approx(2 * np.exp(sign * half), rel=1e-4) for sign in (-1, 1)))


def test_a_ratio_by_hand():
    values, reference = np.array([1.0, 2.0, 6.0]), np.array([2.0, 4.0, 3.0])
    found = ratio_interval(values, reference)
    moved = values / 3 - reference / 3  # both means are 3
    low, high = stats.ttest_1samp(moved, 0.0).confidence_interval()
    assert (found.value, found.low, found.high) == pytest.approx((1.0, np.exp(low), np.exp(high)))
    assert ratio_interval(reference, values) == Interval(
        1.0, pytest.approx(1 / found.high), pytest.approx(1 / found.low)
    )


@pytest.mark.parametrize(("spread", "count"), [(0.2, 10), (0.4, 20)])
def test_intervals_hold_the_truth(spread, count):
    rng = np.random.default_rng(0)
    workloads = rng.lognormal(0.0, 0.5, (1000, count))  # hard and easy ones, for both
    values = workloads * rng.lognormal(0.0, spread, workloads.shape)
    reference = workloads * rng.lognormal(0.2, spread, workloads.shape)
    truth = np.exp(-0.2)
    intervals = [ratio_interval(*pair) for pair in zip(values, reference, strict=True)]
    held = np.mean([one.low <= truth <= one.high for one in intervals])
    assert 0.92 <= held <= 0.98


def test_p_values_agree_with_intervals():
    rng = np.random.default_rng(1)
    for shift in np.linspace(0.0, 0.5, 30):
        values, reference = rng.lognormal(0.0, 0.4, 20), rng.lognormal(shift, 0.4, 20)
        found = ratio_interval(values, reference)
        assert (p_value(values, reference) <= 0.05) == (not found.low <= 1 <= found.high)


def test_holm_by_hand():
    assert holm(np.array([0.04, 0.01, 0.03])) == pytest.approx([0.06, 0.03, 0.06])
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])


def test_one_workload_says_nothing_of_others():
    one = np.array([3.0])
    assert mean_interval(one) == Interval(3.0, 0.0, np.inf)
    assert ratio_interval(one, 2 * one) == Interval(0.5, 0.0, np.inf)
    assert mean_interval(-one) == Interval(-3.0, -np.inf, np.inf)
    assert p_value(one, 2 * one) == 1.0


def test_equal_values_have_no_width():
    values = np.array([1.0, 7.0, 0.1])
    assert ratio_interval(values, values) == Interval(1.0, 1.0, 1.0)
    assert p_value(values, values * (1 + 1e-15)) == 1.0
    assert p_value(values, values * 1.1) == 0.0
    assert mean_interval(np.full(3, 5.0)) == Interval(5.0, 5.0, 5.0)
    assert mean_interval(np.zeros(3)) == Interval(0.0, 0.0, 0.0)


def test_zeros_and_negative_values():
    some, none = np.array([0.0, 0.0, 3.0]), np.zeros(3)
    assert mean_interval(some).low > 0  # counts are never negative
    assert ratio_interval(none, some) == Interval(0.0, 0.0, 0.0)
    assert ratio_interval(some, none) == NOTHING
    gained = np.array([-2.0, -1.0, 3.0])
    low, high = stats.ttest_1samp(gained, 0.0).confidence_interval()
    assert mean_interval(gained) == Interval(0.0, pytest.approx(low), pytest.approx(high))
    assert mean_interval(np.array([1.0, np.nan])) == NOTHING


def test_few_workloads_are_said():
    assert "19 workloads" in small_sample_warning(19)
    assert small_sample_warning(20) is None
