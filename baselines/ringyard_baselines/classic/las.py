"""Least attained service: the jobs that held the fewest GPU seconds run first."""

import numpy as np

from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, fills
from ringyard.placement import PlacementRule
from ringyard.state.progress import attained_service
from ringyard.state.records import Job
from ringyard_baselines.policies.preemptive import JobKey, KeyChanges, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["las"]


@fills(JobKey)
def service(job: Job, now: float, parameters: FloatVector) -> float:
    """GPU seconds held."""
    return attained_service(job, now)


@checked("las")
def las(placement: PlacementRule, round_seconds: Positive) -> PreemptiveScheduler:
    """Least GPU seconds first, looked at on every event and every round.

    Args:
        placement: where a job goes.
        round_seconds: length of a round; without rounds two equal jobs would never take turns.
    """
    return PreemptiveScheduler(
        "las",
        service,
        np.zeros(1),
        placement,
        Information.ATTAINED_SERVICE,
        round_seconds=round_seconds,
        key_changes=KeyChanges.WHILE_RUNNING,
    )
