"""Errors out of machine code: kernels say what a function of somebody's got wrong, and who wrote it.

Numba raises exceptions with constant arguments anywhere, and with values only where it counts references. So
one linked kernel counts them and raises for all others: `complain`.
"""

import pickle
import zlib
from ctypes import string_at
from typing import Any

from ringyard.compiled.functions import raising_kernel
from ringyard.errors import PluginError

__all__ = ["BrokenPromiseError", "complain", "complaint", "name_at", "note_address", "pass_on"]

_TEXTS: dict[int, str] = {}
_NAMES: dict[int, str] = {}


class BrokenPromiseError(PluginError):
    """A `PluginError` as machine code raises it: numbers that become a sentence."""

    def __init__(self, text: int, function: int, job: int, got: float, expected: float, there: float) -> None:
        values = {"job": job, "got": got, "expected": expected, "there": there}
        super().__init__(_TEXTS[text].format(function=name_at(function), **values))

    def __reduce__(self) -> tuple[Any, ...]:
        """As the sentence alone: addresses mean nothing to another process."""
        return PluginError, self.args


class RaisedInPluginError(PluginError):
    """An exception that a plugged-in function raised itself, with the function's name.

    Args:
        function: its address.
        pickled: where the exception lies, as numba keeps it: (class, arguments, place).
        size: of that, bytes.
    """

    def __init__(self, function: int, pickled: int, size: int) -> None:
        raised, arguments, _ = pickle.loads(string_at(pickled, size))
        text = ", ".join(map(str, arguments or ()))
        super().__init__(f"{name_at(function)} raised {raised.__name__}: {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        """As the sentence alone."""
        return PluginError, self.args


def note_address(address: int, name: str) -> None:
    """Remember whose machine code begins there."""
    _NAMES[address] = name


def name_at(address: int) -> str:
    """Module and name of the plugged-in function whose machine code begins there."""
    return _NAMES[address]


def complaint(text: str) -> int:
    """The number by which kernels `complain` with this text, the same in every process.

    Args:
        text: with the fields {function}, {job}, {got}, {expected} and {there}.
    """
    number = zlib.crc32(text.encode())
    _TEXTS[number] = text
    return number


@raising_kernel
def complain(text: int, function: int, job: int, got: float, expected: float, there: float) -> None:
    """Raise a `BrokenPromiseError`, which is a PluginError; it goes through every kernel up to Python.

    Args:
        text: what `complaint` made.
        function: `address_of` the function to blame.
        job: row.
        got: what it returned.
        expected: what it should have.
        there: a third number of the text.
    """
    raise BrokenPromiseError(text, function, job, got, expected, there)


@raising_kernel
def pass_on(function: int, pickled: int, size: int) -> None:
    """Raise the exception of a plugged-in function again, as a `RaisedInPluginError`."""
    raise RaisedInPluginError(function, pickled, size)
