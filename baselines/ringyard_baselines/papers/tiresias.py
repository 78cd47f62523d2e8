"""Tiresias' discretised two-dimensional least attained service (Gu et al., NSDI 2019)."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, fills
from ringyard.errors import ConfigurationError
from ringyard.placement import PlacementRule
from ringyard.state.progress import attained_service, run_seconds
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


@fills(JobKey)
def queue_and_place(job: Job, now: float, parameters: FloatVector) -> float:
    """As the public simulator orders jobs: queue; there whoever runs, whoever waits, whoever comes now.

    A running job goes down one queue at a decision if it has the GPU seconds by then; ties keep their order.
    """
    queue = job.service_queue
    if job.status == _RUNNING and queue + 1 < len(parameters):
        if attained_service(job, now) >= parameters[queue + 1]:
            job.service_queue = queue + 1
            return (3 * (queue + 1) + 2) * _QUEUE_SPAN + job.submit_seconds
    return (3 * queue + (job.status == _WAITING)) * _QUEUE_SPAN


@fills(JobKey)
def next_look(job: Job, now: float, parameters: FloatVector) -> float:
    """When the public simulator looks at a running job again: it takes seconds run from GPU seconds."""
    queue = job.service_queue
    if job.status != _RUNNING or queue + 1 >= len(parameters):
        return np.inf
    return now + np.floor((parameters[queue + 1] - run_seconds(job, now)) / job.num_gpus)


@checked("tiresias")
def tiresias(
    placement: PlacementRule,
    thresholds_gpu_seconds: Annotated[Sequence[Positive], "strictly ascending"] = (3250.0, 7200.0),
    starvation_knob: Annotated[float, "(0, inf]"] = 8.0,
    demotion: Literal["exact", "public_simulator"] = "exact",
) -> PreemptiveScheduler:
    """Queues by attained GPU seconds, first come first served within a queue, lower queues preempt.

    Args:
        placement: where a job goes.
        thresholds_gpu_seconds: ascending; crossing one demotes a job to the next queue. The public code
            has 3 queues and [3250, 7200, 18000], of which 3 queues use the first two.
        starvation_knob: a job that waited this many times its run time since its last promotion returns
            to the first queue; infinity never promotes. 8 is a public port's default (an assumption).
        demotion: "exact": at the threshold, and by submission within a queue. "public_simulator": as in
            SymbioticLab's simulator, dlas-gpu, to the second: a job whose GPU seconds have reached the
            threshold goes down at the next arrival, end or check, behind whoever waits there; checks come
            (threshold - seconds run) / GPUs after a decision, which is late for several GPUs; who runs stays
            ahead of who waits. It never promotes, and its times are whole seconds.

    Raises:
        ConfigurationError: thresholds not ascending and above 0, a knob not above 0, or one that is not
            infinite although the public simulator never promotes.
    """
    if not len(thresholds_gpu_seconds):
        raise ConfigurationError("tiresias.thresholds_gpu_seconds is empty; expected ascending GPU seconds")
    public = demotion == "public_simulator"
    if public and starvation_knob != np.inf:
        raise ConfigurationError(
            f"tiresias.starvation_knob is {starvation_knob}, but tiresias.demotion=public_simulator never"
            " promotes; expected .inf"
        )
    return PreemptiveScheduler(
        "tiresias",
        queue_and_place if public else queue_and_submit_time,
        np.array([starvation_knob, *thresholds_gpu_seconds], dtype=np.float64),
        placement,
        Information.SIZES | Information.ATTAINED_SERVICE,
        wake=next_look if public else next_change,
    )
