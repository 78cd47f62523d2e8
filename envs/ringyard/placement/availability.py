"""GPUs of a server that a job could have: free ones, with the GPU memory, cores and RAM that it needs.

The compiled functions name the arrays of the simulations `state`, a cluster `b`, a job `j` and a server `s`.
"""

from ringyard.compiled import Int32Vector, kernel, to_int
from ringyard.resources import CORES, NUM_RESOURCES
from ringyard.state.arrays import State
from ringyard.state.records import Job, Server, free_on, held_per_worker, total_on


@kernel
def sort_ascending(values: Int32Vector, count: int) -> None:
    """Sort `values[:count]` in place by insertion, since placement rules write nearly sorted ids."""
    for i in range(1, count):
        value = values[i]
        k = i - 1
        while k >= 0 and values[k] > value:
            values[k + 1] = values[k]
            k -= 1
        values[k + 1] = value


@kernel
def parameter_servers_on(tasks: int, num_servers: int, rank: int) -> int:
    """Number of a job's `tasks`, spread evenly, the first with one more, on the `rank`-th of its servers."""
    return tasks // num_servers + (1 if rank < tasks % num_servers else 0)


@kernel
def total_demand(r: int, workers: int, per_worker: int, tasks: int, cores_per_task: int) -> int:
    """Resource `r` of `workers` with `per_worker` each; `tasks` (parameter servers) hold `cores_per_task`."""
    return workers * per_worker + (tasks * cores_per_task if r == CORES else 0)


@kernel
def max_workers(job: Job, r: int, amount: int, most: int) -> int:
    """Workers of `job`, at most `most`, for which an `amount` of resource `r` less its servers' suffices."""
    left = amount - total_demand(r, 0, 0, job.parameter_servers, job.cores_per_server_task)
    if left < 0:
        return 0
    per_worker = held_per_worker(job, r)
    return max(min(most, left // per_worker), 0) if per_worker > 0 else most


@kernel
def _max_workers_on(server: Server, job: Job) -> int:
    """Workers of `job` for which `server` has free resources besides GPUs."""
    workers = to_int(server.num_gpus)
    for r in range(NUM_RESOURCES):
        workers = max_workers(job, r, free_on(server, r), workers)
    return workers


@kernel
def available_gpus(state: State, b: int, j: int, s: int) -> int:
    """GPUs of server `s` that job `j` of cluster `b` in `state` could have for itself.

    A server must have room for all parameter servers of a job, so that any division of them fits.
    """
    server = state.servers[b, s]
    job = state.jobs[b, j]
    free = server.free_gpus
    if job.gpu_memory_bytes > server.gpu_memory_bytes:
        return 0
    if job.uses_host_resources:
        return min(free, _max_workers_on(server, job))
    return free


@kernel
def fits_any_free_gpu(state: State, b: int, j: int) -> bool:
    """Whether job `j` of cluster `b` in `state` may have any free GPU: it needs no other resource."""
    job = state.jobs[b, j]
    return job.uses_host_resources == 0 and job.gpu_memory_bytes <= state.clusters[b].min_gpu_memory_bytes


@kernel
def gpus_when_idle(state: State, b: int, j: int, s: int) -> int:
    """`available_gpus` of job `j` on server `s` of cluster `b` in `state`, were the server idle."""
    server = state.servers[b, s]
    job = state.jobs[b, j]
    if job.gpu_memory_bytes > server.gpu_memory_bytes:
        return 0
    workers = to_int(server.num_gpus)
    if job.uses_host_resources:
        for r in range(NUM_RESOURCES):
            workers = max_workers(job, r, total_on(server, r), workers)
    return workers


@kernel
def take_free_gpus(state: State, b: int, j: int, s: int, wanted: int, out: Int32Vector, count: int) -> int:
    """Write up to `wanted` GPUs of `s` that job `j` could have to `out`, from `count` on; return it."""
    server = state.servers[b, s]
    wanted = min(wanted, available_gpus(state, b, j, s))
    g = server.first_gpu
    while wanted > 0:
        if state.gpus[b, g].num_jobs == 0:
            out[count] = g
            count += 1
            wanted -= 1
        g += 1
    return count


@kernel
def open_gpus(state: State, b: int, j: int, s: int) -> int:
    """GPUs of server `s` with a free slot and enough free memory for job `j`, alone or shared."""
    server = state.servers[b, s]
    job = state.jobs[b, j]
    per_gpu = state.clusters[b].jobs_per_gpu
    count = 0
    for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
        gpu = state.gpus[b, g]
        if gpu.num_jobs < per_gpu and gpu.free_memory_bytes >= job.gpu_memory_bytes:
            count += 1
    if job.uses_host_resources:
        count = min(count, _max_workers_on(server, job))
    return count


@kernel
def find_cpu_server(state: State, b: int, j: int, out: Int32Vector) -> int:
    """Write the server with least demand of memory bandwidth for job `j` to `out[0]`. Return 1, 0 if none."""
    job = state.jobs[b, j]
    best = -1
    least = 0.0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        fits = server.up != 0
        for r in range(NUM_RESOURCES):
            fits = fits and free_on(server, r) >= held_per_worker(job, r)
        if not fits:
            continue
        asked = float(server.bandwidth_demand) / float(server.memory_bandwidth)
        if best < 0 or asked < least:
            best = s
            least = asked
        elif asked == least and server.free_cores < state.servers[b, best].free_cores:
            best = s
    if best < 0:
        return 0
    out[0] = best
    return 1
