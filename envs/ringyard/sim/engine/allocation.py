"""Allocate and release GPU slots, GPU memory, cores, RAM, memory bandwidth and storage.

A job's slots are a linked list, ascending: `Job.first_slot`, then `Slot.next_slot`. `Slot.next_server_slot`
leads to its first slot on the next server. A server's *rank* is its position among those of the job, from 0.
Parameter servers are called *tasks*, to tell them from servers.
"""

from ringyard.compiled import Int32Vector, kernel
from ringyard.performance.host_resources import requested_bandwidth
from ringyard.placement.availability import parameter_servers_on, sort_ascending, total_demand
from ringyard.resources import NUM_RESOURCES
from ringyard.state.arrays import State
from ringyard.state.free_servers import move_server
from ringyard.state.gpu_effects import (
    SharingFactors,
    balanced_speed,
    sharing_factors_on,
    slowness_on,
    summable,
)
from ringyard.state.records import DOWN, Job, JobKind, Server, free_on, held_per_worker, set_free, total_on


@kernel
def _add_free_gpus(state: State, b: int, s: int, change: int) -> None:
    """Add `change` to the free GPUs of server `s` and to the counts that follow from them."""
    cluster = state.clusters[b]
    server = state.servers[b, s]
    if server.free_gpus < server.num_gpus:
        cluster.fragmented_gpus -= server.free_gpus
    move_server(state, b, s, server.free_gpus, server.free_gpus + change)
    server.free_gpus += change
    cluster.free_gpus += change
    if server.free_gpus < server.num_gpus:
        cluster.fragmented_gpus += server.free_gpus


@kernel
def _add_open_gpus(state: State, b: int, s: int, change: int) -> None:
    """Add `change` to the GPUs of server `s` that have a free slot."""
    state.servers[b, s].open_gpus += change
    state.clusters[b].open_gpus += change


@kernel
def _add_usage(server: Server, job: Job, workers: int, tasks: int, sign: int) -> None:
    """Let `workers` and `tasks` parameter servers of a job use host resources. Sign -1: release them."""
    for r in range(NUM_RESOURCES):
        used = total_demand(r, workers, held_per_worker(job, r), tasks, job.cores_per_server_task)
        set_free(server, r, free_on(server, r) - sign * used)
    cores = workers * job.cores_per_worker + tasks * job.cores_per_server_task
    server.bandwidth_demand += sign * requested_bandwidth(job, cores)


@kernel
def _add_worker_usage(server: Server, job: Job, sign: int) -> None:
    """Let one worker of a job, or a CPU-only job, use resources of a server. Sign -1: release them."""
    _add_usage(server, job, 1, 0, sign)
    if job.stored_bytes > 0.0:
        server.storage_readers += sign


@kernel
def _allocate_on_server(state: State, b: int, j: int, s: int) -> None:
    """Add CPU-only job `j` to server `s`."""
    job = state.jobs[b, j]
    server = state.servers[b, s]
    job.server = s
    job.num_servers = 1
    job.next_cpu_job = server.first_cpu_job
    server.first_cpu_job = j
    _add_worker_usage(server, job, 1)


@kernel
def _release_from_server(state: State, b: int, j: int) -> None:
    job = state.jobs[b, j]
    server = state.servers[b, job.server]
    if server.first_cpu_job == j:
        server.first_cpu_job = job.next_cpu_job
    else:
        other = server.first_cpu_job
        while state.jobs[b, other].next_cpu_job != j:
            other = state.jobs[b, other].next_cpu_job
        state.jobs[b, other].next_cpu_job = job.next_cpu_job
    _add_worker_usage(server, job, -1)


@kernel
def _take_slot(state: State, b: int, j: int, g: int) -> int:
    """Give job `j` the first free slot of GPU `g`, and return it."""
    gpu = state.gpus[b, g]
    i = g * state.clusters[b].jobs_per_gpu
    while state.slots[b, i].job >= 0:
        i += 1
    slot = state.slots[b, i]
    slot.job = j
    slot.model = state.jobs[b, j].model
    slot.next_slot = -1
    slot.next_server_slot = -1
    gpu.num_jobs += 1
    if gpu.num_jobs == 1:
        _add_free_gpus(state, b, gpu.server, -1)
    if gpu.num_jobs == state.clusters[b].jobs_per_gpu:
        _add_open_gpus(state, b, gpu.server, -1)
    gpu.free_memory_bytes -= state.jobs[b, j].gpu_memory_bytes
    return i


@kernel
def _add_spanning_usage(state: State, b: int, j: int, sign: int) -> None:
    """Count a job on the links of its servers and the cores of its parameter servers. Sign -1: uncount."""
    job = state.jobs[b, j]
    spans = job.num_servers > 1
    tasks = job.parameter_servers if job.cores_per_server_task > 0 else 0
    if not spans and tasks == 0:
        return
    rank = 0
    i = job.first_slot
    while i >= 0:
        server = state.servers[b, state.slots[b, i].server]
        if spans:
            server.spanning_jobs += sign
            if state.clusters[b].global_links == 0:
                state.links[b, state.slots[b, i].server].load += sign * summable(job.link_share)
        here = parameter_servers_on(tasks, job.num_servers, rank)
        if here > 0:
            _add_usage(server, job, 0, here, sign)
        rank += 1
        i = state.slots[b, i].next_server_slot


@kernel
def _fewest_gpus(state: State, b: int, places: Int32Vector, count: int) -> int:
    """Return the least number of the ascending `places[:count]` that are on one server."""
    fewest, here = count, 0
    for k in range(count):
        here += 1
        if k + 1 == count or state.gpus[b, places[k + 1]].server != state.gpus[b, places[k]].server:
            fewest = min(fewest, here)
            here = 0
    return fewest


@kernel
def allocate(state: State, b: int, j: int, places: Int32Vector, count: int) -> None:
    """Give `places[:count]` (sorted in place; CPU-only: server `places[0]`) to job `j` (`b`, `state`)."""
    job = state.jobs[b, j]
    if job.kind == JobKind.CPU_ONLY:
        _allocate_on_server(state, b, j, places[0])
        return
    sort_ascending(places, count)
    num_servers = 0
    head = -1
    last = -1
    num_racks = 0
    rack = -1
    slowest = 0.0
    shared = SharingFactors(0.0, 0.0)
    for k in range(count):
        i = _take_slot(state, b, j, places[k])
        s = state.slots[b, i].server
        server = state.servers[b, s]
        if last >= 0:
            state.slots[b, last].next_slot = i
        else:
            job.first_slot = i
        last = i
        if head < 0 or state.slots[b, head].server != s:
            if head >= 0:
                state.slots[b, head].next_server_slot = i
            head = i
            num_servers += 1
            if server.rack != rack:
                rack = server.rack
                num_racks += 1
            slowest = max(slowest, slowness_on(state.slowness, job, server.gpu_type))
            if state.slot_sharing.shape[1] > 0:
                shared = sharing_factors_on(state, job, server.gpu_type)
        if state.slot_sharing.shape[1] > 0:
            state.slot_sharing[b, i, 0] = shared.sensitivity
            state.slot_sharing[b, i, 1] = shared.pressure
        if job.uses_host_resources:
            _add_worker_usage(server, job, 1)
    job.num_servers = num_servers
    job.num_racks = num_racks
    job.gpu_speed = 1.0 / slowest
    if job.balances_batch:
        job.gpu_speed = balanced_speed(state, b, job, places, count)
    if job.plan_model >= 0:
        job.fewest_gpus = _fewest_gpus(state, b, places, count)
    _add_spanning_usage(state, b, j, 1)


@kernel
def release(state: State, b: int, j: int) -> None:
    """Release all that job `j` of cluster `b` of `state` holds. Its slot chain stays readable until reuse."""
    job = state.jobs[b, j]
    if job.kind == JobKind.CPU_ONLY:
        _release_from_server(state, b, j)
        return
    _add_spanning_usage(state, b, j, -1)
    i = job.first_slot
    while i >= 0:
        slot = state.slots[b, i]
        slot.job = -1
        gpu = state.gpus[b, slot.gpu]
        if gpu.num_jobs == state.clusters[b].jobs_per_gpu:
            _add_open_gpus(state, b, slot.server, 1)
        gpu.num_jobs -= 1
        gpu.free_memory_bytes += job.gpu_memory_bytes
        if gpu.num_jobs == 0:
            _add_free_gpus(state, b, slot.server, 1)
        if job.uses_host_resources:
            _add_worker_usage(state.servers[b, slot.server], job, -1)
        i = slot.next_slot


@kernel
def collect_places(state: State, b: int, j: int, out: Int32Vector) -> int:
    """Write the GPUs of job `j` of cluster `b` of `state`, or its server, to `out`. Return their number."""
    job = state.jobs[b, j]
    if job.kind == JobKind.CPU_ONLY:
        out[0] = job.server
        return 1
    count = 0
    i = job.first_slot
    while i >= 0:
        out[count] = state.slots[b, i].gpu
        count += 1
        i = state.slots[b, i].next_slot
    return count


@kernel
def held_on_server(state: State, b: int, j: int, s: int, r: int) -> int:
    """Return how much of resource `r` job `j` holds on server `s`, parameter servers included."""
    job = state.jobs[b, j]
    if job.kind == JobKind.CPU_ONLY:
        return held_per_worker(job, r) if job.server == s else 0
    rank = 0
    head = job.first_slot
    while head >= 0 and state.slots[b, head].server != s:
        head = state.slots[b, head].next_server_slot
        rank += 1
    if head < 0:
        return 0
    workers = 0
    while head >= 0 and state.slots[b, head].server == s:
        head = state.slots[b, head].next_slot
        workers += 1
    tasks = parameter_servers_on(job.parameter_servers, job.num_servers, rank)
    return total_demand(r, workers, held_per_worker(job, r), tasks, job.cores_per_server_task)


@kernel
def detach(state: State, b: int, j: int) -> int:
    """Release job `j` for one what-if question at a time; the result and `State.place_scratch` restore it."""
    job = state.jobs[b, j]
    state.jobs[b, state.jobs.shape[1] - 1] = job
    if job.first_slot < 0 and job.server < 0:
        return 0
    num_held = collect_places(state, b, j, state.place_scratch[b])
    release(state, b, j)
    return num_held


@kernel
def reattach(state: State, b: int, j: int, num_held: int) -> None:
    """Undo `detach` of job `j` of cluster `b` of `state`, which returned `num_held`. The shape may differ."""
    state.jobs[b, j] = state.jobs[b, state.jobs.shape[1] - 1]
    if num_held > 0:
        racks = state.jobs[b, j].num_racks
        allocate(state, b, j, state.place_scratch[b], num_held)
        state.jobs[b, j].num_racks = racks  # those of its rings, as `network.set_ring_racks` found them


@kernel
def fail_server(state: State, b: int, s: int) -> None:
    """Mark server `s` of cluster `b` of `state`, which holds no job, as down."""
    server = state.servers[b, s]
    server.up = 0
    server.num_failures += 1
    for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
        state.gpus[b, g].num_jobs = DOWN
    _add_free_gpus(state, b, s, -server.num_gpus)
    _add_open_gpus(state, b, s, -server.num_gpus)
    state.clusters[b].down_gpus += server.num_gpus
    for r in range(NUM_RESOURCES):
        set_free(server, r, free_on(server, r) - total_on(server, r))


@kernel
def repair_server(state: State, b: int, s: int) -> None:
    """Mark server `s` of cluster `b` of `state` as up and empty."""
    server = state.servers[b, s]
    server.up = 1
    for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
        state.gpus[b, g].num_jobs = 0
    _add_free_gpus(state, b, s, server.num_gpus)
    _add_open_gpus(state, b, s, server.num_gpus)
    state.clusters[b].down_gpus -= server.num_gpus
    for r in range(NUM_RESOURCES):
        set_free(server, r, free_on(server, r) + total_on(server, r))
