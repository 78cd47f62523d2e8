"""Heaps of the books: waiting jobs by their place in the order, and jobs by when their keys change."""

import numpy as np

from ringyard.compiled import kernel
from ringyard_baselines.families.standing.books import ABSENT, WAITS, Books, before

__all__ = ["enqueue", "head", "leave_queue", "requeue", "set_wake"]


@kernel
def _rise(books: Books, size: int, position: int) -> int:
    first = books.first[size]
    j = books.queue[first + position]
    while position > 0:
        parent = (position - 1) >> 1
        above = books.queue[first + parent]
        if not before(books, j, above):
            break
        books.queue[first + position] = above
        books.entries[above].position = position
        position = parent
    books.queue[first + position] = j
    books.entries[j].position = position
    return position


@kernel
def _sink(books: Books, size: int, position: int) -> None:
    first = books.first[size]
    count = books.queued[size]
    j = books.queue[first + position]
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        if child + 1 < count and before(books, books.queue[first + child + 1], books.queue[first + child]):
            child += 1
        below = books.queue[first + child]
        if not before(books, below, j):
            break
        books.queue[first + position] = below
        books.entries[below].position = position
        position = child
    books.queue[first + position] = j
    books.entries[j].position = position


@kernel
def head(books: Books, size: int) -> int:
    """The first of those that wait for the size-th number of GPUs; -1 if none waits."""
    return int(books.queue[books.first[size]]) if books.queued[size] > 0 else -1


@kernel
def enqueue(books: Books, j: int) -> None:
    """Job j waits."""
    entry = books.entries[j]
    position = books.queued[entry.size]
    books.queue[books.first[entry.size] + position] = j
    books.queued[entry.size] += 1
    books.totals[0].num_queued += 1
    entry.where = WAITS
    _rise(books, entry.size, position)


@kernel
def leave_queue(books: Books, j: int) -> None:
    """Job j waits no more."""
    entry = books.entries[j]
    first = books.first[entry.size]
    books.queued[entry.size] -= 1
    books.totals[0].num_queued -= 1
    entry.where = ABSENT
    count = books.queued[entry.size]
    if entry.position < count:
        books.queue[first + entry.position] = books.queue[first + count]
        _sink(books, entry.size, _rise(books, entry.size, entry.position))


@kernel
def requeue(books: Books, j: int) -> None:
    """The place of waiting job j in the order has changed."""
    entry = books.entries[j]
    _sink(books, entry.size, _rise(books, entry.size, entry.position))


@kernel
def _wake_up(books: Books, position: int) -> int:
    j = books.wakes[position]
    seconds = books.entries[j].wake_seconds
    while position > 0:
        parent = (position - 1) >> 1
        above = books.wakes[parent]
        if books.entries[above].wake_seconds <= seconds:
            break
        books.wakes[position] = above
        books.entries[above].wake_position = position
        position = parent
    books.wakes[position] = j
    books.entries[j].wake_position = position
    return position


@kernel
def _wake_down(books: Books, position: int) -> None:
    count = books.totals[0].num_wakes
    j = books.wakes[position]
    seconds = books.entries[j].wake_seconds
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        below = books.wakes[child]
        if child + 1 < count:
            other = books.wakes[child + 1]
            if books.entries[other].wake_seconds < books.entries[below].wake_seconds:
                child += 1
                below = other
        if books.entries[below].wake_seconds >= seconds:
            break
        books.wakes[position] = below
        books.entries[below].wake_position = position
        position = child
    books.wakes[position] = j
    books.entries[j].wake_position = position


@kernel
def set_wake(books: Books, j: int, seconds: float) -> None:
    """The key of job j wants to be looked at then; inf: not any more."""
    entry, totals = books.entries[j], books.totals[0]
    position = entry.wake_position
    entry.wake_seconds = seconds
    if position >= 0 and seconds == np.inf:
        totals.num_wakes -= 1
        entry.wake_position = -1
        if position < totals.num_wakes:
            books.wakes[position] = books.wakes[totals.num_wakes]
            _wake_down(books, _wake_up(books, position))
    elif seconds < np.inf:
        if position < 0:
            position = totals.num_wakes
            books.wakes[position] = j
            totals.num_wakes += 1
        _wake_down(books, _wake_up(books, position))
