"""Run a function on many tasks in worker processes. A killed worker fails only its task."""

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from ringyard.errors import SchedulerError, WorkloadWarning
from ringyard.threads import usable_cores
from ringyard_agents.command_line import raise_if_stopped

TASK = TypeVar("TASK")
RESULT = TypeVar("RESULT")

_PR_SET_PDEATHSIG = 1
_SIGNALS = {signal.SIGINT, signal.SIGTERM}

_shown: dict[Any, Any] = {}  # registry of the warnings of workers


def run_in_processes(
    function: Callable[[TASK], RESULT], tasks: Sequence[TASK], workers: int | None
) -> Generator[tuple[TASK, RESULT | Exception], None, None]:
    """Yield (task, result or exception) of every task, in the order in which they end.

    At most one process per core runs the module-level `function`. With 1 worker, tasks run in this process. A
    killed process gives its task a SchedulerError and is replaced. The processes end when the generator is
    closed or this process ends.
    """
    cores = usable_cores()
    if min(workers or cores, len(tasks)) <= 1:
        for task in tasks:
            yield task, _attempt(function, task)
        return
    waiting, count = iter(tasks), min(workers or cores, cores, len(tasks))
    pool = ProcessPool(count, initializer=prepare_worker, context=multiprocessing.get_context("spawn"))
    running: dict[Future[Any], TASK] = {}

    def start(number: int) -> None:
        for task in itertools.islice(waiting, number):
            try:
                running[pool.schedule(_attempt_in_worker, [function, task])] = task
            except RuntimeError as error:
                raise SchedulerError("worker processes cannot start; workers=1 runs without them") from error

    try:
        with _signals_blocked():
            start(count + 1)  # the next task is ready when a process becomes free
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                start(1)
                yield running.pop(future), _outcome(future)
    finally:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _outcome(future: Future[Any]) -> Any:
    try:
        result, caught = future.result()
        for text, category, file, line in caught:  # equal ones of several workers are shown once
            warnings.warn_explicit(text, category, file, line, registry=_shown)
        return result
    except ProcessExpired as error:
        code = error.exitcode
        reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return SchedulerError(f"its process {reason}; if memory ran out, use fewer workers")
    except Exception as error:
        return error


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in threads and processes that the block starts (see `prepare_worker`)."""
    resource_tracker.ensure_running()  # starting it later would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def prepare_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and end with the parent."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    warnings.simplefilter("ignore", WorkloadWarning)  # the parent has shown it
    parent = multiprocessing.parent_process()
    if sys.platform == "linux" and parent is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # the parent has ended already
            os._exit(1)


def _attempt_in_worker(function: Callable[[Any], Any], task: Any) -> tuple[Any, list[Any]]:
    """Return what `_attempt` returns, and the warnings meanwhile, which the parent shows."""
    with warnings.catch_warnings(record=True) as caught:
        result = _attempt(function, task)
    return result, [(str(one.message), one.category, one.filename, one.lineno) for one in caught]


def _attempt(function: Callable[[Any], Any], task: Any) -> Any:
    """Return the function's result, or its exception in a form that can be pickled."""
    try:
        return function(task)
    except Exception as error:
        raise_if_stopped(error)
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return SchedulerError(f"{type(error).__name__}: {error}")
        return error
