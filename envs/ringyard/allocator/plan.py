"""What the allocator goes by, its notes of one decision, and the two changes it makes to a job."""

from dataclasses import field
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.compiled import (
    FloatCube,
    FloatMatrix,
    FloatVector,
    Int32Matrix,
    Int32Vector,
    IntMatrix,
    bundle,
    fills,
    kernel,
    linked_kernel,
    slot,
)
from ringyard.jobs import JobTable
from ringyard.observability import Observability, check_reads
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.lifecycle import apply_allocation, preempt
from ringyard.sim.engine.shape import Shape, num_places
from ringyard.state.arrays import State, waiting_at
from ringyard.state.progress import predicted_iterations, run_seconds
from ringyard.state.records import JobKind, JobStatus

# columns of `Plan.counts`
ORDERED, DECISIONS, MOVES, PLACES = range(4)
_COUNTS = 4
# columns of `Plan.moves`: job, how many places, then `Shape` but for its GPUs
MOVE_COLUMNS = 8
#: what a job has left at least of which nothing is known: assumption, the order of traces' median run times
UNKNOWN_SECONDS = 600.0
UnknownSeconds = Annotated[float, "[0, 1e10]"]


@kernel
def num_live(state: State, b: int) -> int:
    """Jobs that wait or run."""
    return int(state.clusters[b].num_waiting + state.clusters[b].num_running)


@kernel
def live_job(state: State, b: int, i: int) -> int:
    """Row of the i-th job that waits or runs, waiting ones first."""
    waiting = state.clusters[b].num_waiting
    return waiting_at(state, b, i) if i < waiting else int(state.running[b, i - waiting])


@slot
class EstimateLeft(Protocol):
    """Says how long jobs would still run alone, as they ask: an estimate of whatever quality.

    It writes `out` of every job that waits or runs, and `memory`, which is `Estimate.memory_of` before the
    first job arrives.
    """

    def __call__(
        self, state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector
    ) -> None:
        """Seconds into out [jobs]; memory is [jobs, `Estimate.memory`]."""


@bundle
class Estimate:
    """An estimate of how long jobs would still run.

    Attributes:
        seconds: fills `EstimateLeft`.
        name: shown in tables.
        parameters: [parameters] it reads.
        memory: numbers that it keeps of each job.
        takes: what it goes by.

    Raises:
        ObservabilityError: `seconds` reads more of jobs than that.
    """

    seconds: EstimateLeft
    name: str
    takes: Observability
    parameters: FloatVector = field(default_factory=lambda: np.zeros(1))
    memory: int = 0

    def __post_init__(self) -> None:
        check_reads(self.seconds, self.takes, f"estimate {self.name}")

    def memory_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs, memory] what it knows before the first job arrives: nothing; subclasses may know more."""
        return np.zeros((len(jobs), self.memory))


@fills(EstimateLeft)
def _predicted(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    now = state.clusters[b].now
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        job = state.jobs[b, j]
        if job.predictable != 0:
            out[j] = predicted_iterations(job, now) * job.isolated_iteration_seconds
        else:
            out[j] = run_seconds(job, now) + parameters[0]


@checked("action.allocator.estimate")
def predicted(unknown_seconds: UnknownSeconds = UNKNOWN_SECONDS) -> Estimate:
    """Predicted seconds left; of unpredictable jobs, as long as they have run, and `unknown_seconds`.

    Raises:
        ConfigurationError: no such time.
    """
    takes = (
        Observability.SIZES
        | Observability.PREDICTIONS
        | Observability.ATTAINED_SERVICE
        | Observability.SPEEDS
    )
    return Estimate(_predicted, "predicted", takes, np.array([float(unknown_seconds)]))


@fills(EstimateLeft)
def _attained(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    now = state.clusters[b].now
    for i in range(num_live(state, b)):
        j = live_job(state, b, i)
        out[j] = run_seconds(state.jobs[b, j], now) + parameters[0]


@checked("action.allocator.estimate")
def attained(unknown_seconds: UnknownSeconds = UNKNOWN_SECONDS) -> Estimate:
    """As long as they have run, and `unknown_seconds`: what is left where run times vary widely.

    Raises:
        ConfigurationError: no such time.
    """
    return Estimate(_attained, "attained", Observability.ATTAINED_SERVICE, np.array([float(unknown_seconds)]))


@bundle
class Rules:
    """An allocator's parameters, as kernels read them; `Allocator` and its `Starts` say what they are."""

    estimate: Estimate
    gamma: float
    resize_price: float
    score_scale: float
    sharing_power: float
    move_price: float
    stay_bonus: float
    stay: float
    stop_price: float
    only_starts: bool
    placement: PlacementRule
    strict: bool
    hold: float


@bundle
class Plan:
    """Notes of an allocator, one row per cluster.

    Attributes:
        score: [clusters, jobs] how much a job matters beside what its seconds left say; 0: no more, no less.
        type_score: [clusters, jobs, GPU types scored] a job counts exp(this) times as fast there.
        scored_as: [GPU types of the cluster] where their scores stand, -1: there is none; [0]: none has one.
        worth: [clusters, jobs, sizes + 1] (speed on so many GPUs of one server, or of the fewest / speed as
            asked) ** `Allocator.size_power`; 0: it cannot run so.
        batch: [clusters, jobs, sizes + 1] global batch there, samples.
        most_speed: [clusters, jobs] the largest of these ratios, at least 1.
        most_worth: [clusters, jobs] the largest worth.
        memory: [clusters, jobs, numbers] of the estimate.
        left: [clusters, jobs] seconds that a live job would still run alone as it asks, as estimated.
        spare: [clusters, jobs] seconds left that a running job weighs by, less the price of stopping it.
        weight: [clusters, jobs] what a live job's speed counts.
        shared_weight: [clusters, jobs] the same beside others on a GPU.
        target: [clusters, jobs] GPUs that a live job shall hold.
        slope: [clusters, jobs] weighted worth that each GPU of its next step adds.
        step: [clusters, jobs] GPUs, or cores of each worker, after its next step.
        dealt: [clusters, jobs] cores of each worker that a running job is dealt.
        dealt_worth: [clusters, jobs] what they are worth to it, as a share of its speed alone as it asks.
        step_worth: [clusters, jobs] the same after its next step.
        gpu_type: [clusters, jobs] column of `State.slowness` where it shall run; -1: anywhere.
        cores: [clusters, jobs] that each worker wants as the job asks to run; -1: none; 0: not known yet.
        type_room: [clusters, GPU types] scratch: GPUs not promised yet.
        queue: [clusters, jobs] GPU jobs in the order in which they are looked at, the first
            counts[ORDERED] valid; scratch behind them.
        changed: [clusters, jobs] number of the last decision that moved the job.
        loose: [clusters, servers] GPUs whose jobs shall hold none.
        chosen: [clusters, servers] scratch: GPUs to be taken there.
        seen: [clusters, jobs + 1] scratch marks; the last is the present one.
        out: [clusters, gpus] places of one job.
        counts: [clusters, 4] jobs in the queue, decisions, moves and places noted at this one.
        moves: [clusters, moves, 8] job, places (0: stopped), and its shape; [clusters, 0, 8]: not noted.
        places: [clusters, places] of all moves.
    """

    score: FloatMatrix
    type_score: FloatCube
    scored_as: Int32Vector
    worth: FloatCube
    batch: FloatCube
    most_speed: FloatMatrix
    most_worth: FloatMatrix
    memory: FloatCube
    left: FloatMatrix
    spare: FloatMatrix
    weight: FloatMatrix
    shared_weight: FloatMatrix
    target: Int32Matrix
    slope: FloatMatrix
    step: Int32Matrix
    dealt: Int32Matrix
    dealt_worth: FloatMatrix
    step_worth: FloatMatrix
    gpu_type: Int32Matrix
    cores: Int32Matrix
    type_room: Int32Matrix
    queue: Int32Matrix
    changed: IntMatrix
    loose: Int32Matrix
    chosen: Int32Matrix
    seen: IntMatrix
    out: Int32Matrix
    counts: IntMatrix
    moves: FloatCube
    places: Int32Matrix


def empty_plan(state: State, sizes: int, memory: int = 0, logged: bool = False, type_scores: int = 0) -> Plan:
    """Zeroed notes for the clusters of a state.

    Args:
        state: arrays of the simulations.
        sizes: largest number of GPUs that a job may hold.
        memory: numbers that the estimate keeps of each job.
        logged: note every move, for `moves_of`.
        type_scores: GPU types that jobs have a score for.
    """
    clusters, jobs = state.running.shape
    gpus, servers = state.gpus.shape[1], state.servers.shape[1]
    # a job is moved a few times at a decision at most; one without GPUs is started once, on one server
    moves, places = (8 * jobs, 8 * state.slots.shape[1] + jobs) if logged else (0, 0)
    floats, integers = (
        {name: np.zeros((clusters, jobs), kind) for name in names.split()}
        for names, kind in (
            ("score most_worth left spare weight shared_weight slope dealt_worth step_worth", np.float64),
            ("target step dealt cores queue", np.int32),
        )
    )
    return Plan(
        **floats,
        **integers,
        type_score=np.zeros((clusters, jobs, type_scores)),
        scored_as=np.full(state.slowness.shape[1] if type_scores else 0, -1, np.int32),
        worth=np.zeros((clusters, jobs, sizes + 1)),
        batch=np.zeros((clusters, jobs, sizes + 1)),
        most_speed=np.ones((clusters, jobs)),
        memory=np.zeros((clusters, jobs, memory)),
        gpu_type=np.full((clusters, jobs), -1, np.int32),
        type_room=np.zeros((clusters, state.slowness.shape[1]), np.int32),
        changed=np.zeros((clusters, jobs), np.int64),
        loose=np.zeros((clusters, servers), np.int32),
        chosen=np.zeros((clusters, servers), np.int32),
        seen=np.zeros((clusters, jobs + 1), np.int64),
        out=np.zeros((clusters, gpus), np.int32),
        counts=np.zeros((clusters, _COUNTS), np.int64),
        moves=np.zeros((clusters, moves, MOVE_COLUMNS)),
        places=np.zeros((clusters, places), np.int32),
    )


def moves_of(plan: Plan, state: State, b: int) -> list[Allocation]:
    """What the last decision did to cluster b, as allocations that can be carried out in order."""
    found = []
    begin = 0
    for row in plan.moves[b, : plan.counts[b, MOVES]]:
        job, count = int(row[0]), int(row[1])
        places = tuple(int(one) for one in plan.places[b, begin : begin + count])
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
            )
        )
    return found


@kernel
def is_loose(state: State, b: int, j: int, plan: Plan) -> bool:
    """Whether running job j shall hold nothing where it is, and was not moved at this decision."""
    job = state.jobs[b, j]
    if (
        job.status != JobStatus.RUNNING
        or job.num_gpus == 0
        or plan.changed[b, j] == plan.counts[b, DECISIONS]
    ):
        return False
    return plan.target[b, j] == 0 or is_misplaced(state, b, j, plan)


@kernel
def is_misplaced(state: State, b: int, j: int, plan: Plan) -> bool:
    """Whether running job j shall go to GPUs of another type."""
    kind = plan.gpu_type[b, j]
    return kind >= 0 and state.servers[b, state.slots[b, state.jobs[b, j].first_slot].server].gpu_type != kind


@kernel
def _count_loose(state: State, b: int, j: int, plan: Plan, change: int) -> None:
    """Add `change` to the loose GPUs of the servers of running job j, of each that it has for itself."""
    i = state.jobs[b, j].first_slot
    while i >= 0:
        slot = state.slots[b, i]
        if state.gpus[b, slot.gpu].num_jobs == 1:
            plan.loose[b, slot.server] += change
        i = slot.next_slot


@linked_kernel
def take(state: State, b: int, j: int, plan: Plan, physics: Physics) -> None:
    """Stop running job j."""
    if is_loose(state, b, j, plan):
        _count_loose(state, b, j, plan, -1)
    preempt(state, b, j, physics)
    plan.changed[b, j] = plan.counts[b, DECISIONS]
    n = plan.counts[b, MOVES]
    if plan.moves.shape[1] > 0:
        plan.moves[b, n, 0] = j
        plan.moves[b, n, 1] = 0.0
        plan.counts[b, MOVES] = n + 1


@linked_kernel
def give(
    state: State, b: int, j: int, shape: Shape, places: Int32Vector, plan: Plan, physics: Physics
) -> None:
    """Let job j run in a shape on places of which the caller has checked that they fit."""
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
        begin = plan.counts[b, PLACES]
        for i in range(num_places(shape)):
            plan.places[b, begin + i] = places[i]
        plan.counts[b, PLACES] = begin + num_places(shape)
        plan.counts[b, MOVES] = n + 1
    apply_allocation(state, b, j, shape, places, physics)
    plan.changed[b, j] = plan.counts[b, DECISIONS]
