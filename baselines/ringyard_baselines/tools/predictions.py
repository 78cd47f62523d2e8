"""Remaining work of jobs, from the workload's predictions or from loss curves."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.view import SchedulingView


def or_as_many_as_done(
    view: SchedulingView, jobs: NDArray[np.integer[Any]], left: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return iterations `left` [n]; where they are NaN, as many as are done, at least those of one second."""
    seen = view.select(jobs)
    done = np.maximum(seen.completed_iterations, 1.0 / seen.column("isolated_iteration_seconds"))
    return np.where(np.isnan(left), done, left)


def expected_iterations_left(view: SchedulingView, jobs: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return predicted iterations left at the base batch [n].

    Assumption: a job that is not predictable now has as much left as it has done, at least one second of
    work.

    Args:
        view: the cluster and its jobs now.
        jobs: [n] rows of waiting or running jobs.
    """
    return or_as_many_as_done(view, jobs, view.select(jobs).predicted_iterations)


def expected_seconds_left(view: SchedulingView, jobs: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return `expected_iterations_left` in isolated seconds as the job asks to run [n].

    Args:
        view: the cluster and its jobs now.
        jobs: [n] rows of waiting or running jobs.
    """
    seconds: NDArray[np.float64] = view.column("isolated_iteration_seconds")[jobs]
    return expected_iterations_left(view, jobs) * seconds


#: share of flat noisy losses, and of random walks, that `LossCurves` trusts at any time over a log of 100
#: points, at most (`benchmarks/loss_curves.py` measures it)
FALSE_POSITIVE_RATE = 0.05

FEWEST_POINTS = 5  #: least number of points for a fit (Optimus takes 5 samples)

REFIT_GROWTH = 1.1  #: a loss curve is fitted anew when its log has grown by this factor

#: squared deviations from the mean / from the curve, at least. About 1 if the loss does not fall. Above the
#: second, the curve is exact but for the steps of the ends tried, and the other test is not needed.
_LEAST_FALL, _EXACT_FALL = 4.0, 1e3

#: (a, b): the Durbin-Watson statistic of n points is a + b / n at least; that of white noise is 2. Chosen,
#: with `_LEAST_FALL`, on random walks with steps of 1 to 40 %, of which 0 to 2.8 % are trusted.
_LEAST_WHITENESS = (0.6, 24.0)

#: iterations left / done that are tried, and the curve's steepness b0 / b1 in iterations done
_LEFT = np.geomspace(0.02, 50.0, 60)
_STEEPNESS = np.geomspace(0.02, 10.0, 30)

_END = 1.0 / (1.0 + _LEFT[:, None] + _STEEPNESS)  #: [left, steepness] height of the curve where the loss is 0


class LossForecast(NamedTuple):
    """What a loss log says about a job's end."""

    points: int = 0  #: length of the log
    left: float = np.inf  #: iterations until the loss reaches its target, the median of what fits
    confidence: float = 0.0  #: probability that these are right within a factor of two, 0 to 1
    significant: bool = False  #: whether the loss falls along a curve, by more than chance


def forecast(iterations: NDArray[np.float64], loss: NDArray[np.float64]) -> LossForecast:
    """Fit the curve 1 / (b0 k + b1) + b2 to a loss log, and extrapolate it to the target 0.

    Each pair of an end and a steepness leaves one coefficient, which has a closed form. With Gaussian noise
    of unknown size, the squared errors of all pairs are the likelihood of each end. Two tests have to reject
    that the loss is flat (it falls little about its mean), and that it is a random walk (deviations from the
    curve are like their predecessors). Their thresholds are for logs that are read at each `REFIT_GROWTH`.

    Args:
        iterations: [points] iterations at which losses were logged.
        loss: [points] normalised losses.

    Returns:
        The forecast, one without confidence if the log has fewer than `FEWEST_POINTS`.
    """
    count = len(loss)
    if count < FEWEST_POINTS:
        return LossForecast(count)
    curves = 1.0 / (iterations / iterations[-1] + _STEEPNESS[:, None])  # [steepness, points]
    projected, squares = curves @ loss - _END * loss.sum(), loss @ loss
    norms = (curves**2).sum(1) - 2.0 * _END * curves.sum(1) + count * _END**2
    size = np.maximum(projected, 0.0) / norms
    errors = np.maximum(squares - size * projected, 1e-12 * (1.0 + squares))
    best, steepness = np.unravel_index(int(np.argmin(errors)), errors.shape)
    likelihood = ((errors[best, steepness] / errors) ** ((count - 2) / 2)).sum(axis=1)
    likelihood /= likelihood.sum()
    middle = int(np.searchsorted(np.cumsum(likelihood), 0.5))
    near = np.abs(np.log(_LEFT / _LEFT[middle])) <= np.log(2.0)
    noise = loss - size[best, steepness] * (curves[steepness] - _END[best, steepness])
    fall = ((loss - loss.mean()) ** 2).sum() / errors[best, steepness]
    least = _LEAST_WHITENESS[0] + _LEAST_WHITENESS[1] / count
    white = (np.diff(noise) ** 2).sum() >= least * (noise @ noise)
    significant = bool(fall >= _LEAST_FALL and (white or fall >= _EXACT_FALL))
    return LossForecast(count, _LEFT[middle] * iterations[-1], float(likelihood[near].sum()), significant)


class LossCurves:
    """Remaining work of jobs by their loss logs, where these can be trusted at the moment.

    A curve is fitted again when its log has grown by `REFIT_GROWTH`, and trusted or not by that fit, if its
    confidence (`LossForecast`) is `confidence` at least.
    """

    def __init__(self, confidence: float = 0.5) -> None:
        self._confidence = confidence
        self._forecasts: dict[int, tuple[float, LossForecast]] = {}  # the first is the iteration of the end

    def iterations_left(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return iterations left at the base batch [n], NaN where the loss log is not trusted.

        At least 2 % of those done are left, whatever the log says.

        Args:
            view: the cluster and its jobs now.
            jobs: [n] rows of jobs.
        """
        seen = view.select(jobs)
        done, left = seen.completed_iterations, np.full(len(jobs), np.nan)
        for i, (job, points) in enumerate(zip(jobs.tolist(), seen.epochs_logged.tolist(), strict=True)):
            end, known = self._forecasts.get(job, (np.inf, LossForecast()))
            if points >= max(REFIT_GROWTH * known.points, FEWEST_POINTS):
                iterations, loss = view.loss_log(job)
                known = forecast(iterations, loss)
                end = float(iterations[-1]) + known.left
                self._forecasts[job] = end, known
            if known.significant and known.confidence >= self._confidence:
                left[i] = max(end - done[i], _LEFT[0] * done[i])
        return left
