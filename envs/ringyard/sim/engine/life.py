"""The compiled core: start, stop, resize, finish jobs, and re-rate those whose surroundings changed.

`rate` below is a performance model as a `ringyard.sim.engine.physics.Rate`.
"""

from typing import Any

import numpy as np

from ringyard.compiled.bundles import address_of
from ringyard.compiled.functions import function_value, kernel
from ringyard.sim.engine.coupling import count_links, surround
from ringyard.sim.engine.holding import hold, let_go
from ringyard.sim.engine.physics import RELEASE, RUN, rate_at
from ringyard.sim.engine.queues import heap_push, heap_remove, heap_update, waiting_add, waiting_remove
from ringyard.sim.engine.segments import log_segments
from ringyard.sim.engine.shape import ask, set_cores, set_size
from ringyard.state.progress import attained_service, remaining_iterations, run_seconds
from ringyard.state.random_numbers import normal_at
from ringyard.state.records import Integral, JobKind, JobOutcome, JobStatus, Network

__all__ = [
    "arrive",
    "become_predictable",
    "end",
    "lose",
    "release",
    "reshape",
    "run",
    "start",
    "stop",
]

_WAITING = int(JobStatus.WAITING)
_RUNNING = int(JobStatus.RUNNING)
_DONE = int(JobStatus.DONE)
_COMPLETED = int(JobOutcome.COMPLETED)
_BLOCKED = int(JobOutcome.BLOCKED)
_CPU_ONLY = int(JobKind.CPU_ONLY)
_NO_NETWORK = int(Network.NONE)
_FAIR_SHARE = int(Integral.FAIR_SHARE)
_BLOCKED_JOBS = int(Integral.BLOCKED_JOBS)


@kernel
def _sync(job: Any, now: float) -> None:
    """Bring progress and service of a running job up to `now`."""
    remaining = remaining_iterations(job, now)
    service = attained_service(job, now)
    ran = run_seconds(job, now)
    job.remaining_iterations = remaining
    job.attained_service = service
    job.run_seconds = ran
    job.synced_seconds = now


@kernel
def _expect_end(job: Any) -> None:
    begin = max(job.synced_seconds, job.progress_from_seconds)
    job.end_seconds = begin + job.remaining_iterations * job.iteration_seconds
    job.due_seconds = job.end_seconds
    if job.predictable == 0 and job.predictable_from < 1.0:
        left = job.total_iterations * (1.0 - job.predictable_from)
        ahead = max(job.remaining_iterations - left, 0.0)
        job.due_seconds = min(job.end_seconds, begin + ahead * job.iteration_seconds)
    if job.end_seconds > job.deadline_seconds:
        job.due_seconds = job.synced_seconds


@kernel
def _rerate(state: Any, b: int, j: int, rate: Any) -> None:
    job = state.jobs[b, j]
    seconds = rate.seconds(job, rate.parameters) / job.progress_per_iteration
    if seconds != job.iteration_seconds:
        _sync(job, state.clusters[b].now)
        job.iteration_seconds = seconds
        _expect_end(job)
        heap_update(state, b, j)


@kernel
def _look_at(state: Any, b: int, j: int, stamp: int, rate: Any) -> None:
    """Re-rate neighbour j if its surroundings changed, once per stamp."""
    job = state.jobs[b, j]
    if job.stamp != stamp:
        job.stamp = stamp
        if surround(state, b, j):
            _rerate(state, b, j, rate)


@kernel
def _rerate_server(state: Any, b: int, s: int, stamp: int, rate: Any) -> None:
    """Look at every job on server s."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0:
            _look_at(state, b, j, stamp, rate)
    j = server.first_cpu_job
    while j >= 0:
        _look_at(state, b, j, stamp, rate)
        j = state.jobs[b, j].next_cpu_job


@kernel
def _rerate_rings(state: Any, b: int, newcomer: int, rate: Any) -> None:
    """Count all links anew and re-rate every ring whose share changed.

    Args:
        newcomer: a job that holds its GPUs but is not among the running ones yet: it gets its count and is
            rated by the caller; -1: none.
        (others): as everywhere.
    """
    if not count_links(state, b, newcomer):
        return
    if newcomer >= 0:
        state.jobs[b, newcomer].contenders = state.jobs[b, newcomer].new_contenders
    for i in range(state.slots.shape[1]):  # not the heap, which moves while its jobs are rated
        j = state.slots[b, i].job
        if j < 0 or state.jobs[b, j].first_slot != i or state.jobs[b, j].num_servers <= 1:
            continue
        job = state.jobs[b, j]
        if job.contenders != job.new_contenders:
            job.contenders = job.new_contenders
            _rerate(state, b, j, rate)


@kernel
def _rerate_neighbours(state: Any, b: int, j: int, rate: Any) -> None:
    """Re-rate the other jobs that feel job j on their links, GPUs or servers."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    linked = job.num_servers > 1 and cluster.network != _NO_NETWORK and cluster.global_links == 0
    close = cluster.sharing != 0 or cluster.bandwidth_limited != 0
    if not linked and not close:
        return
    cluster.stamp += 1
    stamp = cluster.stamp
    job.stamp = stamp
    if job.kind == _CPU_ONLY:
        _rerate_server(state, b, job.server, stamp, rate)
        return
    head = job.first_slot
    while head >= 0:
        s = state.slots[b, head].server
        if close or state.servers[b, s].spanning_jobs > 0:
            _rerate_server(state, b, s, stamp, rate)
        head = state.slots[b, head].next_server_slot


@kernel
def _straggle(cluster: Any, job: Any, j: int) -> None:
    """Draw how much slower the slowest worker is: log-normal of mean 1 each, at least 1; 1 for one worker."""
    variance = np.log(1.0 + cluster.straggler_cv**2)
    slowest = -np.inf
    for worker in range(job.num_gpus):
        position = (job.num_preemptions + job.num_failures + job.num_resizes) * 65536 + worker
        slowest = max(slowest, normal_at(cluster.seed, j, position))
    if job.num_gpus > 1:
        job.straggler = max(np.exp(np.sqrt(variance) * slowest - 0.5 * variance), 1.0)


@function_value(RUN)
def run(state: Any, b: int, j: int, gpus: Any, count: int, pause: float, address: int) -> None:
    """Job j, that holds nothing, runs on the GPUs from now on, without progress for `pause` seconds."""
    rate = rate_at(address)
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    now = cluster.now
    hold(state, b, j, gpus, count)
    job.synced_seconds = now
    job.last_start_seconds = now
    job.progress_from_seconds = now + pause
    if cluster.straggler_cv > 0.0:
        _straggle(cluster, job, j)
    surround(state, b, j)
    if cluster.global_links and job.num_servers > 1:
        _rerate_rings(state, b, j, rate)
    job.iteration_seconds = rate.seconds(job, rate.parameters) / job.progress_per_iteration
    _expect_end(job)
    heap_push(state, b, j)
    _rerate_neighbours(state, b, j, rate)


@kernel
def start(state: Any, b: int, j: int, gpus: Any, count: int, rate: Any) -> None:
    """Give waiting job j the GPUs `gpus[:count]` (sorted in place); a CPU-only job the server `gpus[0]`.

    The caller has checked that the job waits, that `count` is its `num_gpus` and that there is room.
    """
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    waiting_remove(state, b, j)
    job.status = _RUNNING
    cluster.num_starts += 1
    pause = job.restart_seconds
    if np.isnan(job.first_start_seconds):
        job.first_start_seconds = cluster.now
        pause = 0.0
    rate.run(state, b, j, gpus, count, pause, address_of(rate))


@function_value(RELEASE)
def release(state: Any, b: int, j: int, address: int) -> None:
    """Take everything from running job j and re-rate those that felt it."""
    rate = rate_at(address)
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    _sync(job, cluster.now)
    log_segments(state, b, j)
    heap_remove(state, b, j)
    let_go(state, b, j)
    if cluster.global_links and job.num_servers > 1:
        _rerate_rings(state, b, -1, rate)
    _rerate_neighbours(state, b, j, rate)
    job.first_slot = -1
    job.server = -1
    job.num_servers = 0
    job.num_racks = 0
    job.contenders = 0.0
    job.sharing_slowdown = 1.0
    job.bandwidth_slowdown = 1.0
    job.straggler = 1.0


@kernel
def _wait_again(state: Any, b: int, j: int) -> None:
    job = state.jobs[b, j]
    job.status = _WAITING
    job.last_stop_seconds = state.clusters[b].now
    job.end_seconds = np.nan
    job.saved_iterations = job.remaining_iterations
    ask(job)
    waiting_add(state, b, j)


@kernel
def stop(state: Any, b: int, j: int, rate: Any) -> None:
    """Preempt running job j: it waits again as it asked to run, its progress is kept."""
    rate.release(state, b, j, address_of(rate))
    state.jobs[b, j].num_preemptions += 1
    state.clusters[b].num_preemptions += 1
    _wait_again(state, b, j)


@kernel
def lose(state: Any, b: int, j: int, rate: Any) -> None:
    """A server under running job j failed: it waits again, with the progress of its last checkpoint."""
    rate.release(state, b, j, address_of(rate))
    job = state.jobs[b, j]
    job.num_failures += 1
    between = state.clusters[b].checkpoint_seconds / job.isolated_iteration_seconds
    done = job.total_iterations - job.remaining_iterations
    kept = 0.0 if between == np.inf else min(np.floor(done / between) * between, done)
    job.remaining_iterations = min(job.total_iterations - kept, job.saved_iterations)
    _wait_again(state, b, j)


@kernel
def reshape(
    state: Any,
    b: int,
    j: int,
    gpus: Any,
    count: int,
    batch_size: float,
    cores: tuple[int, int, int, float],
    pause: float,
    rate: Any,
) -> None:
    """Running job j goes on with other GPUs, batch or cores after `pause` seconds.

    Args:
        gpus: [count] which GPUs, as in `start`.
        count: how many.
        batch_size: global.
        cores: cores per worker, parameter servers, cores of each, memory bandwidth cap.
        pause: seconds without progress.
        (others): as in `start`.
    """
    job = state.jobs[b, j]
    pending = max(job.progress_from_seconds - state.clusters[b].now, 0.0)
    rate.release(state, b, j, address_of(rate))
    set_size(job, count if job.kind != _CPU_ONLY else 0, batch_size)
    set_cores(job, cores[0], cores[1], cores[2], cores[3])
    job.num_resizes += 1
    state.clusters[b].num_resizes += 1
    rate.run(state, b, j, gpus, count, max(pause, pending), address_of(rate))


@kernel
def arrive(state: Any, b: int) -> None:
    """The next job of the table is submitted."""
    cluster = state.clusters[b]
    j = cluster.next_arrival
    job = state.jobs[b, j]
    cluster.next_arrival += 1
    job.status = _WAITING
    job.fair_share_integral = state.integrals[b, _FAIR_SHARE]
    cluster.demanded_gpus += job.asked_gpus
    cluster.inverse_durations += 1.0 / job.isolated_seconds
    if job.predictable_from <= 0.0:
        cluster.predicted_inverse_durations += 1.0 / (job.isolated_seconds * job.prediction_factor)
    cluster.next_cancel_seconds = min(cluster.next_cancel_seconds, job.cancel_seconds)
    waiting_add(state, b, j)


@kernel
def _next_cancellation(state: Any, b: int) -> float:
    """Earliest cancellation of a job in the system; inf if none."""
    earliest = np.inf
    for j in range(state.clusters[b].next_arrival):
        if state.jobs[b, j].status != _DONE:
            earliest = min(earliest, state.jobs[b, j].cancel_seconds)
    return earliest


@kernel
def end(state: Any, b: int, j: int, early: int, rate: Any) -> None:
    """Job j leaves the system, running or waiting.

    Args:
        early: COMPLETED: its work is done; CANCELLED or BLOCKED: before that.
        (others): as everywhere.
    """
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    if job.status == _RUNNING:
        rate.release(state, b, j, address_of(rate))
    else:
        waiting_remove(state, b, j)
    job.status = _DONE
    if early == _COMPLETED:
        job.remaining_iterations = 0.0
    else:
        job.outcome = early
    if early == _BLOCKED:
        state.integrals[b, _BLOCKED_JOBS] += 1.0
    else:
        cluster.served_jct += cluster.now - job.submit_seconds
    job.end_seconds = cluster.now
    job.fair_share_integral = state.integrals[b, _FAIR_SHARE] - job.fair_share_integral
    cluster.demanded_gpus -= job.asked_gpus
    cluster.inverse_durations -= 1.0 / job.isolated_seconds
    if job.predictable_from <= 0.0:
        cluster.predicted_inverse_durations -= 1.0 / (job.isolated_seconds * job.prediction_factor)
    cluster.num_done += 1
    if job.cancel_seconds <= cluster.next_cancel_seconds < np.inf:
        cluster.next_cancel_seconds = _next_cancellation(state, b)


@kernel
def become_predictable(state: Any, b: int, j: int) -> None:
    """Schedulers may see the remaining time of running job j from now on."""
    job = state.jobs[b, j]
    job.predictable = 1
    _expect_end(job)
    heap_update(state, b, j)
