"""The compiled core: start and stop jobs, re-rate those whose links changed, advance time.

`rate` below is a performance model as a `ringyard.performance.model.Rate`.
Events at one instant are handled in the order completions (by row), arrivals (by row); a decision
point follows once nothing more happens at that instant.
"""

from typing import Any

import numpy as np

from ringyard.compiled import kernel
from ringyard.progress import attained_service, remaining_iterations
from ringyard.records import Integral, JobStatus
from ringyard.sim.clock import integrate
from ringyard.sim.queues import (
    heap_push,
    heap_remove,
    heap_update,
    sort_ascending,
    waiting_add,
    waiting_remove,
)

__all__ = ["advance", "start", "stop", "worst_link"]

_WAITING = int(JobStatus.WAITING)
_RUNNING = int(JobStatus.RUNNING)
_DONE = int(JobStatus.DONE)
_FAIR_SHARE = int(Integral.FAIR_SHARE)


@kernel
def _sync(job: Any, now: float) -> None:
    """Bring progress and service of a running job up to `now`."""
    remaining = remaining_iterations(job, now)
    service = attained_service(job, now)
    job.remaining_iterations = remaining
    job.attained_service = service
    job.synced_seconds = now


@kernel
def _expect_end(job: Any) -> None:
    begin = max(job.synced_seconds, job.progress_from_seconds)
    job.end_seconds = begin + job.remaining_iterations * job.iteration_seconds


@kernel
def worst_link(state: Any, b: int, j: int) -> int:
    """SJF-BCO eq. 6's p: most jobs that span servers on any one server of job j; 0 if j does not span."""
    job = state.jobs[b, j]
    if job.num_servers <= 1:
        return 0
    worst = 0
    g = job.first_gpu
    while g >= 0:
        worst = max(worst, state.servers[b, state.gpus[b, g].server].spanning_jobs)
        g = state.gpus[b, g].next_server_gpu
    return worst


@kernel
def _rerate_neighbours(state: Any, b: int, j: int, rate: Any) -> None:
    """Re-rate the jobs that span servers on a server of job j and whose worst link changed."""
    cluster = state.clusters[b]
    cluster.stamp += 1
    stamp = cluster.stamp
    state.jobs[b, j].stamp = stamp
    head = state.jobs[b, j].first_gpu
    while head >= 0:
        server = state.servers[b, state.gpus[b, head].server]
        if server.spanning_jobs > 0:
            for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
                other = state.gpus[b, g].job
                if other >= 0 and state.jobs[b, other].stamp != stamp:
                    neighbour = state.jobs[b, other]
                    neighbour.stamp = stamp
                    worst = worst_link(state, b, other)
                    if worst != neighbour.worst_link_jobs:
                        neighbour.worst_link_jobs = worst
                        _rerate(state, b, other, rate)
        head = state.gpus[b, head].next_server_gpu


@kernel
def _rerate(state: Any, b: int, j: int, rate: Any) -> None:
    job = state.jobs[b, j]
    seconds = rate.seconds(job, rate.parameters)
    if seconds != job.iteration_seconds:
        _sync(job, state.clusters[b].now)
        job.iteration_seconds = seconds
        _expect_end(job)
        heap_update(state, b, j)


@kernel
def _count_gpus(state: Any, b: int, s: int, change: int) -> None:
    """Add `change` to the free GPUs of server s, and keep the counts that follow from it."""
    cluster = state.clusters[b]
    server = state.servers[b, s]
    if server.free_gpus < server.num_gpus:
        cluster.fragmented_gpus -= server.free_gpus
    server.free_gpus += change
    cluster.free_gpus += change
    if server.free_gpus < server.num_gpus:
        cluster.fragmented_gpus += server.free_gpus


@kernel
def _hold(state: Any, b: int, j: int, gpus: Any, count: int) -> None:
    """Chain the GPUs in ascending order to job j and mark the links it uses."""
    sort_ascending(gpus, count)
    job = state.jobs[b, j]
    job.first_gpu = gpus[0]
    num_servers = 0
    head = -1
    for i in range(count):
        g = gpus[i]
        gpu = state.gpus[b, g]
        gpu.job = j
        gpu.next_gpu = -1
        gpu.next_server_gpu = -1
        if i > 0:
            state.gpus[b, gpus[i - 1]].next_gpu = g
        if head < 0 or state.gpus[b, head].server != gpu.server:
            if head >= 0:
                state.gpus[b, head].next_server_gpu = g
            head = g
            num_servers += 1
        _count_gpus(state, b, gpu.server, -1)
    job.num_servers = num_servers
    if num_servers > 1:
        g = job.first_gpu
        while g >= 0:
            state.servers[b, state.gpus[b, g].server].spanning_jobs += 1
            g = state.gpus[b, g].next_server_gpu


@kernel
def start(state: Any, b: int, j: int, gpus: Any, count: int, rate: Any) -> None:
    """Give waiting job j the free GPUs `gpus[:count]` (sorted in place).

    The caller has checked that the job waits, that `count` is what it asks for and that the GPUs are free.
    """
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    now = cluster.now
    waiting_remove(state, b, j)
    _hold(state, b, j, gpus, count)
    job.status = _RUNNING
    job.synced_seconds = now
    job.last_start_seconds = now
    job.progress_from_seconds = now
    if np.isnan(job.first_start_seconds):
        job.first_start_seconds = now
    else:
        job.progress_from_seconds = now + job.restart_seconds
    cluster.num_starts += 1
    job.worst_link_jobs = worst_link(state, b, j)
    job.iteration_seconds = rate.seconds(job, rate.parameters)
    _expect_end(job)
    heap_push(state, b, j)
    if job.num_servers > 1 and cluster.network_coupled:
        _rerate_neighbours(state, b, j, rate)


@kernel
def _log_segments(state: Any, b: int, j: int) -> None:
    """Remember which servers job j held since its last start."""
    rows = state.segments.shape[1]
    if rows == 0:
        return
    cluster = state.clusters[b]
    g = state.jobs[b, j].first_gpu
    while g >= 0:
        row = state.segments[b, cluster.num_segments % rows]
        cluster.num_segments += 1
        row.job = j
        row.server = state.gpus[b, g].server
        row.start_seconds = state.jobs[b, j].last_start_seconds
        row.stop_seconds = cluster.now
        bits = np.uint64(0)
        held = g
        while held >= 0 and state.gpus[b, held].server == row.server:
            bits |= np.uint64(1) << np.uint64(held - state.servers[b, row.server].first_gpu)
            held = state.gpus[b, held].next_gpu
        row.gpu_bits = bits
        g = state.gpus[b, g].next_server_gpu


@kernel
def _release(state: Any, b: int, j: int, rate: Any) -> None:
    """Take all GPUs from running job j and re-rate those it shared links with."""
    job = state.jobs[b, j]
    _log_segments(state, b, j)
    heap_remove(state, b, j)
    spanned = job.num_servers > 1
    g = job.first_gpu
    while g >= 0:
        gpu = state.gpus[b, g]
        gpu.job = -1
        _count_gpus(state, b, gpu.server, 1)
        g = gpu.next_gpu
    if spanned:
        g = job.first_gpu
        while g >= 0:
            state.servers[b, state.gpus[b, g].server].spanning_jobs -= 1
            g = state.gpus[b, g].next_server_gpu
        if state.clusters[b].network_coupled:
            _rerate_neighbours(state, b, j, rate)
    job.first_gpu = -1
    job.num_servers = 0
    job.worst_link_jobs = 0


@kernel
def stop(state: Any, b: int, j: int, rate: Any) -> None:
    """Preempt running job j: it waits again, its progress is kept."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    _sync(job, cluster.now)
    _release(state, b, j, rate)
    job.status = _WAITING
    job.last_stop_seconds = cluster.now
    job.end_seconds = np.nan
    job.num_preemptions += 1
    cluster.num_preemptions += 1
    waiting_add(state, b, j)


@kernel
def _arrive(state: Any, b: int) -> None:
    cluster = state.clusters[b]
    j = cluster.next_arrival
    job = state.jobs[b, j]
    cluster.next_arrival += 1
    job.status = _WAITING
    job.fair_share_integral = state.integrals[b, _FAIR_SHARE]
    cluster.demanded_gpus += job.num_gpus
    cluster.inverse_durations += 1.0 / job.isolated_seconds
    waiting_add(state, b, j)


@kernel
def _finish(state: Any, b: int, j: int, rate: Any) -> None:
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    _sync(job, cluster.now)
    _release(state, b, j, rate)
    job.status = _DONE
    job.remaining_iterations = 0.0
    job.end_seconds = cluster.now
    job.fair_share_integral = state.integrals[b, _FAIR_SHARE] - job.fair_share_integral
    cluster.demanded_gpus -= job.num_gpus
    cluster.inverse_durations -= 1.0 / job.isolated_seconds
    cluster.finished_jct += cluster.now - job.submit_seconds
    cluster.num_done += 1


@kernel
def _next_event(state: Any, b: int) -> float:
    """Time of the next completion, arrival, round, wake-up or end of the window; inf if none."""
    cluster = state.clusters[b]
    time = cluster.limit_seconds
    if cluster.num_running > 0:
        time = min(time, state.jobs[b, state.running[b, 0]].end_seconds)
    if cluster.next_arrival < cluster.num_jobs:
        time = min(time, state.jobs[b, cluster.next_arrival].submit_seconds)
    if cluster.num_running + cluster.num_waiting > 0:
        time = min(time, cluster.next_round_seconds)
        time = min(time, cluster.wake_seconds)
    return time


@kernel
def advance(state: Any, b: int, rate: Any) -> bool:
    """Move to the next decision point; False if nothing can happen any more (no event left)."""
    cluster = state.clusters[b]
    time = _next_event(state, b)
    if not np.isfinite(time):
        return False
    time = max(time, cluster.now)
    integrate(state, b, time)
    cluster.now = time
    while cluster.num_running > 0 and state.jobs[b, state.running[b, 0]].end_seconds <= time:
        _finish(state, b, state.running[b, 0], rate)
    while (
        cluster.next_arrival < cluster.num_jobs and state.jobs[b, cluster.next_arrival].submit_seconds <= time
    ):
        _arrive(state, b)
    if cluster.next_round_seconds <= time:
        cluster.next_round_seconds = (np.floor(time / cluster.round_seconds) + 1.0) * cluster.round_seconds
    if cluster.wake_seconds <= time:
        cluster.wake_seconds = np.inf
    cluster.num_decisions += 1
    return True
