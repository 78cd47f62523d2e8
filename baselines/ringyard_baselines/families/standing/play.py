"""Deciding: who shall hold GPUs, stopping the others, starting these, and the whole simulation."""

import numpy as np

from ringyard.compiled import kernel
from ringyard.placement import PlacementRule, place
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.life import start, stop
from ringyard.sim.engine.physics import Physics
from ringyard.state.arrays import State
from ringyard_baselines.families.ranking import Motion, Ranking, budget_of, wake_of
from ringyard_baselines.families.standing.books import Books, before, before_limit, touch
from ringyard_baselines.families.standing.heaps import enqueue, head, leave_queue, set_wake
from ringyard_baselines.families.standing.limit import all_safe, move_limit, usual_depth
from ringyard_baselines.families.standing.order import (
    NEAR,
    into_loose,
    into_safe,
    look_again,
    note_changes,
    out_of_running,
    sort_loose,
)

__all__ = ["play"]

_RISES, _STEPS = int(Motion.RISES), int(Motion.STEPS)
_NOBODY, _UNSURE = -1, -2


@kernel
def _next_waiting(books: Books, budget: int, strict: bool) -> int:
    """The first waiting job that fits (strict: the first); _UNSURE: safe jobs behind one might make room."""
    best = _NOBODY
    for size in range(len(books.demand)):
        j = head(books, size)
        if j < 0:
            continue
        if books.demand[size] > budget:
            if books.totals[0].num_safe > 0 and before_limit(books, j):
                return _UNSURE
            if not strict:
                continue
        if best < 0 or before(books, j, best):
            best = j
    return best


@kernel
def _walk(state: State, b: int, books: Books, budget: int, strict: bool) -> bool:
    """List who starts and who stops; False if the limit has to be moved forward first."""
    totals = books.totals[0]
    budget -= totals.safe_gpus
    totals.num_starting = 0
    totals.num_stopping = 0
    i = 0
    best = _next_waiting(books, budget, strict)
    while best >= 0 or i < totals.num_loose:
        waits = best >= 0 and (i >= totals.num_loose or before(books, best, books.loose[i]))
        j = best if waits else books.loose[i]
        demand = books.demand[books.entries[j].size]
        fits = demand <= budget
        if not fits and strict:
            break
        if waits:
            leave_queue(books, j)
            books.starting[totals.num_starting] = j
            totals.num_starting += 1
        else:
            i += 1
            if not fits:
                books.stopping[totals.num_stopping] = j
                totals.num_stopping += 1
                continue
        budget -= demand
        if waits or (best >= 0 and books.demand[books.entries[best].size] > budget):
            best = _next_waiting(books, budget, strict)
    for k in range(i, totals.num_loose):
        books.stopping[totals.num_stopping] = books.loose[k]
        totals.num_stopping += 1
    return best != _UNSURE


@kernel
def _choose(state: State, b: int, books: Books, ranking: Ranking, rule: PlacementRule) -> None:
    """List who starts and who stops, and keep the list of loose jobs short."""
    totals = books.totals[0]
    running = state.clusters[b].num_running
    depth = usual_depth(running)
    totals.since_reordered += 1
    if totals.num_loose > 4 * depth and totals.since_reordered > 4 * depth and ranking.motion != _RISES:
        move_limit(state, b, books, ranking, depth)
    depth = max(depth, totals.num_loose + 1)
    while not _walk(state, b, books, budget_of(state, b, rule), ranking.strict):
        for i in range(totals.num_starting):
            enqueue(books, books.starting[i])
        move_limit(state, b, books, ranking, running if ranking.motion == _RISES else depth)
        depth *= 2


@kernel
def _stop_all(state: State, b: int, books: Books, physics: Physics) -> None:
    """Stop who shall hold nothing, in the order of the heap of running jobs as it is each time."""
    totals = books.totals[0]
    for i in range(totals.num_stopping):
        first = i
        for k in range(i + 1, totals.num_stopping):
            place_k = state.jobs[b, books.stopping[k]].heap_position
            if place_k < state.jobs[b, books.stopping[first]].heap_position:
                first = k
        j = books.stopping[first]
        books.stopping[first] = books.stopping[i]
        books.stopping[i] = j
        stop(state, b, j, physics)
        out_of_running(state, b, books, j)
        enqueue(books, j)
        touch(books, j)
    if totals.num_stopping > 0:
        sort_loose(books)


@kernel
def _start_all(
    state: State, b: int, books: Books, ranking: Ranking, rule: PlacementRule, physics: Physics
) -> None:
    """Start who shall hold GPUs, in order; who finds no place waits on, its share of GPUs stays idle."""
    cluster, totals = state.clusters[b], books.totals[0]
    cluster.stamp += 1
    stamp = cluster.stamp
    out = state.gpu_scratch[b]
    started = 0
    any_loose = False
    for i in range(totals.num_starting):
        j = books.starting[i]
        closed = state.class_stamp[b, state.jobs[b, j].demand_class] == stamp
        if closed or place(state, b, j, rule, out) == 0:
            state.class_stamp[b, state.jobs[b, j].demand_class] = stamp  # nor does any that asks for the same
            enqueue(books, j)
            continue
        start(state, b, j, out, physics)
        books.starting[started] = j
        started += 1
        if before_limit(books, j):
            into_safe(state, b, books, j)
        else:
            into_loose(books, j)
            any_loose = True
        if ranking.motion == _STEPS:
            touch(books, j)
    totals.num_starting = started
    if any_loose:
        sort_loose(books)
    _note_ties(books, ranking.motion)


@kernel
def _note_ties(books: Books, motion: int) -> None:
    """Among equals, who starts goes after those who run, but if it waited and their keys fell to its own."""
    totals = books.totals[0]
    for i in range(totals.num_starting):
        if motion == _RISES:
            totals.highest_tie += 1
            books.entries[books.starting[i]].later_tie = totals.highest_tie
            continue
        entry = books.entries[books.starting[totals.num_starting - 1 - i]]
        entry.later_tie = entry.tie
        if entry.tie <= totals.reserved_tie:  # it came before this decision
            totals.lowest_tie -= 1
            entry.later_tie = totals.lowest_tie


@kernel
def _set_wakes(state: State, b: int, books: Books, ranking: Ranking) -> None:
    """Note when the keys of those that were looked at, started or stopped change next."""
    totals = books.totals[0]
    now = state.clusters[b].now
    for i in range(totals.num_turn + totals.num_starting + totals.num_stopping):
        if i < totals.num_turn:
            j = books.turn[i]
        elif i < totals.num_turn + totals.num_starting:
            j = books.starting[i - totals.num_turn]
        else:
            j = books.stopping[i - totals.num_turn - totals.num_starting]
        set_wake(books, j, wake_of(ranking, state.jobs[b, j], j, now))


@kernel
def _next_wake(state: State, b: int, books: Books, ranking: Ranking) -> float:
    """Earliest future time at which a key wants to be looked at, as it is computed now.

    The heap has times as they were computed at other moments, which differ in their last digits: all that are
    near the first are computed again.
    """
    totals = books.totals[0]
    now = state.clusters[b].now
    earliest = np.inf
    if totals.num_wakes == 0:
        return earliest
    near = books.entries[books.wakes[0]].wake_seconds + NEAR
    scratch = books.turn
    scratch[0] = 0
    count = 1
    while count > 0:
        count -= 1
        position = scratch[count]
        j = books.wakes[position]
        time = wake_of(ranking, state.jobs[b, j], j, now)
        if now < time < earliest:
            earliest = time
        for child in range(2 * position + 1, min(2 * position + 3, totals.num_wakes)):
            if books.entries[books.wakes[child]].wake_seconds <= near:
                scratch[count] = child
                count += 1
    return earliest


@kernel
def _decide(
    state: State, b: int, books: Books, ranking: Ranking, rule: PlacementRule, physics: Physics
) -> None:
    """One decision, carried out."""
    note_changes(state, b, books)
    look_again(state, b, books, ranking)
    if ranking.wakes:
        books.totals[0].num_starting = 0
        books.totals[0].num_stopping = 0
        _set_wakes(state, b, books, ranking)
    _choose(state, b, books, ranking, rule)
    if ranking.motion == _RISES and books.totals[0].num_queued == 0 and books.totals[0].num_stopping == 0:
        all_safe(state, b, books)
    _stop_all(state, b, books, physics)
    _start_all(state, b, books, ranking, rule, physics)
    books.totals[0].decided_seconds = state.clusters[b].now
    if ranking.wakes:
        books.totals[0].num_turn = 0
        _set_wakes(state, b, books, ranking)
        state.clusters[b].wake_seconds = _next_wake(state, b, books, ranking)


@kernel
def play(state: State, b: int, books: Books, ranking: Ranking, rule: PlacementRule, physics: Physics) -> bool:
    """Whole simulation; False if it stalls."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        _decide(state, b, books, ranking, rule, physics)
        if not advance(state, b, physics):
            return False
    return True
