"""Advance time to the next decision point, event by event.

A job ends at `begin + iterations left x seconds per iteration`, counted from the last change of its speed. A
job that is due ends, even if its speed changes at that instant. Two events are simultaneous if their
times are equal as floating-point numbers.

Simultaneous events are handled in this order: jobs that end or become predictable (by row), cancellations (by
row), servers that fail or return (by number), arrivals (by row), a round. A decision point follows. What
becomes due meanwhile, such as the end of a job without work, follows after it at the same instant. If only
rounds are decision points, other events happen at their own times without one.

A running job is *late* if, at its present speed, it will end after its largest acceptable completion
time. Late jobs are blocked when time is about to advance, so that a scheduler can speed them up
before. They are blocked one by one, by row. Speeds are updated after each, so that a job continues if it was
late only because of a blocked one. A decision point follows at the same instant. A waiting job is blocked at
that time. A job cancelled exactly then counts as blocked. `JobTable.deadline_seconds` changes nothing here.
"""

import numpy as np

from ringyard.compiled import kernel, linked_kernel
from ringyard.performance.model import Physics
from ringyard.sim.engine.allocation import fail_server, repair_server
from ringyard.sim.engine.lifecycle import (
    arrive,
    become_predictable,
    end_job,
    fail_job,
    log_downtime,
    start_warm_jobs,
)
from ringyard.sim.engine.livelock import count_step
from ringyard.sim.engine.queues import waiting_add_all
from ringyard.state.arrays import State
from ringyard.state.random_numbers import exponential_at, uniform_at
from ringyard.state.records import ClusterRecord, Integral, JobOutcome, JobStatus


@kernel
def next_round(now: float, seconds: float) -> float:
    """Return when the first round after `now` begins, at a multiple of `seconds` or the next number."""
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
    """Return whether a round begins at `now`, for rounds of `seconds`. The first is at 0."""
    return next_round(float(np.nextafter(now, -np.inf)), seconds) == now


@linked_kernel
def _halve_timeline(state: State, b: int) -> None:
    """Merge pairs of timeline bins, so that the bins cover twice the time."""
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
    """Add the present queue length and busy GPUs to the timeline bins from now to `until`."""
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
    """Add the time until `until`, in which nothing changes, to the integrals of cluster `b` of `state`."""
    cluster = state.clusters[b]
    elapsed = until - cluster.now
    if elapsed <= 0.0:
        return
    jobs = cluster.num_waiting + cluster.num_running
    row = state.integrals[b]
    row[Integral.JOBS_IN_SYSTEM.value] += jobs * elapsed
    row[Integral.INVERSE_DURATION_IN_SYSTEM.value] += cluster.inverse_durations * elapsed
    row[Integral.ELAPSED.value] += elapsed
    row[Integral.BUSY_GPUS.value] += (cluster.num_gpus - cluster.free_gpus - cluster.down_gpus) * elapsed
    row[Integral.FRAGMENTED_GPUS.value] += cluster.fragmented_gpus * elapsed
    if cluster.num_waiting > 0:
        row[Integral.FREE_GPUS_WITH_QUEUE.value] += cluster.free_gpus * elapsed
    row[Integral.FAIR_SHARE.value] += max(1.0, cluster.demanded_gpus / cluster.num_gpus) * elapsed
    if state.timeline.shape[1] > 0:
        _fill_timeline(state, b, until)


#: number of the first server's random stream. Those of jobs are their rows
SERVER_STREAM = 1 << 40


@kernel
def _outage_seconds(state: State, b: int, s: int) -> float:
    """Return when server `s` next leaves or returns, as recorded."""
    cluster, server = state.clusters[b], state.servers[b, s]
    if server.num_outage_times == 0:
        return float(np.inf)
    period, column = divmod(server.next_outage, server.num_outage_times)
    seconds = state.outages[s, column] + period * cluster.outage_period_seconds
    return float(seconds - cluster.outage_offset_seconds)


@kernel
def _first_outage(state: State, b: int, s: int) -> None:
    """Put server `s` into the present point of its recorded times."""
    server = state.servers[b, s]
    server.next_outage = 0
    while _outage_seconds(state, b, s) <= 0.0:
        server.next_outage += 1
    server.next_change_seconds = _outage_seconds(state, b, s)
    if server.next_outage % 2 == 1:
        fail_server(state, b, s)
        server.num_failures = 0
        log_downtime(state, b, s)


@kernel
def draw_first_failures(state: State, b: int) -> None:
    """Draw when each server of cluster `b` of `state` first fails."""
    cluster = state.clusters[b]
    cluster.next_change_seconds = np.inf
    recorded = len(state.outages) > 0
    if recorded:  # the clock is one period ahead, because the last return may be in the next period
        share = 1.0 + uniform_at(cluster.seed, SERVER_STREAM - 1, 0)
        cluster.outage_offset_seconds = share * cluster.outage_period_seconds
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        server.next_change_seconds = np.inf
        if recorded:
            _first_outage(state, b, s)
        elif cluster.mean_up_seconds < np.inf:
            server.next_change_seconds = exponential_at(
                cluster.seed, SERVER_STREAM + s, 0, cluster.mean_up_seconds
            )
        cluster.next_change_seconds = min(cluster.next_change_seconds, server.next_change_seconds)


@kernel
def _fail_server(state: State, b: int, s: int, physics: Physics) -> None:
    """Fail server `s`. Its jobs, by row, lose the progress since their last checkpoint."""
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


@linked_kernel
def _fail_and_repair_due(state: State, b: int, physics: Physics) -> None:
    """Fail or repair each server that is due, and draw its next change."""
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
            if len(state.outages) > 0:
                server.next_outage += 1
                server.next_change_seconds = _outage_seconds(state, b, s)
            else:
                position = 2 * server.num_failures + server.up - 1  # number of draws before this one
                server.next_change_seconds = cluster.now + exponential_at(
                    cluster.seed, SERVER_STREAM + s, position, mean
                )
            if not server.up:
                log_downtime(state, b, s)
        earliest = min(earliest, server.next_change_seconds)
    cluster.next_change_seconds = earliest


@kernel
def _first_late(state: State, b: int) -> int:
    """Return the first row of a running job that is late, -1 if there is none."""
    for j in range(state.clusters[b].next_arrival):
        job = state.jobs[b, j]
        if job.status == JobStatus.RUNNING and job.end_seconds > job.blocked_seconds:
            return j
    return -1


@linked_kernel
def _block_late(state: State, b: int, physics: Physics) -> bool:
    """Block the late jobs one by one. Return whether there were any."""
    j = _first_late(state, b)
    any_late = j >= 0
    while j >= 0:
        end_job(state, b, j, JobOutcome.BLOCKED, physics)
        j = _first_late(state, b)
    state.clusters[b].may_be_late = 0
    return any_late


@kernel
def _end_due(state: State, b: int, physics: Physics) -> None:
    """End each job that is done now. Other jobs that are due become predictable."""
    now = state.clusters[b].now
    while state.clusters[b].num_running > 0:
        j = state.running[b, 0]
        if state.jobs[b, j].next_event_seconds > now:
            break
        if state.jobs[b, j].end_seconds <= now:
            end_job(state, b, j, JobOutcome.COMPLETED, physics)
        else:
            become_predictable(state, b, j)


@linked_kernel
def _cancel_due(state: State, b: int, physics: Physics) -> None:
    """Cancel each job that its user withdraws now, and block each that waited too long."""
    cluster = state.clusters[b]
    for j in range(cluster.next_arrival):
        job = state.jobs[b, j]
        if job.status != JobStatus.DONE and job.cancel_seconds <= cluster.now:
            blocked = job.cancel_seconds == job.blocked_seconds
            end_job(state, b, j, JobOutcome.BLOCKED if blocked else JobOutcome.CANCELLED, physics)


@kernel
def _next_event(state: State, b: int) -> float:
    """Return the time of the next event, round, wake-up or end of the episode, inf if there is none."""
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
    helpless = time == np.inf and cluster.down_gpus == 0  # failures of servers start no job
    if cluster.num_done < cluster.num_jobs and not helpless:
        time = min(time, cluster.next_change_seconds)
    return time


@kernel
def _process_next_event(state: State, b: int, physics: Physics) -> bool:
    """Advance to the next event and handle it. Return False if there is none, or no progress."""
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
    first = cluster.next_arrival
    while (
        cluster.next_arrival < cluster.num_jobs and state.jobs[b, cluster.next_arrival].submit_seconds <= time
    ):
        arrive(state, b)
    waiting_add_all(state, b, first, cluster.next_arrival)
    if first == 0 and cluster.next_arrival > 0 and state.jobs[b, 0].attained_service > 0.0:
        start_warm_jobs(state, b, physics)
    if cluster.next_round_seconds <= time:
        cluster.next_round_seconds = next_round(time, cluster.round_seconds)
    if cluster.wake_seconds <= time:
        cluster.wake_seconds = np.inf
    return True


@kernel
def _between_rounds(cluster: ClusterRecord) -> bool:
    """Return whether this is no decision point because only rounds are, and the simulation goes on."""
    if cluster.rounds_only == 0 or cluster.num_done == cluster.num_jobs:
        return False
    return cluster.now < cluster.limit_seconds and not is_round(cluster.now, cluster.round_seconds)


@linked_kernel
def advance(state: State, b: int, physics: Physics) -> bool:
    """Advance to the next decision point; return False if there is none: no event left, or livelocked."""
    cluster = state.clusters[b]
    while True:
        if not _process_next_event(state, b, physics):
            return False
        if not _between_rounds(cluster):
            break
    cluster.num_decisions += 1
    return True
