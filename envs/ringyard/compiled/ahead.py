"""Several processes compile what a first start needs: kernels are independent, and machine code lies on disk.

Where a kernel that Python calls has no machine code yet, processes beside this one compile what it is made
of, each from another end. Who compiles a kernel holds its lock, so that nobody compiles it a second time; a
process that has ended holds none.
"""

import functools
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from numba.core.compiler_lock import global_compiler_lock

from ringyard.threads import usable_cores

__all__ = ["compile_ahead", "compiling_once", "is_on_disk", "missing_kernels"]

#: says that a process is one of those beside
_BESIDE = "RINGYARD_COMPILES_AHEAD"

#: kernels to compile from which on a process more, which takes a second to start, is worth it
_WORTH = 24

#: most processes beside: what is left to compile in the end is one kernel after the other
_MOST = 3

#: seconds without a kernel that anybody finished, after which a process beside gives up
_PATIENCE = 20.0

_beside: list[subprocess.Popen[bytes]] = []


@functools.cache
def _locks() -> Path | None:
    """This user's folder for locks, None where there can be none."""
    folder = Path(tempfile.gettempdir()) / f"ringyard_compiling_{os.getuid() if hasattr(os, 'getuid') else 0}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def is_on_disk(file: Any) -> bool:
    """Whether numba's cache has machine code of a kernel as its source is now.

    Args:
        file: the kernel's, as numba's cache has it; None: it keeps none of it.
    """
    try:
        return file is None or bool(file._load_index())
    except (AttributeError, ImportError, pickle.UnpicklingError, EOFError):
        return False  # of another version, whose types are gone


def _lock(file: Any) -> FileLock:
    """Of a kernel by its file in numba's cache; who has it may take it again."""
    folder = _locks()
    assert folder is not None
    path = folder / f"{zlib.crc32(file._index_path.encode()):08x}.lock"
    return FileLock(path, poll_interval=0.005, is_singleton=True)


@contextmanager
def compiling_once(file: Any) -> Iterator[None]:
    """Hold the lock of a kernel whose machine code is not on disk, or wait until who holds it is done.

    Args:
        file: as for `is_on_disk`.
    """
    if _locks() is None or is_on_disk(file):
        yield
        return
    with global_compiler_lock, _lock(file):
        yield


def missing_kernels(root: Any, find_used: Callable[[Any], list[Any]]) -> list[Any]:
    """The kernels that a kernel is made of and that have no machine code on disk, callees first.

    Args:
        root: a kernel.
        find_used: (kernel) -> the kernels that it calls.
    """
    return [one for one in _reachable(root, find_used, 0) if one.cached is False]


def compile_ahead(root: Any, missing: int) -> None:
    """Start processes that compile what a kernel is made of, if much of it has no machine code yet.

    Args:
        root: a kernel that Python calls, found by its module and name.
        missing: kernels to compile.
    """
    wanted = min(usable_cores() - 1, _MOST)
    _beside[:] = [one for one in _beside if one.poll() is None]
    if missing < _WORTH or os.environ.get(_BESIDE) or len(_beside) >= wanted or _locks() is None:
        return
    environment = os.environ | {_BESIDE: "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for number in range(len(_beside), wanted):
        words = [root.python.__module__, root.python.__qualname__, str(number)]
        with suppress(OSError):  # no process more: this one compiles alone
            _beside.append(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, *words],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )


def _reachable(root: Any, find_used: Callable[[Any], list[Any]], number: int) -> list[Any]:
    """The kernels that a kernel is made of, callees first; every other process begins at another end."""
    found: dict[int, Any] = {}
    seen: set[int] = {id(root)}

    def visit(one: Any) -> None:
        used = find_used(one)[:: -1 if number % 2 == 0 else 1]
        shift = number // 2 * len(used) // 2
        for other in used[shift:] + used[:shift]:
            if id(other) not in seen:
                seen.add(id(other))
                visit(other)
                found[id(other)] = other

    visit(root)
    return list(found.values())


def main(module: str, name: str, number: str) -> None:
    """Compile what a kernel is made of, beside the process that needs it."""
    from ringyard.compiled.functions import used_kernels

    root = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    left = [one for one in _reachable(root, used_kernels, int(number)) if one.cached is False]
    parent, progress = os.getppid(), time.monotonic()
    while left and os.getppid() == parent and time.monotonic() - progress < _PATIENCE:
        tried = [one for one in left if _can_compile(one, used_kernels) and _compile_if_free(one)]
        still = [one for one in left if not (one in tried or one.cached)]
        if len(still) < len(left):
            progress = time.monotonic()
        else:
            time.sleep(0.02)  # all that could be done is being done by others
        left = still


def _can_compile(one: Any, find_used: Callable[[Any], list[Any]]) -> bool:
    """Whether all that a kernel calls is there: what somebody else is at need not be waited for."""
    return all(other.cached is not False for other in find_used(one))


def _compile_if_free(one: Any) -> bool:
    """Compile a kernel, if nobody is at it; whether it was tried."""
    try:
        with _lock(one.cache_file).acquire(timeout=0):
            with suppress(Exception):  # who needs it will say what is wrong
                one.compile_declared()
            return True
    except Timeout:
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
