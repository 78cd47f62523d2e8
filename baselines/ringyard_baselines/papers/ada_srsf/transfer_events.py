"""The events of Ada-SRSF's transfer model (`transfers`), in compiled code."""

import numpy as np

from ringyard.compiled import FloatMatrix, FloatVector, IntVector, Record, Records1, f8, i4, kernel

__all__ = ["FIRST_FIT", "RANDOM", "Gpu", "Job", "Worker", "run_events"]

RANDOM, FIRST_FIT = -1, -2

_QUEUED, _PLACED, _DONE = 1, 2, 3
_COMPUTING, _READY, _SENDING = 0, 1, 2
_FORWARD, _BACKWARD, _BARRIER = 0, 1, 2


class Job(Record):
    """A training job."""

    arrival: f8  # ms, as all times here
    forward: f8
    backward: f8
    megabytes: f8
    memory: f8  # MB on each GPU
    service: f8  # compute ms left, summed over workers
    size: f8  # service at first: the queue's order
    left: f8  # MB of the present transfer
    rate: f8  # MB per ms
    end: f8
    workers: i4
    first_worker: i4
    iterations: i4  # left
    status: i4
    phase: i4
    waiting_workers: i4  # at the barrier
    spans: i4  # servers
    asked: i4  # scratch: considered in this round


class Gpu(Record):
    """One GPU."""

    memory: f8
    load: f8
    until: f8
    worker: i4
    taken: i4


class Worker(Record):
    """One worker of a job."""

    job: i4
    gpu: i4
    phase: i4


Jobs = Records1[Job]
Gpus = Records1[Gpu]
Workers = Records1[Worker]

#: ms per MB that the public simulator's load estimate uses, its 1GbE figure, though its links run at 0.856
LOAD_MS_PER_MEGABYTE = 7.8125


@kernel
def _on_node(jobs: Jobs, workers: Workers, j: int, node: int, per_node: int) -> bool:
    """Whether job j has a worker there."""
    for k in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].workers):
        if workers[k].gpu // per_node == node:
            return True
    return False


@kernel
def _meet(jobs: Jobs, workers: Workers, i: int, j: int, per_node: int) -> bool:
    """Whether two placed jobs have a server in common."""
    for k in range(jobs[i].first_worker, jobs[i].first_worker + jobs[i].workers):
        if _on_node(jobs, workers, j, workers[k].gpu // per_node, per_node):
            return True
    return False


@kernel
def _most_transfers(jobs: Jobs, workers: Workers, sending: IntVector, j: int, per_node: int) -> int:
    """Transfers on the busiest of the job's servers."""
    most = 0
    for k in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].workers):
        most = max(most, sending[workers[k].gpu // per_node])
    return most


@kernel
def _count(jobs: Jobs, workers: Workers, sending: IntVector, j: int, per_node: int, change: int) -> None:
    """Add a transfer of job j to its servers, or take it away."""
    for node in range(len(sending)):
        if _on_node(jobs, workers, j, node, per_node):
            sending[node] += change


@kernel
def _least_loaded(gpus: Gpus, memory: float, first: int, last: int) -> int:
    """Untaken GPU with room and the least load; -1 if none."""
    best = -1
    for g in range(first, last):
        if gpus[g].taken == 0 and gpus[g].memory >= memory and (best < 0 or gpus[g].load < gpus[best].load):
            best = g
    return best


@kernel
def _choose(gpus: Gpus, workers: Workers, job: Job, kappa: int, per_node: int, draws: FloatVector) -> bool:
    """GPUs for all workers by LWF-kappa, first fit or at random; False if memory is short."""
    count = 0
    for g in range(len(gpus)):
        gpus[g].taken = 0
        if gpus[g].memory >= job.memory:
            count += 1
    if count < job.workers:
        return False
    taken = 0
    while taken < job.workers:
        g = -1
        if kappa == FIRST_FIT:
            for other in range(len(gpus)):
                if g < 0 and gpus[other].taken == 0 and gpus[other].memory >= job.memory:
                    g = other
        elif kappa == RANDOM:
            for other in range(len(gpus)):
                if gpus[other].taken == 0 and gpus[other].memory >= job.memory:
                    if g < 0 or draws[other] < draws[g]:
                        g = other
        elif job.workers <= kappa:
            g = _least_loaded(gpus, job.memory, 0, len(gpus))
        else:
            lightest = np.inf
            for node in range(len(gpus) // per_node):
                first = node * per_node
                load = 0.0
                for other in range(first, first + per_node):
                    load += gpus[other].load
                if load < lightest and _least_loaded(gpus, job.memory, first, first + per_node) >= 0:
                    lightest = load
                    g = _least_loaded(gpus, job.memory, first, first + per_node)
        gpus[g].taken = 1
        workers[job.first_worker + taken].gpu = g
        taken += 1
    return True


@kernel
def _place(
    jobs: Jobs,
    j: int,
    gpus: Gpus,
    workers: Workers,
    kappa: int,
    per_node: int,
    draws: FloatVector,
) -> None:
    job = jobs[j]
    if not _choose(gpus, workers, job, kappa, per_node, draws):
        return
    job.status = _PLACED
    job.spans = 0
    for node in range(len(gpus) // per_node):
        if _on_node(jobs, workers, j, node, per_node):
            job.spans += 1
    for k in range(job.first_worker, job.first_worker + job.workers):
        gpu = gpus[workers[k].gpu]
        gpu.memory -= job.memory
        gpu.load += job.iterations * (job.forward + job.backward)
        if job.spans > 1:
            gpu.load += job.iterations * job.megabytes * LOAD_MS_PER_MEGABYTE


@kernel
def _end_iteration(job: Job, gpus: Gpus, workers: Workers, now: float) -> None:
    """All workers have the new weights: next iteration, or the end."""
    job.iterations -= 1
    job.waiting_workers = 0
    job.phase = _COMPUTING
    for k in range(job.first_worker, job.first_worker + job.workers):
        workers[k].phase = _FORWARD
        if job.spans > 1:
            gpus[workers[k].gpu].load -= job.megabytes * LOAD_MS_PER_MEGABYTE
        if job.iterations == 0:
            gpus[workers[k].gpu].memory += job.memory
    if job.iterations == 0:
        job.status = _DONE
        job.end = now


@kernel
def _end_task(jobs: Jobs, gpu: Gpu, gpus: Gpus, workers: Workers, now: float) -> None:
    """A forward or backward task is done."""
    worker = workers[gpu.worker]
    job = jobs[worker.job]
    seconds = job.forward if worker.phase == _FORWARD else job.backward
    job.service -= seconds
    gpu.load -= seconds
    gpu.worker = -1
    gpu.until = np.inf
    worker.phase += 1
    if worker.phase == _BARRIER:
        job.waiting_workers += 1
    if job.waiting_workers == job.workers:
        if job.spans > 1:
            job.phase = _READY
            job.left = job.megabytes
        else:
            _end_iteration(job, gpus, workers, now)


@kernel
def _allowed(
    jobs: Jobs,
    workers: Workers,
    sending: IntVector,
    j: int,
    per_node: int,
    most: int,
    adaptive: bool,
    ratio: float,
) -> bool:
    """SRSF(most), or AdaDUAL: beside one transfer only if that has `ratio` times more left."""
    crowd = _most_transfers(jobs, workers, sending, j, per_node)
    if crowd == 0:
        return True
    if crowd >= most:
        return False
    if adaptive:
        for i in range(len(jobs)):
            if (
                jobs[i].status == _PLACED
                and jobs[i].phase == _SENDING
                and _meet(jobs, workers, i, j, per_node)
            ):
                if jobs[i].left < ratio * jobs[j].megabytes:
                    return False
    return True


@kernel
def _start_transfers(
    jobs: Jobs,
    workers: Workers,
    sending: IntVector,
    per_node: int,
    most: int,
    adaptive: bool,
    ratio: float,
) -> None:
    """Every job that is ready, least service first."""
    for j in range(len(jobs)):
        jobs[j].asked = 0
    while True:
        best = -1
        for j in range(len(jobs)):
            if jobs[j].status == _PLACED and jobs[j].phase == _READY and jobs[j].asked == 0:
                if best < 0 or jobs[j].service < jobs[best].service:
                    best = j
        if best < 0:
            return
        jobs[best].asked = 1
        if _allowed(jobs, workers, sending, best, per_node, most, adaptive, ratio):
            jobs[best].phase = _SENDING
            _count(jobs, workers, sending, best, per_node, 1)


@kernel
def _set_rates(
    jobs: Jobs,
    workers: Workers,
    sending: IntVector,
    per_node: int,
    constants: tuple[float, float],
    miscount: bool,
) -> None:
    """1 / (k b + (k - 1) eta), k on the busiest server; with the public error, once more for each asker."""
    beta, eta = constants
    for i in range(len(jobs)):
        if jobs[i].status != _PLACED or jobs[i].phase != _SENDING:
            continue
        k = _most_transfers(jobs, workers, sending, i, per_node)
        rate = 1.0 / (k * beta + (k - 1) * eta)
        askers = 0
        if miscount:
            for j in range(len(jobs)):
                if jobs[j].status == _PLACED and jobs[j].phase == _READY:
                    if _most_transfers(jobs, workers, sending, j, per_node) == 1:
                        askers += int(_meet(jobs, workers, i, j, per_node))
        jobs[i].rate = rate * (1 + askers)


@kernel
def _dispatch(jobs: Jobs, gpus: Gpus, workers: Workers, now: float) -> None:
    """Each idle GPU computes for its resident job with least service left."""
    for g in range(len(gpus)):
        gpus[g].taken = -1
    for k in range(len(workers)):
        job = jobs[workers[k].job]
        if job.status != _PLACED or job.phase != _COMPUTING or workers[k].phase == _BARRIER:
            continue
        gpu = gpus[workers[k].gpu]
        if gpu.worker < 0 and (gpu.taken < 0 or job.service < jobs[workers[gpu.taken].job].service):
            gpu.taken = k
    for g in range(len(gpus)):
        gpu = gpus[g]
        if gpu.worker < 0 and gpu.taken >= 0:
            worker = workers[gpu.taken]
            gpu.worker = gpu.taken
            gpu.until = now + (
                jobs[worker.job].forward if worker.phase == _FORWARD else jobs[worker.job].backward
            )


@kernel
def run_events(
    jobs: Jobs,
    order: IntVector,
    gpus: Gpus,
    workers: Workers,
    sending: IntVector,
    draws: FloatMatrix,
    per_node: int,
    kappa: int,
    most: int,
    adaptive: bool,
    ratio: float,
    constants: tuple[float, float],
    miscount: bool,
) -> None:
    """Play all events.

    Args:
        jobs: [jobs] `Job`; gpus: [GPUs] `Gpu`; workers: [workers] `Worker`.
        order: [jobs] the queue.
        sending: [servers] transfers on each.
        draws: [jobs, GPUs] random numbers of random placement.
        per_node: GPUs of a server.
        kappa: of LWF, or RANDOM or FIRST_FIT.
        most: transfers allowed on a server.
        adaptive: AdaDUAL.
        ratio: remaining / new bytes from which on it starts beside another.
        constants: ms per MB alone, and extra per contender.
        miscount: with the public simulator's error.
    """
    now = 0.0
    done = 0
    while done < len(jobs):
        later = np.inf
        for j in range(len(jobs)):
            if jobs[j].status == 0:
                later = min(later, jobs[j].arrival)
            elif jobs[j].status == _PLACED and jobs[j].phase == _SENDING:
                later = min(later, now + jobs[j].left / jobs[j].rate)
        for g in range(len(gpus)):
            later = min(later, gpus[g].until)
        for j in range(len(jobs)):
            job = jobs[j]
            if job.status == _PLACED and job.phase == _SENDING:
                job.left -= job.rate * (later - now)
                if job.left <= 1e-9 * job.megabytes:
                    _count(jobs, workers, sending, j, per_node, -1)
                    _end_iteration(job, gpus, workers, later)
            elif job.status == 0 and job.arrival <= later:
                job.status = _QUEUED
        now = later
        for g in range(len(gpus)):
            if gpus[g].until <= now:
                _end_task(jobs, gpus[g], gpus, workers, now)
        done = 0
        for i in range(len(order)):
            if jobs[order[i]].status == _QUEUED:
                _place(jobs, order[i], gpus, workers, kappa, per_node, draws[order[i]])
            done += int(jobs[order[i]].status == _DONE)
        _start_transfers(jobs, workers, sending, per_node, most, adaptive, ratio)
        _set_rates(jobs, workers, sending, per_node, constants, miscount)
        _dispatch(jobs, gpus, workers, now)
