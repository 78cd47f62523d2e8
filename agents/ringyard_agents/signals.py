"""Signals that end a command: each raises, and again if whoever it was raised in has dropped it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Interrupted", "Terminated", "signals_raise"]

_AGAIN_SECONDS = 0.5
_HAS_TIMERS = hasattr(signal, "setitimer")  # Windows has none


class Interrupted(KeyboardInterrupt):
    """SIGINT, which Ctrl-C sends."""

    number = signal.SIGINT


class Terminated(Interrupted):
    """SIGTERM, which batch systems send: everything ends as after Ctrl-C."""

    number = signal.SIGTERM


@contextmanager
def signals_raise(raised: list[Interrupted]) -> Iterator[None]:
    """SIGINT and SIGTERM raise in this block; a second SIGTERM does not disturb what the first has begun.

    Libraries that are being imported drop what is raised in them, or stumble over it: hence the list, and a
    timer that raises again while nothing is being done about it.

    Args:
        raised: gets what was raised, in this order.
    """

    def stop(number: int, frame: object) -> None:
        if number != signal.SIGINT and _being_handled(raised):
            return
        if number not in (signal.SIGINT, signal.SIGTERM):  # the timer
            raise raised[0]
        raised.append(Terminated() if number == signal.SIGTERM else Interrupted())
        if _HAS_TIMERS:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS, _AGAIN_SECONDS)
        raise raised[-1]

    if threading.current_thread() is not threading.main_thread():  # only that one may have handlers
        yield
        return
    ours = [signal.SIGTERM, *([signal.SIGALRM] if _HAS_TIMERS else [])]
    usual = (signal.default_int_handler, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) in usual:  # in the background it is ignored
        ours.append(signal.SIGINT)
    before = {number: signal.signal(number, stop) for number in ours}
    try:
        yield
    finally:
        if raised and _HAS_TIMERS:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _being_handled(raised: list[Interrupted]) -> bool:
    """Whether what runs now runs because of one of them: it cleans up, saves, or says goodbye."""
    error, seen = sys.exception(), set[int]()
    while error is not None and id(error) not in seen:
        if error in raised:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
