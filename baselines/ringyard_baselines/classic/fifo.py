"""First in, first out: strict (the head of the line blocks) or skipping jobs that do not fit."""

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["fifo", "fifo_strict"]


def _by_submit_time(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.submit_seconds


@checked("fifo")
def fifo(placement: PlacementRule, counted: bool = False) -> OrderedScheduler:
    """By submit time; a job that does not fit is skipped.

    Args:
        placement: where a job goes.
        counted: GPUs counted for a job that finds no place stay idle (`OrderedScheduler`).

    Raises:
        ConfigurationError: counted is neither true nor false.
    """
    name = "fifo_counted" if counted else "fifo"
    return OrderedScheduler(name, _by_submit_time, placement, False, Information.NOTHING, counted)


def fifo_strict(placement: PlacementRule) -> OrderedScheduler:
    """By submit time; nothing starts before a job that does not fit."""
    return OrderedScheduler(
        "fifo_strict", _by_submit_time, placement, strict=True, information=Information.NOTHING
    )
