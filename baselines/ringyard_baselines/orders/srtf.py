"""Shortest remaining time first, preemptive."""

from typing import Any

import numpy as np

from ringyard.compiled.functions import function_value
from ringyard.placement import PlacementRule
from ringyard.state.progress import remaining_iterations
from ringyard_baselines.families.preemptive import KEY, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["srtf"]


@function_value(KEY)
def remaining_seconds(job: Any, now: float, parameters: Any) -> float:
    """Seconds left if alone on consolidated GPUs."""
    return remaining_iterations(job, now) * job.isolated_iteration_seconds


def srtf(placement: PlacementRule) -> PreemptiveScheduler:
    """Least remaining isolated run time first; ties keep their order, an arrival loses them."""
    return PreemptiveScheduler("srtf", remaining_seconds, np.zeros(1), placement, Information.DURATIONS)
