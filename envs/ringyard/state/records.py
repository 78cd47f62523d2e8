"""Records of a simulation: one for each job, GPU, slot of a GPU, server, link and cluster.

The fields of a job are on neighbouring cache lines. From Python, `state.jobs["end_seconds"]` is a column of
the same data without a copy.
"""

from enum import IntEnum
from typing import Annotated

import numpy as np

from ringyard.compiled import Record, f8, field_reader, field_writer, i4, i8, u8
from ringyard.resources import CORES, RESOURCES


class _Code(IntEnum):
    """Codes of columns. Comparisons with arrays are NumPy's, which it finds without an exception."""

    __array_ufunc__ = np.ndarray.__array_ufunc__


class JobStatus(_Code):
    """Where a job is in its life: not yet submitted, waiting, holding resources, ended."""

    FUTURE = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3


class JobKind(_Code):
    """How a job computes: workers in a ring, workers with parameter servers, or CPU cores only."""

    RING = 0
    PARAMETER_SERVER = 1
    CPU_ONLY = 2


class BatchSplit(_Code):
    """How a gang on unlike GPUs splits its batch: as the performance model says, equally, or by speed."""

    AS_MODEL = 0
    EQUAL = 1
    BY_SPEED = 2


class LossCurve(_Code):
    """Family of a job's loss curve (`ringyard.learning_curves`).

    Plateaus, divergence, flat curves and random walks do not approach the job's target. The others do.
    """

    HYPERBOLA = 0
    POWER = 1
    EXPONENTIAL = 2
    DROPS = 3
    OSCILLATION = 4
    PLATEAU = 5
    DIVERGENCE = 6
    FLAT = 7
    RANDOM_WALK = 8


class JobOutcome(_Code):
    """How a job ends: its work is done, it fails once it is done, its user cancels it, or it is blocked.

    Blocked jobs are rejected by the scheduler, or leave because their acceptable completion time cannot be
    met.
    """

    COMPLETED = 0
    FAILED = 1
    CANCELLED = 2
    BLOCKED = 3


class Network(IntEnum):
    """How many rings share a job's worst link (`Job.contenders`): the sum of link shares over its own.

    NONE: links slow no job. WORST_LINK: number of jobs that span servers there (SJF-BCO eq. 6).
    LIVE_TRANSFERS: mean number of transfers in flight there. MAX_MIN: 1 / the job's max-min fair share of its
    links.
    """

    NONE = 0
    WORST_LINK = 1
    LIVE_TRANSFERS = 2
    MAX_MIN = 3


class Integral(IntEnum):
    """Columns of `State.integrals`: time integrals since the start, in seconds times the unit named."""

    JOBS_IN_SYSTEM = 0  # jobs waiting or running. The integral is the total job completion time
    INVERSE_DURATION_IN_SYSTEM = 1  # sum of 1 / isolated seconds. The integral is the total slowdown
    ELAPSED = 2  # 1. At the last completion the integral is the makespan
    BUSY_GPUS = 3
    FRAGMENTED_GPUS = 4  # free GPUs on servers that also hold busy ones
    FREE_GPUS_WITH_QUEUE = 5  # free GPUs while jobs wait
    FAIR_SHARE = 6  # max(1, GPUs demanded by the jobs in the system / GPUs of the cluster)
    BLOCKED_JOBS = 7  # a count, not an integral: jobs blocked so far
    FAIRNESS = 8  # a sum, not an integral: finish-time fairness rho of ended jobs, not blocked
    WORST_FAIRNESS = 9  # the largest of these so far


class Loss(IntEnum):
    """Columns of `State.losses`: time lost to each cause so far in seconds, and how fast each loss grows.

    Rates are seconds per iteration of the base batch, as things are now
    (`ringyard.sim.engine.slowdown_accounting`).
    """

    CONTENTION = 0
    SPREAD = 1
    INTERFERENCE = 2
    INPUT = 3
    STRAGGLERS = 4
    GPU_TYPES = 5
    SIZE = 6
    RATES = 7  # first of the rates of those above, in their order
    WORK_RATE = 14  # the rate of work. 0 before the first start
    RESTARTS = 15
    FAILURES = 16
    COUNTED_SECONDS = 17  # time until which all this is counted, while the job runs


INTEGRALS = len(Integral)
LOSS_COLUMNS = max(Loss) + 1
TIMELINE_COLUMNS = 2  # waiting jobs, busy GPUs (both integrated over the bin)


class Job(Record):
    """One job: what it asks for, what it holds, its progress."""

    # read at each step. The step of many clusters prefetches these and the next fields, up to `straggler`
    status: i4
    num_gpus: i4  # held while running, to ask for next while waiting. 0: CPU-only
    num_servers: i4  # servers spanned
    predictable: i4  # now
    remaining_iterations: f8  # of the base batch, at updated_seconds
    iteration_seconds: f8  # per iteration of the base batch, as things are now
    updated_seconds: f8  # when progress was last brought up to date
    pause_ends_seconds: f8  # without progress until then, after a start or change
    prediction_factor: f8  # predicted / true remaining time
    isolated_iteration_seconds: f8
    attained_service: f8  # GPU seconds held, at updated_seconds
    last_start_seconds: f8
    submit_seconds: f8
    total_iterations: f8  # of the base batch
    demand_class: i4  # jobs of one class ask for identical resources
    # read for every proposed place
    min_gpus: i4
    kind: i4  # JobKind
    uses_host_resources: i4  # whether its workers hold more of their servers than GPUs: cores, RAM, storage
    gpu_memory_bytes: i8  # on each GPU, at the present batch
    gradient_bytes: f8
    compute_seconds: f8  # GPU seconds of an iteration at the present batch, reference GPU
    contenders: f8  # rings that share the job's worst link, itself included. 0: one server
    overlap_exponent: f8  # of its transfers with its computing, 1: one after the other
    gpu_speed: f8  # of the slowest GPU held at the present batch, reference GPU = 1
    sharing_slowdown: f8  # on the worst GPU held, 1: alone
    bandwidth_slowdown: f8  # of accesses to memory, worst server, at least 1
    storage_seconds_per_byte: f8  # for one worker, on the worst server. 0: storage slows no job
    progress_per_iteration: f8  # base iterations that one present iteration is worth
    straggler: f8  # slowest worker's noise, 1: none
    batch_size: f8  # global batch, samples
    samples_per_core_second: f8  # of the input pipeline. inf: never the bottleneck
    loading_serial_share: f8  # of the input pipeline, that more cores do not speed up
    stored_bytes: f8  # mean bytes of a sample that are read from storage: what its workers' RAM does not hold
    # [resources] held by each worker (CPU-only: in all). 0: not counted
    _per_worker: Annotated[int, tuple(one.per_worker for one in RESOURCES)]
    cores_per_worker: i8
    ram_per_worker: i8  # bytes
    # changed at events of the job
    next_event_seconds: f8  # its end, or when it becomes predictable
    end_seconds: f8  # expected while running, final when done
    run_seconds: f8  # seconds with resources held, at updated_seconds
    first_slot: i4  # head of the job's chain of GPU slots, -1 if none
    heap_position: i4
    visit_mark: i4  # scratch mark of one pass over jobs
    asked_gpus: i4
    plan_model: i4  # position in `PlanTable.models`. -1: a job without execution plans
    plan: i4  # held while running, to ask for next while waiting. 0: the fastest
    fewest_gpus: i4  # that it holds on any of its servers, if it has plans. 0: not known, the best split
    asked_plan: i4
    last_stop_seconds: f8
    isolated_seconds: f8  # run time alone on consolidated GPUs
    priority: f8  # order of the waiting list, ascending, with ties by row
    predictable_from: f8  # fraction of its iterations after which it is predictable. inf: never
    # further fields that performance models read
    fixed_share: f8  # of compute_seconds, at the present batch: what does not depend on it
    model: i4  # position in the catalogue. Its length: no model
    parameter_servers: i4
    cores_per_server_task: i4
    asked_parameter_servers: i4
    memory_bandwidth_cap: f8  # share of its memory bandwidth it may use, in (0, 1]
    new_contenders: f8  # scratch of `update_max_min_shares`
    link_share: f8  # weight of its ring where rings share a link
    link_load: f8  # what its ring, if it spans servers, adds to the load of each of its links
    # further fields that change
    first_start_seconds: f8
    forgiven_service: f8  # GPU seconds a scheduler disregards (Tiresias' promotion)
    forgiven_waiting: f8  # seconds of waiting that it disregards
    fair_share_integral: f8  # Integral.FAIR_SHARE at submission, and over the job's life once it is done
    remaining_at_last_stop: f8  # remaining_iterations at the last stop
    computed_seconds: f8  # GPU seconds computed. While it runs: until its end, at the present speed
    num_racks: i4  # racks spanned by its rings
    server: i4  # of a running CPU-only job, else -1
    next_cpu_job: i4  # next CPU-only job of the same server, -1 at the end
    num_preemptions: i4
    num_resizes: i4
    num_failures: i4  # server failures that hit it
    service_queue: i4  # where a scheduler last put it (Tiresias)
    row: i4  # of the job table
    # further fields that do not change
    base_compute_seconds: f8  # compute_seconds as the job asks to run
    fixed_fraction: f8  # of base_compute_seconds, whatever the batch
    base_batch: f8
    min_batch: f8
    max_batch: f8
    noise_scale: f8  # phi, samples. inf: all samples count fully
    fixed_memory_bytes: f8  # of gpu_memory_bytes
    sample_memory_bytes: f8  # per sample of a worker
    memory_bandwidth: i8  # bytes per second that each core moves
    _asked: Annotated[int, tuple(one.asked for one in RESOURCES)]  # [resources]
    asked_cores: i8
    asked_ram: i8
    sample_bytes: f8  # of one sample on storage. 0: it reads nothing there
    dataset_bytes: f8
    loss_noise: f8  # standard deviation of a point of its loss curve
    cancel_seconds: f8  # when its user cancels it. inf: never
    blocked_seconds: f8  # when it is blocked (`ringyard.sim.engine.events`). inf: never
    deadline_seconds: f8  # after its arrival, by which it should end. inf: none
    restart_seconds: f8  # without progress at each start after the first, on one GPU
    restart_growth: f8  # more at each doubling of the GPUs
    restart_jump: f8  # more from jump_gpus GPUs on
    resize_seconds: f8  # the same when GPUs or batch change while it runs
    resize_growth: f8
    resize_jump: f8
    servers_seconds: f8  # the same when the number of its parameter servers changes
    servers_growth: f8
    servers_jump: f8
    cores_seconds: f8  # the same when its cores change, whatever its GPUs
    jump_gpus: i4
    max_gpus: i4
    asked_cores_per_server_task: i4
    outcome: i4  # JobOutcome, how it ends
    loss_curve: i4  # LossCurve
    graph: i4  # number of its graph of operations (`ringyard.state.operations`). -1: none
    balances_batch: i4  # whether its GPUs take shares of its batch by their speed


class Gpu(Record):
    """One GPU."""

    num_jobs: i4  # jobs that share it. DOWN while its server is down
    server: i4
    free_memory_bytes: i8


UNLIMITED = 1 << 60  # bytes, or bytes per second, of a resource that the cluster does not count
UNLIMITED_CORES = RESOURCES[CORES].unlimited
DOWN = 1 << 20  # more jobs than any GPU holds: a GPU that is neither free nor shareable


class Slot(Record):
    """A place for a job on a GPU. Slot g * K + k is the k-th of GPU g, which K jobs may share."""

    job: i4  # -1 if free
    model: i4  # of the job
    gpu: i4
    server: i4
    next_slot: i4  # next slot of the same job, ascending. -1 at the end
    next_server_slot: i4  # on a job's first slot of a server: its first slot of the next server


class Server(Record):
    """One server."""

    first_gpu: i4
    num_gpus: i4
    free_gpus: i4  # that hold no job. 0 while the server is down
    open_gpus: i4  # with a free slot. 0 while the server is down
    spanning_jobs: i4  # jobs here that also hold GPUs elsewhere
    gpu_type: i4  # column of State.slowness
    rack: i4
    first_cpu_job: i4  # head of the chain of CPU-only jobs, -1 if none
    up: i4
    num_failures: i4
    gpu_memory_bytes: i8  # of each GPU
    memory_bandwidth: i8  # bytes per second
    bandwidth_demand: i8  # bytes per second asked by the jobs here, caps applied
    next_change_seconds: f8  # when it fails or returns. inf: never
    next_outage: i4  # number of that time in State.outages, which repeat
    num_outage_times: i4  # in State.outages. 0: none
    # [resources] that no job holds, and in all
    _free: Annotated[int, tuple(one.free for one in RESOURCES)]
    free_cores: i8
    free_ram: i8  # bytes
    _total: Annotated[int, tuple(one.total for one in RESOURCES)]
    num_cores: i8
    ram_bytes: i8
    storage_bytes_per_second: f8
    storage_readers: i8  # workers here that read from storage


class Link(Record):
    """A server's link or a rack's uplink."""

    capacity: f8  # rings that it carries at full speed: 1 for a server's own link
    load: f8  # sum of `Job.link_load` of the rings on it
    left: f8  # scratch of the max-min filling
    flows: f8


class ClusterRecord(Record):
    """One simulation as a whole."""

    now: f8
    round_seconds: f8  # inf: no rounds
    next_round_seconds: f8
    wake_seconds: f8  # decision point that the scheduler asked for. inf: none
    limit_seconds: f8  # end of the episode
    moment_ends_seconds: f8  # end of the present moment (`ringyard.sim.engine.livelock`)
    next_cancel_seconds: f8  # first cancellation of a job in the system
    next_change_seconds: f8  # first server to fail or return
    inverse_durations: f8  # of the jobs in the system
    predicted_inverse_durations: f8  # as predicted, of those that were predictable on arrival
    min_gpu_memory_bytes: i8  # bytes, of any GPU
    total_jct: f8  # total completion time of the finished jobs that were not blocked
    rng: u8
    seed: u8
    num_jobs: i4
    num_gpus: i4
    num_servers: i4
    num_classes: i4
    min_gpus_per_server: i4
    max_gpus_per_server: i4
    min_demand_gpus: i4  # fewest free GPUs with which any job could start. 0 if GPUs are shared
    next_arrival: i4
    num_waiting: i4
    first_waiting: i4  # where the waiting list begins in its array
    num_holes: i4  # entries of the waiting list that were removed, see `arrays.close_holes`
    first_hole: i4  # no hole of the array comes before this position
    last_hole: i4  # nor after this one
    num_running: i4
    num_done: i4
    free_gpus: i4
    open_gpus: i4
    down_gpus: i4
    rounds_only: i4  # only rounds are decision points
    may_be_late: i4  # whether a running job may be late for its deadline
    demanded_gpus: i4  # by the jobs in the system
    fragmented_gpus: i4
    num_preemptions: i4
    num_starts: i4
    num_resizes: i4
    num_decisions: i4
    steps_at_moment: i4  # decision points, allocations and actions at the present moment
    futile_changes: i4  # preemptions and resizes between which no job did any work. 0: none
    changes_at_next_check: i4  # number of preemptions and resizes at which work is checked next
    work_at_last_check: f8  # remaining iterations of all jobs then
    jobs_per_gpu: i4  # K
    # what couples jobs. 0: it does not slow neighbours, and takes no time
    network: i4  # Network
    sharing_slows: i4
    bandwidth_limited: i4
    storage_limited: i4
    perfect_predictions: i4  # every job is predictable from the start, without error
    global_links: i4  # whether links are counted all together, not server by server
    visit_mark: i4
    num_segments: i4
    timeline_bin_log2: i4  # bins are 2**this seconds wide
    straggler_cv: f8  # coefficient of variation among workers. 0: none
    mean_up_seconds: f8  # of a server. inf: servers never fail
    mean_repair_seconds: f8
    outage_period_seconds: f8  # after which State.outages repeat
    outage_offset_seconds: f8  # of their clock at time 0
    checkpoint_seconds: f8  # of isolated run time between checkpoints
    checkpoint_on_preemption: i4
    kernel_seconds: f8  # GPU seconds in which kernels ran, only if losses are counted


class Segment(Record):
    """A past allocation on one server, for drawing."""

    job: i4  # -1: the server was down
    server: i4
    gpu_bits: u8  # bit i: the server's i-th GPU, of the first 64. 0: a CPU-only job
    start_seconds: f8
    stop_seconds: f8


#: kernels that read or set resource r of each worker of a job: held, or asked for
held_per_worker = field_reader(Job, [one.per_worker for one in RESOURCES])
set_held_per_worker = field_writer(Job, [one.per_worker for one in RESOURCES])
asked_per_worker = field_reader(Job, [one.asked for one in RESOURCES])
#: kernels that read or set resource r of a server: free, or in all
free_on = field_reader(Server, [one.free for one in RESOURCES])
set_free = field_writer(Server, [one.free for one in RESOURCES])
total_on = field_reader(Server, [one.total for one in RESOURCES])
