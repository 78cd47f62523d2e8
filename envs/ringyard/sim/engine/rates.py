"""Speeds of running jobs: seconds per iteration, expected ends, and effects on neighbours."""

import numpy as np

from ringyard.compiled import kernel, linked_kernel
from ringyard.performance.model import Physics, iteration_seconds
from ringyard.sim.engine.co_location import update_context
from ringyard.sim.engine.network import (
    add_link_load,
    find_rings_on_links,
    link_contenders,
    set_link_load,
    update_max_min_shares,
)
from ringyard.sim.engine.queues import heap_update
from ringyard.sim.engine.slowdown_accounting import add_losses, update_loss_rates
from ringyard.state.arrays import State
from ringyard.state.progress import attained_service, remaining_iterations, run_seconds
from ringyard.state.random_numbers import normal_at
from ringyard.state.records import ClusterRecord, Job, JobKind, Network


@kernel
def update_progress(job: Job, now: float) -> None:
    """Bring the progress and attained service of running `job` up to `now`."""
    remaining = remaining_iterations(job, now)
    service = attained_service(job, now)
    ran = run_seconds(job, now)
    job.remaining_iterations = remaining
    job.attained_service = service
    job.run_seconds = ran
    job.updated_seconds = now


@kernel
def update_expected_end(cluster: ClusterRecord, job: Job) -> None:
    """Set the expected end and next event of `job`. `cluster` notes whether a job may be late."""
    begin = max(job.updated_seconds, job.pause_ends_seconds)
    job.end_seconds = begin + job.remaining_iterations * job.iteration_seconds
    job.next_event_seconds = job.end_seconds
    if job.predictable == 0 and job.predictable_from < 1.0:
        left = job.total_iterations * (1.0 - job.predictable_from)
        ahead = max(job.remaining_iterations - left, 0.0)
        job.next_event_seconds = min(job.end_seconds, begin + ahead * job.iteration_seconds)
    if job.end_seconds > job.blocked_seconds:
        cluster.may_be_late = 1


@kernel
def _update_rate(state: State, b: int, j: int, physics: Physics) -> None:
    """Give running job `j` the speed of its present context, unless its end has come."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    seconds = iteration_seconds(job, j, physics) / job.progress_per_iteration
    ends = job.end_seconds <= cluster.now and job.updated_seconds < cluster.now
    counts = state.losses.shape[1] > 0 and not ends
    if counts:
        add_losses(state, b, j)
    if seconds != job.iteration_seconds and not ends:
        update_progress(job, cluster.now)
        job.iteration_seconds = seconds
        update_expected_end(cluster, job)
        heap_update(state, b, j)
    if counts:
        update_loss_rates(state, b, j, physics)


@kernel
def _update_rate_if_changed(state: State, b: int, j: int, visit_mark: int, physics: Physics) -> None:
    """Update the rate of job `j` if its context changed. `visit_mark` numbers the pass: one visit per job."""
    job = state.jobs[b, j]
    if job.visit_mark != visit_mark:
        job.visit_mark = visit_mark
        if update_context(state, b, j):
            _update_rate(state, b, j, physics)


@kernel
def _update_server_rates(state: State, b: int, s: int, visit_mark: int, physics: Physics) -> None:
    """Update the rates of the jobs on server `s` that have a new context."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        j = state.slots[b, i].job
        if j >= 0:
            _update_rate_if_changed(state, b, j, visit_mark, physics)
    j = server.first_cpu_job
    while j >= 0:
        _update_rate_if_changed(state, b, j, visit_mark, physics)
        j = state.jobs[b, j].next_cpu_job


@linked_kernel
def update_ring_rates(state: State, b: int, j: int, sign: int, physics: Physics) -> None:
    """Count the ring of job `j` as it starts (`sign` 1) or stops (-1), and update rates of other rings."""
    if state.clusters[b].network == Network.MAX_MIN:
        _update_all_ring_rates(state, b, j if sign > 0 else -1, physics)
        return
    job = state.jobs[b, j]
    if sign > 0:
        set_link_load(state, b, j, physics)
    add_link_load(state, b, j, sign)
    if sign > 0:
        job.contenders = link_contenders(state, b, j, job.link_load)
    for i in range(find_rings_on_links(state, b, j)):
        k = state.ring_scratch[b, i]
        other = state.jobs[b, k]
        contenders = link_contenders(state, b, k, other.link_load)
        if contenders != other.contenders:
            other.contenders = contenders
            _update_rate(state, b, k, physics)


@linked_kernel
def _update_all_ring_rates(state: State, b: int, newcomer: int, physics: Physics) -> None:
    """Fill all links anew and update all rings with a new share, except `newcomer` (-1: none)."""
    if not update_max_min_shares(state, b, newcomer):
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
            _update_rate(state, b, j, physics)


@linked_kernel
def update_neighbour_rates(state: State, b: int, j: int, physics: Physics) -> None:
    """Update by `physics` jobs that share links, GPUs or servers with job `j` of cluster `b` of `state`."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    linked = job.num_servers > 1 and cluster.network != Network.NONE and cluster.global_links == 0
    close = cluster.sharing_slows != 0 or cluster.bandwidth_limited != 0 or cluster.storage_limited != 0
    if not linked and not close:
        return
    cluster.visit_mark += 1
    visit_mark = cluster.visit_mark
    job.visit_mark = visit_mark
    if job.kind == JobKind.CPU_ONLY:
        _update_server_rates(state, b, job.server, visit_mark, physics)
        return
    head = job.first_slot
    while head >= 0:
        s = state.slots[b, head].server
        if close or state.servers[b, s].spanning_jobs > 0:
            _update_server_rates(state, b, s, visit_mark, physics)
        head = state.slots[b, head].next_server_slot


@linked_kernel
def sample_straggler(cluster: ClusterRecord, job: Job, j: int) -> None:
    """Draw the slowest worker of `job` (row `j`, in `cluster`): log-normal of mean 1 each, at least 1."""
    variance = np.log(1.0 + cluster.straggler_cv**2)
    slowest = -np.inf
    for worker in range(job.num_gpus):
        position = (job.num_preemptions + job.num_failures + job.num_resizes) * 65536 + worker
        slowest = max(slowest, normal_at(cluster.seed, j, position))
    if job.num_gpus > 1:
        job.straggler = max(np.exp(np.sqrt(variance) * slowest - 0.5 * variance), 1.0)
