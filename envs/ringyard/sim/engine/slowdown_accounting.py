"""Count how much of its time each job loses to what. This only measures: no decision depends on it.

While a job runs, the performance model is asked how long an iteration of the base batch would take without
one cause of loss after the other, each in addition to those before. What each saves is the loss to that
cause, below 0 a gain, and what is left is work. docs/metrics.md ("Where the time goes") has the causes.
"""

from ringyard.compiled import kernel, linked_kernel
from ringyard.performance.model import Physics, iteration_seconds
from ringyard.sim.engine.network import isolated_contenders
from ringyard.sim.engine.shape import asked_shape, set_shape
from ringyard.state.arrays import State
from ringyard.state.gpu_effects import kernel_share_on, min_slowness, slowness_on
from ringyard.state.progress import remaining_iterations
from ringyard.state.records import Job, JobKind, Loss

_CAUSES = int(Loss.RATES)  #: number of losses that follow from a job's speed: those before `Loss.RATES`


@kernel
def _seconds_per_base_iteration(job: Job, j: int, physics: Physics) -> float:
    return iteration_seconds(job, j, physics) / job.progress_per_iteration


@kernel
def _consolidate(state: State, job: Job) -> bool:
    """Put the job on the fewest servers, in one rack, alone on its links. Return whether this changes it."""
    fewest = state.fewest_servers[job.num_gpus]
    contenders = 1.0 if fewest > 1 else 0.0
    moved = job.num_servers != fewest or job.contenders != contenders or job.fewest_gpus != 0
    job.num_servers = fewest
    job.fewest_gpus = 0
    job.contenders = contenders
    return moved


@kernel
def _remove_input_waits(job: Job) -> bool:
    """Let the job never wait for input (CPU-only: have what it asked for). Return whether this changes it."""
    waits = job.cores_per_worker > 0 or job.cores_per_server_task > 0 or job.bandwidth_slowdown > 1.0
    waits = waits or job.stored_bytes > 0.0 or job.memory_bandwidth_cap < 1.0
    job.cores_per_worker = job.asked_cores if job.kind == JobKind.CPU_ONLY else 0
    job.cores_per_server_task = 0
    job.bandwidth_slowdown = 1.0
    job.stored_bytes = 0.0
    job.memory_bandwidth_cap = 1.0
    return waits


@kernel
def _use_fastest_type(state: State, job: Job) -> bool:
    """Put the job on the GPU type where it is fastest. Return whether this changes it."""
    fastest = 1.0 / min_slowness(state.slowness, job)
    changed = job.gpu_speed != fastest
    job.gpu_speed = fastest
    return changed


@kernel
def _restore_asked_shape(state: State, job: Job) -> bool:
    """Give the job its asked shape, without the other causes. Return whether this changes it."""
    asked = asked_shape(job)
    same = job.num_gpus == asked.num_gpus and job.batch_size == asked.batch_size
    if same and job.parameter_servers == asked.parameter_servers and job.plan == asked.plan:
        return False
    set_shape(job, asked)
    _consolidate(state, job)
    _remove_input_waits(job)
    _use_fastest_type(state, job)
    return True


@kernel
def _remove_cause(state: State, b: int, j: int, job: Job, cause: int) -> bool:
    """Remove a cause of loss from `job`, a copy of job `j` without earlier ones. Return if it changes."""
    changed = False
    if cause == Loss.CONTENTION:
        alone = isolated_contenders(state, b, j)
        changed = job.contenders != alone
        job.contenders = alone
    elif cause == Loss.INTERFERENCE:
        changed = job.sharing_slowdown != 1.0
        job.sharing_slowdown = 1.0
    elif cause == Loss.INPUT:
        changed = _remove_input_waits(job)
    elif cause == Loss.STRAGGLERS:
        changed = job.straggler != 1.0
        job.straggler = 1.0
    elif job.kind != JobKind.CPU_ONLY:
        if cause == Loss.SPREAD:
            changed = _consolidate(state, job)
        elif cause == Loss.GPU_TYPES:
            changed = _use_fastest_type(state, job)
        else:
            changed = _restore_asked_shape(state, job)
    return changed


@linked_kernel
def update_loss_rates(state: State, b: int, j: int, physics: Physics) -> None:
    """Write by `physics` how fast job `j` of cluster `b` of `state` loses time to what, from now on."""
    losses = state.losses[b, j]
    losses[Loss.COUNTED_SECONDS.value] = state.clusters[b].now
    seconds = state.jobs[b, j].iteration_seconds
    spare = state.jobs.shape[1] - 1
    state.jobs[b, spare] = state.jobs[b, j]
    job = state.jobs[b, spare]
    for cause in range(_CAUSES):
        without = seconds
        if _remove_cause(state, b, j, job, cause):
            without = _seconds_per_base_iteration(job, j, physics)
        losses[_CAUSES + cause] = seconds - without
        seconds = without
    losses[Loss.WORK_RATE.value] = seconds


@linked_kernel
def add_losses(state: State, b: int, j: int) -> None:
    """Add what job `j` of cluster `b` of `state` lost until now, before its speed changes or it stops."""
    now = state.clusters[b].now
    job = state.jobs[b, j]
    losses = state.losses[b, j]
    counted = losses[Loss.COUNTED_SECONDS.value]
    losses[Loss.RESTARTS.value] += max(min(now, job.pause_ends_seconds) - counted, 0.0)
    iterations = remaining_iterations(job, counted) - remaining_iterations(job, now)
    for cause in range(_CAUSES):
        losses[cause] += iterations * losses[_CAUSES + cause]
    losses[Loss.COUNTED_SECONDS.value] = now
    i = job.first_slot
    while i >= 0:
        add_kernel_seconds(state, b, state.slots[b, i].gpu)
        i = state.slots[b, i].next_slot


@kernel
def add_repeated_work(state: State, b: int, j: int, iterations: float) -> None:
    """Note that job `j` of cluster `b` of `state` has to repeat `iterations` of the base batch."""
    state.losses[b, j, Loss.FAILURES.value] += iterations * state.losses[b, j, Loss.WORK_RATE.value]


@kernel
def _kernel_share(state: State, b: int, i: int) -> float:
    """Return the fraction of the time in which the job of slot `i` runs kernels on that slot's GPU."""
    job = state.jobs[b, state.slots[b, i].job]
    gpu_type = state.servers[b, state.slots[b, i].server].gpu_type
    slowness = slowness_on(state.slowness, job, gpu_type)
    if job.balances_batch:
        slowness = 1.0 / job.gpu_speed
    kernels = job.compute_seconds * slowness * kernel_share_on(state, job, gpu_type)
    return kernels / (job.iteration_seconds * job.progress_per_iteration)


@linked_kernel
def add_kernel_seconds(state: State, b: int, g: int) -> None:
    """Add kernel time on GPU `g` (`b`, `state`) until now. Call it before its jobs or their speeds change.

    The kernels of jobs on one GPU take turns, and each job's run in gaps that the others leave. None runs
    while its job restarts.
    """
    cluster = state.clusters[b]
    begin = state.kernels_counted[b, g]
    state.kernels_counted[b, g] = cluster.now
    first = g * cluster.jobs_per_gpu
    while begin < cluster.now:
        end = cluster.now
        busy = 0.0
        for i in range(first, first + cluster.jobs_per_gpu):
            j = state.slots[b, i].job
            if j < 0:
                continue
            ready = state.jobs[b, j].pause_ends_seconds
            if ready > begin:
                end = min(end, ready)
            else:
                busy += _kernel_share(state, b, i)
        cluster.kernel_seconds += min(busy, 1.0) * (end - begin)
        begin = end
