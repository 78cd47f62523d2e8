"""Checks of arguments by their annotations, with pydantic.

    @checked("workload")
    @dataclass(frozen=True)
    class Synthetic:
        num_jobs: PositiveInt
        load: Positive = 1.0

`Annotated` adds an interval to a number, `Annotated[float, "(0, 1]"]`, or one of `_RULES` to a list, mapping
or array. NaN is in no interval, infinity only in those that close with it. NumPy's numbers are numbers, True
and False are not, and a list is accepted for a tuple.
"""

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

from ringyard.errors import ConfigurationError

T = TypeVar("T", bound=Callable[..., Any])

Positive = Annotated[float, "(0, inf)"]
NonNegative = Annotated[float, "[0, inf)"]
Fraction = Annotated[float, "[0, 1]"]
#: as many as records count
PositiveInt = Annotated[int, "[1, 2147483647]"]
NonNegativeInt = Annotated[int, "[0, 2147483647]"]
Bytes = Annotated[int, "[0, 1000000000000000]"]

#: {name: weight}, drawn by
Weights = Annotated[Mapping[str, NonNegative], "of positive sum"]

Seed = Annotated[int, "[0, 9223372036854775807]"]

_MAX_LENGTH = 100


@dataclass(frozen=True)
class NumberRange:
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
        if self.text == "(-inf, inf)":
            return "a whole number" if self.whole else "a finite number"
        return f"a {'whole ' * self.whole}number in {self.text}"


def shown(value: Any) -> str:
    """A value for an error message, shortened."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


#: {error of pydantic: what was expected}, where its own words name a Python type
_PYDANTIC_MESSAGES = {
    "bool_type": "true or false",
    "dict_type": "a mapping {key: value}",
    "missing": "a longer list",
    "string_type": "text",
    "too_long": "a shorter list",
    "tuple_type": "a list",
}

#: what else an annotation may say of a list, a mapping or an array
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


def _validated_by(base: Any, holds: Callable[[Any], bool], expected: str) -> Any:
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

    return _validated_by(Any, holds, str(interval))


def _protocol(kind: Any) -> Any:
    members = sorted(get_protocol_members(kind))
    names = [name for name in members if isinstance(getattr(kind, name, property()), FunctionType | property)]
    return _validated_by(
        Any,
        lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names),
        f"a {kind.__name__}: something with {', '.join(names)}",
    )


def _pydantic_type(hint: Any) -> Any:
    """An annotation as pydantic reads it: strict but for NumPy's numbers and for lists in place of tuples."""
    kind: Any = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint)
    if kind is Annotated and arguments[0] in (int, float):
        return _number(*arguments[:2])
    if kind is Annotated:
        base, rule = arguments[:2]
        return _validated_by(_pydantic_type(base), _RULES[rule], f"one that is {rule}")
    if kind in (int, float):
        return _number(kind, "(-inf, inf)")
    if kind is NoneType:
        return _validated_by(Any, lambda value: value is None, "none")
    if kind in (bool, str):
        return Annotated[kind, Strict(), BeforeValidator(_python_scalar)]
    if kind in (typing.Union, UnionType):
        return typing.Union[tuple(map(_pydantic_type, arguments))]  # noqa: UP007
    if kind is np.ndarray:
        dtype = np.dtype(typing.get_args(arguments[1])[0])
        return _validated_by(
            Any, lambda value: getattr(value, "dtype", None) == dtype, f"an array of {dtype}"
        )
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
    return _validated_by(Any, lambda value: isinstance(value, kind), f"a {kind.__name__}")


@functools.cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_pydantic_type(hint))


def require(name: str, value: Any, annotation: Any) -> None:
    """Raise a ConfigurationError unless the value is what the annotation says.

    Args:
        name: of the parameter for the error.
        value: its value.
        annotation: `Positive`, `PositiveInt | None`, `Annotated[float, "(0, 1]"]`, a class ...
    """
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError as wrong:
        raise ConfigurationError(_error_message(name, value, wrong)) from None


def _error_message(name: str, value: Any, wrong: ValidationError) -> str:
    """The innermost error; of a union, all kinds that were possible there."""
    found: dict[str, list[str]] = {}
    for error in wrong.errors(include_url=False):
        where, inside = name, value
        for part in error["loc"]:
            with suppress(LookupError, TypeError):  # the name of one kind of a union is no key
                inside = inside[part]
                where += f"[{part!r}]"
        got = inside if isinstance(error["input"], tuple) else error["input"]  # as given, in place of a copy
        expected = _PYDANTIC_MESSAGES.get(error["type"]) or error["msg"].removeprefix("Input should be ")
        found.setdefault(f"{where} is {shown(got)}", []).append(expected)
    deepest = max(found, key=lambda said: said.partition(" is ")[0].count("["))
    return f"{deepest}; expected {', or '.join(dict.fromkeys(found[deepest]))}"


def row_bytes(arrays: Iterable[NDArray[Any]]) -> int:
    """Bytes that one more row of each array takes; arrays [0, ...] say so before there is any."""
    return sum(math.prod(array.shape[1:]) * array.itemsize for array in arrays)


def _machine_memory_bytes() -> float:
    """What this machine has; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def require_memory(needed: Mapping[str, tuple[int, int]]) -> None:
    """Raise a ConfigurationError unless this machine has enough memory.

    Args:
        needed: {name of a number for the error: (number, bytes for each)}.
    """
    there, total = _machine_memory_bytes(), sum(count * each for count, each in needed.values())
    if total > there:
        name, (count, each) = max(needed.items(), key=lambda item: math.prod(item[1]))
        raise ConfigurationError(
            f"{name} is {count:,}, at {each:,} bytes for each {total / 1e9:,.0f} GB in all; expected at most"
            f" {there / 1e9:,.0f} GB, which this machine has; take fewer, or make each smaller"
        )


def checked(prefix: str) -> Callable[[T], T]:
    """Decorate a function or class: calls whose arguments are not as annotated raise a ConfigurationError.

    Args:
        prefix: stands before a parameter's name in errors.
    """

    def decorate(target: T) -> T:
        made: Any = target
        function = made.__init__ if isinstance(target, type) else made
        signature = inspect.signature(function)

        @functools.wraps(function)
        def guarded(*arguments: Any, **keywords: Any) -> Any:
            hints = _hints(function)
            for name, value in signature.bind(*arguments, **keywords).arguments.items():
                if name in hints:
                    require(f"{prefix}.{name}", value, hints[name])
            return function(*arguments, **keywords)

        if isinstance(target, type):
            made.__init__ = guarded
            return target
        return typing.cast(T, guarded)

    return decorate


@functools.cache
def _hints(function: Any) -> dict[str, Any]:
    return typing.get_type_hints(function, include_extras=True)
