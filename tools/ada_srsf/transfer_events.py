"""Events of Ada-SRSF's transfer model (`transfers`), in compiled code. Times are in ms, sizes in MB."""

import numpy as np

from ringyard.compiled import BoolMatrix, FloatMatrix, IntVector, Record, Records1, bundle, f8, i4, kernel

RANDOM, FIRST_FIT = -1, -2

_QUEUED, _PLACED, _DONE = 1, 2, 3
_COMPUTING, _READY, _SENDING = 0, 1, 2
_FORWARD, _BACKWARD, _BARRIER = 0, 1, 2


class TransferJob(Record):
    """Training job of the transfer model."""

    arrival: f8  # ms, as all times here
    forward: f8
    backward: f8
    megabytes: f8
    memory: f8  # MB on each GPU
    service: f8  # compute ms left, summed over workers
    total_service: f8  # initial service, which orders the queue
    megabytes_left: f8  # MB of the present transfer
    rate: f8  # MB per ms
    end_time: f8
    workers: i4
    first_worker: i4
    iterations: i4  # iterations left
    status: i4
    phase: i4
    waiting_workers: i4  # workers at the barrier
    num_servers: i4
    considered: i4  # scratch: whether the job was tried in this round


class TransferGpu(Record):
    """GPU of the transfer model."""

    memory: f8
    load: f8
    busy_until: f8
    worker: i4
    chosen: i4


class TransferWorker(Record):
    """Worker of a job."""

    job: i4
    gpu: i4
    phase: i4


@bundle
class TransferRun:
    """State and settings of one run."""

    jobs: Records1[TransferJob]  #: [jobs] `TransferJob`
    gpus: Records1[TransferGpu]  #: [GPUs] `TransferGpu`
    workers: Records1[TransferWorker]  #: [workers] `TransferWorker`
    order: IntVector  #: [jobs] the queue
    on_server: BoolMatrix  #: [jobs, servers] whether a placed job has a worker there
    num_transfers: IntVector  #: [servers] transfers under way
    draws: FloatMatrix  #: [jobs, GPUs] random numbers of random placement
    gpus_per_server: int  #: GPUs of each server
    kappa: int  #: of LWF-kappa, or RANDOM or FIRST_FIT
    max_transfers: int  #: largest number of transfers on a server
    adaptive: bool  #: whether AdaDUAL decides
    min_ratio: float  #: smallest ratio of remaining to new bytes at which a transfer starts beside another
    beta: float  #: ms per MB of an isolated transfer
    eta: float  #: extra ms per MB and contender
    miscount: bool  #: whether progress is counted with the public simulator's error


#: ms per MB of the public simulator's load estimate, its 1GbE figure although its links run at 0.856
LOAD_MS_PER_MEGABYTE = 7.8125


@kernel
def _share_server(run: TransferRun, i: int, j: int) -> bool:
    """Return whether two placed jobs have a server in common."""
    for s in range(len(run.num_transfers)):
        if run.on_server[i, s] and run.on_server[j, s]:
            return True
    return False


@kernel
def _in_phase(run: TransferRun, j: int, phase: int) -> bool:
    """Return whether job j is placed and in this phase of its iteration."""
    return run.jobs[j].status == _PLACED and run.jobs[j].phase == phase


@kernel
def _busiest_server_transfers(run: TransferRun, j: int) -> int:
    """Return the transfers on the busiest of the job's servers."""
    busiest = 0
    for s in range(len(run.num_transfers)):
        if run.on_server[j, s]:
            busiest = max(busiest, run.num_transfers[s])
    return busiest


@kernel
def _add_transfers(run: TransferRun, j: int, change: int) -> None:
    """Add `change` transfers to each server of job j."""
    for s in range(len(run.num_transfers)):
        run.num_transfers[s] += change * int(run.on_server[j, s])


@kernel
def _has_room(gpu: TransferGpu, memory: float) -> bool:
    """Return whether the GPU has memory left and is not chosen yet."""
    return gpu.chosen == 0 and gpu.memory >= memory


@kernel
def _least_loaded(run: TransferRun, memory: float, first: int, last: int) -> int:
    """Return the GPU in [first, last) with room and the smallest load, or -1."""
    best = -1
    for g in range(first, last):
        if _has_room(run.gpus[g], memory) and (best < 0 or run.gpus[g].load < run.gpus[best].load):
            best = g
    return best


@kernel
def _next_gpu(run: TransferRun, j: int) -> int:
    """Return the next GPU of job j by LWF-kappa, first fit or at random."""
    memory = run.jobs[j].memory
    count = len(run.gpus)
    best = -1
    if run.kappa == FIRST_FIT or run.kappa == RANDOM:
        for g in range(count):
            if _has_room(run.gpus[g], memory):
                if best < 0 or (run.kappa == RANDOM and run.draws[j, g] < run.draws[j, best]):
                    best = g
        return best
    if run.jobs[j].workers <= run.kappa:
        return _least_loaded(run, memory, 0, count)
    lightest = np.inf
    for first in range(0, count, run.gpus_per_server):
        load = 0.0
        for g in range(first, first + run.gpus_per_server):
            load += run.gpus[g].load
        found = _least_loaded(run, memory, first, first + run.gpus_per_server)
        if load < lightest and found >= 0:
            lightest = load
            best = found
    return best


@kernel
def _choose_gpus(run: TransferRun, j: int) -> bool:
    """Choose GPUs for all workers of job j. False: memory is short."""
    job = run.jobs[j]
    count = 0
    for g in range(len(run.gpus)):
        run.gpus[g].chosen = 0
        count += int(run.gpus[g].memory >= job.memory)
    if count < job.workers:
        return False
    for k in range(job.first_worker, job.first_worker + job.workers):
        g = _next_gpu(run, j)
        run.gpus[g].chosen = 1
        run.workers[k].gpu = g
    return True


@kernel
def _place(run: TransferRun, j: int) -> None:
    """Place a queued job if there is room, and add its work to the load of its GPUs."""
    job = run.jobs[j]
    if not _choose_gpus(run, j):
        return
    job.status = _PLACED
    for k in range(job.first_worker, job.first_worker + job.workers):
        run.on_server[j, run.workers[k].gpu // run.gpus_per_server] = True
    job.num_servers = run.on_server[j].sum()
    for k in range(job.first_worker, job.first_worker + job.workers):
        gpu = run.gpus[run.workers[k].gpu]
        gpu.memory -= job.memory
        gpu.load += job.iterations * (job.forward + job.backward)
        if job.num_servers > 1:
            gpu.load += job.iterations * job.megabytes * LOAD_MS_PER_MEGABYTE


@kernel
def _end_iteration(run: TransferRun, job: TransferJob, now: float) -> None:
    """Begin the next iteration after all workers have the new weights, or end the job."""
    job.iterations -= 1
    job.waiting_workers = 0
    job.phase = _COMPUTING
    for k in range(job.first_worker, job.first_worker + job.workers):
        worker = run.workers[k]
        worker.phase = _FORWARD
        if job.num_servers > 1:
            run.gpus[worker.gpu].load -= job.megabytes * LOAD_MS_PER_MEGABYTE
        if job.iterations == 0:
            run.gpus[worker.gpu].memory += job.memory
    if job.iterations == 0:
        job.status = _DONE
        job.end_time = now


@kernel
def _end_task(run: TransferRun, gpu: TransferGpu, now: float) -> None:
    """End the forward or backward task of a GPU."""
    worker = run.workers[gpu.worker]
    job = run.jobs[worker.job]
    seconds = job.forward if worker.phase == _FORWARD else job.backward
    job.service -= seconds
    gpu.load -= seconds
    gpu.worker = -1
    gpu.busy_until = np.inf
    worker.phase += 1
    if worker.phase == _BARRIER:
        job.waiting_workers += 1
    if job.waiting_workers == job.workers:
        if job.num_servers > 1:
            job.phase = _READY
            job.megabytes_left = job.megabytes
        else:
            _end_iteration(run, job, now)


@kernel
def _may_send(run: TransferRun, j: int) -> bool:
    """Apply SRSF(k), or AdaDUAL: beside one transfer only if that has `min_ratio` times more left."""
    contenders = _busiest_server_transfers(run, j)
    if contenders == 0:
        return True
    if contenders >= run.max_transfers:
        return False
    if run.adaptive:
        for i in range(len(run.jobs)):
            if _in_phase(run, i, _SENDING) and _share_server(run, i, j):
                if run.jobs[i].megabytes_left < run.min_ratio * run.jobs[j].megabytes:
                    return False
    return True


@kernel
def _start_transfers(run: TransferRun) -> None:
    """Try every job that is ready, least service first."""
    jobs = run.jobs
    for j in range(len(jobs)):
        jobs[j].considered = 0
    while True:
        best = -1
        for j in range(len(jobs)):
            if _in_phase(run, j, _READY) and jobs[j].considered == 0:
                if best < 0 or jobs[j].service < jobs[best].service:
                    best = j
        if best < 0:
            return
        jobs[best].considered = 1
        if _may_send(run, best):
            jobs[best].phase = _SENDING
            _add_transfers(run, best, 1)


@kernel
def _set_rates(run: TransferRun) -> None:
    """Set rates to 1 / (k b + (k - 1) eta), k on the busiest server. The error adds one rate per asker."""
    for i in range(len(run.jobs)):
        if not _in_phase(run, i, _SENDING):
            continue
        k = _busiest_server_transfers(run, i)
        rate = 1.0 / (k * run.beta + (k - 1) * run.eta)
        askers = 0
        if run.miscount:
            for j in range(len(run.jobs)):
                if _in_phase(run, j, _READY) and _busiest_server_transfers(run, j) == 1:
                    askers += int(_share_server(run, i, j))
        run.jobs[i].rate = rate * (1 + askers)


@kernel
def _dispatch(run: TransferRun, now: float) -> None:
    """Let each idle GPU compute for its resident job with the least service left."""
    jobs, gpus, workers = run.jobs, run.gpus, run.workers
    for g in range(len(gpus)):
        gpus[g].chosen = -1
    for k in range(len(workers)):
        if not _in_phase(run, workers[k].job, _COMPUTING) or workers[k].phase == _BARRIER:
            continue
        job = jobs[workers[k].job]
        gpu = gpus[workers[k].gpu]
        if gpu.worker < 0 and (gpu.chosen < 0 or job.service < jobs[workers[gpu.chosen].job].service):
            gpu.chosen = k
    for g in range(len(gpus)):
        gpu = gpus[g]
        if gpu.worker < 0 and gpu.chosen >= 0:
            worker = workers[gpu.chosen]
            job = jobs[worker.job]
            gpu.worker = gpu.chosen
            gpu.busy_until = now + (job.forward if worker.phase == _FORWARD else job.backward)


@kernel
def _next_time(run: TransferRun, now: float) -> float:
    """Return when the next job arrives, or a transfer or task ends."""
    later = np.inf
    for j in range(len(run.jobs)):
        job = run.jobs[j]
        if job.status == 0:
            later = min(later, job.arrival)
        elif _in_phase(run, j, _SENDING):
            later = min(later, now + job.megabytes_left / job.rate)
    for g in range(len(run.gpus)):
        later = min(later, run.gpus[g].busy_until)
    return later


@kernel
def run_events(run: TransferRun) -> None:
    """Process all events until every job has ended."""
    jobs, gpus, order = run.jobs, run.gpus, run.order
    now = 0.0
    done = 0
    while done < len(jobs):
        later = _next_time(run, now)
        for j in range(len(jobs)):
            job = jobs[j]
            if _in_phase(run, j, _SENDING):
                job.megabytes_left -= job.rate * (later - now)
                if job.megabytes_left <= 1e-9 * job.megabytes:
                    _add_transfers(run, j, -1)
                    _end_iteration(run, job, later)
            elif job.status == 0 and job.arrival <= later:
                job.status = _QUEUED
        now = later
        for g in range(len(gpus)):
            if gpus[g].busy_until <= now:
                _end_task(run, gpus[g], now)
        done = 0
        for i in range(len(order)):
            if jobs[order[i]].status == _QUEUED:
                _place(run, order[i])
            done += int(jobs[order[i]].status == _DONE)
        _start_transfers(run)
        _set_rates(run)
        _dispatch(run, now)
