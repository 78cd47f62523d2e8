"""What a restart costs: seconds without progress at each start after a job's first."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import CATALOGUE

__all__ = ["RestartCost", "constant", "per_model"]

#: jobs -> [jobs] seconds
RestartCost = Callable[[JobTable], NDArray[np.float64]]


_PUBLISHED = np.array([candidate.restart_seconds for candidate in CATALOGUE] + [np.nan])


def _constant(jobs: JobTable, seconds: float) -> NDArray[np.float64]:
    return np.full(len(jobs), float(seconds))


def constant(seconds: float) -> RestartCost:
    """The same cost for every job.

    Raises:
        ConfigurationError: negative or not finite.
    """
    if not (np.isfinite(seconds) and seconds >= 0):
        raise ConfigurationError(f"restart.seconds is {seconds}; expected 0 or more")
    return partial(_constant, seconds=seconds)


def _per_model(jobs: JobTable, fallback: RestartCost) -> NDArray[np.float64]:
    seconds = _PUBLISHED[jobs.model_ids]  # -1 is the NaN at the end
    return np.where(np.isnan(seconds), fallback(jobs), seconds)


def per_model(default_seconds: float) -> RestartCost:
    """The published figure of each job's model (Sia's simulator), else `default_seconds`.

    Raises:
        ConfigurationError: negative or not finite.
    """
    return partial(_per_model, fallback=constant(default_seconds))
