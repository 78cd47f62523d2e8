"""Threads that step the clusters of a batch at the same time."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import PositiveInt, require

RESULT = TypeVar("RESULT")

_chosen: int | None = None


def usable_cores() -> int:
    """How many cores this process may use; all of them where the system does not say which."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_num_threads() -> int:
    """Threads that step batches of clusters: what `set_num_threads` said, else `usable_cores`."""
    return usable_cores() if _chosen is None else _chosen


def set_num_threads(num_threads: Annotated[int, "[1, inf)"] | None) -> None:
    """Set the threads of batches that are made from now on; None: one per core. Results stay equal.

    Raises:
        ConfigurationError: not 1 or more.
    """
    global _chosen
    require("num_threads", num_threads, PositiveInt | None)
    _chosen = num_threads


@functools.cache
def _pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    """Of this process: a forked one has none of the threads of its parent."""
    return ThreadPoolExecutor(num_threads, "ringyard")


def in_parts(
    play: Callable[[NDArray[np.int64]], RESULT], clusters: NDArray[np.int64], num_threads: int, least: int
) -> list[RESULT]:
    """Results of a function on parts of the clusters, in several threads.

    Args:
        play: takes indices of clusters; releases the interpreter's lock.
        clusters: [clusters] indices.
        num_threads: largest number of threads.
        least: clusters of a part, unless there are fewer.

    Raises:
        Exception: the first one of `play`, when all parts have ended.
    """
    count = min(num_threads, len(clusters) // least)
    if count < 2:
        return [play(clusters)]
    own, *others = np.array_split(clusters, count)
    pool = _pool(os.getpid(), num_threads - 1)
    waiting = [pool.submit(play, part) for part in others]
    try:
        done = play(own)
    finally:
        wait(waiting)  # no thread may work on after an error
    return [done, *(one.result() for one in waiting)]
