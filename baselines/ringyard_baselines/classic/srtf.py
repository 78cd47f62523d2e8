"""Shortest remaining time first, preemptive."""

import numpy as np

from ringyard.compiled import FloatVector, fills
from ringyard.placement import PlacementRule
from ringyard.state.progress import remaining_iterations
from ringyard.state.records import Job
from ringyard_baselines.policies.preemptive import JobKey, KeyChanges, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["srtf"]


@fills(JobKey)
def remaining_seconds(job: Job, now: float, parameters: FloatVector) -> float:
    """Seconds left if alone on consolidated GPUs."""
    return remaining_iterations(job, now) * job.isolated_iteration_seconds


def srtf(placement: PlacementRule) -> PreemptiveScheduler:
    """Least remaining isolated run time first; ties keep their order, an arrival loses them."""
    return PreemptiveScheduler(
        "srtf",
        remaining_seconds,
        np.zeros(1),
        placement,
        Information.DURATIONS,
        key_changes=KeyChanges.WHILE_RUNNING,
    )
