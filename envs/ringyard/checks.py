"""Checks of arguments against their annotations, with pydantic.

    @checked("workload")
    @dataclass(frozen=True)
    class Synthetic:
        num_jobs: PositiveInt
        load: Positive = 1.0

`Annotated` adds a range to a number, `Annotated[float, "(0, 1]"]`, or one of `_RULES` to a list, mapping or
array. NaN is in no range, infinity only in those with a closed infinite end. NumPy's numbers are numbers,
True and False are not, and a list is accepted for a tuple.
"""

import difflib
import functools
import inspect
import math
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from types import FunctionType, GenericAlias, NoneType, UnionType
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Strict, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError
from typing_extensions import get_protocol_members

from ringyard.errors import ConfigurationError, PluginError

T = TypeVar("T", bound=Callable[..., Any])

Positive = Annotated[float, "(0, inf)"]
NonNegative = Annotated[float, "[0, inf)"]
Fraction = Annotated[float, "[0, 1]"]
#: integers that fit the records of the state
PositiveInt = Annotated[int, "[1, 2147483647]"]
NonNegativeInt = Annotated[int, "[0, 2147483647]"]
Bytes = Annotated[int, "[0, 1000000000000000]"]

Weights = Annotated[Mapping[str, NonNegative], "of positive sum"]  #: {name: weight} of a random choice

Seed = Annotated[int, "[0, 9223372036854775807]"]

_MAX_LENGTH = 100  #: largest number of characters of a value in an error


@dataclass(frozen=True)
class NumberRange:
    """A range of numbers."""

    text: str  #: mathematical notation, such as "(0, inf]"
    whole: bool = False  #: whether only whole numbers are in it

    @functools.cached_property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest float in the range."""
        low, high = map(float, self.text[1:-1].split(","))
        return (
            low if self.text[0] == "[" else float(np.nextafter(low, np.inf)),
            high if self.text[-1] == "]" else float(np.nextafter(high, -np.inf)),
        )

    def holds(self, values: Any) -> NDArray[np.bool_]:
        """Return [...] booleans, True for `values` in the range."""
        low, high = self.ends
        inside = (values >= low) & (values <= high)
        return np.asarray(inside & (values == np.floor(values)) if self.whole else inside)

    def __str__(self) -> str:
        if self.text == "(-inf, inf)":
            return "a whole number" if self.whole else "a finite number"
        return f"a {'whole ' * self.whole}number in {self.text}"


def shown(value: Any) -> str:
    """Return the text of a value for an error message, shortened to 100 characters."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the `known` name that is like an unknown `name`, or the list of all."""
    names = list(known)
    if alike := difflib.get_close_matches(name, names, n=1):
        return alike[0]
    return ("one of " if len(names) > 1 else "") + ", ".join(names) or "none"


#: {error type of pydantic: what was expected}, where pydantic's own words name a Python type
_PYDANTIC_MESSAGES = {
    "bool_type": "true or false",
    "dict_type": "a mapping {key: value}",
    "missing": "a longer list",
    "string_type": "text",
    "too_long": "a shorter list",
    "tuple_type": "a list",
}

#: {text in an annotation of a list, mapping or array: condition on the value}
_RULES: Mapping[str, Callable[[Any], bool]] = {
    "not empty": lambda value: len(value) > 0,
    "strictly ascending": lambda value: list(value) == sorted(set(value)),
    "ascending": lambda value: list(value) == sorted(value),
    "of positive sum": lambda value: 0 < sum(value.values()) < float("inf"),
    "one-dimensional": lambda value: value.ndim == 1,
}


def _python_scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _python_tuple(value: Any) -> Any:
    vector = isinstance(value, np.ndarray) and value.ndim == 1
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return tuple(value) if vector or listed else value


def _checked_by(base: Any, holds: Callable[[Any], bool], expected: str) -> Any:
    def check(value: Any) -> Any:
        if not holds(value):
            raise PydanticCustomError("rule", "{expected}", {"expected": expected})
        return value

    return Annotated[base, AfterValidator(check)]


def _number(kind: type, text: str) -> Any:
    interval = NumberRange(text, kind is int)
    low, high = interval.ends

    def holds(value: Any) -> bool:
        number = _python_scalar(value)
        right = isinstance(number, Integral if interval.whole else Real) and not isinstance(number, bool)
        return right and low <= number <= high

    return _checked_by(Any, holds, str(interval))


def _protocol(kind: Any) -> Any:
    members = sorted(get_protocol_members(kind))
    names = [name for name in members if isinstance(getattr(kind, name, property()), FunctionType | property)]
    return _checked_by(
        Any,
        lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names),
        f"a {kind.__name__}: something with {', '.join(names)}",
    )


def _pydantic_type(hint: Any) -> Any:
    """Return the pydantic type of an annotation, strict apart from NumPy's numbers and lists for tuples."""
    kind: Any = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint)
    if kind is Annotated and arguments[0] in (int, float):
        return _number(*arguments[:2])
    if kind is Annotated:
        base, rule = arguments[:2]
        return _checked_by(_pydantic_type(base), _RULES[rule], f"one that is {rule}")
    if kind in (int, float):
        return _number(kind, "(-inf, inf)")
    if kind is NoneType:
        return _checked_by(Any, lambda value: value is None, "null (None in Python)")
    if kind in (bool, str):
        return Annotated[kind, Strict(), BeforeValidator(_python_scalar)]
    if kind in (typing.Union, UnionType):
        return typing.Union[tuple(map(_pydantic_type, arguments))]  # noqa: UP007
    if hasattr(kind, "__value__"):  # a `type` statement: `NDArray` of NumPy 2.5 and later
        return _pydantic_type(kind.__value__[arguments])
    if kind is np.ndarray:
        dtype = np.dtype(typing.get_args(arguments[1])[0])
        return _checked_by(Any, lambda value: getattr(value, "dtype", None) == dtype, f"an array of {dtype}")
    if getattr(kind, "_is_protocol", False):
        return _protocol(kind)
    if kind in (Any, Callable) or not isinstance(kind, type) or issubclass(kind, StrEnum):
        return hint
    read = tuple(one if one is ... else _pydantic_type(one) for one in arguments)
    if read and issubclass(kind, Mapping):
        return GenericAlias(Mapping, read)
    if read and issubclass(kind, Sequence):
        many: Any = GenericAlias(tuple, read if kind is tuple else (*read, ...))
        return Annotated[many, Strict(), BeforeValidator(_python_tuple)]
    return _checked_by(Any, lambda value: isinstance(value, kind), f"a {kind.__name__}")


@functools.cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_pydantic_type(hint))


def require(name: str, value: Any, annotation: Any) -> None:
    """Raise a ConfigurationError unless a value satisfies an annotation such as `PositiveInt | None`."""
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError as wrong:
        raise ConfigurationError(_error_message(name, value, wrong)) from None


def _error_message(name: str, value: Any, wrong: ValidationError) -> str:
    """Return the message of the innermost error, with all alternatives if it is in a union."""
    found: dict[str, list[str]] = {}
    for error in wrong.errors(include_url=False):
        where, inside = name, value
        for part in error["loc"]:
            with suppress(LookupError, TypeError):  # names of alternatives of a union are not keys
                inside = inside[part]
                where += f"[{part!r}]"
        got = inside if isinstance(error["input"], tuple) else error["input"]  # the user's list, not its copy
        expected = _PYDANTIC_MESSAGES.get(error["type"]) or error["msg"].removeprefix("Input should be ")
        found.setdefault(f"{where} is {shown(got)}", []).append(expected)
    deepest = max(found, key=lambda said: said.partition(" is ")[0].count("["))
    return f"{deepest}; expected {', or '.join(dict.fromkeys(found[deepest]))}"


def row_bytes(arrays: Iterable[NDArray[Any]]) -> int:
    """Return the bytes of one row of all arrays together. Arrays [0, ...] are enough."""
    return sum(math.prod(array.shape[1:]) * array.itemsize for array in arrays)


def _machine_memory_bytes() -> float:
    """Return the memory of this machine in bytes, infinity if the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def require_memory(needed: Mapping[str, tuple[int, int]]) -> None:
    """Raise a ConfigurationError unless memory is enough for {setting: (its value, bytes for each)}."""
    memory, total = _machine_memory_bytes(), sum(count * each for count, each in needed.values())
    if total > memory:
        name, (count, each) = max(needed.items(), key=lambda item: math.prod(item[1]))
        raise ConfigurationError(
            f"{name} is {count:,} with {each:,} bytes for each, {total / 1e9:,.0f} GB in all; expected"
            f" at most {memory / 1e9:,.0f} GB, the memory of this machine; take fewer, or make each smaller"
        )


def checked(prefix: str) -> Callable[[T], T]:
    """Return a decorator that checks arguments against their annotations, or raises a ConfigurationError.

    Errors name a parameter behind `prefix`, such as a group of `conf`.
    """

    def decorate(target: T) -> T:
        decorated: Any = target
        function = decorated.__init__ if isinstance(target, type) else decorated
        signature = inspect.signature(function)

        @functools.wraps(function)
        def guarded(*arguments: Any, **keywords: Any) -> Any:
            hints = _hints(function)
            for name, value in signature.bind(*arguments, **keywords).arguments.items():
                if name in hints:
                    require(f"{prefix}.{name}", value, hints[name])
            return function(*arguments, **keywords)

        if isinstance(target, type):
            decorated.__init__ = guarded
            return target
        return typing.cast(T, guarded)

    return decorate


@functools.cache
def _hints(function: Any) -> dict[str, Any]:
    return typing.get_type_hints(function, include_extras=True)


def qualified_name(function: Any) -> str:
    """Return module and name of a function or method, or of the class of another object."""
    found = function if hasattr(function, "__qualname__") else type(function)
    return f"{found.__module__}.{found.__qualname__}"


def validate_array(
    returned: Any, count: int, function: Any, quantity: str, low: float = -np.inf, finite: bool = True
) -> NDArray[np.float64]:
    """Return the [count] numbers that a function of the user returned as float64, else raise a PluginError.

    A broadcast number stays one. NaN is never valid, infinity unless `finite`. `quantity` is for errors.
    """
    try:
        values = np.asarray(returned)
    except ValueError:  # numbers mixed with lists
        values = np.asarray(returned, dtype=object)
    if values.shape != (count,) or values.dtype.kind not in "iufb":
        kind = f"{values.dtype} {values.shape}" if isinstance(returned, np.ndarray) else shown(returned)
        name = qualified_name(function)
        raise PluginError(f"{name} returned {kind} as {quantity}; expected {count} numbers")
    if values.strides == (0,) and count > 1:
        return np.broadcast_to(validate_array(values[:1], 1, function, quantity, low, finite), count)
    values = values.astype(np.float64)
    valid = (values >= low) & (np.isfinite(values) if finite else True)
    if not valid.all():
        row = int(valid.argmin())
        kind = "a finite number" if finite else "a number"
        least = f", {low:g} or more" if low > -np.inf else ""
        raise PluginError(
            f"{qualified_name(function)} returned {values[row]} as {quantity} of row {row}"
            f"; expected {kind}{least}"
        )
    return values
