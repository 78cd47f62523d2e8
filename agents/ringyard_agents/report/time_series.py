"""Curves over simulated time, and 95 % intervals of curves and aggregates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom, bootstrap, trim_mean
from scipy.stats import t as student

from ringyard_agents.evaluation.ranking import Interval

_CONFIDENCE = 0.95
_TAILS = (0.025, 0.975)
_RESAMPLES = 2000
_POINTS = 200
_BAND_ALPHA = 0.15


@dataclass(frozen=True)
class Band:
    """A curve with its 95 % interval at each point, [points]. With one sample the interval is empty."""

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def within(self, low: float, high: float) -> "Band":
        """Clip the interval to the range of possible values, from `low` to `high`."""
        return Band(self.value, np.clip(self.low, low, high), np.clip(self.high, low, high))

    def draw(self, axes: Any, x: NDArray[np.float64], label: str) -> None:
        """Draw the curve with `label` over x [points] on matplotlib `axes`, the interval as a shade."""
        (line,) = axes.plot(x, self.value, label=label)
        if (self.low < self.high).any():
            axes.fill_between(x, self.low, self.high, color=line.get_color(), alpha=_BAND_ALPHA, linewidth=0)


def band_of_means(values: NDArray[np.float64]) -> Band:
    """Return the mean of [points, samples] over samples, with Student's t interval."""
    return band_of_ratios(values, np.ones_like(values))


def band_of_ratios(values: NDArray[np.float64], weights: NDArray[np.float64]) -> Band:
    """Return sum(values) / sum(weights) (0: NaN) over [points, samples], with a delta-method interval."""
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
    """Return the fraction of [points, samples] that hold, with the binomial limit of the bootstrap."""
    count, share = holds.shape[1], holds.mean(axis=1)
    low, high = (binom.ppf(level, count, share) / count for level in _TAILS)
    return Band(share, low, high) if count > 1 else Band(share, share, share)


def interquartile_mean(strata: Sequence[NDArray[np.float64]]) -> Interval:
    """Return the mean of the middle half of all scores, with a stratified bootstrap's percentile interval.

    Follows Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021):
    scores are resampled within each task.
    """

    def statistic(*drawn: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return trim_mean(np.concatenate(drawn, axis=axis), 0.25, axis=axis)

    value = float(statistic(*strata, axis=-1))
    if min(len(scores) for scores in strata) < 2:
        return Interval(value, value, value)
    rng = np.random.default_rng(0)
    options = {"method": "percentile", "confidence_level": _CONFIDENCE, "n_resamples": _RESAMPLES, "rng": rng}
    found = bootstrap(tuple(strata), statistic, **options).confidence_interval
    return Interval(value, float(found.low), float(found.high))


def _finished_by(jobs: pd.DataFrame, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [2, points]: the sum of the JCTs of the jobs finished by a time, and their number."""
    served = jobs[jobs["outcome"] != "blocked"].sort_values("end_time", kind="stable")
    count = np.searchsorted(served["end_time"].to_numpy(), seconds, side="right")
    totals = np.concatenate([[0.0], np.cumsum(served["jct"].to_numpy())])
    return np.stack([totals[count], count])


def _resample(runs: Sequence[pd.DataFrame], column: str, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Resample a column of the runs' bins, [points, workloads]. It is 0 after the end of a run."""
    found = np.zeros((len(seconds), len(runs)))
    for k, run in enumerate(runs):
        ends, values = run["end_seconds"].to_numpy(), run[column].to_numpy()
        bins = np.searchsorted(ends, seconds)
        found[:, k] = np.where(bins < len(ends), values[np.minimum(bins, len(ends) - 1)], 0.0)
    return found


def time_curves(
    jobs: pd.DataFrame, timelines: pd.DataFrame
) -> tuple[NDArray[np.float64], dict[str, dict[str, Band]]]:
    """Return (simulated seconds [points], {scheduler: {curve: band over its workloads}}).

    Curves are `running_jct`, the mean JCT of jobs finished so far (NaN before), mean `waiting` jobs and mean
    `utilisation`. The axis ends when 99 % of all jobs have ended, since the last would stretch it.
    """
    most = float(np.percentile(jobs["end_time"].to_numpy(), 99))
    seconds = np.linspace(most / _POINTS, most, _POINTS)
    found = {}
    for label, own in jobs.groupby("scheduler", sort=False):
        # [workloads, 2, points]
        finished = np.array([_finished_by(one, seconds) for _, one in own.groupby("workload")])
        bins = [one for _, one in timelines[timelines["scheduler"] == label].groupby("workload")]
        means = {name: band_of_means(_resample(bins, name, seconds)) for name in ("waiting", "utilisation")}
        jct = band_of_ratios(finished[:, 0].T, finished[:, 1].T).within(0.0, np.inf)
        waiting, utilisation = means["waiting"].within(0.0, np.inf), means["utilisation"].within(0.0, 1.0)
        found[str(label)] = {"running_jct": jct, "waiting": waiting, "utilisation": utilisation}
    return seconds, found
