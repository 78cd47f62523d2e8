"""What is remembered from one decision to the next: who stands where in the order, and what has been seen."""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import Int32Vector, IntVector, Record, Records1, bundle, f8, i4, i8, kernel

__all__ = [
    "ABSENT",
    "LOOSE",
    "SAFE",
    "WAITS",
    "Books",
    "Totals",
    "before",
    "before_limit",
    "empty_books",
    "touch",
]

# where a job stands
ABSENT, WAITS, SAFE, LOOSE = 0, 1, 2, 3


class Entry(Record):
    """One job. Jobs of equal keys go by `tie`: whose key has come down to it later goes later."""

    key: f8  # when it was last looked at
    fresh: f8  # the key now, while it is looked at
    earlier: f8  # the key at the last decision, while the limit moves
    tie: i8
    later_tie: i8  # takes the place of `tie` if the key turns out to have changed unseen
    where: i4
    touched: i4  # it is looked at in the next decision
    size: i4  # position of its number of GPUs among all numbers
    position: i4  # in the heap of those that wait for as many GPUs
    wake_seconds: f8
    wake_position: i4  # in the heap of wakes; -1: none


class Totals(Record):
    """Counts, and the limit between safe and loose jobs."""

    seen_arrivals: i4
    seen_ended: i4
    num_queued: i4
    num_safe: i4
    num_loose: i4
    num_turn: i4
    num_touched: i4
    num_starting: i4
    num_stopping: i4
    num_wakes: i4
    since_reordered: i4
    safe_gpus: i8
    highest_tie: i8
    lowest_tie: i8
    limit_tie: i8
    limit_key: f8
    reserved_tie: i8  # ties below it, of this decision, are for safe jobs that become loose
    decided_seconds: f8  # when the last decision was


@bundle
class Books:
    """Entries of all jobs, and lists of rows.

    Attributes:
        entries: [jobs] `Entry`.
        totals: [1] `Totals`; lists below are as long as it says.
        queue: [jobs] waiting jobs, a heap by (key, tie) for each number of GPUs.
        first: [numbers + 1] where each heap begins.
        queued: [numbers] jobs in each heap.
        demand: [numbers] GPUs that its jobs ask for, ascending.
        loose: [jobs] running jobs behind the limit, in order.
        turn: [jobs] scratch: jobs that are looked at in this decision, in order.
        touched: [jobs] jobs to look at in the next one.
        starting: [jobs] waiting jobs that shall hold GPUs, in order.
        stopping: [jobs] running jobs that shall not.
        wakes: [jobs] a heap by when their keys want to be looked at.
    """

    entries: Records1[Entry]
    totals: Records1[Totals]
    queue: Int32Vector
    first: Int32Vector
    queued: Int32Vector
    demand: IntVector
    loose: Int32Vector
    turn: Int32Vector
    touched: Int32Vector
    starting: Int32Vector
    stopping: Int32Vector
    wakes: Int32Vector


def empty_books(num_gpus: NDArray[np.int32]) -> Books:
    """Of a simulation that is about to begin.

    Args:
        num_gpus: [jobs] that each asks for.
    """
    demand, size = np.unique(num_gpus, return_inverse=True)
    entries, totals = Entry.zeros(len(num_gpus)), Totals.zeros(1)
    entries["size"] = size
    entries["wake_position"] = -1
    totals["limit_key"], totals["limit_tie"] = np.inf, np.iinfo(np.int64).max
    first = np.concatenate([[0], np.bincount(size, minlength=len(demand)).cumsum()]).astype(np.int32)
    lists = (np.zeros(len(num_gpus), np.int32) for _ in range(7))
    queue, *others = lists
    return Books(
        entries, totals, queue, first, np.zeros(len(demand), np.int32), demand.astype(np.int64), *others
    )


@kernel
def before(books: Books, x: int, y: int) -> bool:
    """Whether job x comes before job y."""
    one, other = books.entries[x], books.entries[y]
    return one.key < other.key or (one.key == other.key and one.tie < other.tie)


@kernel
def before_limit(books: Books, j: int) -> bool:
    """Whether job j, if it runs, is safe."""
    one, totals = books.entries[j], books.totals[0]
    return one.key < totals.limit_key or (one.key == totals.limit_key and one.tie < totals.limit_tie)


@kernel
def touch(books: Books, j: int) -> None:
    """Look at job j in the next decision."""
    totals = books.totals[0]
    if books.entries[j].touched == 0:
        books.entries[j].touched = 1
        books.touched[totals.num_touched] = j
        totals.num_touched += 1
