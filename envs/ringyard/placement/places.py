"""Lists of places, and holding rules to what they promise of them."""

from ringyard.compiled import Int32Vector, complain, complaint, kernel, linked_kernel
from ringyard.resources import CORES, NUM_RESOURCES, RESOURCES
from ringyard.state.arrays import State
from ringyard.state.counted import free_on, held_of
from ringyard.state.records import DOWN

__all__ = ["check_places", "dealt", "held_by", "sort_ascending"]

_WHO = "placement rule {function} gave job {job} "
_WRONG_NUMBER = complaint(_WHO + "{got:.0f} GPUs; expected {expected:.0f}, or 0 where it finds no place")
_NO_SUCH_GPU = complaint(_WHO + "GPU {got:.0f}; expected ids from 0 to {expected:.0f}")
_TWICE = complaint(_WHO + "GPU {got:.0f} twice; expected {expected:.0f} different ones")
_DOWN = complaint(_WHO + "GPU {got:.0f} of server {there:.0f}, which is down; expected GPUs of servers up")
_BUSY = complaint(
    _WHO + "GPU {got:.0f}, which holds {there:.0f} jobs; expected {expected:.0f} at most (jobs_per_gpu - 1 if"
    " the rule says shares=True, else 0)"
)
_SMALL = complaint(
    _WHO + "GPU {got:.0f} with {there:.4g} bytes of memory free; expected {expected:.4g}, which the job needs"
)
#: one for each resource
_SHORT = tuple(
    complaint(
        _WHO
        + f"{{expected:.0f}} {one.unit}{one.name} on server {{got:.0f}}, which has {{there:.0f}} free;"
        + " expected no more"
    )
    for one in RESOURCES
)


@kernel
def sort_ascending(values: Int32Vector, count: int) -> None:
    """Sort `values[:count]` in place; quick for what placement rules write, which is nearly sorted."""
    for i in range(1, count):
        value = values[i]
        k = i - 1
        while k >= 0 and values[k] > value:
            values[k + 1] = values[k]
            k -= 1
        values[k + 1] = value


@kernel
def dealt(tasks: int, num_servers: int, rank: int) -> int:
    """Parameter servers on the rank-th of the job's servers: dealt out one by one, the first get the rest."""
    return tasks // num_servers + (1 if rank < tasks % num_servers else 0)


@kernel
def held_by(r: int, workers: int, per_worker: int, tasks: int, cores_per_task: int) -> int:
    """What workers and parameter servers hold of resource r together: parameter servers hold cores only."""
    return workers * per_worker + (tasks * cores_per_task if r == CORES else 0)


@kernel
def _check_servers(state: State, b: int, j: int, function: int, places: Int32Vector, count: int) -> None:
    """Whether workers and parameter servers find their resources on every server of the (sorted) places."""
    job = state.jobs[b, j]
    num_servers = 1
    for i in range(1, count):
        if state.gpus[b, places[i]].server != state.gpus[b, places[i - 1]].server:
            num_servers += 1
    rank = 0
    workers = 0
    for i in range(count):
        s = state.gpus[b, places[i]].server
        workers += 1
        if i + 1 == count or state.gpus[b, places[i + 1]].server != s:
            tasks = dealt(job.parameter_servers, num_servers, rank)
            for r in range(NUM_RESOURCES):
                needed = held_by(r, workers, held_of(job, r), tasks, job.cores_per_server_task)
                free = free_on(state.servers[b, s], r)
                if needed > free:
                    complain(_SHORT[r], function, j, s, needed, free)
            rank += 1
            workers = 0


@kernel
def _check_gpu(state: State, b: int, j: int, function: int, g: int, most_jobs: int) -> None:
    gpu = state.gpus[b, g]
    if gpu.num_jobs > most_jobs:
        if gpu.num_jobs >= DOWN:
            complain(_DOWN, function, j, g, 0.0, gpu.server)
        complain(_BUSY, function, j, g, most_jobs, gpu.num_jobs)
    if gpu.free_memory_bytes < state.jobs[b, j].gpu_memory_bytes:
        complain(_SMALL, function, j, g, state.jobs[b, j].gpu_memory_bytes, gpu.free_memory_bytes)


@linked_kernel
def check_places(
    state: State, b: int, j: int, function: int, shares: bool, places: Int32Vector, count: int
) -> None:
    """Sort what a rule found for job j, which holds nothing; complain unless it is as `FindGpus` promises.

    Args:
        function: address of the rule's.
        shares: whether it may give GPUs that other jobs hold.
        places: [gpus] what it wrote.
        count: how many it says it wrote.
        (others): as everywhere.
    """
    wanted = state.jobs[b, j].num_gpus
    if count != wanted:
        complain(_WRONG_NUMBER, function, j, count, wanted, 0.0)
    sort_ascending(places, count)
    last = state.gpus.shape[1] - 1
    if places[0] < 0:
        complain(_NO_SUCH_GPU, function, j, places[0], last, 0.0)
    if places[count - 1] > last:
        complain(_NO_SUCH_GPU, function, j, places[count - 1], last, 0.0)
    most_jobs = state.clusters[b].jobs_per_gpu - 1 if shares else 0
    for i in range(count):
        if i > 0 and places[i] == places[i - 1]:
            complain(_TWICE, function, j, places[i], wanted, 0.0)
        _check_gpu(state, b, j, function, places[i], most_jobs)
    if state.jobs[b, j].beside_gpus:
        _check_servers(state, b, j, function, places, count)
