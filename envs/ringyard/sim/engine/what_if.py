"""How fast a job would be elsewhere, the others where they are."""

import numpy as np

from ringyard.compiled import Int32Vector, Record, f8, i4, kernel, linked_kernel
from ringyard.performance.cpu import bandwidth_asked, bandwidth_stretch
from ringyard.sim.engine.coupling import count_links, surround
from ringyard.sim.engine.holding import hold, let_go, lift, put_back
from ringyard.sim.engine.physics import Physics
from ringyard.sim.engine.shape import Shape, num_places, set_shape
from ringyard.state.arrays import State
from ringyard.state.records import JobKind, Network

__all__ = ["Look", "look", "seconds_there", "what_if"]


class Look(Record):
    """Surroundings of a proposed place."""

    contenders: f8
    gpu_speed: f8
    sharing_slowdown: f8
    bandwidth_slowdown: f8
    num_servers: i4
    num_places: i4  # found, 0: none


_CPU_ONLY = int(JobKind.CPU_ONLY)
_NO_NETWORK = int(Network.NONE)


@kernel
def look(state: State, b: int, j: int, places: Int32Vector, count: int, out: Look) -> None:
    """What waiting job j would find on `places[:count]` (ascending), written to `out`.

    As `what_if` would find it, but quicker. Where links are counted all together, the rings on the servers'
    own links are an estimate of the contenders: uplinks and max-min shares are left to `what_if`.
    """
    cluster = state.clusters[b]
    job = state.jobs[b, j]
    out.num_servers = 0
    out.contenders = 0.0
    out.gpu_speed = np.inf
    out.sharing_slowdown = 1.0
    out.bandwidth_slowdown = 1.0
    if job.kind == _CPU_ONLY:
        out.num_servers = 1
        out.gpu_speed = 1.0
        if cluster.bandwidth_limited:
            out.bandwidth_slowdown = _stretch_with(state, b, j, places[0], job.cores_per_worker)
        return
    first = -1
    for i in range(count):
        g = places[i]
        s = state.gpus[b, g].server
        if cluster.sharing and state.gpus[b, g].num_jobs > 0:
            excess = 1.0 + _excess_on(state, b, j, g)
            out.sharing_slowdown = max(out.sharing_slowdown, excess)
        if i + 1 < count and state.gpus[b, places[i + 1]].server == s:
            if first < 0:
                first = i
            continue
        workers = i + 1 - (first if first >= 0 else i)
        first = -1
        out.num_servers += 1
        out.gpu_speed = min(out.gpu_speed, state.speeds[job.model, state.servers[b, s].gpu_type])
        crowd = float(state.servers[b, s].spanning_jobs + 1)
        if cluster.global_links:
            crowd = state.links[b, s].load + 1.0
        out.contenders = max(out.contenders, crowd)
        if cluster.bandwidth_limited:
            stretch = _stretch_with(state, b, j, s, workers * job.cores_per_worker)
            out.bandwidth_slowdown = max(out.bandwidth_slowdown, stretch)
    if out.num_servers == 1 or cluster.network == _NO_NETWORK:
        out.contenders = 0.0


@kernel
def _excess_on(state: State, b: int, j: int, g: int) -> float:
    """Extra time of job j beside those on GPU g."""
    per_gpu = state.clusters[b].jobs_per_gpu
    excess = 0.0
    for k in range(g * per_gpu, (g + 1) * per_gpu):
        other = state.slots[b, k].job
        if other >= 0:
            excess += state.excess[state.jobs[b, j].model, state.jobs[b, other].model]
    return excess


@kernel
def _stretch_with(state: State, b: int, j: int, s: int, cores: int) -> float:
    """Stretch of memory accesses on server s with `cores` cores of job j added."""
    server = state.servers[b, s]
    job = state.jobs[b, j]
    demand = server.bandwidth_demand + bandwidth_asked(job, cores)
    return bandwidth_stretch(float(demand), float(server.memory_bandwidth))


@kernel
def seconds_there(state: State, b: int, j: int, found: Look, physics: Physics) -> float:
    """Seconds per base iteration of waiting job j in the place that `look` looked at."""
    job = state.jobs[b, j]
    job.num_servers = found.num_servers
    job.contenders = found.contenders
    crowded = state.clusters[b].crowded
    if crowded:
        job.gpu_speed = found.gpu_speed
        job.sharing_slowdown = found.sharing_slowdown
        job.bandwidth_slowdown = found.bandwidth_slowdown
    seconds = physics.seconds(job, physics.parameters) / job.progress_per_iteration
    job.num_servers = 0
    job.contenders = 0.0
    if crowded:
        job.gpu_speed = 1.0
        job.sharing_slowdown = 1.0
        job.bandwidth_slowdown = 1.0
    return seconds


@linked_kernel
def what_if(state: State, b: int, j: int, shape: Shape, places: Int32Vector, physics: Physics) -> float:
    """Seconds per base iteration of job j elsewhere or in another shape; arguments as in `life.carry_out`.

    The job is put there for a moment, without anybody noticing, and back again.
    """
    job = state.jobs[b, j]
    num_held = lift(state, b, j)
    set_shape(job, shape)
    hold(state, b, j, places, num_places(shape))
    surround(state, b, j)
    if state.clusters[b].global_links and job.num_servers > 1:
        count_links(state, b, -1 if num_held > 0 else j)
        job.contenders = job.new_contenders
    seconds = physics.seconds(job, physics.parameters) / job.progress_per_iteration
    let_go(state, b, j)
    put_back(state, b, j, num_held)
    if state.clusters[b].global_links:
        count_links(state, b, -1)  # `look` reads the links' loads
    return seconds
