"""What a cluster was like as time passed: means over workloads on a common time axis."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard_agents.report.bands import Band, band_of_means, band_of_ratios

__all__ = ["Curves", "curves"]

POINTS = 200


class Curves:
    """Of one scheduler.

    Attributes:
        seconds: [points] simulated time.
        running_jct: mean JCT of the jobs finished so far, NaN before the first.
        waiting: mean jobs waiting.
        utilisation: mean share of busy GPUs.
    """

    def __init__(self, jobs: pd.DataFrame, timelines: pd.DataFrame, seconds: NDArray[np.float64]) -> None:
        self.seconds = seconds
        # [workloads, 2, points]
        finished = np.array([_finished(own, seconds) for _, own in jobs.groupby("workload")])
        bins = [own for _, own in timelines.groupby("workload")]
        self.running_jct: Band = band_of_ratios(finished[:, 0].T, finished[:, 1].T).within(0.0, np.inf)
        self.waiting: Band = band_of_means(_on_axis(bins, "waiting", seconds)).within(0.0, np.inf)
        self.utilisation: Band = band_of_means(_on_axis(bins, "utilisation", seconds)).within(0.0, 1.0)


def _finished(jobs: pd.DataFrame, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """[2, points] sum of the JCTs of the jobs of a run that have finished so far, and their number."""
    served = jobs[jobs["outcome"] != "blocked"].sort_values("end_time", kind="stable")
    count = np.searchsorted(served["end_time"].to_numpy(), seconds, side="right")
    totals = np.concatenate([[0.0], np.cumsum(served["jct"].to_numpy())])
    return np.stack([totals[count], count])


def _on_axis(runs: Sequence[pd.DataFrame], column: str, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """[points, workloads]; a run that has ended counts as 0."""
    found = np.zeros((len(seconds), len(runs)))
    for k, run in enumerate(runs):
        ends, values = run["end_seconds"].to_numpy(), run[column].to_numpy()
        bins = np.searchsorted(ends, seconds)
        found[:, k] = np.where(bins < len(ends), values[np.minimum(bins, len(ends) - 1)], 0.0)
    return found


def curves(jobs: pd.DataFrame, timelines: pd.DataFrame) -> dict[str, Curves]:
    """{label: curves} for all schedulers on one time axis.

    The axis reaches to where 99 % of all jobs have ended: the last ones would stretch it too far.

    Args:
        jobs: of `Results`.
        timelines: of `Results`.
    """
    most = float(np.percentile(jobs["end_time"].to_numpy(), 99))
    seconds = np.linspace(most / POINTS, most, POINTS)
    bins = dict(iter(timelines.groupby("scheduler")))
    return {
        str(label): Curves(own, bins[label], seconds) for label, own in jobs.groupby("scheduler", sort=False)
    }
