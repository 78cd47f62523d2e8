"""Tiresias' discretised two-dimensional least attained service (Gu et al., NSDI 2019)."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, fills
from ringyard.errors import ConfigurationError
from ringyard.placement import PlacementRule
from ringyard.state.progress import attained_service
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.families.preemptive import JobKey, PreemptiveScheduler
from ringyard_baselines.scheduler import Information

__all__ = ["tiresias"]

_WAITING = int(JobStatus.WAITING)
_RUNNING = int(JobStatus.RUNNING)
_QUEUE_SPAN = 2.0**40  # seconds; later queues sort behind any submit time


@fills(JobKey)
def queue_and_submit_time(job: Job, now: float, parameters: FloatVector) -> float:
    """Queue by GPU seconds since the last promotion, then submit time; promotes the starved."""
    knob = parameters[0]
    service = attained_service(job, now)
    counted = service - job.forgiven_service
    if job.status == _WAITING and counted > 0.0:
        ran = counted / job.num_gpus
        if now - job.last_stop_seconds >= knob * ran:
            job.forgiven_service = service
            counted = 0.0
    queue = 0
    for i in range(1, len(parameters)):
        if counted >= parameters[i]:
            queue = i
    return queue * _QUEUE_SPAN + job.submit_seconds


@fills(JobKey)
def next_change(job: Job, now: float, parameters: FloatVector) -> float:
    """When a running job reaches its next queue, or a waiting one counts as starved."""
    counted = attained_service(job, now) - job.forgiven_service
    if job.status == _RUNNING:
        for i in range(1, len(parameters)):
            if counted < parameters[i]:
                reach = now + (parameters[i] - counted) / job.num_gpus
                # one ulp short of the threshold would wake again and again
                return max(reach, now + 1e-6)
        return np.inf
    if job.status == _WAITING and counted > 0.0:
        return job.last_stop_seconds + parameters[0] * counted / job.num_gpus
    return np.inf


@checked("tiresias")
def tiresias(
    placement: PlacementRule,
    thresholds_gpu_seconds: Annotated[Sequence[Positive], "strictly ascending"] = (3250.0, 7200.0),
    starvation_knob: Annotated[float, "(0, inf]"] = 8.0,
) -> PreemptiveScheduler:
    """Queues by attained GPU seconds, first come first served within a queue, lower queues preempt.

    Args:
        placement: where a job goes.
        thresholds_gpu_seconds: ascending; crossing one demotes a job to the next queue. The public code
            has 3 queues and [3250, 7200, 18000], of which 3 queues use the first two.
        starvation_knob: a job that waited this many times its run time since its last promotion returns
            to the first queue; infinity never promotes. 8 is a public port's default (an assumption).

    Raises:
        ConfigurationError: thresholds not ascending and above 0, or a knob not above 0.
    """
    if not len(thresholds_gpu_seconds):
        raise ConfigurationError("tiresias.thresholds_gpu_seconds is empty; expected ascending GPU seconds")
    return PreemptiveScheduler(
        "tiresias",
        queue_and_submit_time,
        np.array([starvation_knob, *thresholds_gpu_seconds], dtype=np.float64),
        placement,
        Information.SIZES | Information.ATTAINED_SERVICE,
        wake=next_change,
    )
