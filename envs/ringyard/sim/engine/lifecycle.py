"""Lifecycle of a job: it arrives, starts, changes, is preempted and ends. Past allocations are recorded."""

import numpy as np

from ringyard.compiled import Int32Vector, kernel, linked_kernel, to_int
from ringyard.performance.model import Physics, iteration_seconds
from ringyard.placement.rules import pack_gpus
from ringyard.restart import cores_pause, resize_pause, restart_pause, servers_pause
from ringyard.sim.engine.allocation import allocate, collect_places, release
from ringyard.sim.engine.co_location import (
    clear_context,
    sample_straggler,
    update_context,
    update_expected_end,
    update_neighbour_rates,
    update_progress,
    update_ring_rates,
)
from ringyard.sim.engine.queues import heap_push, heap_remove, heap_update, waiting_add, waiting_remove
from ringyard.sim.engine.shape import Shape, current_shape, num_places, set_asked_shape, set_shape
from ringyard.sim.engine.slowdown_accounting import (
    add_kernel_seconds,
    add_losses,
    add_repeated_work,
    update_loss_rates,
)
from ringyard.state.arrays import State
from ringyard.state.progress import seconds_to_compute
from ringyard.state.records import Integral, Job, JobKind, JobOutcome, JobStatus, Segment


@kernel
def _append_segment(state: State, b: int, j: int, server: int, start: float, stop: float) -> Segment:
    """Return the next row of `State.segments` without GPUs. It replaces the oldest if all are taken."""
    cluster = state.clusters[b]
    row = state.segments[b, cluster.num_segments % state.segments.shape[1]]
    cluster.num_segments += 1
    row.job = j
    row.server = server
    row.gpu_bits = np.uint64(0)
    row.start_seconds = start
    row.stop_seconds = stop
    return row


@kernel
def log_downtime(state: State, b: int, s: int) -> None:
    """Record that server `s` of cluster `b` of `state` is down until its repair, as a segment without job."""
    if state.segments.shape[1] > 0:
        _append_segment(state, b, -1, s, state.clusters[b].now, state.servers[b, s].next_change_seconds)


@kernel
def _record_segments(state: State, b: int, j: int) -> None:
    """Record the GPUs per server, or the server of a CPU-only job, that job `j` held since its start."""
    if state.segments.shape[1] == 0:
        return
    now = state.clusters[b].now
    job = state.jobs[b, j]
    if job.server >= 0:
        _append_segment(state, b, j, job.server, job.last_start_seconds, now)
    i = job.first_slot
    while i >= 0:
        server = state.slots[b, i].server
        row = _append_segment(state, b, j, server, job.last_start_seconds, now)
        bits = np.uint64(0)
        held = i
        while held >= 0 and state.slots[b, held].server == server:
            here = state.slots[b, held].gpu - state.servers[b, server].first_gpu
            bits |= np.uint64(1) << np.uint64(here)
            held = state.slots[b, held].next_slot
        row.gpu_bits = bits
        i = state.slots[b, i].next_server_slot


@linked_kernel
def _run_on(state: State, b: int, j: int, places: Int32Vector, pause: float, physics: Physics) -> None:
    """Let job `j`, which holds nothing, run on `places` from now on, without progress for `pause` seconds."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    now = cluster.now
    counts = state.losses.shape[1] > 0
    if counts and job.kind != JobKind.CPU_ONLY:
        for k in range(job.num_gpus):
            add_kernel_seconds(state, b, places[k])
    allocate(state, b, j, places, num_places(current_shape(job)))
    job.computed_seconds += seconds_to_compute(job)
    job.updated_seconds = now
    job.last_start_seconds = now
    job.pause_ends_seconds = now + pause
    if cluster.straggler_cv > 0.0:
        sample_straggler(cluster, job, j)
    update_context(state, b, j)
    if cluster.global_links and job.num_servers > 1:
        update_ring_rates(state, b, j, 1, physics)
    job.iteration_seconds = iteration_seconds(job, j, physics) / job.progress_per_iteration
    if counts:
        update_loss_rates(state, b, j, physics)
    update_expected_end(cluster, job)
    heap_push(state, b, j)
    update_neighbour_rates(state, b, j, physics)


@kernel
def start(state: State, b: int, j: int, places: Int32Vector, physics: Physics) -> None:
    """Start waiting job `j` on `places` with room for it, sorted in place, or on the server `places[0]`."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    waiting_remove(state, b, j)
    job.status = JobStatus.RUNNING
    cluster.num_starts += 1
    pause = 0.0
    if np.isnan(job.first_start_seconds):
        job.first_start_seconds = cluster.now
    else:
        pause = restart_pause(job, job.num_gpus)
    _run_on(state, b, j, places, pause, physics)


@linked_kernel
def _stop_running(state: State, b: int, j: int, physics: Physics) -> None:
    """Release everything that running job `j` holds, and update the rates of the jobs that it slowed."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    if state.losses.shape[1] > 0:
        add_losses(state, b, j)
    update_progress(job, cluster.now)
    job.computed_seconds -= seconds_to_compute(job)
    _record_segments(state, b, j)
    heap_remove(state, b, j)
    release(state, b, j)
    if cluster.global_links and job.num_servers > 1:
        update_ring_rates(state, b, j, -1, physics)
    update_neighbour_rates(state, b, j, physics)
    job.first_slot = -1
    job.server = -1
    job.num_racks = 0
    job.straggler = 1.0
    clear_context(job)


@kernel
def _requeue(state: State, b: int, j: int) -> None:
    """Let job `j`, which has just stopped, wait again."""
    job = state.jobs[b, j]
    job.status = JobStatus.WAITING
    job.last_stop_seconds = state.clusters[b].now
    job.end_seconds = np.nan
    job.remaining_at_last_stop = job.remaining_iterations
    set_asked_shape(job)
    waiting_add(state, b, j)


@kernel
def _return_to_checkpoint(state: State, b: int, j: int) -> None:
    """Take from job `j`, which has just stopped, what it did since its last checkpoint or start."""
    job = state.jobs[b, j]
    between = state.clusters[b].checkpoint_seconds / job.isolated_iteration_seconds
    done = job.total_iterations - job.remaining_iterations
    kept = 0.0 if between == np.inf else min(np.floor(done / between) * between, done)
    left = job.remaining_iterations
    job.remaining_iterations = min(job.total_iterations - kept, job.remaining_at_last_stop)
    if state.losses.shape[1] > 0:
        add_repeated_work(state, b, j, job.remaining_iterations - left)


@kernel
def preempt(state: State, b: int, j: int, physics: Physics) -> None:
    """Preempt running job `j` of cluster `b` of `state`. `physics` sets new rates.

    It keeps its progress, or that of its last checkpoint without `Failures.checkpoint_on_preemption`.
    """
    _stop_running(state, b, j, physics)
    if state.clusters[b].checkpoint_on_preemption == 0:
        _return_to_checkpoint(state, b, j)
    state.jobs[b, j].num_preemptions += 1
    state.clusters[b].num_preemptions += 1
    _requeue(state, b, j)


@kernel
def fail_job(state: State, b: int, j: int, physics: Physics) -> None:
    """Requeue job `j` (`b`, `state`) as of its last checkpoint or stop. `physics` sets new rates."""
    _stop_running(state, b, j, physics)
    state.jobs[b, j].num_failures += 1
    _return_to_checkpoint(state, b, j)
    _requeue(state, b, j)


@kernel
def same_places(places: Int32Vector, count: int, others: Int32Vector, num_others: int) -> bool:
    """Return whether `places[:count]` and `others[:num_others]`, without repetition, are the same set."""
    if count != num_others:
        return False
    for i in range(count):
        found = False
        for k in range(count):
            found = found or places[i] == others[k]
        if not found:
            return False
    return True


@kernel
def _is_resized(present: Shape, shape: Shape) -> bool:
    """Whether a shape has other GPUs, another batch or another plan than the `present` one."""
    same = shape.num_gpus == present.num_gpus and shape.batch_size == present.batch_size
    return not (same and shape.plan == present.plan)


@kernel
def _change_pause(job: Job, present: Shape, shape: Shape, now: float) -> float:
    """Return the seconds without progress of a running job that changes shape: its longest pause."""
    pause = 0.0
    if _is_resized(present, shape):
        pause = resize_pause(job, shape.num_gpus)
    if shape.parameter_servers != present.parameter_servers:
        pause = max(pause, servers_pause(job, shape.num_gpus))
    workers = shape.cores_per_worker != present.cores_per_worker
    if workers or shape.cores_per_server_task != present.cores_per_server_task:
        pause = max(pause, cores_pause(job, now))
    return pause


@linked_kernel
def apply_allocation(
    state: State, b: int, j: int, shape: Shape, places: Int32Vector, physics: Physics
) -> None:
    """Let job `j` of cluster `b` of `state` run in `shape` on `places`, with performance model `physics`.

    The caller has checked that it fits. `places` has `num_places(shape)` GPUs, or the server of a CPU-only
    job, and is sorted in place. A waiting job starts. A running job is not touched if nothing changes. On
    other places, with the same number of GPUs, batch and plan, it stops and restarts (a migration). With
    another number of GPUs, batch, plan, parameter servers or cores it continues after the longest of their
    pauses. Other RAM, another bandwidth cap or another link share cost nothing (`ringyard.restart` has the
    reasons).
    """
    job = state.jobs[b, j]
    if job.status == JobStatus.WAITING:
        set_shape(job, shape)
        start(state, b, j, places, physics)
        return
    present = current_shape(job)
    held = state.place_scratch[b]
    resized = _is_resized(present, shape)
    moved = not same_places(places, num_places(shape), held, collect_places(state, b, j, held))
    if shape == present and not moved:
        return
    if moved and not resized:
        preempt(state, b, j, physics)
        set_shape(job, shape)
        start(state, b, j, places, physics)
        return
    now = state.clusters[b].now
    pending = max(job.pause_ends_seconds - now, 0.0)
    pause = _change_pause(job, present, shape, now)
    _stop_running(state, b, j, physics)
    set_shape(job, shape)
    job.num_resizes += shape[:-1] != present[:-1]  # not for another link share, the last: stragglers stay
    state.clusters[b].num_resizes += 1
    _run_on(state, b, j, places, max(pause, pending), physics)


@kernel
def arrive(state: State, b: int) -> None:
    """Submit the next job of the table of cluster `b` of `state`. The caller adds it to the waiting list."""
    cluster = state.clusters[b]
    j = cluster.next_arrival
    job = state.jobs[b, j]
    cluster.next_arrival += 1
    job.status = JobStatus.WAITING
    job.fair_share_integral = state.integrals[b, Integral.FAIR_SHARE.value]
    cluster.demanded_gpus += job.asked_gpus
    cluster.inverse_durations += 1.0 / job.isolated_seconds  # growth of the total slowdown each second
    if job.predictable_from <= 0.0:
        cluster.predicted_inverse_durations += 1.0 / (job.isolated_seconds * job.prediction_factor)
    cluster.next_cancel_seconds = min(cluster.next_cancel_seconds, job.cancel_seconds)


@linked_kernel
def start_warm_jobs(state: State, b: int, physics: Physics) -> None:
    """Give GPUs to waiting jobs of cluster `b` of `state` that ran before time 0, by rule `pack`."""
    j = 0
    while j < state.clusters[b].num_jobs and state.jobs[b, j].attained_service > 0.0:
        places = state.place_scratch[b]
        if pack_gpus(state, b, j, to_int(state.jobs[b, j].num_gpus), places) > 0:
            start(state, b, j, places, physics)
        j += 1


@kernel
def _next_cancellation(state: State, b: int) -> float:
    """Return the earliest cancellation of a job in the system, inf if there is none."""
    earliest = np.inf
    for j in range(state.clusters[b].next_arrival):
        if state.jobs[b, j].status != JobStatus.DONE:
            earliest = min(earliest, state.jobs[b, j].cancel_seconds)
    return earliest


@kernel
def _add_to_fairness(state: State, b: int, j: int) -> None:
    """Add job `j`, which has ended, to the sums of completion times and finish-time fairness (`JobTimes`)."""
    job, sums = state.jobs[b, j], state.integrals[b]
    jct = job.end_seconds - job.submit_seconds
    crowding = max(job.fair_share_integral / max(jct, 1e-300), 1.0)
    fairness = jct / (job.isolated_seconds * crowding)
    state.clusters[b].total_jct += jct
    sums[Integral.FAIRNESS.value] += fairness
    sums[Integral.WORST_FAIRNESS.value] = max(sums[Integral.WORST_FAIRNESS.value], fairness)


@kernel
def end_job(state: State, b: int, j: int, outcome: int, physics: Physics) -> None:
    """Let job `j` of cluster `b` of `state` leave with a `JobOutcome` `outcome`. `physics` sets new rates."""
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    if job.status == JobStatus.RUNNING:
        _stop_running(state, b, j, physics)
    else:
        waiting_remove(state, b, j)
    job.status = JobStatus.DONE
    if outcome == JobOutcome.COMPLETED:
        job.remaining_iterations = 0.0
    else:
        job.outcome = outcome
    job.end_seconds = cluster.now
    state.ended[b, cluster.num_done] = j
    job.fair_share_integral = state.integrals[b, Integral.FAIR_SHARE.value] - job.fair_share_integral
    if outcome == JobOutcome.BLOCKED:
        state.integrals[b, Integral.BLOCKED_JOBS.value] += 1.0
    else:
        _add_to_fairness(state, b, j)
    cluster.demanded_gpus -= job.asked_gpus
    cluster.inverse_durations -= 1.0 / job.isolated_seconds
    if job.predictable_from <= 0.0:
        cluster.predicted_inverse_durations -= 1.0 / (job.isolated_seconds * job.prediction_factor)
    cluster.num_done += 1
    if job.cancel_seconds <= cluster.next_cancel_seconds < np.inf:
        cluster.next_cancel_seconds = _next_cancellation(state, b)


@kernel
def become_predictable(state: State, b: int, j: int) -> None:
    """Let schedulers see the remaining time of running job `j` of cluster `b` of `state` from now on."""
    job = state.jobs[b, j]
    job.predictable = 1
    update_expected_end(state.clusters[b], job)
    heap_update(state, b, j)
