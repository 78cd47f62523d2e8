"""Preemptive decisions by priority keys, of which only those that can have changed are read again.

A decision walks the waiting and running jobs in the order of their keys and gives GPUs to each job that fits
into the GPUs left. Running jobs were selected by the last decision, so they keep their GPUs until a waiting
job does not fit. Only then the order of running jobs matters: running jobs behind the waiting job are
displaced, the last first, until it fits. Displaced jobs are walked later, in their order. Waiting jobs that
ask for equally many GPUs are in one queue sorted by key. If the first of a queue does not fit, none does.

Ties are those of a stable sort of the last decision's order: among equal keys, a job with a key that fell to
that value is last, and a job with a key that rose to it is first. One case is not reproduced: keys of running
jobs that were equal to the last digit at a decision that did not need their order.

In this module `order` is a `KeyOrder`, `priority` a `PriorityRule`, `rule` a placement rule, `j` the row of a
job and `b` a cluster of `state`.
"""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatVector, Int32Vector, Record, Records1, bundle, f8, i4, kernel
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, place
from ringyard.sim.engine.lifecycle import preempt, start
from ringyard.state.arrays import State, shift_entries
from ringyard.state.records import JobStatus
from ringyard_baselines.policies.priority_rule import (
    FIRST_ESTIMATE,
    KeyChanges,
    PriorityRule,
    gpu_budget,
    report_invalid_key,
    wake_time,
)

_ABSENT, _WAITING, _RUNNING = 0, 1, 2
_TOLERANCE_SECONDS = 4e-6  # wake times of one key that were computed at different moments differ by less


class Counters(Record):
    """Numbers of jobs in the lists of a `KeyOrder`, and what else changes from decision to decision."""

    num_arrived: i4
    num_ended: i4
    num_running: i4
    num_listed: i4
    num_reads: i4
    num_stale: i4
    num_starting: i4
    num_stopping: i4
    running_gpus: i4
    highest_tie: f8
    lowest_tie: f8
    reserved_tie: f8  # ties above it are for running jobs, which come before the jobs that arrive now
    earlier_tie: f8  # `reserved_tie` of the last decision
    read_seconds: f8  # when the keys of running jobs were last read
    decided_seconds: f8  # when the last decision was made


@bundle
class KeyOrder:
    """Waiting and running jobs in the order of their keys, kept from decision to decision."""

    keys: FloatVector  #: [jobs] key when it was last read
    ties: FloatVector  #: [jobs] order of jobs with equal keys
    new_keys: FloatVector  #: [jobs] scratch: keys that are being read
    num_gpus: Int32Vector  #: [jobs] GPUs that each job asks for
    status: Int32Vector  #: [jobs] whether the job waits in a queue, runs, or neither
    queue_of: Int32Vector  #: [jobs] the queue for jobs of this number of GPUs
    #: [2 x jobs] waiting jobs, queue after queue. The first in the order is at the end of its queue.
    queues: Int32Vector
    bounds: Int32Vector  #: [queues + 1] position in `queues` from which on each queue may have jobs
    first: Int32Vector  #: [queues] position in `queues` at which each queue begins
    length: Int32Vector  #: [queues] jobs waiting in each queue
    cursor: Int32Vector  #: [queues] position of each queue's next job in a walk
    running: Int32Vector  #: [jobs] running jobs and some that ended. Decisions that need their order sort it.
    in_running: Int32Vector  #: [jobs] 1: `running` has the job
    reads: Int32Vector  #: [jobs] jobs of which the keys are being read, the last in the order first
    stale: Int32Vector  #: [jobs] jobs of which the next decision reads the keys
    is_stale: Int32Vector  #: [jobs] 1: `stale` has the job
    starting: Int32Vector  #: [jobs] jobs that the decision starts, in order
    stopping: Int32Vector  #: [jobs] jobs that the decision preempts
    #: [2 x leaves] binary tree with the time at which each job's key changes by itself in its leaves, and
    #: the earliest time below in each inner node
    wake_tree: FloatVector
    counts: Records1[Counters]  #: [1] `Counters`


def empty_order(num_gpus: NDArray[np.int32], key_changes: int) -> KeyOrder:
    """Return the order of a new simulation, with one queue if keys of waiting jobs change (`KeyChanges`)."""
    jobs = len(num_gpus)
    queue_of = np.zeros(jobs, np.int32)
    if key_changes != KeyChanges.ANY_TIME:
        queue_of = np.unique(num_gpus, return_inverse=True)[1].astype(np.int32)
    sizes = np.bincount(queue_of, minlength=1)
    counts = Counters.zeros(1)
    counts["read_seconds"], counts["decided_seconds"] = -np.inf, -np.inf
    lists = "status running in_running reads stale is_stale starting stopping"
    return KeyOrder(
        keys=np.zeros(jobs),
        ties=np.zeros(jobs),
        new_keys=np.zeros(jobs),
        num_gpus=np.ascontiguousarray(num_gpus),
        queue_of=queue_of,
        queues=np.zeros(2 * jobs, np.int32),
        bounds=2 * np.append(0, sizes.cumsum()).astype(np.int32),
        first=(2 * sizes.cumsum() - sizes).astype(np.int32),
        length=np.zeros(len(sizes), np.int32),
        cursor=np.zeros(len(sizes), np.int32),
        wake_tree=np.full(2 << max(jobs - 1, 1).bit_length(), np.inf),
        counts=counts,
        **{name: np.zeros(jobs, np.int32) for name in lists.split()},
    )


@kernel
def _before(order: KeyOrder, x: int, y: int) -> bool:
    return order.keys[x] < order.keys[y] or (order.keys[x] == order.keys[y] and order.ties[x] < order.ties[y])


@kernel
def _position(order: KeyOrder, jobs: Int32Vector, low: int, high: int, j: int) -> int:
    """Return the position that job j has, or would have, from `low` to `high` of `jobs`, the last first."""
    while low < high:
        middle = (low + high) >> 1
        if _before(order, j, jobs[middle]):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _enter_queue(order: KeyOrder, j: int) -> None:
    queue, queues = order.queue_of[j], order.queues
    begin, length, bounds = order.first[queue], order.length[queue], order.bounds[queue : queue + 2]
    if begin == bounds[0] or begin + length == bounds[1]:
        order.first[queue] = (bounds[0] + bounds[1] - length) >> 1
        shift_entries(queues, begin, begin + length, order.first[queue] - begin)
        begin = order.first[queue]
    at = _position(order, queues, begin, begin + length, j)
    if at - begin < begin + length - at:
        shift_entries(queues, begin, at, -1)
        order.first[queue] -= 1
        at -= 1
    else:
        shift_entries(queues, at, begin + length, 1)
    queues[at] = j
    order.length[queue] += 1
    order.status[j] = _WAITING


@kernel
def _leave_queue(order: KeyOrder, j: int) -> None:
    queue = order.queue_of[j]
    begin, end = order.first[queue], order.first[queue] + order.length[queue]
    at = _position(order, order.queues, begin, end, j)
    order.length[queue] -= 1
    if at - begin < end - at:
        shift_entries(order.queues, begin, at, 1)
        order.first[queue] += 1
    else:
        shift_entries(order.queues, at + 1, end, -1)


@kernel
def _add_running(order: KeyOrder, j: int) -> None:
    order.status[j] = _RUNNING
    order.counts[0].num_running += 1
    order.counts[0].running_gpus += order.num_gpus[j]
    if order.in_running[j] == 0:
        order.in_running[j] = 1
        order.running[order.counts[0].num_listed] = j
        order.counts[0].num_listed += 1


@kernel
def _remove_running(order: KeyOrder, j: int) -> None:
    """Count job j as not running. `_sort_running` takes it off the list."""
    order.status[j] = _ABSENT
    order.counts[0].num_running -= 1
    order.counts[0].running_gpus -= order.num_gpus[j]


@kernel
def _return_to_queue(order: KeyOrder, j: int) -> None:
    """Move job j from the running jobs to its queue. The next decision reads its key."""
    _remove_running(order, j)
    _enter_queue(order, j)
    _mark_stale(order, j)


@kernel
def _mark_stale(order: KeyOrder, j: int) -> None:
    """Let the next decision read the key of job j."""
    if order.is_stale[j] == 0:
        order.is_stale[j] = 1
        order.stale[order.counts[0].num_stale] = j
        order.counts[0].num_stale += 1


@kernel
def _set_wake(order: KeyOrder, j: int, seconds: float) -> None:
    node = (len(order.wake_tree) >> 1) + j
    if order.wake_tree[node] != seconds:
        order.wake_tree[node] = seconds
        while node > 1:
            node >>= 1
            order.wake_tree[node] = min(order.wake_tree[2 * node], order.wake_tree[2 * node + 1])


@kernel
def _pop_wake(order: KeyOrder) -> int:
    """Return the job with the earliest wake time, and clear that time."""
    leaves = len(order.wake_tree) >> 1
    node = 1
    while node < leaves:
        node *= 2
        if order.wake_tree[node] > order.wake_tree[node >> 1]:
            node += 1
    _set_wake(order, node - leaves, np.inf)
    return node - leaves


@kernel
def _track_events(state: State, b: int, order: KeyOrder) -> None:
    """Record which jobs arrived, ended, or lost their server since the last decision."""
    cluster, counts = state.clusters[b], order.counts[0]
    counts.earlier_tie = counts.reserved_tie
    counts.reserved_tie = counts.highest_tie
    counts.highest_tie += counts.num_running
    while counts.num_arrived < cluster.next_arrival:
        j = counts.num_arrived
        counts.num_arrived += 1
        if state.jobs[b, j].status != JobStatus.DONE:
            counts.highest_tie += 1
            order.ties[j] = counts.highest_tie
            order.keys[j] = np.inf
            _mark_stale(order, j)
    while counts.num_ended < cluster.num_done:
        j = state.ended[b, counts.num_ended]
        counts.num_ended += 1
        if order.status[j] == _WAITING:
            _leave_queue(order, j)
            order.status[j] = _ABSENT
        elif order.status[j] == _RUNNING:
            _remove_running(order, j)
        _set_wake(order, j, np.inf)
    if counts.num_running != cluster.num_running:
        for i in range(counts.num_listed):
            j = order.running[i]
            if order.status[j] == _RUNNING and state.jobs[b, j].status == JobStatus.WAITING:
                _return_to_queue(order, j)


@kernel
def _sort_running(order: KeyOrder) -> None:
    """Take jobs that do not run off `running`, and sort the others by their keys."""
    counts, running = order.counts[0], order.running
    count = 0
    for i in range(counts.num_listed):
        j = running[i]
        if order.status[j] != _RUNNING:
            order.in_running[j] = 0
            continue
        k = count
        while k > 0 and _before(order, j, running[k - 1]):
            running[k] = running[k - 1]
            k -= 1
        running[k] = j
        count += 1
    counts.num_listed = count


@kernel
def _insert_read(order: KeyOrder, j: int) -> None:
    """Add job j to `reads`, at its place in the order so far."""
    counts, reads = order.counts[0], order.reads
    at = _position(order, reads, 0, counts.num_reads, j)
    shift_entries(reads, at, counts.num_reads, 1)
    reads[at] = j
    counts.num_reads += 1


@kernel
def _read_keys(state: State, b: int, order: KeyOrder, priority: PriorityRule, now: float) -> None:
    """Read the keys of the jobs in `reads`, and move waiting jobs to their new places in the queues."""
    counts = order.counts[0]
    for i in range(counts.num_reads - 1, -1, -1):
        j = order.reads[i]
        if order.status[j] == _WAITING:
            _leave_queue(order, j)
        order.new_keys[j] = priority.key(state.jobs[b, j], now, priority.parameters)
        if np.isnan(order.new_keys[j]):
            report_invalid_key(priority, j, order.new_keys[j], now)
        if order.new_keys[j] != order.keys[j] and priority.key_changes == KeyChanges.AT_WAKES:
            _mark_stale(order, j)
    for i in range(counts.num_reads - 1, -1, -1):
        j = order.reads[i]
        if order.new_keys[j] < order.keys[j]:
            counts.highest_tie += 1
            order.ties[j] = counts.highest_tie
    for i in range(counts.num_reads):
        j = order.reads[i]
        if order.new_keys[j] > order.keys[j]:
            counts.lowest_tie -= 1
            order.ties[j] = counts.lowest_tie
        order.keys[j] = order.new_keys[j]
        if order.status[j] == _ABSENT and state.jobs[b, j].status == JobStatus.RUNNING:
            _add_running(order, j)
        if order.status[j] != _RUNNING:
            _enter_queue(order, j)


@kernel
def _read_running(state: State, b: int, order: KeyOrder, priority: PriorityRule) -> None:
    """Read the keys of running jobs as of the last decision, if it did not read them, and as of now."""
    counts, now = order.counts[0], state.clusters[b].now
    highest = counts.highest_tie
    for seconds, tie in ((counts.decided_seconds, counts.earlier_tie), (now, counts.reserved_tie)):
        if counts.read_seconds < seconds:
            _sort_running(order)
            counts.num_reads = counts.num_listed
            for i in range(counts.num_listed):
                order.reads[i] = order.running[counts.num_listed - 1 - i]
            counts.highest_tie = tie
            _read_keys(state, b, order, priority, seconds)
            counts.read_seconds = seconds
    counts.highest_tie = highest


@kernel
def _read_changed_keys(state: State, b: int, order: KeyOrder, priority: PriorityRule) -> None:
    """Read the keys that can have changed, except running jobs' under `KeyChanges.WHILE_RUNNING`."""
    counts, now = order.counts[0], state.clusters[b].now
    while order.wake_tree[1] <= now + _TOLERANCE_SECONDS:
        _mark_stale(order, _pop_wake(order))
    counts.num_reads = 0
    any_time = priority.key_changes == KeyChanges.ANY_TIME
    if any_time:
        _sort_running(order)
        for i in range(order.length[0]):
            _insert_read(order, order.queues[order.first[0] + i])
        for i in range(counts.num_listed - 1, -1, -1):
            _insert_read(order, order.running[i])
    for i in range(counts.num_stale - 1, -1, -1):
        j = order.stale[i]
        order.is_stale[j] = 0
        is_new = order.status[j] == _ABSENT or not any_time
        if is_new and state.jobs[b, j].status != JobStatus.DONE:
            _insert_read(order, j)
    counts.num_stale = 0
    _read_keys(state, b, order, priority, now)


@kernel
def _next_queue(order: KeyOrder) -> int:
    """Return the queue of the job that comes next in the order, -1 if no queue has a next job."""
    best = -1
    for queue in range(len(order.first)):
        if order.cursor[queue] >= order.first[queue] and (
            best < 0 or _before(order, order.queues[order.cursor[queue]], order.queues[order.cursor[best]])
        ):
            best = queue
    return best


@kernel
def select_jobs(state: State, b: int, order: KeyOrder, priority: PriorityRule, rule: PlacementRule) -> None:
    """Select the jobs of cluster `b` of `state` that shall hold GPUs, by the keys of `priority`.

    Waiting jobs among them are listed in `order.starting`, running jobs not among them in `order.stopping`.
    `rule` says whether jobs share GPUs.
    """
    estimates = priority.parameters[FIRST_ESTIMATE:]
    priority.estimate.seconds(state, b, priority.estimate.parameters, priority.estimate_memory, estimates)
    _track_events(state, b, order)
    _read_changed_keys(state, b, order, priority)
    counts, running = order.counts[0], order.running
    counts.num_starting = 0
    counts.num_stopping = 0
    for queue in range(len(order.first)):
        order.cursor[queue] = order.first[queue] + order.length[queue] - 1
    left = gpu_budget(state, b, rule) - counts.running_gpus
    is_sorted = False
    num_kept = counts.num_running  # running jobs from this position on are displaced
    displaced = num_kept  # position of the next displaced job in the walk
    queue = _next_queue(order)
    while queue >= 0 or displaced < counts.num_running:
        waits = queue >= 0
        if waits and displaced < counts.num_running:
            waits = _before(order, order.queues[order.cursor[queue]], running[displaced])
        j = order.queues[order.cursor[queue]] if waits else running[displaced]
        if waits and order.num_gpus[j] > left:
            if not is_sorted:
                if priority.key_changes == KeyChanges.WHILE_RUNNING:
                    _read_running(state, b, order, priority)
                _sort_running(order)
                is_sorted = True
            while order.num_gpus[j] > left and num_kept > 0 and _before(order, j, running[num_kept - 1]):
                num_kept -= 1
                displaced = num_kept
                left += order.num_gpus[running[num_kept]]
        fits = order.num_gpus[j] <= left
        if fits:
            left -= order.num_gpus[j]
        if not waits:
            displaced += 1
            if not fits:
                order.stopping[counts.num_stopping] = j
                counts.num_stopping += 1
            continue
        if fits:
            order.starting[counts.num_starting] = j
            counts.num_starting += 1
        if fits or priority.key_changes == KeyChanges.ANY_TIME:
            order.cursor[queue] -= 1
        else:  # all jobs of this queue ask for as many GPUs, so none of them fits
            order.cursor[queue] = order.first[queue] - 1
        queue = _next_queue(order)


@kernel
def _start_all(
    state: State, b: int, order: KeyOrder, priority: PriorityRule, rule: PlacementRule, physics: Physics
) -> None:
    """Start the jobs of `starting` that find a place, and keep only these listed."""
    cluster, counts = state.clusters[b], order.counts[0]
    cluster.visit_mark += 1
    visit_mark = cluster.visit_mark
    out = state.gpu_scratch[b]
    started = 0
    for i in range(counts.num_starting):
        j = order.starting[i]
        kind = state.jobs[b, j].demand_class
        if state.class_marks[b, kind] == visit_mark:
            continue
        if place(state, b, j, rule, out) == 0:
            state.class_marks[b, kind] = visit_mark  # no other job of this demand class finds a place either
            continue
        start(state, b, j, out, physics)
        _leave_queue(order, j)
        _add_running(order, j)
        if priority.key_changes == KeyChanges.AT_WAKES:
            _mark_stale(order, j)
        order.starting[started] = j
        started += 1
    counts.num_starting = started


@kernel
def _earliest_wake(
    state: State, b: int, order: KeyOrder, priority: PriorityRule, jobs: Int32Vector, count: int, store: bool
) -> float:
    """Return the earliest wake time after now of the first `count` `jobs`. `store` puts all in the tree."""
    now = state.clusters[b].now
    earliest = np.inf
    for i in range(count):
        time = wake_time(priority, state.jobs[b, jobs[i]], jobs[i], now)
        if store:
            _set_wake(order, jobs[i], time)
        if now < time < earliest:
            earliest = time
    return earliest


@kernel
def _next_wake(state: State, b: int, order: KeyOrder, priority: PriorityRule) -> float:
    """Return the earliest time after now at which a key must be read again."""
    counts = order.counts[0]
    if priority.key_changes != KeyChanges.AT_WAKES:
        _sort_running(order)
        earliest = _earliest_wake(state, b, order, priority, order.running, counts.num_listed, False)
        for queue in range(len(order.first)):
            jobs = order.queues[order.first[queue] :]
            time = _earliest_wake(state, b, order, priority, jobs, order.length[queue], False)
            earliest = min(earliest, time)
        return earliest
    _earliest_wake(state, b, order, priority, order.reads, counts.num_reads, True)
    _earliest_wake(state, b, order, priority, order.starting, counts.num_starting, True)
    _earliest_wake(state, b, order, priority, order.stopping, counts.num_stopping, True)
    near = order.wake_tree[1] + _TOLERANCE_SECONDS
    count = 0
    while order.wake_tree[1] <= near and order.wake_tree[1] < np.inf:
        order.reads[count] = _pop_wake(order)
        count += 1
    return _earliest_wake(state, b, order, priority, order.reads, count, True)


@kernel
def apply_selection(
    state: State, b: int, order: KeyOrder, priority: PriorityRule, rule: PlacementRule, physics: Physics
) -> None:
    """Preempt and start the jobs that `select_jobs` listed in `order`, and set when to decide next.

    Jobs of cluster `b` of `state` start where `rule` puts them and run as fast as `physics` says. The cluster
    wakes the scheduler when a key of `priority` changes next.
    """
    for j in order.stopping[: order.counts[0].num_stopping]:
        preempt(state, b, j, physics)
        _return_to_queue(order, j)
    _start_all(state, b, order, priority, rule, physics)
    order.counts[0].decided_seconds = state.clusters[b].now
    if priority.wakes:
        state.clusters[b].wake_seconds = _next_wake(state, b, order, priority)
