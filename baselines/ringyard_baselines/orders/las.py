"""Least attained service: the jobs that held the fewest GPU seconds run first."""

from typing import Any

import numpy as np

from ringyard.compiled.functions import function_value
from ringyard.placement import PlacementRule
from ringyard.state.progress import attained_service
from ringyard_baselines.families.preemptive import KEY, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["las"]


@function_value(KEY)
def service(job: Any, now: float, parameters: Any) -> float:
    """GPU seconds held."""
    return attained_service(job, now)


def las(placement: PlacementRule, round_seconds: float) -> PreemptiveScheduler:
    """Least GPU seconds first, looked at on every event and every round.

    Args:
        placement: where a job goes.
        round_seconds: length of a round; without rounds two equal jobs would never take turns.
    """
    return PreemptiveScheduler(
        "las", service, np.zeros(1), placement, Information.ATTAINED_SERVICE, round_seconds=round_seconds
    )
