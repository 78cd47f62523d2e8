"""Random order: the floor any scheduler should beat."""

import numpy as np
from numpy.typing import NDArray

from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["random_order"]


def _shuffled(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.random(len(jobs))


def random_order(placement: PlacementRule) -> OrderedScheduler:
    """Each job draws its priority when it is submitted; a job that does not fit is skipped."""
    return OrderedScheduler("random", _shuffled, placement, strict=False, information=Information.NOTHING)
