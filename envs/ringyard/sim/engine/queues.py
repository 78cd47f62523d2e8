"""Containers inside the state: the heap of running jobs by next event, and the waiting list by priority."""

from ringyard.compiled import kernel
from ringyard.state.arrays import State, waiting_at


@kernel
def _due_before(state: State, b: int, x: int, y: int) -> bool:
    due_x = state.jobs[b, x].next_event_seconds
    due_y = state.jobs[b, y].next_event_seconds
    return due_x < due_y or (due_x == due_y and x < y)


@kernel
def _sift_up(state: State, b: int, position: int) -> int:
    job = state.running[b, position]
    while position > 0:
        parent = (position - 1) >> 1
        above = state.running[b, parent]
        if not _due_before(state, b, job, above):
            break
        state.running[b, position] = above
        state.jobs[b, above].heap_position = position
        position = parent
    state.running[b, position] = job
    state.jobs[b, job].heap_position = position
    return position


@kernel
def _sift_down(state: State, b: int, position: int, size: int) -> None:
    job = state.running[b, position]
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        below = state.running[b, child]
        if child + 1 < size and _due_before(state, b, state.running[b, child + 1], below):
            child += 1
            below = state.running[b, child]
        if not _due_before(state, b, below, job):
            break
        state.running[b, position] = below
        state.jobs[b, below].heap_position = position
        position = child
    state.running[b, position] = job
    state.jobs[b, job].heap_position = position


@kernel
def heap_update(state: State, b: int, j: int) -> None:
    """Restore the heap of cluster `b` of `state` after the next event of running job `j` changed."""
    position = _sift_up(state, b, state.jobs[b, j].heap_position)
    _sift_down(state, b, position, state.clusters[b].num_running)


@kernel
def heap_push(state: State, b: int, j: int) -> None:
    """Add job `j`, which has its next event set, to the running jobs of cluster `b` of `state`."""
    cluster = state.clusters[b]
    position = cluster.num_running
    state.running[b, position] = j
    cluster.num_running = position + 1
    _sift_up(state, b, position)


@kernel
def heap_remove(state: State, b: int, j: int) -> None:
    """Remove job `j` from the running jobs of cluster `b` of `state`."""
    cluster = state.clusters[b]
    size = cluster.num_running - 1
    cluster.num_running = size
    position = state.jobs[b, j].heap_position
    if position < size:
        moved = state.running[b, size]
        state.running[b, position] = moved
        state.jobs[b, moved].heap_position = position
        position = _sift_up(state, b, position)
        _sift_down(state, b, position, size)


@kernel
def _waiting_position(state: State, b: int, j: int) -> int:
    """Return the first position with a (priority, row) not before that of job `j`."""
    priority = state.jobs[b, j].priority
    low = 0
    high = int(state.clusters[b].num_waiting)
    while low < high:
        middle = (low + high) >> 1
        other = waiting_at(state, b, middle)
        key = state.jobs[b, other].priority
        if key < priority or (key == priority and other < j):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _shift_waiting(state: State, b: int, first: int, count: int, by: int) -> None:
    """Shift `count` entries of the waiting list's array, from `first` on, `by` positions."""
    if by < 0:
        for i in range(first, first + count):
            state.waiting[b, i + by] = state.waiting[b, i]
    else:
        for i in range(first + count - 1, first - 1, -1):
            state.waiting[b, i + by] = state.waiting[b, i]


@kernel
def _recenter_waiting(state: State, b: int) -> None:
    """Move the waiting list to the middle of its array, which has twice as many entries as there are jobs."""
    cluster = state.clusters[b]
    first = (state.waiting.shape[1] - cluster.num_waiting) >> 1
    _shift_waiting(state, b, cluster.first_waiting, cluster.num_waiting, first - cluster.first_waiting)
    cluster.first_waiting = first


@kernel
def waiting_add(state: State, b: int, j: int) -> None:
    """Insert job `j` into the waiting list of cluster `b` of `state` by (priority, row)."""
    cluster = state.clusters[b]
    position = _waiting_position(state, b, j)
    before = 2 * position < cluster.num_waiting
    last = cluster.first_waiting + cluster.num_waiting
    if (before and cluster.first_waiting == 0) or (not before and last == state.waiting.shape[1]):
        _recenter_waiting(state, b)
    if before:
        cluster.first_waiting -= 1
        _shift_waiting(state, b, cluster.first_waiting + 1, position, -1)
    else:
        first = cluster.first_waiting + position
        _shift_waiting(state, b, first, cluster.num_waiting - position, 1)
    state.waiting[b, cluster.first_waiting + position] = j
    cluster.num_waiting += 1
    state.class_waiting[b, state.jobs[b, j].demand_class] += 1


@kernel
def waiting_remove(state: State, b: int, j: int) -> None:
    """Remove job `j` from the waiting list of cluster `b` of `state`."""
    cluster = state.clusters[b]
    position = _waiting_position(state, b, j)
    first = cluster.first_waiting
    cluster.num_waiting -= 1
    if 2 * position < cluster.num_waiting:
        _shift_waiting(state, b, first, position, 1)
        cluster.first_waiting += 1
    else:
        _shift_waiting(state, b, first + position + 1, cluster.num_waiting - position, -1)
    state.class_waiting[b, state.jobs[b, j].demand_class] -= 1
