"""The allocation plan of each cluster, and the two changes that the allocator makes to a job."""

from typing import Any

import numpy as np

from ringyard.allocator.estimates import Estimate
from ringyard.compiled import (
    FloatCube,
    FloatMatrix,
    Int32Matrix,
    Int32Vector,
    IntMatrix,
    bundle,
    kernel,
    linked_kernel,
)
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.lifecycle import apply_allocation, preempt
from ringyard.sim.engine.shape import Shape, num_places
from ringyard.state.arrays import State
from ringyard.state.records import JobKind, JobStatus

# columns of `AllocationPlan.counts`
QUEUED, DECISIONS, MOVES, PLACES = range(4)
_COUNTS = 4
# columns of `AllocationPlan.moves`: job, number of places, then the fields of `Shape` except its GPUs
_MOVE_COLUMNS = 10


@bundle
class AllocatorConfig:
    """The fields of an `Allocator` and of its `StartOnly`, in the form that kernels read."""

    estimate: Estimate
    gamma: float
    resize_price: float
    score_scale: float
    sharing_power: float
    migration_price: float
    same_type_bonus: float
    running_factor: float
    preemption_price: float
    start_only: bool
    placement: PlacementRule
    strict: bool
    min_score: float


@bundle
class AllocationPlan:
    """What the allocator reads, plans and records: one row per cluster."""

    score: FloatMatrix  #: [clusters, jobs] scores, in [-1, 1] from agents. At 0 only seconds left count.
    #: [clusters, jobs, scored types] scores of GPU types and classes of plans. The job's speed there counts
    #: exp(it) times.
    type_score: FloatCube
    #: [GPU types of the cluster] column of `type_score`, -1: none. [0] without scores.
    type_score_columns: Int32Vector
    #: [models, scored types, n + 1] `PlanTable.fastest_of` of the class, [0, 0, 0] without execution plans
    class_plan: FloatCube
    class_speed: FloatCube  #: the same of its speeds
    #: [clusters, jobs, sizes + 1] (speed on so many GPUs of as few servers as can be / speed as asked) **
    #: `Allocator.size_power`, 0: the job cannot run on so many
    utility: FloatCube
    batch_size: FloatCube  #: [clusters, jobs, sizes + 1] global batch there, samples
    max_speed: FloatMatrix  #: [clusters, jobs] largest of these speed ratios, at least 1
    max_utility: FloatMatrix  #: [clusters, jobs] largest utility
    estimate_memory: FloatCube  #: [clusters, jobs, numbers] memory of the estimate
    #: [clusters, jobs] estimated seconds left of a live job, isolated, as it asks to run
    seconds_left: FloatMatrix
    #: [clusters, jobs] seconds left x `Allocator.running_factor` of a running job, less those of
    #: `Allocator.preemption_price` restarts. The job may migrate to make room if this is above 0.
    preemption_margin: FloatMatrix
    weight: FloatMatrix  #: [clusters, jobs] factor of a live job's utility on GPUs of its own
    sharing_weight: FloatMatrix  #: [clusters, jobs] factor of a live job's speed on shared GPUs
    target_gpus: Int32Matrix  #: [clusters, jobs] GPUs that a live job shall hold
    priority: FloatMatrix  #: [clusters, jobs] key of `queue`, a heap at times. The largest comes first.
    next_step: Int32Matrix  #: [clusters, jobs] GPUs, or cores of each worker, after the job's next step
    granted_cores: Int32Matrix  #: [clusters, jobs] cores of each worker that a running job is granted
    #: [clusters, jobs] speed with these cores / isolated speed as asked, less costs
    granted_utility: FloatMatrix
    step_utility: FloatMatrix  #: [clusters, jobs] the same after the next step
    target_gpu_type: Int32Matrix  #: [clusters, jobs] column of `State.slowness` where it shall run, -1: any
    wanted_cores: Int32Matrix  #: [clusters, jobs] cores that a worker wants, -1: not counted, 0: not computed
    unassigned_gpus: Int32Matrix  #: [clusters, GPU types] scratch: GPUs that no job has as a target yet
    queue: Int32Matrix  #: [clusters, jobs] rows of jobs, the first counts[QUEUED] valid, scratch behind them
    last_change: IntMatrix  #: [clusters, jobs] number of the last decision that changed the job
    preemptible_gpus: Int32Matrix  #: [clusters, servers] GPUs that only jobs with `is_preemptible` hold
    chosen_gpus: Int32Matrix  #: [clusters, servers] scratch: GPUs to take on each server
    visited: IntMatrix  #: [clusters, jobs + 1] scratch: a job is visited if its mark equals the last entry
    out: Int32Matrix  #: [clusters, gpus] GPU ids of one job (or the server of a CPU-only job)
    #: [clusters, 4] jobs in the queue, decisions, and recorded changes and places of this decision
    counts: IntMatrix
    moves: FloatCube  #: [clusters, changes, 10] recorded changes: job, places (0: preempted), then its shape
    move_places: Int32Matrix  #: [clusters, places] places of all recorded changes


def empty_allocation_plan(
    state: State, sizes: int, estimate_memory: int = 0, logged: bool = False, type_scores: int = 0
) -> AllocationPlan:
    """Return a zeroed plan for the clusters of a state, in which jobs hold at most `sizes` GPUs.

    `estimate_memory` is `Estimate.memory`, `type_scores` the number of scored types.
    `logged` records every change of a decision for `logged_moves`.
    """
    clusters, jobs = state.running.shape
    gpus, servers = state.gpus.shape[1], state.servers.shape[1]
    # A decision changes a GPU job a few times at most. A CPU-only job starts once, on one server.
    most_moves, most_places = (8 * jobs, 8 * state.slots.shape[1] + jobs) if logged else (0, 0)
    per_job: dict[str, Any] = {}
    floats = "score max_utility seconds_left preemption_margin weight sharing_weight priority"
    floats += " granted_utility step_utility"
    integers = "target_gpus next_step granted_cores wanted_cores queue"
    for names, kind in ((floats, np.float64), (integers, np.int32)):
        per_job |= {name: np.zeros((clusters, jobs), kind) for name in names.split()}
    return AllocationPlan(
        **per_job,
        type_score=np.zeros((clusters, jobs, type_scores)),
        type_score_columns=np.full(state.slowness.shape[1] if type_scores else 0, -1, np.int32),
        class_plan=np.zeros((0, 0, 0)),
        class_speed=np.zeros((0, 0, 0)),
        utility=np.zeros((clusters, jobs, sizes + 1)),
        batch_size=np.zeros((clusters, jobs, sizes + 1)),
        max_speed=np.ones((clusters, jobs)),
        estimate_memory=np.zeros((clusters, jobs, estimate_memory)),
        target_gpu_type=np.full((clusters, jobs), -1, np.int32),
        unassigned_gpus=np.zeros((clusters, state.slowness.shape[1]), np.int32),
        last_change=np.zeros((clusters, jobs), np.int64),
        preemptible_gpus=np.zeros((clusters, servers), np.int32),
        chosen_gpus=np.zeros((clusters, servers), np.int32),
        visited=np.zeros((clusters, jobs + 1), np.int64),
        out=np.zeros((clusters, gpus), np.int32),
        counts=np.zeros((clusters, _COUNTS), np.int64),
        moves=np.zeros((clusters, most_moves, _MOVE_COLUMNS)),
        move_places=np.zeros((clusters, most_places), np.int32),
    )


def logged_moves(plan: AllocationPlan, state: State, b: int) -> list[Allocation]:
    """Return the changes of the last decision as allocations that can be carried out in this order."""
    found = []
    begin = 0
    for row in plan.moves[b, : plan.counts[b, MOVES]]:
        job, count = int(row[0]), int(row[1])
        places = tuple(int(one) for one in plan.move_places[b, begin : begin + count])
        begin += count
        if count == 0:
            found.append(Allocation(job))
            continue
        cpu_only = state.jobs["kind"][b, job] == JobKind.CPU_ONLY
        found.append(
            Allocation(
                job,
                () if cpu_only else places,
                batch_size=None if cpu_only else float(row[2]),
                cores_per_worker=int(row[3]),
                parameter_servers=int(row[4]),
                cores_per_server_task=int(row[5]),
                server=places[0] if cpu_only else None,
                memory_bandwidth_cap=float(row[6]),
                ram_per_worker=int(row[7]),
                plan=int(row[8]),
                link_share=float(row[9]),
            )
        )
    return found


@kernel
def is_preemptible(state: State, b: int, j: int, plan: AllocationPlan) -> bool:
    """Whether running job `j`, unless just changed, has no target or one on another GPU type."""
    job = state.jobs[b, j]
    changed = plan.last_change[b, j] == plan.counts[b, DECISIONS]
    if job.status != JobStatus.RUNNING or job.num_gpus == 0 or changed:
        return False
    return plan.target_gpus[b, j] == 0 or is_on_wrong_type(state, b, j, plan)


@kernel
def is_on_wrong_type(state: State, b: int, j: int, plan: AllocationPlan) -> bool:
    """Whether running job `j` of cluster `b` in `state` is on another GPU type than `plan` has for it."""
    kind = plan.target_gpu_type[b, j]
    return kind >= 0 and state.servers[b, state.slots[b, state.jobs[b, j].first_slot].server].gpu_type != kind


@linked_kernel
def preempt_job(state: State, b: int, j: int, plan: AllocationPlan, physics: Physics) -> None:
    """Preempt running job `j` of cluster `b` of the `state` by `physics`, and record it in `plan`."""
    i = state.jobs[b, j].first_slot if is_preemptible(state, b, j, plan) else -1
    while i >= 0:
        slot = state.slots[b, i]
        if state.gpus[b, slot.gpu].num_jobs == 1:
            plan.preemptible_gpus[b, slot.server] -= 1
        i = slot.next_slot
    preempt(state, b, j, physics)
    plan.last_change[b, j] = plan.counts[b, DECISIONS]
    n = plan.counts[b, MOVES]
    if plan.moves.shape[1] > 0:
        plan.moves[b, n, 0] = j
        plan.moves[b, n, 1] = 0.0
        plan.counts[b, MOVES] = n + 1


@linked_kernel
def place_job(
    state: State, b: int, j: int, shape: Shape, places: Int32Vector, plan: AllocationPlan, physics: Physics
) -> None:
    """Start, migrate or resize job `j` to a `shape` that fits on `places`, and record it in `plan`."""
    if plan.moves.shape[1] > 0:
        n = plan.counts[b, MOVES]
        plan.moves[b, n, 0] = j
        plan.moves[b, n, 1] = num_places(shape)
        plan.moves[b, n, 2] = shape.batch_size
        plan.moves[b, n, 3] = shape.cores_per_worker
        plan.moves[b, n, 4] = shape.parameter_servers
        plan.moves[b, n, 5] = shape.cores_per_server_task
        plan.moves[b, n, 6] = shape.memory_bandwidth_cap
        plan.moves[b, n, 7] = shape.ram_per_worker
        plan.moves[b, n, 8] = shape.plan
        plan.moves[b, n, 9] = shape.link_share
        begin = plan.counts[b, PLACES]
        for i in range(num_places(shape)):
            plan.move_places[b, begin + i] = places[i]
        plan.counts[b, PLACES] = begin + num_places(shape)
        plan.counts[b, MOVES] = n + 1
    apply_allocation(state, b, j, shape, places, physics)
    plan.last_change[b, j] = plan.counts[b, DECISIONS]
