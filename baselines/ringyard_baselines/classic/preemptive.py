"""Textbook preemptive orders: SRTF, SRSF, LAS, smallest job first."""

import numpy as np
from numpy.typing import NDArray

from ringyard import JobTable, Observability, PlacementRule
from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, implements
from ringyard.state.progress import attained_service, remaining_iterations
from ringyard.state.records import Job
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import JobKey, KeyChanges


@implements(JobKey)
def remaining_seconds(job: Job, now: float, parameters: FloatVector) -> float:
    """Return the seconds that `job` has left at `now` if isolated. `parameters` is not used."""
    return remaining_iterations(job, now) * job.isolated_iteration_seconds


@implements(JobKey)
def remaining_service(job: Job, now: float, parameters: FloatVector) -> float:
    """Return the GPU seconds that `job` has left at `now` if isolated. `parameters` is not used."""
    return remaining_iterations(job, now) * job.isolated_iteration_seconds * job.asked_gpus


@implements(JobKey)
def service(job: Job, now: float, parameters: FloatVector) -> float:
    """Return the GPU seconds that `job` has held until `now`. `parameters` is not used."""
    return attained_service(job, now)


@implements(JobKey)
def gpus_asked(job: Job, now: float, parameters: FloatVector) -> float:
    """Return the GPUs that `job` asks for. `now` and `parameters` are not used."""
    return float(job.num_gpus)


def _by_gpus(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.num_gpus.astype(np.float64)


def srtf(placement: PlacementRule) -> PreemptiveScheduler:
    """Shortest remaining isolated run time first. Ties keep their order, new jobs come last."""
    takes, changes = Observability.DURATIONS, KeyChanges.WHILE_RUNNING
    return PreemptiveScheduler("srtf", remaining_seconds, np.zeros(1), placement, takes, key_changes=changes)


def srsf(placement: PlacementRule) -> PreemptiveScheduler:
    """Shortest remaining service (isolated GPU seconds) first. Ties as in `srtf`.

    Source: `shortest-gpu` of Tiresias' public simulator (NSDI 2019).
    """
    takes, changes = Observability.SIZES | Observability.DURATIONS, KeyChanges.WHILE_RUNNING
    return PreemptiveScheduler("srsf", remaining_service, np.zeros(1), placement, takes, key_changes=changes)


@checked("las")
def las(placement: PlacementRule, round_seconds: Positive) -> PreemptiveScheduler:
    """Least attained service (GPU seconds held) first, decided at every event and at the end of each round.

    Args:
        placement: rule that places a job.
        round_seconds: length of a round, seconds. Without rounds, two equal jobs would never take turns.
    """
    order = ("las", service, np.zeros(1), placement, Observability.ATTAINED_SERVICE)
    changes = KeyChanges.WHILE_RUNNING
    return PreemptiveScheduler(*order, round_seconds=round_seconds, key_changes=changes)


def smallest_first(
    placement: PlacementRule, preemptive: bool = True
) -> PreemptiveScheduler | OrderedScheduler:
    """Fewest GPUs first, as in Tiresias' public simulator.

    Args:
        placement: rule that places a job.
        preemptive: let a smaller job preempt a larger running job. False: only start jobs.
    """
    takes = Observability.SIZES
    if preemptive:
        return PreemptiveScheduler(
            "smallest_first", gpus_asked, np.zeros(1), placement, takes, key_changes=KeyChanges.AT_WAKES
        )
    return OrderedScheduler("smallest_first_start_only", _by_gpus, placement, False, takes)
