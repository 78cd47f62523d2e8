"""Priority rules of preemptive schedulers: a key for each job, and when that key changes."""

from enum import IntEnum
from typing import Protocol

import numpy as np

from ringyard import Observability
from ringyard.allocator import Estimate, EstimateSecondsLeft
from ringyard.compiled import (
    FloatMatrix,
    FloatVector,
    bundle,
    error_message,
    function_address,
    implements,
    interface,
    kernel,
    raise_plugin_error,
)
from ringyard.placement import PlacementRule
from ringyard.state.arrays import State
from ringyard.state.records import Job, JobStatus

#: distance between the keys of two service queues: more than there are rows, or seconds to a submission
QUEUE_SPAN = 2.0**34
_NO_KEY = error_message("key {function} of job {job} is {got} at {there:.0f} s; expected a number, inf: last")
_NO_WAKE = error_message(
    "wake {function} of job {job} is {got} at {there:.0f} s; expected seconds (inf: never)"
)


@interface
class JobKey(Protocol):
    """Signature of compiled functions that compute a job's priority key, or when the key changes.

    As `key`, lower values run first, and the function may update the record's `forgiven_service`,
    `forgiven_waiting` and `service_queue`. As `wake`, the value is the time in seconds at which the key must
    be read again. Values must not be NaN, which is checked at each call. Predictions
    (`ringyard.state.progress`) are NaN while a job is not predictable (`job.predictable == 0`): a key that
    uses them handles such jobs itself.
    """

    def __call__(self, job: Job, now: float, parameters: FloatVector) -> float:
        """Return the key of `job` at `now`, in seconds, by the scheduler's `parameters` [parameters]."""


class KeyChanges(IntEnum):
    """When keys change, so that a decision need not read all of them. The declaration is not checked."""

    ANY_TIME = 0  #: a decision reads the keys of all jobs that wait or run
    #: a key is constant while its job waits, and a start or a preemption alone does not change it
    WHILE_RUNNING = 1
    AT_WAKES = 2  #: a key changes only when its job starts or stops, or at the time its `wake` returned


@implements(JobKey)
def never(job: Job, now: float, parameters: FloatVector) -> float:
    """Return inf: `wake` for keys that only events change. `job`, `now` and `parameters` are not used."""
    return np.inf


@kernel
def service_queue_key(job: Job, queue: int) -> float:
    """Return the key of `job` in service queue number `queue`. Queue 0 runs first.

    Within a queue running jobs come first, then waiting jobs by their arrival in the queue, then jobs that
    enter it now, by row.
    """
    if queue != job.service_queue:
        job.service_queue = queue
        return (3 * queue + 2) * QUEUE_SPAN + job.row
    return (3 * queue + (job.status == JobStatus.WAITING)) * QUEUE_SPAN


@implements(EstimateSecondsLeft)
def _nothing(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    """Write no estimate."""


NO_ESTIMATE = Estimate(_nothing, "none", Observability.NOTHING)  #: estimate of rules with keys that use none
#: position in the parameters at which the estimates of jobs begin, for rules that use an estimate
FIRST_ESTIMATE = 2


@bundle
class PriorityRule:
    """What a preemptive scheduler orders jobs by."""

    key: JobKey  #: jobs with lower keys run first
    wake: JobKey  #: when a key must be read again
    #: [parameters] of both. From `FIRST_ESTIMATE` on, what `estimate` says of each job.
    parameters: FloatVector
    wakes: bool  #: whether `wake` is used
    key_changes: int  #: a `KeyChanges`
    estimate: Estimate  #: of the seconds left, or `NO_ESTIMATE`
    estimate_memory: FloatMatrix  #: [jobs, numbers] memory of `estimate`


@kernel
def report_invalid_key(priority: PriorityRule, j: int, value: float, now: float) -> None:
    """Record the error that the key of `priority` for job `j` is `value`, not a number, at `now` seconds."""
    raise_plugin_error(_NO_KEY, function_address(priority.key), j, value, 0.0, now)


@kernel
def wake_time(priority: PriorityRule, job: Job, j: int, now: float) -> float:
    """Return when `priority` must read the key of `job`, row `j`, again, as computed at `now`, seconds."""
    time = priority.wake(job, now, priority.parameters)
    if np.isnan(time):
        raise_plugin_error(_NO_WAKE, function_address(priority.wake), j, time, 0.0, now)
    return time


@kernel
def gpu_budget(state: State, b: int, rule: PlacementRule) -> int:
    """Return how many GPUs jobs of cluster `b` of `state` can hold. GPUs that `rule` shares count per job."""
    cluster = state.clusters[b]
    return int(cluster.num_gpus * (cluster.jobs_per_gpu if rule.shares else 1))
