"""What a restart costs: seconds without progress at each start after a job's first, and at a resize."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Amount, checked
from ringyard.jobs import JobTable
from ringyard.profiles import catalogue

__all__ = ["RestartCost", "constant", "per_model"]


@checked("restart")
@dataclass(frozen=True)
class RestartCost:
    """Seconds without progress.

    Attributes:
        seconds: at each start after the first.
        published: use the published figure of a job's model where there is one.
        resize: when a running job's GPUs or batch change; None: a restart.

    Raises:
        ConfigurationError: negative or not finite.
    """

    seconds: Amount
    published: bool = False
    resize: Amount | None = None

    def restart_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each start after the first."""
        fallback = np.full(len(jobs), float(self.seconds))
        if not self.published:
            return fallback
        figures = [model.restart_seconds for model in catalogue()]
        seconds = np.array([np.nan if figure is None else figure for figure in figures] + [np.nan])
        return np.where(np.isnan(seconds[jobs.model_ids]), fallback, seconds[jobs.model_ids])

    def resize_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of GPUs or batch while running."""
        if self.resize is None:
            return self.restart_seconds(jobs)
        return np.full(len(jobs), float(self.resize))


@checked("restart")
def constant(seconds: Amount, resize_seconds: Amount | None = None) -> RestartCost:
    """The same cost for every job.

    Args:
        seconds: of a restart.
        resize_seconds: of changing a running job's GPUs or batch; None: as a restart.

    Raises:
        ConfigurationError: negative or not finite.
    """
    return RestartCost(seconds, False, resize_seconds)


@checked("restart")
def per_model(default_seconds: Amount, resize_seconds: Amount | None = None) -> RestartCost:
    """The published figure of each job's model (its profile names the source), else `default_seconds`.

    Args:
        default_seconds: for models without a figure.
        resize_seconds: as in `constant`.

    Raises:
        ConfigurationError: negative or not finite.
    """
    return RestartCost(default_seconds, True, resize_seconds)
