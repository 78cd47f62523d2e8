"""What fits where: free GPUs of a server that also has the cores and memory a job needs."""

from ringyard.compiled import Int32Vector, kernel
from ringyard.state.arrays import State
from ringyard.state.records import Job, Server

__all__ = ["cpu_server", "open_gpus", "room", "take_free"]


@kernel
def _workers_by_cores(server: Server, job: Job) -> int:
    """Workers of the job whose cores the server could still give, its parameter servers counted first."""
    free = server.free_cores - job.parameter_servers * job.cores_per_server_task
    if job.cores_per_worker <= 0:
        return server.num_gpus if free >= 0 else 0
    return max(free // job.cores_per_worker, 0)


@kernel
def room(state: State, b: int, j: int, s: int) -> int:
    """GPUs of server s that job j could have for itself.

    A parameter-server job is given room only where all its parameter servers would fit: wherever they are
    dealt out then, they fit.
    """
    server = state.servers[b, s]
    job = state.jobs[b, j]
    free = server.free_gpus
    if job.gpu_memory_bytes > server.gpu_memory_bytes:
        return 0
    if job.cores_per_worker > 0 or job.cores_per_server_task > 0:
        return min(free, _workers_by_cores(server, job))
    return free


@kernel
def take_free(state: State, b: int, j: int, s: int, wanted: int, out: Int32Vector, count: int) -> int:
    """Write up to `wanted` GPUs of server s that job j could have alone to `out`, from `count`; new count."""
    server = state.servers[b, s]
    wanted = min(wanted, room(state, b, j, s))
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
    """GPUs of server s that job j could join or have alone: a free slot, memory and cores."""
    server = state.servers[b, s]
    job = state.jobs[b, j]
    per_gpu = state.clusters[b].jobs_per_gpu
    count = 0
    for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
        gpu = state.gpus[b, g]
        if gpu.num_jobs < per_gpu and gpu.free_memory_bytes >= job.gpu_memory_bytes:
            count += 1
    if job.cores_per_worker > 0 or job.cores_per_server_task > 0:
        count = min(count, _workers_by_cores(server, job))
    return count


@kernel
def cpu_server(state: State, b: int, j: int, out: Int32Vector) -> int:
    """Place CPU-only job j: the server with enough cores whose memory bandwidth is asked for least.

    Ties go to fewer free cores, then to the lower number.

    Returns:
        1 with the server's number in out[0], or 0 if no server has the cores.
    """
    cores = state.jobs[b, j].cores_per_worker
    best = -1
    least = 0.0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.up == 0 or server.free_cores < cores:
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
