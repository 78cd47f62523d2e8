"""Threads that step the clusters of a batch in parallel."""

import functools
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import PositiveInt, require

RESULT = TypeVar("RESULT")

_OWN_GROUPS, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

_num_threads: int | None = None  #: value of the last `set_num_threads`


def usable_cores() -> int:
    """Return the number of cores that this process may use: the least of its affinity and its CPU quotas."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *(max(1, math.ceil(quota)) for quota in _cpu_quotas())])


def _cpu_quotas() -> Iterator[float]:
    """Yield the CPU quotas of this process in cores: those of its control groups (versions 1 and 2)."""
    groups = _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.is_file() else []
    for _, controllers, path in (line.split(":", 2) for line in groups):
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = _GROUPS / "cpu" if controllers else _GROUPS
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        folder = top / path.lstrip("/")  # in a container, `top` often has its files
        for one in {top, folder, *folder.parents} - set(top.parents):
            with suppress(OSError, ValueError):  # no quota is "max" or -1
                quota, period = (int(word) for name in names for word in (one / name).read_text().split())
                if quota > 0:
                    yield quota / period


def get_num_threads() -> int:
    """Return the number of threads that step a batch: the least of `set_num_threads` and `usable_cores()`."""
    cores = usable_cores()
    return min(_num_threads or cores, cores)


def set_num_threads(num_threads: Annotated[int, "[1, inf)"] | None) -> None:
    """Set the number of threads of environments that are created later. Results do not depend on it.

    Args:
        num_threads: 1 or more, of which no more are used than there are cores. None: one per core.

    Raises:
        ConfigurationError: another value.
    """
    global _num_threads
    require("num_threads", num_threads, PositiveInt | None)
    _num_threads = num_threads


@functools.cache
def _pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    """Return the pool of a process, because a forked process has none of its parent's threads."""
    return ThreadPoolExecutor(num_threads, "ringyard")


def run_in_parts(
    function: Callable[[NDArray[np.int64]], RESULT],
    clusters: NDArray[np.int64],
    num_threads: int,
    min_size: int,
) -> list[RESULT]:
    """Call a function on parts of the clusters in several threads, and return the results.

    Args:
        function: takes indices of clusters and releases the interpreter's lock.
        clusters: [clusters] indices.
        num_threads: largest number of threads.
        min_size: smallest number of clusters in a part, unless there are fewer.

    Raises:
        Exception: the first error of `function`, after all parts have ended.
    """
    count = min(num_threads, len(clusters) // min_size)
    if count < 2:
        return [function(clusters)]
    own, *others = np.array_split(clusters, count)
    pool = _pool(os.getpid(), num_threads - 1)
    waiting = [pool.submit(function, part) for part in others]
    try:
        done = function(own)
    finally:
        wait(waiting)  # no thread may go on after an error
    return [done, *(one.result() for one in waiting)]
