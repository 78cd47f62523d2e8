"""Containers inside the state: the heap of running jobs by next event, and the waiting list by priority."""

from ringyard.compiled import kernel, linked_kernel
from ringyard.state.arrays import State, close_holes, end_of_waiting, shift_entries

#: number of jobs from which on they are sorted before they are inserted: one by one they take time n^2
_BURST = 256

_NEAR = 256  #: entries that are moved at once when a job is removed. More of them wait for a reader.


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
def _waits_before(state: State, b: int, x: int, y: int) -> bool:
    first, second = state.jobs[b, x].priority, state.jobs[b, y].priority
    return first < second or (first == second and x < y)


@kernel
def _waiting_position(state: State, b: int, j: int) -> int:
    """Return where in the waiting list's array the first (priority, row) is not before that of job `j`."""
    cluster, row = state.clusters[b], state.waiting[b]
    low = int(cluster.first_waiting)
    high = int(end_of_waiting(cluster))
    while low < high:
        middle = (low + high) >> 1
        other = max(row[middle], -1 - row[middle])  # of a hole, the job that left it
        if _waits_before(state, b, other, j):
            low = middle + 1
        else:
            high = middle
    return low


@linked_kernel
def _make_room(state: State, b: int, more: int) -> None:
    """Move the waiting list so that it and `more` jobs fill the middle of its array, of 2 x jobs entries."""
    close_holes(state, b)
    cluster = state.clusters[b]
    first = (state.waiting.shape[1] - cluster.num_waiting - more) >> 1
    shift_entries(
        state.waiting[b], cluster.first_waiting, end_of_waiting(cluster), first - cluster.first_waiting
    )
    cluster.first_waiting = first


@kernel
def waiting_add(state: State, b: int, j: int) -> None:
    """Insert job `j` into the waiting list of cluster `b` of `state` by (priority, row)."""
    cluster, row = state.clusters[b], state.waiting[b]
    if cluster.first_waiting == 0 or end_of_waiting(cluster) == len(row):
        _make_room(state, b, 0)
    first, end = cluster.first_waiting, end_of_waiting(cluster)
    position = _waiting_position(state, b, j)
    if position < end and row[position] == -1 - j:  # the hole that it left
        cluster.num_holes -= 1
    elif position - first < end - position:
        shift_entries(state.waiting[b], first, position, -1)
        cluster.first_waiting -= 1
        cluster.first_hole -= 1
        position -= 1
    else:
        shift_entries(state.waiting[b], position, end, 1)
        cluster.last_hole += 1
    row[position] = j
    cluster.num_waiting += 1
    state.class_waiting[b, state.jobs[b, j].demand_class] += 1


@kernel
def waiting_add_all(state: State, b: int, first: int, end: int) -> None:
    """Insert jobs `first` to `end` - 1, later rows than any that wait, as `waiting_add` one by one."""
    in_order = True
    if end - first >= _BURST:
        for j in range(first + 1, end):
            in_order = in_order and _waits_before(state, b, j - 1, j)
    if not in_order:
        _add_burst(state, b, first, end - first)
        return
    for j in range(first, end):
        waiting_add(state, b, j)


@linked_kernel
def _add_burst(state: State, b: int, first: int, count: int) -> None:
    """Insert `count` jobs from row `first` on: sorted at the end of the array, then merged into the list."""
    _make_room(state, b, 2 * count)
    cluster, row = state.clusters[b], state.waiting[b]
    new = len(row) - count
    for i in range(count):
        row[new + i] = first + i
        state.class_waiting[b, state.jobs[b, first + i].demand_class] += 1
    gap = count >> 1
    while gap > 0:  # Shell's sort, in place: no memory is allocated in a step
        for i in range(new + gap, len(row)):
            j, k = row[i], i
            while k >= new + gap and _waits_before(state, b, j, row[k - gap]):
                row[k] = row[k - gap]
                k -= gap
            row[k] = j
        gap = 1 if gap == 2 else gap * 5 // 11
    last = end_of_waiting(cluster) - 1
    cluster.num_waiting += count
    for i in range(count - 1, -1, -1):
        while last >= cluster.first_waiting and _waits_before(state, b, row[new + i], row[last]):
            row[last + i + 1] = row[last]
            last -= 1
        row[last + i + 1] = row[new + i]


@kernel
def waiting_remove(state: State, b: int, j: int) -> None:
    """Remove job `j` from the waiting list of cluster `b` of `state`."""
    cluster, row = state.clusters[b], state.waiting[b]
    position = _waiting_position(state, b, j)
    before, behind = position - cluster.first_waiting, end_of_waiting(cluster) - position - 1
    cluster.num_waiting -= 1
    state.class_waiting[b, state.jobs[b, j].demand_class] -= 1
    no_holes = cluster.num_holes == 0
    if no_holes and before < min(behind, _NEAR):
        shift_entries(row, cluster.first_waiting, position, 1)
        cluster.first_waiting += 1
    elif no_holes and behind < _NEAR:
        shift_entries(row, position + 1, position + 1 + behind, -1)
    else:
        row[position] = -1 - j
        cluster.num_holes += 1
        cluster.first_hole = position if no_holes else min(position, cluster.first_hole)
        cluster.last_hole = position if no_holes else max(position, cluster.last_hole)
