"""Remaining work of jobs, from the workload's predictions or from loss curves."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.job_columns import JobColumns
from ringyard.sim.view import SchedulingView


def _iterations_done(seen: JobColumns) -> NDArray[np.float64]:
    """Return iterations done [n], at least those of one second."""
    return np.maximum(seen.completed_iterations, 1.0 / seen.column("isolated_iteration_seconds"))


def expected_iterations_left(view: SchedulingView, jobs: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return predicted iterations left at the base batch [n].

    Assumption: a job that is not predictable now has as much left as it has done, at least one second of
    work.

    Args:
        view: the cluster and its jobs now.
        jobs: [n] rows of waiting or running jobs.
    """
    left = view.select(jobs).predicted_iterations
    unknown = np.isnan(left)
    if unknown.any():
        left[unknown] = _iterations_done(view.select(jobs[unknown]))
    return left


def expected_seconds_left(view: SchedulingView, jobs: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return `expected_iterations_left` in isolated seconds as the job asks to run [n].

    Args:
        view: the cluster and its jobs now.
        jobs: [n] rows of waiting or running jobs.
    """
    seconds: NDArray[np.float64] = view.column("isolated_iteration_seconds")[jobs]
    return expected_iterations_left(view, jobs) * seconds


#: asymptotes c tried for the loss curve 1 / (a k + b) + c. The target is a normalised loss of 0
ASYMPTOTES = -np.geomspace(0.02, 2.0, 12)

#: least number of points for a fit (Optimus takes 5 samples)
FEWEST_POINTS = 5


def _curve_end(iterations: NDArray[np.float64], loss: NDArray[np.float64]) -> float:
    """Return the iteration at which the fitted curve 1 / (a k + b) + c reaches 0; inf if it never does.

    The last third of the points weighs 16 times, the middle one 4 times the first (Optimus' public code
    divides their standard deviations by 16 and 4).
    """
    count = len(iterations)
    weights = np.repeat([1.0, 4.0, 16.0], [count // 3, count // 3, count - 2 * (count // 3)])
    done = iterations / iterations[-1]
    height = np.maximum(loss - ASYMPTOTES[:, None], 1e-3)
    # The line a k + b is fitted to 1 / height. Its residuals are the loss's over height squared.
    squared = (weights * height**2) ** 2
    total = squared.sum(axis=1)
    centre, level = squared @ done / total, (squared / height).sum(axis=1) / total
    away = done - centre[:, None]
    a = (squared * away / height).sum(axis=1) / (squared * away**2).sum(axis=1)
    b = level - a * centre
    through_zero = (squared / height) @ done / (squared @ done**2)
    a, b = np.where(b < 0, through_zero, a), np.maximum(b, 0.0)
    error = (squared * (a[:, None] * done + b[:, None] - 1.0 / height) ** 2).sum(axis=1)
    rises = a > 1e-12 * b  # otherwise it is flat up to rounding
    best = int(np.argmin(np.where(rises, error, np.inf)))
    end = (-1.0 / ASYMPTOTES[best] - b[best]) / a[best] * iterations[-1] if rises[best] else np.inf
    return float(end)


def curve_prediction(iterations: NDArray[np.float64], loss: NDArray[np.float64]) -> tuple[float, float]:
    """Predict from a loss log where a job ends, and how certain that is.

    Args:
        iterations: [points] iterations at which losses were logged.
        loss: [points] normalised losses.

    Returns:
        The iteration at which the fitted curve reaches the target, inf if it never does, and the confidence
        in [0, 1]. The confidence is the smaller ratio between the remaining iterations by the whole log and
        by the log without its newest quarter (an assumption). (inf, 0) if the log is too short for both fits.
    """
    earlier = 3 * len(loss) // 4
    if earlier < FEWEST_POINTS:
        return np.inf, 0.0
    end, before = _curve_end(iterations, loss), _curve_end(iterations[:earlier], loss[:earlier])
    low, high = sorted((end - iterations[-1], before - iterations[-1]))
    return end, low / high if 0 < low and high < np.inf else 0.0


class LossCurves:
    """Remaining work of jobs by their loss logs. A curve is fitted again when its log has grown."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[int, float]] = {}

    def iterations_left(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return iterations left at the base batch [n], extrapolated from loss logs.

        Source: Optimus (EuroSys 2018), loss(k) = 1 / (a k + b) + c, as in AITurbo's follow-on. Assumption:
        with fewer than 5 epochs logged, or a curve that never reaches the target, as much is left as is done.

        Args:
            view: the cluster and its jobs now.
            jobs: [n] rows of jobs.
        """
        seen = view.select(jobs)
        done, left, points = seen.completed_iterations, _iterations_done(seen), seen.epochs_logged
        for i in np.flatnonzero(points >= FEWEST_POINTS).tolist():
            end = self._end(view, int(jobs[i]), int(points[i]))
            if end < np.inf:
                left[i] = max(end - done[i], 0.02 * done[i])
        return left

    def _end(self, view: SchedulingView, job: int, points: int) -> float:
        """Return the iteration at which `job` ends, by the `points` points of its log."""
        known = self._ends.get(job)
        if known is None or known[0] != points:
            known = self._ends[job] = (points, _curve_end(*view.loss_log(job)))
        return known[1]
