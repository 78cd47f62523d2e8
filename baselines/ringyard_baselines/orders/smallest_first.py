"""Smallest job first: fewest GPUs, preemptive as in Tiresias' public simulator, or start-only."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.functions import function_value
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard_baselines.families.ordered import OrderedScheduler
from ringyard_baselines.families.preemptive import KEY, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["smallest_first"]


@function_value(KEY)
def gpus_asked(job: Any, now: float, parameters: Any) -> float:
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
        return PreemptiveScheduler("smallest_first", gpus_asked, np.zeros(1), placement, Information.SIZES)
    return OrderedScheduler(
        "smallest_first_start_only", _by_gpus, placement, strict=False, information=Information.SIZES
    )
