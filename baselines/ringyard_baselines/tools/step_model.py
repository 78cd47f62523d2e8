"""Seconds per step as a non-negative sum of terms, fitted to profiling runs (Optimus, AITurbo)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ringyard.sim.speeds import fewest_gpus, isolated_iteration_seconds
from ringyard.sim.view import SchedulingView

#: (view, job) -> ([points] workers, [points] parameter servers) to profile
Points = Callable[[SchedulingView, int], tuple[NDArray[np.float64], NDArray[np.float64]]]


def speed_features(
    batch: float, workers: NDArray[np.float64], servers: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the terms M/w, 1, w/p, w, p of a synchronous step [points, 5].

    M is the global batch in samples, w the workers, p the parameter servers. Source: Optimus, and AITurbo
    with one GPU a worker. A ring has no parameter servers, so its third and fifth terms are 0 (an assumption:
    both papers have parameter servers only).
    """
    per_server = np.where(servers > 0, workers / np.maximum(servers, 1), 0.0)
    return np.stack([batch / workers, np.ones(len(workers)), per_server, workers, servers], axis=1)


def fit_seconds(design: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit non-negative coefficients [terms] of seconds = design x coefficients, by least relative squares."""
    return nnls(design / seconds[:, None], np.ones(len(seconds)))[0]


class StepModels:
    """Fitted step times, one model for each job. A job is profiled when its time is first needed.

    `points` (view, job) are numbers of workers and parameter servers to profile.
    """

    def __init__(self, points: Points) -> None:
        self._points = points
        self._fits: dict[int, list[float]] = {}  # the first coefficient x the batch, then the others

    def seconds(self, view: SchedulingView, job: int, workers: int, servers: int) -> float:
        """Predict seconds per step with the batch that the job asks for."""
        if job not in self._fits:
            self._fits[job] = self._fit(view, job)
        a, b, c, d, e = self._fits[job]
        return a / workers + b + c * workers / max(servers, 1) + d * workers + e * servers

    def _fit(self, view: SchedulingView, job: int) -> list[float]:
        workers, servers = self._points(view, job)
        own = np.full(len(workers), job)
        seconds = isolated_iteration_seconds(view, own, workers, parameter_servers=servers)
        batch = float(view.column("base_batch")[job])
        first, *others = fit_seconds(speed_features(batch, workers, servers), seconds).tolist()
        return [first * batch, *others]


def spread_sizes(view: SchedulingView, job: int, count: int) -> NDArray[np.float64]:
    """Return at most `count` numbers of workers, evenly spread over those that `job` may have in `view`."""
    low, high = int(fewest_gpus(view, np.array([job]))[0]), int(view.column("max_gpus")[job])
    return np.unique(np.linspace(low, min(high, view.cluster.num_gpus), count).round())
