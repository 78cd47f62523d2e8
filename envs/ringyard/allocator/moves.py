"""What the allocator can do to a job: stop it, or give it a shape and places; all of it is noted."""

from ringyard.allocator.plan import DECISIONS, MOVES, PLACES, Plan
from ringyard.compiled import Int32Vector, kernel, linked_kernel
from ringyard.performance.model import Physics
from ringyard.sim.engine.lifecycle import carry_out, stop
from ringyard.sim.engine.shape import Shape, num_places
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus

_RUNNING = int(JobStatus.RUNNING)


@kernel
def is_loose(state: State, b: int, j: int, plan: Plan) -> bool:
    """Whether running job j shall hold nothing where it is, and was not moved at this decision."""
    job = state.jobs[b, j]
    if job.status != _RUNNING or job.num_gpus == 0 or plan.changed[b, j] == plan.counts[b, DECISIONS]:
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
    stop(state, b, j, physics)
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
    carry_out(state, b, j, shape, places, physics)
    plan.changed[b, j] = plan.counts[b, DECISIONS]
