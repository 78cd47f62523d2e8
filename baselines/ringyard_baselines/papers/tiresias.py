"""Tiresias' discretised two-dimensional least attained service (Gu et al., NSDI 2019)."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from ringyard import Observability
from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, implements, kernel
from ringyard.errors import ConfigurationError
from ringyard.placement import PlacementRule
from ringyard.state.progress import attained_service, run_seconds
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import QUEUE_SPAN, JobKey, KeyChanges, service_queue_key


@kernel
def _service_since_promotion(job: Job, now: float) -> float:
    """Return GPU seconds since the last promotion."""
    return attained_service(job, now) - job.forgiven_service


@kernel
def _waiting_seconds(job: Job, now: float) -> float:
    """Return seconds of waiting, counted from the first start after the last promotion."""
    return now - job.submit_seconds - run_seconds(job, now) - job.forgiven_waiting


@kernel
def _max_waiting(job: Job, now: float, knob: float) -> float:
    """Return the seconds of waiting from which a job counts as starved."""
    return knob * _service_since_promotion(job, now) / job.num_gpus


@kernel
def _promote(job: Job, now: float) -> None:
    """Count service from now and waiting from the next start. This promotes a job that has run."""
    job.forgiven_service = attained_service(job, now)
    job.forgiven_waiting += _waiting_seconds(job, now)


@kernel
def _queue_of(job: Job, now: float, parameters: FloatVector) -> int:
    """Return the queue by GPU seconds since the last promotion. Promotes starved jobs."""
    counted = _service_since_promotion(job, now)
    starved = job.status == JobStatus.WAITING and counted >= parameters[1]
    if counted == 0.0 or (starved and _waiting_seconds(job, now) >= _max_waiting(job, now, parameters[0])):
        _promote(job, now)
        return 0
    queue = 0
    for i in range(1, len(parameters)):
        if counted >= parameters[i]:
            queue = i
    return queue


@implements(JobKey)
def _running_first(job: Job, now: float, parameters: FloatVector) -> float:
    """Return a key by queue, then by place within it, running jobs first."""
    return service_queue_key(job, _queue_of(job, now, parameters))


@implements(JobKey)
def _by_submission(job: Job, now: float, parameters: FloatVector) -> float:
    """Return a key by queue, then by submission, whether or not the job runs."""
    return _queue_of(job, now, parameters) * QUEUE_SPAN + job.submit_seconds


@implements(JobKey)
def _next_change(job: Job, now: float, parameters: FloatVector) -> float:
    """Return when a running job reaches its next queue, or a waiting one counts as starved."""
    counted = _service_since_promotion(job, now)
    change = np.inf
    if job.status == JobStatus.WAITING and counted >= parameters[1]:
        change = now + _max_waiting(job, now, parameters[0]) - _waiting_seconds(job, now)
    elif job.status == JobStatus.RUNNING:
        for i in range(len(parameters) - 1, 0, -1):
            if counted < parameters[i]:
                change = now + (parameters[i] - counted) / job.num_gpus
    # a time that is one ulp too early would wake the scheduler again and again
    return max(change, now + 1e-6)


@implements(JobKey)
def _public_simulator_key(job: Job, now: float, parameters: FloatVector) -> float:
    """Return a key as `_running_first`, but a job is demoted by one queue a decision, while it runs."""
    queue = job.service_queue
    counted = _service_since_promotion(job, now)
    if job.status == JobStatus.RUNNING and queue + 1 < len(parameters) and counted >= parameters[queue + 1]:
        queue += 1
    starved = job.status == JobStatus.WAITING and queue > 0
    waited = np.floor(_max_waiting(job, now, parameters[0]))
    if counted == 0.0 or (starved and _waiting_seconds(job, now) >= waited):
        _promote(job, now)
        queue = 0
    return service_queue_key(job, queue)


@implements(JobKey)
def _next_public_check(job: Job, now: float, parameters: FloatVector) -> float:
    """Return when the public simulator checks a job again. It subtracts seconds from GPU seconds there."""
    queue = job.service_queue
    if job.status == JobStatus.WAITING and queue > 0:
        return now + np.floor(_max_waiting(job, now, parameters[0]) - _waiting_seconds(job, now))
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
    """Tiresias of Gu et al. (NSDI 2019): queues by attained GPU seconds. Lower queues preempt higher ones.

    A job that does not fit is passed over. FOUND (SymbioticLab's simulator, dlas-gpu): the thresholds, the
    order within a queue, and starvation_knob = inf. Its variants dlas-gpu-05 to dlas-gpu-1000 promote with
    0.5 to 1000.

    Args:
        placement: where jobs go.
        thresholds_gpu_seconds: ascending. Crossing one demotes a job to the next queue. The public code has 3
            queues and [3250, 7200, 18000], of which 3 queues use the first two.
        starvation_knob: a demoted job goes to the end of the first queue after waiting this many times as
            long as it ran. Both count since its last promotion, and waiting from its next start on. inf never
            promotes.
        demotion: "exact": at the threshold. "public_simulator": one queue at the next arrival, end or check,
            to the second. Checks come (threshold - seconds run) / GPUs after a decision, rounded down, which
            is late for several GPUs. Times are whole seconds there, and thresholds differ by more than any
            job's GPUs.
        within_queue: "running_first": running jobs stay ahead of waiting ones, and a job from another queue
            goes behind both. "submission": older jobs preempt newer ones (Lucid's Tiresias).

    Raises:
        ConfigurationError: thresholds are empty, or `demotion="public_simulator"` has another order than its
            own.
    """
    if not len(thresholds_gpu_seconds):
        raise ConfigurationError("tiresias.thresholds_gpu_seconds is empty; expected ascending GPU seconds")
    public = demotion == "public_simulator"
    if public and within_queue != "running_first":
        raise ConfigurationError(
            f"tiresias.within_queue is {within_queue}, but tiresias.demotion=public_simulator has its own"
            " order; expected running_first"
        )
    key = {"running_first": _running_first, "submission": _by_submission}[within_queue]
    return PreemptiveScheduler(
        "tiresias",
        _public_simulator_key if public else key,
        np.array([starvation_knob, *thresholds_gpu_seconds], dtype=np.float64),
        placement,
        Observability.SIZES | Observability.ATTAINED_SERVICE,
        wake=_next_public_check if public else _next_change,
        # the public simulator's checks shift at each decision, and waiting time adds up between decisions
        key_changes=KeyChanges.ANY_TIME if public or starvation_knob < np.inf else KeyChanges.AT_WAKES,
    )
