"""Shortest job first, non-preemptive."""

import numpy as np
from numpy.typing import NDArray

from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["sjf"]


def _by_duration(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.duration_seconds


def sjf(placement: PlacementRule, strict: bool = False, counted: bool = False) -> OrderedScheduler:
    """By isolated run time.

    Args:
        placement: where a job goes.
        strict: the first job that finds no place blocks those behind it.
        counted: GPUs counted for a job that finds no place stay idle (`OrderedScheduler`).
    """
    name = "sjf_strict" if strict else "sjf_counted" if counted else "sjf"
    return OrderedScheduler(name, _by_duration, placement, strict, Information.DURATIONS, counted)
