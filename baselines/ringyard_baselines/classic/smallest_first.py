"""Smallest job first: fewest GPUs, preemptive as in Tiresias' public simulator, or start-only."""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatVector, fills
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.state.records import Job
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.policies.preemptive import JobKey, KeyChanges, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["smallest_first"]


@fills(JobKey)
def gpus_asked(job: Job, now: float, parameters: FloatVector) -> float:
    """GPUs the job asks for."""
    return float(job.num_gpus)


def _by_gpus(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.num_gpus.astype(np.float64)


def smallest_first(
    placement: PlacementRule, preemptive: bool = True
) -> PreemptiveScheduler | OrderedScheduler:
    """Fewest GPUs first.

    Args:
        placement: where a job goes.
        preemptive: a smaller arrival may stop a larger running job; False only starts jobs.
    """
    if preemptive:
        return PreemptiveScheduler(
            "smallest_first",
            gpus_asked,
            np.zeros(1),
            placement,
            Information.SIZES,
            key_changes=KeyChanges.AT_WAKES,
        )
    return OrderedScheduler(
        "smallest_first_start_only", _by_gpus, placement, strict=False, information=Information.SIZES
    )
