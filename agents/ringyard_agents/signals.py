"""SIGINT and SIGTERM end a command by an exception."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Interrupted", "Terminated", "signals_raise"]


class Interrupted(KeyboardInterrupt):
    """SIGINT, which Ctrl-C sends."""

    number = signal.SIGINT


class Terminated(Interrupted):
    """SIGTERM, which batch systems send: everything ends as after Ctrl-C."""

    number = signal.SIGTERM


@contextmanager
def signals_raise(raised: list[Interrupted]) -> Iterator[None]:
    """Raise on SIGINT and SIGTERM inside the block; a SIGTERM after the first signal is ignored.

    Args:
        raised: gets what was raised, since a library may drop the exception or fail because of it.
    """

    def stop(number: int, frame: object) -> None:
        if number == signal.SIGTERM and raised:
            return
        raised.append(Terminated() if number == signal.SIGTERM else Interrupted())
        raise raised[-1]

    if threading.current_thread() is not threading.main_thread():  # only that one may have handlers
        yield
        return
    usual = (signal.default_int_handler, signal.SIG_DFL)
    listens = signal.getsignal(signal.SIGINT) in usual  # in the background it is ignored
    numbers = [signal.SIGTERM, *([signal.SIGINT] if listens else [])]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
