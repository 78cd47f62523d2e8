"""How many threads step a batch of clusters, and the threads: machine code runs in several at once."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Count, require

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
    """Step batches of clusters that are made from now on in so many threads; results are the same.

    Args:
        num_threads: None: as many as this process has cores.

    Raises:
        ConfigurationError: not 1 or more.
    """
    global _chosen
    require("num_threads", num_threads, Count | None)
    _chosen = num_threads


@functools.cache
def _pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    """Of this process: a forked one has none of the threads of its parent."""
    return ThreadPoolExecutor(num_threads, "ringyard")


def in_parts(
    play: Callable[[NDArray[np.int64]], RESULT], clusters: NDArray[np.int64], num_threads: int, least: int
) -> list[RESULT]:
    """What a function that lets go of the interpreter makes of parts of the clusters, at once.

    Args:
        play: what to do with some of them; clusters do not know of each other.
        clusters: indices.
        num_threads: at most.
        least: clusters of a part, unless there are fewer.

    Raises:
        Exception: what `play` raises in the first part in which it does, when all have ended.
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
        wait(waiting)  # nobody works on when an error is told
    return [done, *(one.result() for one in waiting)]
