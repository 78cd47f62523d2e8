"""Decisions by keys of jobs, of which few are read anew each time.

A decision walks the jobs that wait or run in the order of their keys, and gives GPUs to each that fits into
those that are left. Running jobs were chosen last time, so they count as chosen until a waiting job does not
fit. Only then the order of running jobs matters: those behind the waiting job are set aside, the last first,
until it fits, and have their own turn later in the walk. Jobs that ask for equally many GPUs wait in one
queue, sorted by key: where its first does not fit, none does.

Ties reproduce a stable sort of the last decision's order: among equal keys, a job whose key fell to them
comes last, one whose key rose to them first. Not reproduced is whether keys of running jobs met to the last
digit at a decision that did not need their order.
"""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import (
    FloatVector,
    Int32Vector,
    IntVector,
    Record,
    Records1,
    bundle,
    f8,
    i4,
    i8,
    kernel,
)
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, place
from ringyard.sim.engine.lifecycle import preempt, start
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus
from ringyard_baselines.policies.ranking import (
    FIRST_ESTIMATE,
    KeyChanges,
    Ranking,
    budget_of,
    complain_of_key,
    wake_of,
)

_ABSENT, _WAITS, _RUNS = 0, 1, 2
_NEAR = 4e-6  # seconds: times of wakes that were computed at other moments differ by less


class Totals(Record):
    """Counts; lists of `KeyOrder` are as long as they say."""

    num_arrived: i4
    num_ended: i4
    num_running: i4
    num_listed: i4
    num_turn: i4
    num_touched: i4
    num_starting: i4
    num_stopping: i4
    running_gpus: i8
    highest_tie: i8
    lowest_tie: i8
    reserved_tie: i8  # ties above it are for running jobs, which stood before those that arrive now
    earlier_tie: i8  # the same of the last decision
    read_seconds: f8  # when the keys of running jobs were last read
    decided_seconds: f8  # when the last decision was


@bundle
class KeyOrder:
    """Live jobs in the order of their keys, between decisions.

    Attributes:
        keys, ties: [jobs] key when it was last read, and what sorts equal ones.
        fresh: [jobs] scratch: keys now.
        demand: [jobs] GPUs that each asks for.
        where: [jobs] whether it waits in a queue, runs, or neither.
        queue_of: [jobs] the queue in which a job waits.
        queues: [jobs] waiting jobs, queue after queue; the first in the order stands at a queue's end.
        first, count, cursor: [queues] where each begins, how many jobs wait in it, and the next in a walk.
        running: [jobs] running jobs, and some that ended; in order while a decision looks at it.
        is_listed: [jobs] 1: `running` has the job.
        turn: [jobs] jobs whose keys are read, in order.
        touched: [jobs] jobs whose keys the next decision reads.
        is_touched: [jobs] 1: `touched` has the job.
        starting, stopping: [jobs] what the decision changes, in order.
        wakes: [2 leaves] a tree: when the key of each job changes by itself, and the least below each node.
        totals: [1] `Totals`.
    """

    keys: FloatVector
    ties: IntVector
    fresh: FloatVector
    demand: IntVector
    where: Int32Vector
    queue_of: Int32Vector
    queues: Int32Vector
    first: Int32Vector
    count: Int32Vector
    cursor: Int32Vector
    running: Int32Vector
    is_listed: Int32Vector
    turn: Int32Vector
    touched: Int32Vector
    is_touched: Int32Vector
    starting: Int32Vector
    stopping: Int32Vector
    wakes: FloatVector
    totals: Records1[Totals]


def empty_order(num_gpus: NDArray[np.int32], key_changes: int) -> KeyOrder:
    """The order of a simulation that is about to begin.

    Args:
        num_gpus: [jobs] GPUs that each asks for.
        key_changes: of the ranking; where the keys of waiting jobs are read, all are in one queue.
    """
    jobs = len(num_gpus)
    queue_of = np.zeros(jobs, np.int32)
    if key_changes != KeyChanges.ANY_TIME:
        queue_of = np.unique(num_gpus, return_inverse=True)[1].astype(np.int32)
    sizes = np.bincount(queue_of, minlength=1)
    totals = Totals.zeros(1)
    totals["read_seconds"], totals["decided_seconds"] = -np.inf, -np.inf
    lists = {
        name: np.zeros(jobs, np.int32)
        for name in (
            *("where", "queues", "running", "is_listed", "turn", "touched", "is_touched"),
            *("starting", "stopping"),
        )
    }
    return KeyOrder(
        keys=np.zeros(jobs),
        ties=np.zeros(jobs, np.int64),
        fresh=np.zeros(jobs),
        demand=num_gpus.astype(np.int64),
        queue_of=queue_of,
        first=(sizes.cumsum() - sizes).astype(np.int32),
        count=np.zeros(len(sizes), np.int32),
        cursor=np.zeros(len(sizes), np.int32),
        wakes=np.full(2 << max(jobs - 1, 1).bit_length(), np.inf),
        totals=totals,
        **lists,
    )


@kernel
def _before(order: KeyOrder, x: int, y: int) -> bool:
    return order.keys[x] < order.keys[y] or (order.keys[x] == order.keys[y] and order.ties[x] < order.ties[y])


@kernel
def _place_in_queue(order: KeyOrder, j: int) -> int:
    """Where in `queues` job j stands, or would stand."""
    low = order.first[order.queue_of[j]]
    high = low + order.count[order.queue_of[j]]
    while low < high:
        middle = (low + high) >> 1
        if _before(order, j, order.queues[middle]):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _enter_queue(order: KeyOrder, j: int) -> None:
    queue = order.queue_of[j]
    at = _place_in_queue(order, j)
    for i in range(order.first[queue] + order.count[queue], at, -1):
        order.queues[i] = order.queues[i - 1]
    order.queues[at] = j
    order.count[queue] += 1


@kernel
def _leave_queue(order: KeyOrder, j: int) -> None:
    queue = order.queue_of[j]
    order.count[queue] -= 1
    for i in range(_place_in_queue(order, j), order.first[queue] + order.count[queue]):
        order.queues[i] = order.queues[i + 1]


@kernel
def _begin_to_run(order: KeyOrder, j: int) -> None:
    order.where[j] = _RUNS
    order.totals[0].num_running += 1
    order.totals[0].running_gpus += order.demand[j]
    if order.is_listed[j] == 0:
        order.is_listed[j] = 1
        order.running[order.totals[0].num_listed] = j
        order.totals[0].num_listed += 1


@kernel
def _end_to_run(order: KeyOrder, j: int) -> None:
    order.where[j] = _ABSENT
    order.totals[0].num_running -= 1
    order.totals[0].running_gpus -= order.demand[j]


@kernel
def _wait_again(order: KeyOrder, j: int) -> None:
    """Job j, which ran, waits; the next decision reads its key."""
    _end_to_run(order, j)
    _enter_queue(order, j)
    order.where[j] = _WAITS
    _touch(order, j)


@kernel
def _touch(order: KeyOrder, j: int) -> None:
    """Let the next decision read the key of job j."""
    if order.is_touched[j] == 0:
        order.is_touched[j] = 1
        order.touched[order.totals[0].num_touched] = j
        order.totals[0].num_touched += 1


@kernel
def _set_wake(order: KeyOrder, j: int, seconds: float) -> None:
    node = (len(order.wakes) >> 1) + j
    if order.wakes[node] != seconds:
        order.wakes[node] = seconds
        while node > 1:
            node >>= 1
            order.wakes[node] = min(order.wakes[2 * node], order.wakes[2 * node + 1])


@kernel
def _first_to_wake(order: KeyOrder) -> int:
    node = 1
    while node < len(order.wakes) >> 1:
        node *= 2
        if order.wakes[node] > order.wakes[node >> 1]:
            node += 1
    return node - (len(order.wakes) >> 1)


@kernel
def _note_changes(state: State, b: int, order: KeyOrder) -> None:
    """Note which jobs arrived, ended, or lost their server."""
    cluster, totals = state.clusters[b], order.totals[0]
    totals.earlier_tie = totals.reserved_tie
    totals.reserved_tie = totals.highest_tie
    totals.highest_tie += totals.num_running
    while totals.num_arrived < cluster.next_arrival:
        j = totals.num_arrived
        totals.num_arrived += 1
        if state.jobs[b, j].status != JobStatus.DONE:
            totals.highest_tie += 1
            order.ties[j] = totals.highest_tie
            order.keys[j] = np.inf
            _touch(order, j)
    while totals.num_ended < cluster.num_done:
        j = state.ended[b, totals.num_ended]
        totals.num_ended += 1
        if order.where[j] == _WAITS:
            _leave_queue(order, j)
            order.where[j] = _ABSENT
        elif order.where[j] == _RUNS:
            _end_to_run(order, j)
        _set_wake(order, j, np.inf)
    if totals.num_running != cluster.num_running:
        for i in range(totals.num_listed):
            j = order.running[i]
            if order.where[j] == _RUNS and state.jobs[b, j].status == JobStatus.WAITING:
                _wait_again(order, j)


@kernel
def _sort_running(order: KeyOrder) -> None:
    """Drop the jobs of `running` that do not run, and bring the others into the order of their keys."""
    totals, running = order.totals[0], order.running
    count = 0
    for i in range(totals.num_listed):
        j = running[i]
        if order.where[j] != _RUNS:
            order.is_listed[j] = 0
            continue
        k = count
        while k > 0 and _before(order, j, running[k - 1]):
            running[k] = running[k - 1]
            k -= 1
        running[k] = j
        count += 1
    totals.num_listed = count


@kernel
def _take_turn(order: KeyOrder, j: int) -> None:
    """Add job j to those whose keys are read, where it stood in the order until now."""
    totals = order.totals[0]
    k = totals.num_turn
    while k > 0 and _before(order, j, order.turn[k - 1]):
        order.turn[k] = order.turn[k - 1]
        k -= 1
    order.turn[k] = j
    totals.num_turn += 1


@kernel
def _read_keys(state: State, b: int, order: KeyOrder, ranking: Ranking, now: float) -> None:
    """Read the keys of the jobs in `turn`; waiting jobs go where they belong now."""
    totals = order.totals[0]
    for i in range(totals.num_turn):
        j = order.turn[i]
        if order.where[j] == _WAITS:
            _leave_queue(order, j)
        order.fresh[j] = ranking.key(state.jobs[b, j], now, ranking.parameters)
        if np.isnan(order.fresh[j]):
            complain_of_key(ranking, j, order.fresh[j], now)
    for i in range(totals.num_turn):
        j = order.turn[i]
        if order.fresh[j] < order.keys[j]:
            totals.highest_tie += 1
            order.ties[j] = totals.highest_tie
    for i in range(totals.num_turn - 1, -1, -1):
        j = order.turn[i]
        if order.fresh[j] > order.keys[j]:
            totals.lowest_tie -= 1
            order.ties[j] = totals.lowest_tie
        if order.fresh[j] != order.keys[j] and ranking.key_changes == KeyChanges.AT_WAKES:
            _touch(order, j)
        order.keys[j] = order.fresh[j]
        if order.where[j] == _ABSENT and state.jobs[b, j].status == JobStatus.RUNNING:
            _begin_to_run(order, j)
        if order.where[j] != _RUNS:
            order.where[j] = _WAITS
            _enter_queue(order, j)


@kernel
def _read_running(state: State, b: int, order: KeyOrder, ranking: Ranking) -> None:
    """Read the keys of running jobs; if the last decision did without, as they were then at first."""
    totals, now = order.totals[0], state.clusters[b].now
    highest = totals.highest_tie
    for seconds, tie in ((totals.decided_seconds, totals.earlier_tie), (now, totals.reserved_tie)):
        if totals.read_seconds < seconds:
            _sort_running(order)
            totals.num_turn = totals.num_listed
            for i in range(totals.num_listed):
                order.turn[i] = order.running[i]
            totals.highest_tie = tie
            _read_keys(state, b, order, ranking, seconds)
            totals.read_seconds = seconds
    totals.highest_tie = highest


@kernel
def _look_again(state: State, b: int, order: KeyOrder, ranking: Ranking) -> None:
    """Read the keys that may have changed, but those of running jobs where only these change."""
    totals, now = order.totals[0], state.clusters[b].now
    while order.wakes[1] <= now + _NEAR:
        j = _first_to_wake(order)
        _set_wake(order, j, np.inf)
        _touch(order, j)
    totals.num_turn = 0
    if ranking.key_changes == KeyChanges.ANY_TIME:
        _sort_running(order)
        for i in range(totals.num_listed):
            _take_turn(order, order.running[i])
        for i in range(order.count[0] - 1, -1, -1):
            _take_turn(order, order.queues[i])
    for i in range(totals.num_touched):
        j = order.touched[i]
        order.is_touched[j] = 0
        is_new = order.where[j] == _ABSENT or ranking.key_changes != KeyChanges.ANY_TIME
        if is_new and state.jobs[b, j].status != JobStatus.DONE:
            _take_turn(order, j)
    totals.num_touched = 0
    _read_keys(state, b, order, ranking, now)


@kernel
def _next_queue(order: KeyOrder) -> int:
    """The queue whose next job comes first in the order; -1 if none has any."""
    best = -1
    for queue in range(len(order.first)):
        if order.cursor[queue] >= order.first[queue] and (
            best < 0 or _before(order, order.queues[order.cursor[queue]], order.queues[order.cursor[best]])
        ):
            best = queue
    return best


@kernel
def choose(state: State, b: int, order: KeyOrder, ranking: Ranking, rule: PlacementRule) -> None:
    """List which waiting jobs shall hold GPUs, and which running jobs shall not."""
    estimates = ranking.parameters[FIRST_ESTIMATE:]
    ranking.estimate.seconds(state, b, ranking.estimate.parameters, ranking.notes, estimates)
    _note_changes(state, b, order)
    _look_again(state, b, order, ranking)
    totals, running = order.totals[0], order.running
    totals.num_starting = 0
    totals.num_stopping = 0
    for queue in range(len(order.first)):
        order.cursor[queue] = order.first[queue] + order.count[queue] - 1
    left = budget_of(state, b, rule) - totals.running_gpus
    is_sorted = False
    behind = totals.num_running  # running jobs from here on are set aside
    aside = behind  # the next of them in the order
    queue = _next_queue(order)
    while queue >= 0 or aside < totals.num_running:
        waits = queue >= 0
        if waits and aside < totals.num_running:
            waits = _before(order, order.queues[order.cursor[queue]], running[aside])
        j = order.queues[order.cursor[queue]] if waits else running[aside]
        if waits and order.demand[j] > left:
            if not is_sorted:
                if ranking.key_changes == KeyChanges.WHILE_RUNNING:
                    _read_running(state, b, order, ranking)
                _sort_running(order)
                is_sorted = True
            while order.demand[j] > left and behind > 0 and _before(order, j, running[behind - 1]):
                behind -= 1
                aside = behind
                left += order.demand[running[behind]]
        fits = order.demand[j] <= left
        if fits:
            left -= order.demand[j]
        if not waits:
            aside += 1
            if not fits:
                order.stopping[totals.num_stopping] = j
                totals.num_stopping += 1
            continue
        if fits:
            order.starting[totals.num_starting] = j
            totals.num_starting += 1
        if fits or ranking.key_changes == KeyChanges.ANY_TIME:
            order.cursor[queue] -= 1
        else:  # nor does any other of its queue
            order.cursor[queue] = order.first[queue] - 1
        queue = _next_queue(order)


@kernel
def _stop_all(state: State, b: int, order: KeyOrder, physics: Physics) -> None:
    """Stop the jobs of `stopping` in the order of the heap of running jobs as it is each time."""
    totals, stopping = order.totals[0], order.stopping
    for i in range(totals.num_stopping):
        first = i
        for k in range(i + 1, totals.num_stopping):
            if state.jobs[b, stopping[k]].heap_position < state.jobs[b, stopping[first]].heap_position:
                first = k
        j = stopping[first]
        stopping[first] = stopping[i]
        stopping[i] = j
        preempt(state, b, j, physics)
        _wait_again(order, j)


@kernel
def _start_all(
    state: State, b: int, order: KeyOrder, ranking: Ranking, rule: PlacementRule, physics: Physics
) -> None:
    """Start the jobs of `starting` that find a place, and list these; GPUs of the others stay idle."""
    cluster, totals = state.clusters[b], order.totals[0]
    cluster.stamp += 1
    stamp = cluster.stamp
    out = state.gpu_scratch[b]
    started = 0
    for i in range(totals.num_starting):
        j = order.starting[i]
        kind = state.jobs[b, j].demand_class
        if state.class_stamp[b, kind] == stamp:
            continue
        if place(state, b, j, rule, out) == 0:
            state.class_stamp[b, kind] = stamp  # nor does any job that asks for the same
            continue
        start(state, b, j, out, physics)
        _leave_queue(order, j)
        _begin_to_run(order, j)
        if ranking.key_changes == KeyChanges.AT_WAKES:
            _touch(order, j)
        order.starting[started] = j
        started += 1
    totals.num_starting = started


@kernel
def _wake_times(
    state: State, b: int, order: KeyOrder, ranking: Ranking, jobs: Int32Vector, count: int, noted: bool
) -> float:
    """When a key of the first jobs of a list next wants to be looked at; noted in the tree or not."""
    now = state.clusters[b].now
    earliest = np.inf
    for i in range(count):
        time = wake_of(ranking, state.jobs[b, jobs[i]], jobs[i], now)
        if noted:
            _set_wake(order, jobs[i], time)
        if now < time < earliest:
            earliest = time
    return earliest


@kernel
def _next_wake(state: State, b: int, order: KeyOrder, ranking: Ranking) -> float:
    """When a key next wants to be looked at, as it is computed now."""
    totals = order.totals[0]
    if ranking.key_changes != KeyChanges.AT_WAKES:
        _sort_running(order)
        earliest = _wake_times(state, b, order, ranking, order.running, totals.num_listed, False)
        for queue in range(len(order.first)):
            jobs = order.queues[order.first[queue] :]
            time = _wake_times(state, b, order, ranking, jobs, order.count[queue], False)
            earliest = min(earliest, time)
        return earliest
    _wake_times(state, b, order, ranking, order.turn, totals.num_turn, True)
    _wake_times(state, b, order, ranking, order.starting, totals.num_starting, True)
    _wake_times(state, b, order, ranking, order.stopping, totals.num_stopping, True)
    near = order.wakes[1] + _NEAR
    count = 0
    while order.wakes[1] <= near and order.wakes[1] < np.inf:
        order.turn[count] = _first_to_wake(order)
        _set_wake(order, order.turn[count], np.inf)
        count += 1
    return _wake_times(state, b, order, ranking, order.turn, count, True)


@kernel
def carry_out(
    state: State, b: int, order: KeyOrder, ranking: Ranking, rule: PlacementRule, physics: Physics
) -> None:
    """Stop and start what was chosen, and ask to be woken when a key changes next."""
    _stop_all(state, b, order, physics)
    _start_all(state, b, order, ranking, rule, physics)
    order.totals[0].decided_seconds = state.clusters[b].now
    if ranking.wakes:
        state.clusters[b].wake_seconds = _next_wake(state, b, order, ranking)


@kernel
def rearrange(
    state: State, b: int, order: KeyOrder, ranking: Ranking, rule: PlacementRule, physics: Physics
) -> None:
    """One decision, carried out."""
    choose(state, b, order, ranking, rule)
    carry_out(state, b, order, ranking, rule, physics)
