"""What schedulers make of what they may see: remaining work, from predictions or from loss curves."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ringyard.sim.view import SchedulingView

__all__ = ["curve_prediction", "iterations_from_loss", "predicted_iterations", "predicted_seconds"]


def _as_much_again(view: SchedulingView) -> NDArray[np.float64]:
    """[jobs] iterations done, at least those of one second."""
    return np.maximum(view.completed_iterations, 1.0 / view.column("isolated_iteration_seconds"))


def predicted_iterations(view: SchedulingView) -> NDArray[np.float64]:
    """[jobs] predicted base iterations left.

    Assumption: of a job that is not predictable now, as much is left as is done; one that has not
    begun counts as if it had run one second.
    """
    known = view.predicted_iterations
    return np.where(np.isnan(known), _as_much_again(view), known)


def predicted_seconds(view: SchedulingView) -> NDArray[np.float64]:
    """[jobs] `predicted_iterations`, in seconds as the job asks to run, alone."""
    return predicted_iterations(view) * view.column("isolated_iteration_seconds")


#: asymptotes c tried for the loss curve 1 / (a k + b) + c; a normalised loss of 0 is the target
ASYMPTOTES = -np.geomspace(0.02, 2.0, 12)

#: a fit needs this many points: with fewer the curve says nothing (Optimus takes 5 samples)
FEWEST_POINTS = 5


def _curve_end(iterations: NDArray[np.float64], loss: NDArray[np.float64]) -> float:
    """Iteration at which the fitted curve 1 / (a k + b) + c reaches 0; inf if it never does.

    The last third of the points weighs 16 times, the middle one 4 times the first (Optimus' public code
    divides their standard deviations by 16 and 4).
    """
    count = len(iterations)
    weights = np.repeat([1.0, 4.0, 16.0], [count // 3, count // 3, count - 2 * (count // 3)])
    scale = iterations[-1]
    best, end = np.inf, np.inf
    for c in ASYMPTOTES:
        height = np.maximum(loss - c, 1e-3)
        # residuals of 1 / height are those of the loss, divided by height squared
        factor = weights * height**2
        design = np.stack([iterations / scale, np.ones(count)], axis=1)
        (a, b), error = nnls(design * factor[:, None], factor / height)
        if error < best and a > 0:
            best, end = error, (-1.0 / c - b) / a * scale
    return float(end)


def curve_prediction(iterations: NDArray[np.float64], loss: NDArray[np.float64]) -> tuple[float, float]:
    """Where a job ends by its loss log, and how sure that is.

    Returns:
        The iteration at which the fitted curve reaches the target, inf if it never does; the confidence in
        it, in [0, 1]: what the log without its newest quarter says is left, over what all of it says, or
        the other way round, whichever is smaller (an assumption). A log too short for both says (inf, 0).
    """
    earlier = 3 * len(loss) // 4
    if earlier < FEWEST_POINTS:
        return np.inf, 0.0
    end, before = _curve_end(iterations, loss), _curve_end(iterations[:earlier], loss[:earlier])
    low, high = sorted((end - iterations[-1], before - iterations[-1]))
    return end, low / high if 0 < low and high < np.inf else 0.0


def iterations_from_loss(view: SchedulingView, jobs: Sequence[int]) -> NDArray[np.float64]:
    """[n] base iterations left of these jobs, extrapolated from their loss logs.

    Source: Optimus (EuroSys 2018) loss(k) = 1 / (a k + b) + c, as in AITurbo's follow-on. Assumption:
    with fewer than 5 epochs logged, or a curve that never reaches the target, as much is left as is done.
    """
    done = view.completed_iterations
    left = _as_much_again(view)[list(jobs)]
    for i, job in enumerate(jobs):
        iterations, loss = view.loss_log(job)
        if len(loss) >= FEWEST_POINTS:
            end = _curve_end(iterations, loss)
            if end < np.inf:
                left[i] = max(end - done[job], 0.02 * done[job])
    return left
