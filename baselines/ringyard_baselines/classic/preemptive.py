"""Orders in which jobs of lower keys stop others."""

import numpy as np
from numpy.typing import NDArray

from ringyard import JobTable, Observability, PlacementRule
from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, fills
from ringyard.state.progress import attained_service, remaining_iterations
from ringyard.state.records import Job
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import JobKey, KeyChanges


@fills(JobKey)
def remaining_seconds(job: Job, now: float, parameters: FloatVector) -> float:
    """Seconds left if alone on consolidated GPUs."""
    return remaining_iterations(job, now) * job.isolated_iteration_seconds


@fills(JobKey)
def remaining_service(job: Job, now: float, parameters: FloatVector) -> float:
    """GPU seconds left if alone on the consolidated GPUs that it asked for."""
    return remaining_iterations(job, now) * job.isolated_iteration_seconds * job.asked_gpus


@fills(JobKey)
def service(job: Job, now: float, parameters: FloatVector) -> float:
    """GPU seconds held."""
    return attained_service(job, now)


@fills(JobKey)
def gpus_asked(job: Job, now: float, parameters: FloatVector) -> float:
    """GPUs the job asks for."""
    return float(job.num_gpus)


def _by_gpus(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.num_gpus.astype(np.float64)


def srtf(placement: PlacementRule) -> PreemptiveScheduler:
    """Shortest remaining isolated run time first; ties keep their order, an arrival loses them."""
    return PreemptiveScheduler(
        "srtf",
        remaining_seconds,
        np.zeros(1),
        placement,
        Observability.DURATIONS,
        key_changes=KeyChanges.WHILE_RUNNING,
    )


def srsf(placement: PlacementRule) -> PreemptiveScheduler:
    """Shortest remaining service, isolated GPU seconds, first; ties keep their order, an arrival loses them.

    Source: `shortest-gpu` of Tiresias' public simulator (NSDI 2019).
    """
    takes = Observability.SIZES | Observability.DURATIONS
    return PreemptiveScheduler(
        "srsf", remaining_service, np.zeros(1), placement, takes, key_changes=KeyChanges.WHILE_RUNNING
    )


@checked("las")
def las(placement: PlacementRule, round_seconds: Positive) -> PreemptiveScheduler:
    """Least attained service first, GPU seconds held, looked at on every event and every round.

    Args:
        placement: where a job goes.
        round_seconds: length of a round; without rounds two equal jobs would never take turns.
    """
    return PreemptiveScheduler(
        "las",
        service,
        np.zeros(1),
        placement,
        Observability.ATTAINED_SERVICE,
        round_seconds=round_seconds,
        key_changes=KeyChanges.WHILE_RUNNING,
    )


def smallest_first(
    placement: PlacementRule, preemptive: bool = True
) -> PreemptiveScheduler | OrderedScheduler:
    """Fewest GPUs first, as in Tiresias' public simulator, or start-only.

    Args:
        placement: where a job goes.
        preemptive: a smaller arrival may stop a larger running job; False only starts jobs.
    """
    takes = Observability.SIZES
    if preemptive:
        return PreemptiveScheduler(
            "smallest_first", gpus_asked, np.zeros(1), placement, takes, key_changes=KeyChanges.AT_WAKES
        )
    return OrderedScheduler("smallest_first_start_only", _by_gpus, placement, False, takes)
