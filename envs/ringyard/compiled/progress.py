"""What is said on standard error while kernels are compiled for the first time."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["announced", "compiled_one"]

#: kernels to compile from which on it takes long enough to be said
_WORTH = 24

_expected = 0
_left: set[str] = set()


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


@contextmanager
def announced(name: str, missing: list[str]) -> Iterator[None]:
    """Say that a kernel and what it is made of are compiled, how far that is, and how long it took.

    On a terminal one line follows the kernels that are done; elsewhere there is a line before and one after.

    Args:
        name: of a kernel that Python calls.
        missing: names of kernels whose machine code is not on disk yet.
    """
    global _expected
    if len(missing) < _WORTH or _left:
        yield
        return
    begin = time.monotonic()
    _left.update(missing)
    _expected = len(missing)
    _say(f"ringyard: compiling {name} and {_expected} kernels that it calls, once for this machine ...")
    how = "compilation stopped after"
    try:
        yield
        how = "compiled in"
    finally:
        _left.clear()
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        _say(f"{clear}ringyard: {how} {time.monotonic() - begin:.0f} s")


def compiled_one(name: str) -> None:
    """Note that a kernel is there, compiled or from the disk."""
    if name in _left:
        _left.discard(name)
        if sys.stderr.isatty():
            short = ".".join(name.split(".")[-2:])
            _say(f"\r\x1b[K  {_expected - len(_left)} of {_expected}: {short}", end="")
