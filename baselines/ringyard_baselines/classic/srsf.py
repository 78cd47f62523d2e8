"""Shortest remaining service first, preemptive: `shortest-gpu` of Tiresias' public simulator (NSDI 2019)."""

import numpy as np

from ringyard.compiled import FloatVector, fills
from ringyard.placement import PlacementRule
from ringyard.state.progress import remaining_iterations
from ringyard.state.records import Job
from ringyard_baselines.policies.preemptive import JobKey, KeyChanges, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["srsf"]


@fills(JobKey)
def remaining_service(job: Job, now: float, parameters: FloatVector) -> float:
    """GPU seconds left if alone on the consolidated GPUs that it asked for."""
    return remaining_iterations(job, now) * job.isolated_iteration_seconds * job.asked_gpus


def srsf(placement: PlacementRule) -> PreemptiveScheduler:
    """Least remaining isolated GPU seconds first; ties keep their order, an arrival loses them."""
    knows = Information.SIZES | Information.DURATIONS
    return PreemptiveScheduler(
        "srsf", remaining_service, np.zeros(1), placement, knows, key_changes=KeyChanges.WHILE_RUNNING
    )
