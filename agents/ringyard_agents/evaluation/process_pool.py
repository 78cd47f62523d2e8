"""Worker processes that die with their parent, and whose death costs one task."""

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing import connection, resource_tracker
from typing import Any, Generic, TypeVar

from ringyard.errors import SchedulerError, WorkloadWarning

__all__ = ["spread"]

TASK = TypeVar("TASK")
RESULT = TypeVar("RESULT")

_PR_SET_PDEATHSIG = 1


def spread(
    function: Callable[[TASK], RESULT], tasks: Iterable[TASK], count: int
) -> Generator[tuple[TASK, RESULT | Exception], None, None]:
    """(task, result or what it raised) of every task, as they end, from `count` processes; close it.

    A process that is killed is a SchedulerError of its task, and another takes its place. However this
    process ends, they end with it; Ctrl-C is this process's business alone.

    Args:
        function: of a module, what it takes and returns can be pickled.
        tasks: what to do; the next one is asked for when a process is free.
        count: processes, 1 or more.
    """
    waiting = iter(tasks)
    busy: dict[connection.Connection, _Worker[TASK]] = {}
    try:
        for task in itertools.islice(waiting, count):
            worker = _Worker(function, task)
            busy[worker.pipe] = worker
        while busy:
            for pipe in connection.wait(list(busy)):
                worker = busy.pop(pipe)  # type: ignore[call-overload]
                done, outcome = worker.task, worker.outcome()
                following = next(waiting, None)
                if following is None:
                    worker.end()
                else:
                    worker = worker.go_on(following)
                    busy[worker.pipe] = worker
                yield done, outcome
    finally:
        for worker in busy.values():
            worker.end()


class _Worker(Generic[TASK]):
    """One process and the task it is at."""

    def __init__(self, function: Callable[[TASK], Any], task: TASK) -> None:
        self.function = function
        self.task = task
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(function, theirs), daemon=True)
        with _signals_held():
            self._process.start()
        theirs.close()
        self._give(task)

    def _give(self, task: TASK) -> None:
        self.task = task
        with contextlib.suppress(BrokenPipeError):  # it is dead: its outcome will say so
            self.pipe.send(task)

    def outcome(self) -> Any:
        """What became of the task."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            return SchedulerError(f"its process {how}; if memory was short, fewer workers need less")

    def go_on(self, task: TASK) -> "_Worker[TASK]":
        """The worker that does a further task: this one, unless it is dead."""
        if self._process.is_alive():
            self._give(task)
            return self
        self.end()
        return _Worker(self.function, task)

    def end(self) -> None:
        """Kill it, whatever it is at."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """SIGINT and SIGTERM come after the block, here as in processes started inside (see `_work`)."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when it starts it lets signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(function: Callable[[Any], Any], pipe: connection.Connection) -> None:
    """Do one task after the other until the parent is gone or ends this process."""
    _die_with_parent()
    warnings.simplefilter("ignore", WorkloadWarning)  # the parent has said it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent sees to it
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with contextlib.suppress(EOFError, ConnectionError):  # the parent has gone
        while True:
            pipe.send(_outcome(function, pipe.recv()))


def _outcome(function: Callable[[Any], Any], task: Any) -> Any:
    try:
        return function(task)
    except Exception as error:
        return _sendable(error)


def _sendable(error: Exception) -> Exception:
    """The error with the traceback of this process as a note; another one if it cannot be sent."""
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return SchedulerError(f"{type(error).__name__}: {error}")
    return error


def _die_with_parent() -> None:
    """End this process when its parent ends, at once on Linux, when Python has its turn elsewhere."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # it has gone before that
            os._exit(1)
    threading.Thread(target=watch, daemon=True).start()
