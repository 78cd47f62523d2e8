"""What a preemptive scheduler goes by: a number for each job, and how that number changes as time passes."""

from enum import IntEnum
from typing import Protocol

import numpy as np

from ringyard import Observability
from ringyard.allocator import Estimate, EstimateSecondsLeft
from ringyard.compiled import (
    FloatMatrix,
    FloatVector,
    address_of,
    bundle,
    complain,
    complaint,
    fills,
    kernel,
    slot,
)
from ringyard.placement import PlacementRule
from ringyard.state.arrays import State
from ringyard.state.records import Job, JobStatus

QUEUE_SPAN = 2.0**34  # between the keys of two queues: more than rows, or seconds to a submit time
_NO_KEY = complaint("key {function} of job {job} is {got} at {there:.0f} s; expected a number (inf: last)")
_NO_WAKE = complaint("wake {function} of job {job} is {got} at {there:.0f} s; expected seconds (inf: never)")


@slot
class JobKey(Protocol):
    """A number that decides about a job, at a time.

    As `key`: lower runs first (it may update the record's `forgiven_service`, `forgiven_waiting` and
    `service_queue`); as `wake`: when the key will have to be looked at again. It promises not to be NaN,
    which is checked each time. Predictions (`ringyard.state.progress`) are NaN while a job is not predictable
    (`job.predictable == 0`): a key that goes by them says where such a job goes.
    """

    def __call__(self, job: Job, now: float, parameters: FloatVector) -> float:
        """Of the job at `now`, seconds, by the scheduler's parameters [parameters]."""


class KeyChanges(IntEnum):
    """When keys change, so that a decision need not read all of them. It is not checked.

    Attributes:
        ANY_TIME: a decision reads the keys of all jobs that wait or run.
        WHILE_RUNNING: a key stays while its job waits, and does not change by starting or stopping alone.
        AT_WAKES: a key changes only when its job starts or stops, or when its `wake` said that it would.
    """

    ANY_TIME = 0
    WHILE_RUNNING = 1
    AT_WAKES = 2


@fills(JobKey)
def never(job: Job, now: float, parameters: FloatVector) -> float:
    """Only events change the order: no key needs another look."""
    return np.inf


@kernel
def place_in_queue(job: Job, queue: int) -> float:
    """Key of a job in a queue, 0 first: there running jobs, then waiting ones, then new ones by row.

    Ties keep their order: waiting jobs by arrival in the queue, running jobs by their start.
    """
    if queue != job.service_queue:
        job.service_queue = queue
        return (3 * queue + 2) * QUEUE_SPAN + job.row
    return (3 * queue + (job.status == JobStatus.WAITING)) * QUEUE_SPAN


@fills(EstimateSecondsLeft)
def _nothing(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    """Write no estimate."""


#: of rankings whose keys need no estimate
NO_ESTIMATE = Estimate(_nothing, "none", Observability.NOTHING)
#: parameter in which the estimates of jobs begin, where there are any
FIRST_ESTIMATE = 2


@bundle
class Ranking:
    """What a preemptive scheduler goes by.

    Attributes:
        key: lower runs first.
        wake: when a key needs another look.
        parameters: [parameters] of both; from `FIRST_ESTIMATE` on what `estimate` says of each job.
        wakes: whether `wake` is ever needed.
        key_changes: `KeyChanges`.
        estimate: of the seconds left, or `NO_ESTIMATE`.
        notes: [jobs, numbers] of the estimate.
    """

    key: JobKey
    wake: JobKey
    parameters: FloatVector
    wakes: bool
    key_changes: int
    estimate: Estimate
    notes: FloatMatrix


@kernel
def complain_of_key(ranking: Ranking, j: int, value: float, now: float) -> None:
    """Blame the key for a job of which it is no number."""
    complain(_NO_KEY, address_of(ranking.key), j, value, 0.0, now)


@kernel
def wake_of(ranking: Ranking, job: Job, j: int, now: float) -> float:
    """When the key of a job wants to be looked at."""
    time = ranking.wake(job, now, ranking.parameters)
    if np.isnan(time):
        complain(_NO_WAKE, address_of(ranking.wake), j, time, 0.0, now)
    return time


@kernel
def budget_of(state: State, b: int, rule: PlacementRule) -> int:
    """GPUs to give away; where the rule puts several jobs on a GPU, that GPU counts for each of them."""
    cluster = state.clusters[b]
    return int(cluster.num_gpus * (cluster.jobs_per_gpu if rule.shares else 1))
