"""What a parameter may be stands in its annotation; `checked` holds callers to it before anything runs.

    @checked("workload")
    @dataclass(frozen=True)
    class Synthetic:
        num_jobs: Count
        load: Positive = 1.0

Annotations are read as usual (numbers, text, `Literal`, unions, lists, mappings, classes, protocols). What
stands beside one says more: an interval which numbers, `Annotated[float, "(0, 1]"]`; `_RULES` has the rest,
for lists and mappings. NaN is in no interval, infinity only in those that close with it. Numbers of numpy are
numbers; True and False are not; a list will do where a tuple is meant.
"""

import functools
import inspect
import math
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError

__all__ = [
    "Amount",
    "Count",
    "Interval",
    "Positive",
    "Seed",
    "Share",
    "Weights",
    "Whole",
    "checked",
    "require",
    "require_memory",
    "row_bytes",
    "shown",
]

T = TypeVar("T", bound=Callable[..., Any])

Positive = Annotated[float, "(0, inf)"]
Amount = Annotated[float, "[0, inf)"]
Share = Annotated[float, "[0, 1]"]
#: as many as records count
Count = Annotated[int, "[1, 2147483647]"]
Whole = Annotated[int, "[0, 2147483647]"]
Bytes = Annotated[int, "[0, 1000000000000000]"]

#: {name: weight}, drawn by
Weights = Annotated[Mapping[str, Amount], "of positive sum"]

Seed = Annotated[int, "[0, 9223372036854775807]"]

_LONGEST = 100


@dataclass(frozen=True)
class Interval:
    """Numbers between two ends.

    Attributes:
        text: in mathematical notation, "(0, inf]" for instance.
        whole: whole numbers only.
    """

    text: str
    whole: bool = False

    @functools.cached_property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest float in it."""
        low, high = map(float, self.text[1:-1].split(","))
        return (
            low if self.text[0] == "[" else float(np.nextafter(low, np.inf)),
            high if self.text[-1] == "]" else float(np.nextafter(high, -np.inf)),
        )

    def holds(self, values: Any) -> NDArray[np.bool_]:
        """[...] which of the values lie in it."""
        low, high = self.ends
        inside = (values >= low) & (values <= high)
        return np.asarray(inside & (values == np.floor(values)) if self.whole else inside)

    def __str__(self) -> str:
        """What an error says was expected."""
        low, high = self.text[1:-1].split(", ")
        kind = "a whole number" if self.whole else "a number" if high == "inf" else f"a number in {self.text}"
        if high != "inf":
            return f"{kind}, {int(low):,} to {int(high):,}" if self.whole else kind
        if self.text[-1] == ")":
            kind = kind.replace("a ", "a finite ")
        if low == "-inf":
            return kind
        return f"{kind} above {low}" if self.text[0] == "(" else f"{kind}, {low} or more"


def shown(value: Any) -> str:
    """A value for an error message, shortened."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class _WrongError(Exception):
    """A value is not what its annotation says."""

    def __init__(self, where: str, value: Any, expected: str) -> None:
        super().__init__(where, value, expected)
        self.where, self.value, self.expected = where, value, expected


@functools.cache
def _interval(text: str, whole: bool) -> Interval:
    return Interval(text, whole)


def _number(value: Any, where: str, interval: Interval) -> None:
    kind = Integral if interval.whole else Real
    try:
        right = isinstance(value, kind) and not isinstance(value, bool)
        right = right and bool(interval.holds(float(value)))
    except OverflowError:
        right = False
    if not right:
        raise _WrongError(where, value, str(interval))


def _union(value: Any, where: str, options: Sequence[Any]) -> None:
    expected = []
    for option in options:
        try:
            return _check(value, where, option)
        except _WrongError as wrong:
            if wrong.where != where:  # it is of this kind, but something in it is wrong
                raise
            expected.append(wrong.expected)
    raise _WrongError(where, value, ", or ".join(expected))


def _sequence(value: Any, where: str, arguments: Sequence[Any]) -> None:
    flat = value.ndim == 1 if isinstance(value, np.ndarray) else isinstance(value, Sequence)
    if not flat or isinstance(value, str | bytes):
        raise _WrongError(where, value, "a list")
    fixed = len(arguments) > 1 and arguments[-1] is not Ellipsis
    if fixed and len(value) != len(arguments):
        raise _WrongError(where, value, f"a list of {len(arguments)}")
    for position, one in enumerate(value):
        _check(one, f"{where}[{position}]", arguments[position if fixed else 0])


def _mapping(value: Any, where: str, key: Any, item: Any) -> None:
    if not isinstance(value, Mapping):
        raise _WrongError(where, value, "a mapping {key: value}")
    for name, one in value.items():
        _check(name, f"a key of {where}", key)
        _check(one, f"{where}[{name!r}]", item)


def _members(protocol: Any) -> list[str]:
    """What a protocol asks for: attributes, properties and methods, `__call__` among them."""
    names: set[str] = set()
    for base in protocol.__mro__[:-1]:
        names |= set(getattr(base, "__annotations__", {}))
        names |= {name for name, value in vars(base).items() if isinstance(value, FunctionType | property)}
    return sorted(name for name in names if name == "__call__" or not name.startswith("_"))


def _instance(value: Any, where: str, kind: type) -> None:
    if getattr(kind, "_is_protocol", False):
        members = _members(kind)
        if isinstance(value, type) or not all(hasattr(value, name) for name in members):
            raise _WrongError(where, value, f"a {kind.__name__}: something with {', '.join(members)}")
    elif kind is bool:
        if not isinstance(value, bool | np.bool_):
            raise _WrongError(where, value, "true or false")
    elif issubclass(kind, StrEnum):
        if not isinstance(value, str) or value not in list(kind):
            raise _WrongError(where, value, f"one of {', '.join(kind)}")
    elif not isinstance(value, kind):
        raise _WrongError(where, value, {str: "text", NoneType: "none"}.get(kind, f"a {kind.__name__}"))


#: what else an annotation may say of a list, a mapping or an array
_RULES: Mapping[str, Callable[[Any], bool]] = {
    "not empty": lambda value: len(value) > 0,
    "strictly ascending": lambda value: list(value) == sorted(set(value)),
    "ascending": lambda value: list(value) == sorted(value),
    "of positive sum": lambda value: 0 < sum(value.values()) < float("inf"),
    "one-dimensional": lambda value: value.ndim == 1,
}


def _annotated(value: Any, where: str, base: Any, text: str) -> None:
    if base is float or base is int:
        return _number(value, where, _interval(text, base is int))
    _check(value, where, base)
    if not _RULES[text](value):
        raise _WrongError(where, value, f"one that is {text}")
    return None


def _array(value: Any, where: str, kind: Any) -> None:
    wanted = np.dtype(typing.get_args(kind)[0])
    if not isinstance(value, np.ndarray) or value.dtype != wanted:
        raise _WrongError(where, value, f"an array of {wanted}")


def _check(value: Any, where: str, hint: Any) -> None:
    """Raise `_WrongError` unless the value is what the annotation says."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        _annotated(value, where, arguments[0], arguments[1])
    elif hint is float or hint is int:
        _number(value, where, _interval("(-inf, inf)", hint is int))
    elif origin is Literal:
        if not any(isinstance(value, type(one)) and value == one for one in arguments):
            raise _WrongError(where, value, f"one of {', '.join(map(str, arguments))}")
    elif origin in (typing.Union, UnionType):
        _union(value, where, arguments)
    elif origin is Callable:
        if not callable(value):
            raise _WrongError(where, value, "a function")
    elif origin is np.ndarray:
        _array(value, where, arguments[1])
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        _mapping(value, where, *arguments)
    elif isinstance(origin, type) and issubclass(origin, Sequence):
        _sequence(value, where, arguments)
    elif hint is not Any and isinstance(origin or hint, type):
        _instance(value, where, origin or hint)


def require(name: str, value: Any, annotation: Any) -> None:
    """Raise a ConfigurationError unless the value is what the annotation says.

    Args:
        name: of the parameter, as its user knows it.
        value: given.
        annotation: `Positive`, `Count | None`, `Annotated[float, "(0, 1]"]`, a class ...
    """
    try:
        _check(value, name, annotation)
    except _WrongError as wrong:
        raise ConfigurationError(
            f"{wrong.where} is {shown(wrong.value)}; expected {wrong.expected}"
        ) from None


def row_bytes(arrays: Iterable[NDArray[Any]]) -> int:
    """Bytes that one more row of each array takes; arrays [0, ...] say so before there is any."""
    return sum(math.prod(array.shape[1:]) * array.itemsize for array in arrays)


def _memory_bytes() -> float:
    """What this machine has; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def require_memory(needed: Mapping[str, tuple[int, int]]) -> None:
    """Raise a ConfigurationError unless all of it fits this machine; call it before anything is made.

    Args:
        needed: {name of a number, as its user knows it: (the number, bytes for each)}.
    """
    there, total = _memory_bytes(), sum(count * each for count, each in needed.values())
    if total > there:
        name, (count, each) = max(needed.items(), key=lambda item: math.prod(item[1]))
        raise ConfigurationError(
            f"{name} is {count:,}, at {each:,} bytes for each {total / 1e9:,.0f} GB in all; expected at most"
            f" {there / 1e9:,.0f} GB, which this machine has; take fewer, or make each smaller"
        )


def checked(prefix: str) -> Callable[[T], T]:
    """Decorate a function, or a class for its `__init__`: arguments are what their annotations say.

    Args:
        prefix: stands before a parameter's name in errors: how users know its owner.

    Raises:
        ConfigurationError: (when it is called) naming the first that is not.
    """

    def decorate(target: T) -> T:
        made: Any = target
        if isinstance(target, type):
            made.__init__ = _guarded(prefix, made.__init__)
            return target
        guarded: T = _guarded(prefix, made)
        return guarded

    return decorate


def _guarded(prefix: str, function: Any) -> Any:
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        return typing.get_type_hints(function, include_extras=True)

    @functools.wraps(function)
    def guarded(*arguments: Any, **keywords: Any) -> Any:
        for name, value in signature.bind(*arguments, **keywords).arguments.items():
            if name in hints():
                require(f"{prefix}.{name}", value, hints()[name])
        return function(*arguments, **keywords)

    return guarded
