"""What a cluster was like as time passed: means over workloads on a common time axis."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringyard_agents.evaluation.evaluate import RunResult
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

    def __init__(self, results: Sequence[RunResult], seconds: NDArray[np.float64]) -> None:
        self.seconds = seconds
        finished = np.array([_finished(result, seconds) for result in results])  # [workloads, 2, points]
        self.running_jct: Band = band_of_ratios(finished[:, 0].T, finished[:, 1].T).within(0.0, np.inf)
        self.waiting: Band = band_of_means(_timelines(results, 1, seconds)).within(0.0, np.inf)
        self.utilisation: Band = band_of_means(_timelines(results, 2, seconds)).within(0.0, 1.0)


def _finished(result: RunResult, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """[2, points] sum of the JCTs of the jobs finished so far, and their number."""
    served = result.times.served()
    order = np.argsort(served.end_seconds, kind="stable")
    count = np.searchsorted(served.end_seconds[order], seconds, side="right")
    totals = np.concatenate([[0.0], np.cumsum(served.jct[order])])
    return np.stack([totals[count], count])


def _timelines(
    results: Sequence[RunResult], column: int, seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[points, workloads]; a run that has ended counts as 0."""
    found = np.zeros((len(seconds), len(results)))
    for k, result in enumerate(results):
        ends, values = result.timeline[0], result.timeline[column]
        bins = np.searchsorted(ends, seconds)
        found[:, k] = np.where(bins < len(ends), values[np.minimum(bins, len(ends) - 1)], 0.0)
    return found


def curves(results: Sequence[RunResult]) -> dict[str, Curves]:
    """{label: curves} for all schedulers on one time axis.

    The axis reaches to where 99 % of all jobs have ended: the last ones would stretch it too far.
    """
    ends = np.concatenate([result.times.end_seconds for result in results])
    most = float(np.percentile(ends, 99))
    seconds = np.linspace(most / POINTS, most, POINTS)
    labels = list(dict.fromkeys(result.label for result in results))
    return {label: Curves([r for r in results if r.label == label], seconds) for label in labels}
