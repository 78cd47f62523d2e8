"""The guard against endless simulations: time does not advance, or no job does any work."""

import numpy as np

from ringyard.compiled import kernel, linked_kernel
from ringyard.errors import SchedulerError
from ringyard.state.arrays import State
from ringyard.state.progress import remaining_iterations
from ringyard.state.records import ClusterRecord

#: allowed steps at one moment, and in addition for each job
_STEPS, _STEPS_PER_JOB = 1000, 10
#: preemptions and resizes after which some job must have done work, and in addition for each job
_CHANGES, _CHANGES_PER_JOB = 10_000, 100
_NANOSECOND = 1e-9
_EPSILON = 2.0**-52  # largest relative distance of floating-point numbers


@kernel
def _max_steps(num_jobs: int) -> int:
    return _STEPS + _STEPS_PER_JOB * num_jobs


@kernel
def _depends_on_scheduler(cluster: ClusterRecord) -> bool:
    """Return whether jobs wait, and only rounds, wake-ups and repairs lie ahead."""
    if cluster.num_running > 0 or cluster.next_arrival < cluster.num_jobs:
        return False
    return cluster.limit_seconds == np.inf and cluster.next_cancel_seconds == np.inf


@kernel
def is_livelocked(state: State, b: int) -> bool:
    """Return whether cluster `b` of `state` took more steps at one moment than any sane simulation.

    A step is a decision point, an allocation or an environment's action. 1,000 steps and 10 for each job are
    allowed, while a job starts, changes and ends a few times at most. A moment lasts a nanosecond, or at
    large times twice as many floating-point numbers as steps are allowed.

    Time counts as one moment while jobs wait, no job runs and nothing else will happen: a scheduler that is
    asked each round and starts nothing would be asked forever. So does time in which jobs are preempted and
    resized 10,000 times, and 100 times for each job, and none does any work because restarts last as long as
    jobs run.
    """
    cluster = state.clusters[b]
    return cluster.steps_at_moment > _max_steps(cluster.num_jobs) or cluster.futile_changes > 0


@linked_kernel
def _check_progress(state: State, b: int) -> None:
    """Note whether any job did any work since the last check."""
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
    """Count a step of cluster `b` of `state` at `time`, now or later. Return False in a livelock."""
    cluster = state.clusters[b]
    if cluster.num_preemptions + cluster.num_resizes >= cluster.changes_at_next_check:
        _check_progress(state, b)
    if time > cluster.moment_ends_seconds:
        if not _depends_on_scheduler(cluster):
            numbers = 2 * _max_steps(cluster.num_jobs)
            cluster.moment_ends_seconds = time + max(_NANOSECOND, time * numbers * _EPSILON)
            cluster.steps_at_moment = 0
        elif cluster.down_gpus > 0:  # the scheduler may wait for a repair
            return True
    cluster.steps_at_moment += 1
    return not is_livelocked(state, b)


def _cause(state: State, b: int) -> str:
    """Return what repeats at this moment, and what the user should change."""
    cluster, servers = state.clusters[b], state.servers[b]
    end = cluster["moment_ends_seconds"]
    failing = np.flatnonzero(servers["next_change_seconds"] <= end)
    jobs = state.jobs[b, : cluster["num_jobs"]]
    changed = np.fmax(jobs["last_start_seconds"], jobs["last_stop_seconds"])
    moves = np.where(changed >= cluster["now"], jobs["num_preemptions"] + jobs["num_resizes"], -1)
    j = int(moves.argmax())
    if len(failing):
        return f"server {failing[0]} fails and returns at once; give failures longer times"
    if cluster["wake_seconds"] <= end:
        return "the scheduler asks to be woken at once; call wake_at with later times"
    if cluster["next_round_seconds"] <= end:
        return f"rounds follow every {cluster['round_seconds']:g} s; lengthen round_seconds"
    if moves[j] > 0:
        return (
            f"job {j} changes again and again ({jobs['num_preemptions'][j]} preemptions and"
            f" {jobs['num_resizes'][j]} resizes so far); return its allocation once, then an empty list"
        )
    if _depends_on_scheduler(cluster):
        waiting = cluster["num_waiting"]
        return f"{waiting} jobs wait, no job runs and none will arrive; start a waiting job"
    return "its allocations change nothing; return each allocation once, then an empty list"


def raise_if_livelocked(state: State, b: int) -> None:
    """Raise SchedulerError with time and cause if cluster `b` of `state` is livelocked."""
    if is_livelocked(state, b):
        cluster = state.clusters[b]
        if cluster["futile_changes"] > 0:
            raise SchedulerError(
                f"no progress at {cluster['now']!s} s: {cluster['futile_changes']} preemptions or resizes,"
                " and no job did any work; let jobs run for longer than their restarts (longer rounds, or a"
                " smaller restart.seconds)"
            )
        most = _max_steps(cluster["num_jobs"])
        raise SchedulerError(
            f"time does not advance beyond {cluster['now']!s} s: {cluster['steps_at_moment']} decisions,"
            f" allocations or actions since then, expected at most {most}; {_cause(state, b)}"
        )
