"""Smallest work first, non-preemptive: least GPU seconds (the order of Ada-SRSF's queue)."""

import numpy as np
from numpy.typing import NDArray

from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["smallest_work"]


def _by_gpu_seconds(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.duration_seconds * jobs.num_gpus


def smallest_work(placement: PlacementRule) -> OrderedScheduler:
    """By isolated run time times GPUs; a job that does not fit is skipped."""
    return OrderedScheduler(
        "smallest_work",
        _by_gpu_seconds,
        placement,
        strict=False,
        information=Information.SIZES | Information.DURATIONS,
    )
