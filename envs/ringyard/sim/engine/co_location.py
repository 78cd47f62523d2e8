"""What makes a job fast or slow at its places: now, where it might run, or alone. What it does to others."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Int32Vector, Record, Records1, f8, i4, kernel, linked_kernel, to_int
from ringyard.performance.host_resources import bandwidth_slowdown, requested_bandwidth
from ringyard.performance.model import Physics, iteration_seconds
from ringyard.sim.engine.allocation import allocate, detach, reattach, release
from ringyard.sim.engine.network import (
    add_link_load,
    find_rings_on_links,
    link_contenders,
    set_link_load,
    set_ring_racks,
    update_max_min_shares,
)
from ringyard.sim.engine.queues import heap_update
from ringyard.sim.engine.shape import Shape, num_places, set_shape
from ringyard.sim.engine.slowdown_accounting import add_losses, update_loss_rates
from ringyard.state.arrays import State
from ringyard.state.gpu_effects import (
    SharingFactors,
    balanced_speed,
    excess_on,
    sharing_factors_on,
    slowness_on,
    summable,
)
from ringyard.state.progress import attained_service, remaining_iterations, run_seconds
from ringyard.state.random_numbers import normal_at
from ringyard.state.records import ClusterRecord, Job, JobKind, Network


class PlacementContext(Record):
    """What performance models read about places. The record of a job has fields of the same names."""

    contenders: f8  # rings on the job's worst link, itself included (`Network`). 0: it is on one server
    gpu_speed: f8  # speed of its slowest GPU / speed of the reference GPU
    sharing_slowdown: f8  # compute time beside its neighbours / alone, on its worst GPU
    bandwidth_slowdown: f8  # of accesses to memory, on its worst server, at least 1
    storage_seconds_per_byte: f8  # seconds in which a worker reads a byte from storage. 0: it reads none
    num_servers: i4  # servers that it is on
    fewest_gpus: i4  # on any of these. 0: not known, the best split
    num_places: i4  # GPUs, or the server of a CPU-only job; 0: no place was found


@kernel
def _bandwidth_slowdown(state: State, b: int, s: int, more: int) -> float:
    """Return the slowdown by memory bandwidth on server `s` if `more` bytes per second are requested."""
    server = state.servers[b, s]
    demand, capacity = float(server.bandwidth_demand + more), float(server.memory_bandwidth)
    return bandwidth_slowdown(demand, capacity, state.memory_slowdowns)


@kernel
def _on_worst_server(state: State, b: int, j: int) -> tuple[float, float, float]:
    """Return three things that job `j` finds, each on the worst of its servers.

    Link shares of the jobs that span servers (their number is p of SJF-BCO eq. 6), the slowdown by memory
    bandwidth (>= 1), and seconds in which a worker reads a byte from storage (0: it reads none).
    """
    cluster, job = state.clusters[b], state.jobs[b, j]
    load, stretch, seconds = 0.0, 1.0, 0.0
    if job.kind == JobKind.CPU_ONLY:
        return load, _bandwidth_slowdown(state, b, to_int(job.server), 0), seconds
    i = job.first_slot
    while i >= 0:
        server = state.servers[b, state.slots[b, i].server]
        load = max(load, state.links[b, state.slots[b, i].server].load)
        if cluster.bandwidth_limited:
            stretch = max(stretch, _bandwidth_slowdown(state, b, to_int(state.slots[b, i].server), 0))
        if job.stored_bytes > 0.0:
            seconds = max(seconds, server.storage_readers / server.storage_bytes_per_second)
        i = state.slots[b, i].next_server_slot
    return load, stretch, seconds


@kernel
def sharing_slowdown(state: State, b: int, j: int) -> float:
    """Return 1 + the sum of neighbours' excess (extra time / time alone) on the worst GPU of job `j`."""
    worst = 0.0
    own = SharingFactors(0.0, 0.0)
    i = state.jobs[b, j].first_slot
    while i >= 0:
        gpu = state.slots[b, i].gpu
        if state.gpus[b, gpu].num_jobs > 1:
            if state.slot_sharing.shape[1] > 0:
                own = SharingFactors(state.slot_sharing[b, i, 0], state.slot_sharing[b, i, 1])
            worst = max(worst, excess_on(state, b, j, own, gpu))
        i = state.slots[b, i].next_slot
    return 1.0 + worst


@kernel
def update_context(state: State, b: int, j: int) -> bool:
    """Update what depends on neighbours in job `j` of cluster `b` of `state`. Return whether it changed.

    With `ClusterRecord.global_links`, the caller sets the contenders (`ringyard.sim.engine.network`).
    """
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    contenders, sharing = job.contenders, job.sharing_slowdown
    bandwidth, storage = job.bandwidth_slowdown, job.storage_seconds_per_byte
    counts_links = cluster.network == Network.WORST_LINK and cluster.global_links == 0
    if cluster.sharing_slows:
        job.sharing_slowdown = sharing_slowdown(state, b, j)
    if counts_links or cluster.bandwidth_limited or cluster.storage_limited:
        load, stretch, seconds = _on_worst_server(state, b, j)
        if counts_links:
            others = load - summable(job.link_share)
            job.contenders = others / job.link_share + 1.0 if job.num_servers > 1 else 0.0
        job.bandwidth_slowdown, job.storage_seconds_per_byte = stretch, seconds
    same_links = job.contenders == contenders and job.sharing_slowdown == sharing
    return not (
        same_links and job.bandwidth_slowdown == bandwidth and job.storage_seconds_per_byte == storage
    )


@kernel
def evaluate_placement(
    state: State, b: int, j: int, places: Int32Vector, count: int, out: PlacementContext
) -> None:
    """Write the placement context that waiting job `j` would have on `places[:count]` (ascending) to `out`.

    This is a faster `what_if` in cluster `b` of `state`. With `ClusterRecord.global_links`, it estimates the
    contenders by the load of the servers' links. Uplinks, max-min shares and the memory bandwidth of
    parameter servers are left to `what_if`.
    """
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    out.num_servers = 0
    out.fewest_gpus = count
    out.contenders = 0.0
    out.sharing_slowdown = 1.0
    out.bandwidth_slowdown = 1.0
    out.storage_seconds_per_byte = 0.0
    if job.kind == JobKind.CPU_ONLY:
        out.num_servers = 1
        out.gpu_speed = 1.0
        if cluster.bandwidth_limited:
            asked = requested_bandwidth(job, job.cores_per_worker)
            out.bandwidth_slowdown = _bandwidth_slowdown(state, b, to_int(places[0]), asked)
        return
    first = -1
    slowest = 0.0
    own = SharingFactors(0.0, 0.0)
    own_type = -1
    for i in range(count):
        g = places[i]
        s = state.gpus[b, g].server
        gpu_type = state.servers[b, s].gpu_type
        if cluster.sharing_slows and state.gpus[b, g].num_jobs > 0:
            if gpu_type != own_type:
                own = sharing_factors_on(state, job, gpu_type)
                own_type = gpu_type
            out.sharing_slowdown = max(out.sharing_slowdown, 1.0 + excess_on(state, b, j, own, g))
        if i + 1 < count and state.gpus[b, places[i + 1]].server == s:
            if first < 0:
                first = i
            continue
        workers = i + 1 - (first if first >= 0 else i)
        first = -1
        out.num_servers += 1
        out.fewest_gpus = min(out.fewest_gpus, workers)
        slowest = max(slowest, slowness_on(state.slowness, job, gpu_type))
        out.contenders = max(out.contenders, state.links[b, s].load / job.link_share + 1.0)
        if cluster.bandwidth_limited:
            asked = requested_bandwidth(job, workers * job.cores_per_worker)
            slowdown = _bandwidth_slowdown(state, b, to_int(s), asked)
            out.bandwidth_slowdown = max(out.bandwidth_slowdown, slowdown)
        if cluster.storage_limited and job.stored_bytes > 0.0:
            server = state.servers[b, s]
            readers = server.storage_readers + workers
            seconds = readers / server.storage_bytes_per_second
            out.storage_seconds_per_byte = max(out.storage_seconds_per_byte, seconds)
    out.gpu_speed = 1.0 / slowest
    if job.balances_batch:
        out.gpu_speed = balanced_speed(state, b, job, places, count)
    if out.num_servers == 1 or cluster.network == Network.NONE:
        out.contenders = 0.0


def isolated_contexts(
    cluster: Cluster,
    num_gpus: NDArray[np.int64],
    num_servers: NDArray[np.int64] | None = None,
    storage_readers: ArrayLike | None = None,
) -> Records1[PlacementContext]:
    """Return [jobs] placement contexts in an empty cluster of reference GPUs.

    CPU-only jobs have 0 GPUs. `num_servers` are the spanned ones (None: the fewest that hold the job),
    `storage_readers` the workers that read from storage on each server (None: the job's own).
    """
    places = PlacementContext.zeros(len(num_gpus))
    places["num_servers"] = cluster.fewest_servers(num_gpus) if num_servers is None else num_servers
    places["contenders"] = places["num_servers"] > 1
    places["gpu_speed"] = places["sharing_slowdown"] = places["bandwidth_slowdown"] = 1.0
    if cluster.storage_bytes_per_second:
        own = np.ceil(num_gpus / np.maximum(places["num_servers"], 1))
        readers = own if storage_readers is None else np.asarray(storage_readers, dtype=np.float64)
        places["storage_seconds_per_byte"] = readers / max(cluster.storage_bytes_per_second)
    places["num_places"] = np.maximum(num_gpus, 1)
    return places


@kernel
def clear_context(job: Job) -> None:
    """Reset the placement context of `job`, which holds nothing."""
    job.num_servers = 0
    job.fewest_gpus = 0
    job.contenders = 0.0
    job.gpu_speed = 1.0
    job.sharing_slowdown = 1.0
    job.bandwidth_slowdown = 1.0
    job.storage_seconds_per_byte = 0.0


@kernel
def seconds_in_context(job: Job, j: int, place: PlacementContext, physics: Physics) -> float:
    """Return seconds per base iteration of `job` (row `j`, not running) in context `place` by `physics`."""
    job.num_servers = place.num_servers
    job.fewest_gpus = place.fewest_gpus
    job.contenders = place.contenders
    job.gpu_speed = place.gpu_speed
    job.sharing_slowdown = place.sharing_slowdown
    job.bandwidth_slowdown = place.bandwidth_slowdown
    job.storage_seconds_per_byte = place.storage_seconds_per_byte
    seconds = iteration_seconds(job, j, physics) / job.progress_per_iteration
    clear_context(job)
    return seconds


@linked_kernel
def what_if(state: State, b: int, j: int, shape: Shape, places: Int32Vector, physics: Physics) -> float:
    """Return the seconds per base iteration of job `j` on other `places` or in another `shape`."""
    job = state.jobs[b, j]
    network = state.clusters[b].network
    is_ring = state.clusters[b].global_links != 0 and job.num_servers > 1
    if is_ring and network != Network.MAX_MIN:
        add_link_load(state, b, j, -1.0)
    num_held = detach(state, b, j)
    set_shape(job, shape)
    allocate(state, b, j, places, num_places(shape))
    update_context(state, b, j)
    if state.clusters[b].global_links and job.num_servers > 1:
        if network == Network.MAX_MIN:
            update_max_min_shares(state, b, -1 if num_held > 0 else j)
            job.contenders = job.new_contenders
        else:
            if job.plan_model >= 0:
                set_ring_racks(state, b, j, physics)
            job.contenders = link_contenders(state, b, j, 0.0)
    seconds = iteration_seconds(job, j, physics) / job.progress_per_iteration
    release(state, b, j)
    reattach(state, b, j, num_held)
    if network == Network.MAX_MIN:
        update_max_min_shares(state, b, -1)  # `evaluate_placement` reads the loads
    elif is_ring:
        add_link_load(state, b, j, 1.0)
    return seconds


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
