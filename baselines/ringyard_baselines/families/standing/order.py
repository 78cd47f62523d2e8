"""Bringing the books up to date: who came and went, whose key changed, and where the limit lies."""

import numpy as np

from ringyard.compiled import kernel
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus
from ringyard_baselines.families.ranking import Motion, Ranking, complain_of_key
from ringyard_baselines.families.standing.books import (
    ABSENT,
    LOOSE,
    SAFE,
    WAITS,
    Books,
    before,
    before_limit,
    touch,
)
from ringyard_baselines.families.standing.heaps import enqueue, leave_queue, requeue, set_wake

__all__ = ["NEAR", "into_loose", "into_safe", "look_again", "note_changes", "out_of_running", "sort_loose"]

_WAITING, _RUNNING, _DONE = int(JobStatus.WAITING), int(JobStatus.RUNNING), int(JobStatus.DONE)
_STEPS = int(Motion.STEPS)
NEAR = 4e-6  # seconds: times of wakes that were computed at other moments differ by less


@kernel
def into_safe(state: State, b: int, books: Books, j: int) -> None:
    """Running job j, which is in no list, is safe."""
    books.entries[j].where = SAFE
    books.totals[0].num_safe += 1
    books.totals[0].safe_gpus += state.jobs[b, j].num_gpus


@kernel
def into_loose(books: Books, j: int) -> None:
    """Running job j, which is in no list, is loose; the list is not sorted."""
    books.entries[j].where = LOOSE
    books.loose[books.totals[0].num_loose] = j
    books.totals[0].num_loose += 1


@kernel
def out_of_running(state: State, b: int, books: Books, j: int) -> None:
    """Job j, which ran, does not; the list of loose jobs still has it until it is sorted."""
    if books.entries[j].where == SAFE:
        books.totals[0].num_safe -= 1
        books.totals[0].safe_gpus -= books.demand[books.entries[j].size]
    books.entries[j].where = ABSENT


@kernel
def sort_loose(books: Books) -> None:
    """Drop who is loose no more, and restore the order of the others."""
    totals = books.totals[0]
    count = 0
    for i in range(totals.num_loose):
        j = books.loose[i]
        if books.entries[j].where == LOOSE:
            k = count
            while k > 0 and before(books, j, books.loose[k - 1]):
                books.loose[k] = books.loose[k - 1]
                k -= 1
            books.loose[k] = j
            count += 1
    totals.num_loose = count


@kernel
def _note_lost(state: State, b: int, books: Books) -> None:
    """Servers failed under running jobs: they wait again."""
    for j in range(state.clusters[b].next_arrival):
        if books.entries[j].where >= SAFE and state.jobs[b, j].status == _WAITING:
            out_of_running(state, b, books, j)
            enqueue(books, j)
            touch(books, j)
    sort_loose(books)


@kernel
def note_changes(state: State, b: int, books: Books) -> None:
    """Who came, who has ended, and who was thrown off a server."""
    cluster, totals = state.clusters[b], books.totals[0]
    totals.highest_tie += cluster.num_running + 1
    totals.reserved_tie = totals.highest_tie
    while totals.seen_arrivals < cluster.next_arrival:
        j = totals.seen_arrivals
        totals.seen_arrivals += 1
        if state.jobs[b, j].status != _DONE:
            totals.highest_tie += 1
            books.entries[j].tie = totals.highest_tie
            books.entries[j].key = np.inf
            if state.jobs[b, j].status == _RUNNING:  # it ran before anybody looked
                into_safe(state, b, books, j)
            touch(books, j)
    any_loose = False
    while totals.seen_ended < cluster.num_done:
        j = state.ended[b, totals.seen_ended]
        totals.seen_ended += 1
        any_loose |= books.entries[j].where == LOOSE
        if books.entries[j].where == WAITS:
            leave_queue(books, j)
        else:
            out_of_running(state, b, books, j)
        set_wake(books, j, np.inf)
    if any_loose:
        sort_loose(books)
    if totals.num_safe + totals.num_loose != cluster.num_running:
        _note_lost(state, b, books)


@kernel
def _take_turn(books: Books, j: int) -> None:
    """Job j is looked at in this decision, after those that were before it in the order until now."""
    totals = books.totals[0]
    k = totals.num_turn
    while k > 0 and before(books, j, books.turn[k - 1]):
        books.turn[k] = books.turn[k - 1]
        k -= 1
    books.turn[k] = j
    totals.num_turn += 1


@kernel
def _gather(state: State, b: int, books: Books, motion: int) -> None:
    """List who is to be looked at: the touched, those whose wake has come, the loose if their keys drift."""
    totals = books.totals[0]
    now = state.clusters[b].now
    totals.num_turn = 0
    drifts = motion != _STEPS
    if drifts:
        for i in range(totals.num_loose):
            books.turn[i] = books.loose[i]
        totals.num_turn = totals.num_loose
    for i in range(totals.num_touched):
        j = books.touched[i]
        if state.jobs[b, j].status != _DONE and not (drifts and books.entries[j].where == LOOSE):
            _take_turn(books, j)
    while totals.num_wakes > 0 and books.entries[books.wakes[0]].wake_seconds <= now + NEAR:
        j = books.wakes[0]
        set_wake(books, j, np.inf)
        if books.entries[j].touched == 0:
            _take_turn(books, j)
    for i in range(totals.num_touched):
        books.entries[books.touched[i]].touched = 0
    totals.num_touched = 0


@kernel
def _read_keys(state: State, b: int, books: Books, ranking: Ranking) -> None:
    """The present keys of those whose turn it is, and their ties.

    Among equals, whose key fell to it comes after those who had it, whose key rose to it before them.
    """
    totals = books.totals[0]
    now = state.clusters[b].now
    for i in range(totals.num_turn):
        j = books.turn[i]
        entry = books.entries[j]
        entry.fresh = ranking.key(state.jobs[b, j], now, ranking.parameters)
        if np.isnan(entry.fresh):
            complain_of_key(ranking, j, entry.fresh, now)
        if entry.fresh < entry.key:
            totals.highest_tie += 1
            entry.tie = totals.highest_tie
    for i in range(totals.num_turn - 1, -1, -1):
        entry = books.entries[books.turn[i]]
        if entry.fresh > entry.key:
            totals.lowest_tie -= 1
            entry.tie = totals.lowest_tie


@kernel
def look_again(state: State, b: int, books: Books, ranking: Ranking) -> None:
    """Put everybody whose key may have changed where it belongs."""
    _gather(state, b, books, ranking.motion)
    _read_keys(state, b, books, ranking)
    totals = books.totals[0]
    resort = ranking.motion != _STEPS
    for i in range(totals.num_turn):
        j = books.turn[i]
        entry = books.entries[j]
        changed = entry.fresh != entry.key
        entry.key = entry.fresh
        if entry.where == ABSENT:
            enqueue(books, j)
        elif entry.where == WAITS:
            if changed:
                requeue(books, j)
        elif before_limit(books, j):
            if entry.where == LOOSE:
                entry.later_tie = entry.tie
                into_safe(state, b, books, j)
                resort = True
        else:
            resort = True
            if entry.where == SAFE:
                out_of_running(state, b, books, j)
                into_loose(books, j)
        if changed and ranking.motion == _STEPS:
            touch(books, j)
    if resort:
        sort_loose(books)
