"""Tiresias' discretised two-dimensional least attained service (Gu et al., NSDI 2019)."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from ringyard import Observability
from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, fills, kernel
from ringyard.errors import ConfigurationError
from ringyard.placement import PlacementRule
from ringyard.state.progress import attained_service, run_seconds
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import QUEUE_SPAN, JobKey, KeyChanges, service_queue_key


@kernel
def _service_since_promotion(job: Job, now: float) -> float:
    """GPU seconds since the last promotion."""
    return attained_service(job, now) - job.forgiven_service


@kernel
def _waiting_since_promotion(job: Job, now: float) -> float:
    """Seconds, once the job has run since its last promotion."""
    return now - job.submit_seconds - run_seconds(job, now) - job.forgiven_waiting


@kernel
def _starvation_seconds(job: Job, now: float, knob: float) -> float:
    """Seconds that a job waits until it counts as starved."""
    return knob * _service_since_promotion(job, now) / job.num_gpus


@kernel
def _promote(job: Job, now: float) -> None:
    """Service counts from here, waiting from the next start on; promotes a job that ran."""
    job.forgiven_service = attained_service(job, now)
    job.forgiven_waiting += _waiting_since_promotion(job, now)


@kernel
def _queue_of(job: Job, now: float, parameters: FloatVector) -> int:
    """By GPU seconds since the last promotion; promotes the starved."""
    counted = _service_since_promotion(job, now)
    starved = job.status == JobStatus.WAITING and counted >= parameters[1]
    if counted == 0.0 or (
        starved and _waiting_since_promotion(job, now) >= _starvation_seconds(job, now, parameters[0])
    ):
        _promote(job, now)
        return 0
    queue = 0
    for i in range(1, len(parameters)):
        if counted >= parameters[i]:
            queue = i
    return queue


@fills(JobKey)
def running_first(job: Job, now: float, parameters: FloatVector) -> float:
    """Queue, then place in it."""
    return service_queue_key(job, _queue_of(job, now, parameters))


@fills(JobKey)
def by_submission(job: Job, now: float, parameters: FloatVector) -> float:
    """Queue, then submit time, whether or not the job runs."""
    return _queue_of(job, now, parameters) * QUEUE_SPAN + job.submit_seconds


@fills(JobKey)
def next_change(job: Job, now: float, parameters: FloatVector) -> float:
    """When a running job reaches its next queue, or a waiting one counts as starved."""
    counted = _service_since_promotion(job, now)
    change = np.inf
    if job.status == JobStatus.WAITING and counted >= parameters[1]:
        change = now + _starvation_seconds(job, now, parameters[0]) - _waiting_since_promotion(job, now)
    elif job.status == JobStatus.RUNNING:
        for i in range(len(parameters) - 1, 0, -1):
            if counted < parameters[i]:
                change = now + (parameters[i] - counted) / job.num_gpus
    # one ulp short of the time would wake again and again
    return max(change, now + 1e-6)


@fills(JobKey)
def public_simulator_key(job: Job, now: float, parameters: FloatVector) -> float:
    """As `running_first`, but a job goes down one queue at a decision, and only if it runs then."""
    queue = job.service_queue
    counted = _service_since_promotion(job, now)
    if job.status == JobStatus.RUNNING and queue + 1 < len(parameters) and counted >= parameters[queue + 1]:
        queue += 1
    starved = job.status == JobStatus.WAITING and queue > 0
    if counted == 0.0 or (
        starved
        and _waiting_since_promotion(job, now) >= np.floor(_starvation_seconds(job, now, parameters[0]))
    ):
        _promote(job, now)
        queue = 0
    return service_queue_key(job, queue)


@fills(JobKey)
def next_public_check(job: Job, now: float, parameters: FloatVector) -> float:
    """When the public simulator looks at a job again: of a running one it takes seconds from GPU seconds."""
    queue = job.service_queue
    if job.status == JobStatus.WAITING and queue > 0:
        return now + np.floor(
            _starvation_seconds(job, now, parameters[0]) - _waiting_since_promotion(job, now)
        )
    if job.status == JobStatus.RUNNING and queue + 1 < len(parameters):
        ran = _service_since_promotion(job, now) / job.num_gpus
        return now + np.floor((parameters[queue + 1] - ran) / job.num_gpus)
    return np.inf


@checked("tiresias")
def tiresias(
    placement: PlacementRule,
    thresholds_gpu_seconds: Annotated[Sequence[Positive], "strictly ascending"] = (3250.0, 7200.0),
    starvation_knob: Annotated[float, "(0, inf]"] = np.inf,
    demotion: Literal["exact", "public_simulator"] = "exact",
    within_queue: Literal["running_first", "submission"] = "running_first",
) -> PreemptiveScheduler:
    """Queues by attained GPU seconds; lower queues preempt; what does not fit is passed over.

    FOUND (SymbioticLab's simulator, dlas-gpu): the thresholds; the order within a queue; starvation_knob =
    inf, and its variants dlas-gpu-05 to dlas-gpu-1000 promote with 0.5 to 1000.

    Args:
        placement: where a job goes.
        thresholds_gpu_seconds: ascending; crossing one demotes a job to the next queue. The public code
            has 3 queues and [3250, 7200, 18000], of which 3 queues use the first two.
        starvation_knob: a demoted job that waited this many times as long as it ran, both since its last
            promotion (waiting from its next start on), goes to the end of the first queue; infinity never
            promotes.
        demotion: "exact": at the threshold. "public_simulator": as there, to the second: one queue at the
            next arrival, end or check; checks come (threshold - seconds run) / GPUs after a decision, rounded
            down, which is late for several GPUs. Times are whole seconds there, and thresholds further apart
            than any job has GPUs.
        within_queue: "running_first": running jobs stay ahead of waiting ones, and a job from another
            queue goes behind both. "submission": older jobs preempt newer ones (Lucid's Tiresias).

    Raises:
        ConfigurationError: thresholds not ascending and above 0, a knob not above 0, or the public
            simulator's demotion with another order than its own.
    """
    if not len(thresholds_gpu_seconds):
        raise ConfigurationError("tiresias.thresholds_gpu_seconds is empty; expected ascending GPU seconds")
    public = demotion == "public_simulator"
    if public and within_queue != "running_first":
        raise ConfigurationError(
            f"tiresias.within_queue is {within_queue}, but tiresias.demotion=public_simulator has its own"
            " order; expected running_first"
        )
    key = {"running_first": running_first, "submission": by_submission}[within_queue]
    return PreemptiveScheduler(
        "tiresias",
        public_simulator_key if public else key,
        np.array([starvation_knob, *thresholds_gpu_seconds], dtype=np.float64),
        placement,
        Observability.SIZES | Observability.ATTAINED_SERVICE,
        wake=next_public_check if public else next_change,
        # the public simulator's checks shift at each decision; waiting is added up from one to the next
        key_changes=KeyChanges.ANY_TIME if public or starvation_knob < np.inf else KeyChanges.AT_WAKES,
    )
