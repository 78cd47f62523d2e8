"""Moving the limit between safe and loose jobs."""

import numpy as np

from ringyard.compiled import Int32Vector, kernel
from ringyard.state.arrays import State
from ringyard_baselines.families.ranking import Motion, Ranking
from ringyard_baselines.families.standing.books import SAFE, Books
from ringyard_baselines.families.standing.order import into_loose, into_safe

__all__ = ["all_safe", "move_limit", "usual_depth"]

_RISES, _STEPS = int(Motion.RISES), int(Motion.STEPS)
_FEWEST = 32


@kernel
def usual_depth(num_running: int) -> int:
    """Loose jobs, so many that finding them anew and looking at them at each decision cost about the same."""
    return _FEWEST + 2 * int(np.sqrt(num_running))


@kernel
def _after(books: Books, x: int, y: int, rises: bool) -> bool:
    """Whether running job x comes after running job y, by keys as they are now.

    Keys of safe jobs may have changed unseen. Equal keys: safe jobs come first, among them those that were
    first at the last decision; if they were equal then, too, those whose key stayed (where keys rise: those
    whose key did not), then those of the earlier tie.
    """
    one, other = books.entries[x], books.entries[y]
    if one.fresh != other.fresh:
        return one.fresh > other.fresh
    if one.where != other.where:
        return one.where > other.where
    if one.earlier != other.earlier:
        return one.earlier > other.earlier
    moved, other_moved = one.fresh != one.key, other.fresh != other.key
    if moved != other_moved:
        return other_moved if rises else moved
    if moved:
        return one.later_tie > other.later_tie
    return one.tie > other.tie


@kernel
def _sink(books: Books, heap: Int32Vector, count: int, position: int, rises: bool) -> None:
    """Restore a heap, the last of the order at its top."""
    j = heap[position]
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        if child + 1 < count and _after(books, heap[child + 1], heap[child], rises):
            child += 1
        if not _after(books, heap[child], j, rises):
            break
        heap[position] = heap[child]
        position = child
    heap[position] = j


@kernel
def move_limit(state: State, b: int, books: Books, ranking: Ranking, depth: int) -> None:
    """Let the last `depth` running jobs of the order be loose, all others safe."""
    cluster, totals = state.clusters[b], books.totals[0]
    count = int(cluster.num_running)
    rises = ranking.motion == _RISES
    heap = books.turn
    for i in range(count):
        j = state.running[b, i]
        heap[i] = j
        entry = books.entries[j]
        entry.fresh = entry.key
        entry.earlier = entry.key
        if entry.where == SAFE and ranking.motion != _STEPS:
            entry.fresh = ranking.key(state.jobs[b, j], cluster.now, ranking.parameters)
            entry.earlier = ranking.key(state.jobs[b, j], totals.decided_seconds, ranking.parameters)
    for i in range(count // 2 - 1, -1, -1):
        _sink(books, heap, count, i, rises)
    last = max(count - depth, 0)
    for end in range(count - 1, last - 1, -1):  # they gather behind the heap, in order
        j = heap[0]
        heap[0] = heap[end]
        heap[end] = j
        _sink(books, heap, end, 0, rises)
    _divide(state, b, books, heap, last, count, rises)
    totals.since_reordered = 0


@kernel
def _divide(
    state: State, b: int, books: Books, order: Int32Vector, last: int, count: int, rises: bool
) -> None:
    """The first `last` jobs of the list are safe, the others, in order, loose."""
    totals = books.totals[0]
    totals.num_safe = 0
    totals.num_loose = 0
    totals.safe_gpus = 0
    for i in range(last):
        j = order[i]
        if books.entries[j].where != SAFE:
            books.entries[j].later_tie = books.entries[j].tie
        into_safe(state, b, books, j)
    for i in range(count - 1, last - 1, -1):
        entry = books.entries[order[i]]
        if entry.fresh != entry.key:
            if rises:
                totals.lowest_tie -= 1
                entry.tie = totals.lowest_tie
            else:
                entry.tie = totals.reserved_tie
                totals.reserved_tie -= 1
            entry.key = entry.fresh
    for i in range(last, count):
        into_loose(books, order[i])
    if last == 0:
        totals.limit_key, totals.limit_tie = -np.inf, np.iinfo(np.int64).min
    else:
        first = books.entries[order[last]]
        totals.limit_key, totals.limit_tie = first.key, first.tie


@kernel
def all_safe(state: State, b: int, books: Books) -> None:
    """Nobody was passed over: let every running job be safe."""
    totals = books.totals[0]
    for i in range(totals.num_loose):
        j = books.loose[i]
        books.entries[j].later_tie = books.entries[j].tie
        into_safe(state, b, books, j)
    totals.num_loose = 0
    totals.limit_key, totals.limit_tie = np.inf, np.iinfo(np.int64).max
