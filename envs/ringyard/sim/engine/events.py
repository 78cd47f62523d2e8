"""Let time pass to the next decision point.

Two events are at one instant if their times are equal as floating-point numbers; nothing is rounded together.
A job ends at `begin + iterations left x seconds per iteration`, counted from the last change of its speed. A
job whose end has come ends, whatever happens to its speed at that instant.

Events at one instant are handled in this order: jobs that end or become predictable (by row), cancellations
(by row), servers that fail or return (by number), arrivals (by row), a round. A decision point follows; what
became due while they were handled, as the end of a job without work, follows it at the same instant. Where
only rounds are decision points, events between them happen at their own times and the scheduler is not asked.

A running job is *late* if, at its present speed, it will end after its deadline, the largest acceptable
completion time. Late jobs are blocked when time is about to pass, so that a scheduler can help them before:
one after the other, by row, and speeds are counted anew after each, so that a job that is late only because
of one that is blocked goes on. A decision point follows at the same instant. A waiting job is blocked at its
deadline. A job that is withdrawn at its very deadline counts as blocked.
"""

import numpy as np

from ringyard.compiled import kernel, linked_kernel
from ringyard.performance.model import Physics
from ringyard.sim.engine.allocation import fail_server, repair_server
from ringyard.sim.engine.lifecycle import arrive, become_predictable, end_job, fail_job, log_downtime
from ringyard.sim.engine.livelock import count_step
from ringyard.state.arrays import State
from ringyard.state.random_numbers import exponential_at
from ringyard.state.records import ClusterRecord, Integral, JobOutcome, JobStatus


@kernel
def next_round(now: float, seconds: float) -> float:
    """When the first round after `now` begins: round k is at k x seconds, and always later than `now`.

    Rounds closer to one another than floating-point numbers are near `now` follow at the next such number.
    """
    following = float(np.nextafter(now, np.inf))
    k = np.floor(now / seconds) + 1.0
    if k > 2.0**53:
        return following
    if (k - 1.0) * seconds > now:  # the quotient was rounded up
        k -= 1.0
    elif k * seconds <= now:  # or down
        k += 1.0
    return max(k * seconds, following)


@kernel
def is_round(now: float, seconds: float) -> bool:
    """Whether a round begins at `now`, the first at 0."""
    return next_round(float(np.nextafter(now, -np.inf)), seconds) == now


@kernel
def _halve_timeline(state: State, b: int) -> None:
    """Merge pairs of bins, so that the same number of bins covers twice the time."""
    bins = state.timeline.shape[1]
    half = bins // 2
    for i in range(half):
        for column in range(state.timeline.shape[2]):
            pair = state.timeline[b, 2 * i, column] + state.timeline[b, 2 * i + 1, column]
            state.timeline[b, i, column] = pair
    for i in range(half, bins):
        for column in range(state.timeline.shape[2]):
            state.timeline[b, i, column] = 0.0
    state.clusters[b].timeline_bin_log2 += 1


@kernel
def _fill_timeline(state: State, b: int, until: float) -> None:
    """Spread the present queue length and busy GPUs over the bins from now to `until`."""
    cluster = state.clusters[b]
    bins = state.timeline.shape[1]
    while until >= bins * 2.0**cluster.timeline_bin_log2:
        _halve_timeline(state, b)
    width = 2.0**cluster.timeline_bin_log2
    busy = cluster.num_gpus - cluster.free_gpus - cluster.down_gpus
    begin = cluster.now
    i = int(begin / width)
    while begin < until:
        end = min(until, (i + 1) * width)
        state.timeline[b, i, 0] += cluster.num_waiting * (end - begin)
        state.timeline[b, i, 1] += busy * (end - begin)
        begin = end
        i += 1


@kernel
def integrate(state: State, b: int, until: float) -> None:
    """Add the stretch from now to `until`, in which nothing changes, to every integral."""
    cluster = state.clusters[b]
    elapsed = until - cluster.now
    if elapsed <= 0.0:
        return
    jobs = cluster.num_waiting + cluster.num_running
    row = state.integrals[b]
    row[Integral.JOBS_IN_SYSTEM] += jobs * elapsed
    row[Integral.INVERSE_DURATION_IN_SYSTEM] += cluster.inverse_durations * elapsed
    row[Integral.ELAPSED] += elapsed
    row[Integral.BUSY_GPUS] += (cluster.num_gpus - cluster.free_gpus - cluster.down_gpus) * elapsed
    row[Integral.FRAGMENTED_GPUS] += cluster.fragmented_gpus * elapsed
    if cluster.num_waiting > 0:
        row[Integral.FREE_GPUS_WITH_QUEUE] += cluster.free_gpus * elapsed
    row[Integral.FAIR_SHARE] += max(1.0, cluster.demanded_gpus / cluster.num_gpus) * elapsed
    if state.timeline.shape[1] > 0:
        _fill_timeline(state, b, until)


#: random streams of servers stand apart from those of jobs, which are their rows
SERVER_STREAM = 1 << 40


@kernel
def draw_first_failures(state: State, b: int) -> None:
    """Draw when each server first fails."""
    cluster = state.clusters[b]
    cluster.next_change_seconds = np.inf
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        server.next_change_seconds = np.inf
        if cluster.mean_up_seconds < np.inf:
            server.next_change_seconds = exponential_at(
                cluster.seed, SERVER_STREAM + s, 0, cluster.mean_up_seconds
            )
        cluster.next_change_seconds = min(cluster.next_change_seconds, server.next_change_seconds)


@kernel
def _fail_server(state: State, b: int, s: int, physics: Physics) -> None:
    """Server s goes down; its jobs, by row, lose what they did since their last checkpoint."""
    per_gpu = state.clusters[b].jobs_per_gpu
    server = state.servers[b, s]
    while True:
        hit = state.jobs.shape[1]
        for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
            if state.slots[b, i].job >= 0:
                hit = min(hit, state.slots[b, i].job)
        j = server.first_cpu_job
        while j >= 0:
            hit = min(hit, j)
            j = state.jobs[b, j].next_cpu_job
        if hit == state.jobs.shape[1]:
            break
        fail_job(state, b, hit, physics)
    fail_server(state, b, s)


@kernel
def _fail_and_repair_due(state: State, b: int, physics: Physics) -> None:
    """Fail or repair every server whose time has come, and draw when it changes next."""
    cluster = state.clusters[b]
    earliest = np.inf
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.next_change_seconds <= cluster.now:
            if server.up:
                _fail_server(state, b, s, physics)
                mean = cluster.mean_repair_seconds
            else:
                repair_server(state, b, s)
                mean = cluster.mean_up_seconds
            position = 2 * server.num_failures + server.up - 1
            server.next_change_seconds = cluster.now + exponential_at(
                cluster.seed, SERVER_STREAM + s, position, mean
            )
            if not server.up:
                log_downtime(state, b, s)
        earliest = min(earliest, server.next_change_seconds)
    cluster.next_change_seconds = earliest


@kernel
def _first_late(state: State, b: int) -> int:
    """The first row of a running job that will end after its deadline; -1: none."""
    for j in range(state.clusters[b].next_arrival):
        job = state.jobs[b, j]
        if job.status == JobStatus.RUNNING and job.end_seconds > job.deadline_seconds:
            return j
    return -1


@kernel
def _block_late(state: State, b: int, physics: Physics) -> bool:
    """Block the late jobs, one after the other; whether there were any."""
    j = _first_late(state, b)
    any_late = j >= 0
    while j >= 0:
        end_job(state, b, j, JobOutcome.BLOCKED, physics)
        j = _first_late(state, b)
    state.clusters[b].may_be_late = 0
    return any_late


@kernel
def _end_due(state: State, b: int, physics: Physics) -> None:
    """End every job whose work is done now; the other jobs that are due become predictable."""
    now = state.clusters[b].now
    while state.clusters[b].num_running > 0:
        j = state.running[b, 0]
        if state.jobs[b, j].next_event_seconds > now:
            break
        if state.jobs[b, j].end_seconds <= now:
            end_job(state, b, j, JobOutcome.COMPLETED, physics)
        else:
            become_predictable(state, b, j)


@kernel
def _cancel_due(state: State, b: int, physics: Physics) -> None:
    """Withdraw every job whose user gives up now, or whose acceptable completion time has passed."""
    cluster = state.clusters[b]
    for j in range(cluster.next_arrival):
        job = state.jobs[b, j]
        if job.status != JobStatus.DONE and job.cancel_seconds <= cluster.now:
            blocked = job.cancel_seconds == job.deadline_seconds
            end_job(state, b, j, JobOutcome.BLOCKED if blocked else JobOutcome.CANCELLED, physics)


@kernel
def _next_event(state: State, b: int) -> float:
    """Time of the next event, round, wake-up or end of the window; inf if none."""
    cluster = state.clusters[b]
    time = cluster.limit_seconds
    if cluster.num_running > 0:
        time = min(time, state.jobs[b, state.running[b, 0]].next_event_seconds)
    if cluster.next_arrival < cluster.num_jobs:
        time = min(time, state.jobs[b, cluster.next_arrival].submit_seconds)
    if cluster.num_running + cluster.num_waiting > 0:
        time = min(time, cluster.next_round_seconds)
        time = min(time, cluster.wake_seconds)
        time = min(time, cluster.next_cancel_seconds)
    helpless = time == np.inf and cluster.down_gpus == 0  # that a server fails will not start a job
    if cluster.num_done < cluster.num_jobs and not helpless:
        time = min(time, cluster.next_change_seconds)
    return time


@kernel
def _process_next_event(state: State, b: int, physics: Physics) -> bool:
    """Let time pass to the next event; False if none is left, or if time stands still."""
    cluster = state.clusters[b]
    time = cluster.now
    if cluster.may_be_late == 0 or not _block_late(state, b, physics):
        time = max(time, _next_event(state, b))
    if not np.isfinite(time) or not count_step(state, b, time):
        return False
    integrate(state, b, time)
    cluster.now = time
    _end_due(state, b, physics)
    if cluster.next_cancel_seconds <= time:
        _cancel_due(state, b, physics)
    if cluster.next_change_seconds <= time:
        _fail_and_repair_due(state, b, physics)
    while (
        cluster.next_arrival < cluster.num_jobs and state.jobs[b, cluster.next_arrival].submit_seconds <= time
    ):
        arrive(state, b)
    if cluster.next_round_seconds <= time:
        cluster.next_round_seconds = next_round(time, cluster.round_seconds)
    if cluster.wake_seconds <= time:
        cluster.wake_seconds = np.inf
    return True


@kernel
def _between_rounds(cluster: ClusterRecord) -> bool:
    """Whether this is no decision point, because only rounds are, and the simulation goes on."""
    if cluster.rounds_only == 0 or cluster.num_done == cluster.num_jobs:
        return False
    return cluster.now < cluster.limit_seconds and not is_round(cluster.now, cluster.round_seconds)


@linked_kernel
def advance(state: State, b: int, physics: Physics) -> bool:
    """Move to the next decision point; False if no event is left, or if time stands still (`standstill`)."""
    cluster = state.clusters[b]
    while True:
        if not _process_next_event(state, b, physics):
            return False
        if not _between_rounds(cluster):
            break
    cluster.num_decisions += 1
    return True
