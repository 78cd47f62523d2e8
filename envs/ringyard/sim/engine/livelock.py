"""The guard against simulations that would never end: time stands still, or no job gets any work done."""

import numpy as np

from ringyard.compiled import kernel
from ringyard.errors import SchedulerError
from ringyard.state.arrays import State
from ringyard.state.progress import remaining_iterations
from ringyard.state.records import ClusterRecord

#: steps that a simulation may take at one moment: these, and so many for each job
_STEPS, _STEPS_PER_JOB = 1000, 10
#: stops and resizes after which some job must have got some work done: these, and so many for each job
_CHANGES, _CHANGES_PER_JOB = 10_000, 100
_NANOSECOND = 1e-9
_EPSILON = 2.0**-52  # of floating-point numbers, at most, as a share of them


@kernel
def _max_steps(num_jobs: int) -> int:
    return _STEPS + _STEPS_PER_JOB * num_jobs


@kernel
def _depends_on_scheduler(cluster: ClusterRecord) -> bool:
    """Whether jobs wait and rounds, wake-ups and repairs are all that lies ahead."""
    if cluster.num_running > 0 or cluster.next_arrival < cluster.num_jobs:
        return False
    return cluster.limit_seconds == np.inf and cluster.next_cancel_seconds == np.inf


@kernel
def is_livelocked(state: State, b: int) -> bool:
    """Whether more steps were taken at one moment than anything sane takes.

    A step is a decision point, an allocation or an action; 1,000 and 10 for each job are allowed, where a job
    starts, moves and ends a few times at most. A moment is a nanosecond; at large times, twice as many
    floating-point numbers as steps are allowed.

    Time that passes while jobs wait, nothing runs and nothing else will happen counts as one moment, too: a
    scheduler that is asked every round and starts nothing would be asked for ever. So does time in which
    jobs are stopped and resized 10,000 times, and 100 for each job, and not one of them gets any work done:
    their restarts last as long as they may run.
    """
    cluster = state.clusters[b]
    return cluster.steps_at_moment > _max_steps(cluster.num_jobs) or cluster.futile_changes > 0


@kernel
def _check_progress(state: State, b: int) -> None:
    """Jobs that are stopped before their restarts are over, again and again, get nothing done for ever."""
    cluster = state.clusters[b]
    work = 0.0
    for j in range(cluster.num_jobs):
        work += remaining_iterations(state.jobs[b, j], cluster.now)
    most = _CHANGES + _CHANGES_PER_JOB * cluster.num_jobs
    if work == cluster.work_at_last_check:
        cluster.futile_changes = most
    cluster.work_at_last_check = work
    cluster.changes_at_next_check = cluster.num_preemptions + cluster.num_resizes + most


@kernel
def count_step(state: State, b: int, time: float) -> bool:
    """Count a step at `time`, now or later; False if time stands still, or moves are made in vain."""
    cluster = state.clusters[b]
    if cluster.num_preemptions + cluster.num_resizes >= cluster.changes_at_next_check:
        _check_progress(state, b)
    if time > cluster.moment_ends_seconds:
        if not _depends_on_scheduler(cluster):
            numbers = 2 * _max_steps(cluster.num_jobs)
            cluster.moment_ends_seconds = time + max(_NANOSECOND, time * numbers * _EPSILON)
            cluster.steps_at_moment = 0
        elif cluster.down_gpus > 0:  # it may wait for a repair
            return True
    cluster.steps_at_moment += 1
    return not is_livelocked(state, b)


def _cause(state: State, b: int) -> str:
    """What happens again and again at this moment, and what to do about it."""
    cluster, servers = state.clusters[b], state.servers[b]
    end = cluster["moment_ends_seconds"]
    failing = np.flatnonzero(servers["next_change_seconds"] <= end)
    jobs = state.jobs[b, : cluster["num_jobs"]]
    changed = np.fmax(jobs["last_start_seconds"], jobs["last_stop_seconds"])
    moves = np.where(changed >= cluster["now"], jobs["num_preemptions"] + jobs["num_resizes"], -1)
    j = int(moves.argmax())
    if len(failing):
        return f"server {failing[0]} fails and returns again and again; lengthen the failures' times"
    if cluster["wake_seconds"] <= end:
        return "the scheduler asks to be woken at once again and again; wake it later"
    if cluster["next_round_seconds"] <= end:
        return f"rounds follow every {cluster['round_seconds']:g} s; lengthen round_seconds"
    if moves[j] > 0:
        return (
            f"job {j} changes hands again and again ({jobs['num_preemptions'][j]} preemptions,"
            f" {jobs['num_resizes'][j]} resizes so far); let the scheduler answer once and then wait"
        )
    if _depends_on_scheduler(cluster):
        waiting = cluster["num_waiting"]
        return f"{waiting} jobs wait, nothing runs and nothing will arrive; the scheduler must start one"
    return "the scheduler answers again and again and nothing changes; let it answer once and then wait"


def raise_if_livelocked(state: State, b: int) -> None:
    """Raise SchedulerError, naming time and cause, if cluster b's simulation would never end."""
    if is_livelocked(state, b):
        cluster = state.clusters[b]
        if cluster["futile_changes"] > 0:
            raise SchedulerError(
                f"no progress at {cluster['now']!s} s: {cluster['futile_changes']} times jobs were stopped or"
                " resized, and none got any work done; let jobs run for longer than their restarts take"
                " (longer rounds, or a smaller restart.seconds)"
            )
        most = _max_steps(cluster["num_jobs"])
        raise SchedulerError(
            f"time does not advance beyond {cluster['now']!s} s: {cluster['steps_at_moment']} decisions,"
            f" allocations or actions since then, expected at most {most}; {_cause(state, b)}"
        )
