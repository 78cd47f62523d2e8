"""What annotations of arguments accept and refuse."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from ringyard.checks import Fraction, NonNegative, Positive, PositiveInt, Weights, checked, require
from ringyard.errors import ConfigurationError

INF, NAN = float("inf"), float("nan")
Vector = Annotated[NDArray[np.float64], "one-dimensional"]
Pair = Annotated[tuple[Fraction, Fraction], "ascending"]
Names = str | Sequence[str | Mapping[str, object]]


class Colour(StrEnum):
    RED = "red"


class Walks(Protocol):
    legs: int

    def walk(self) -> None: ...


class Dog:
    legs = 4

    def walk(self):
        pass


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        *[(value, Positive) for value in (1, 0.5, np.float32(2), np.float64(3), np.int64(4))],
        *[(value, PositiveInt) for value in (1, np.int8(2), np.uint64(3))],
        *[(value, bool) for value in (True, np.bool_(False))],
        *[(value, Sequence[int]) for value in ([1, 2], (1,), range(3), np.array([1, 2]), [])],
        *[(value, tuple[int, ...]) for value in ([1, 2], (1,))],
        *[(value, Pair) for value in ([0.1, 0.2], (0, 1), np.array([0.5, 0.5]))],
        *[(value, Names) for value in ("fifo_backfill", ["fifo_backfill", {"mine": {"a": 1}}])],
        (INF, Annotated[float, "(0, inf]"]),
        (None, Positive | None),
        ({"a": 1, "b": 0}, Weights),
        ("auto", Literal["auto", "cpu"]),
        ("red", Colour),
        (len, Callable[[str], int]),
        (np.zeros(3), Vector),
        (Dog(), Walks),
        (object(), object),
    ],
)
def test_what_is_accepted(value, annotation):
    require("x", value, annotation)


@pytest.mark.parametrize(
    ("value", "annotation", "said"),
    [
        *[(value, Positive, "expected a number") for value in (NAN, INF, -INF, 0, True, "1", 1j, None)],
        *[(value, float, "expected a finite number") for value in (NAN, INF, np.bool_(True))],
        *[
            (value, PositiveInt, "expected a whole number")
            for value in (0, 1.0, np.float64(1), True, 2**31, 10**400)
        ],
        *[(value, bool, "expected true or false") for value in (1, "true", None)],
        *[(value, Sequence[int], "expected a list") for value in ("12", b"12", {1, 2}, np.zeros((2, 2)))],
        *[
            (value, Pair, f"expected a {said} list")
            for value, said in (([0.1], "longer"), ([0, 0, 1], "shorter"))
        ],
        ([0.3, 0.2], Pair, r" is \[0.3, 0.2\]; expected one that is ascending"),
        ([0.5, 2], Pair, r"\[1\] is 2; expected a number in \[0, 1\]"),
        *[
            (np.array(1), kind, rf"is array\(1\); expected a {said}")
            for kind, said in ((float, "finite number"), (int, "whole number"))
        ],
        ("abc", PositiveInt | None, r"expected a whole number in \[1, 2147483647\], or null"),
        (5, Names, " is 5; expected text, or a list"),
        (["a", 5], Names, r"\[1\] is 5; expected text, or a mapping"),
        ({"a": -1}, Weights, r"\['a'\] is -1; expected"),
        ({"a": 0}, Weights, "of positive sum"),
        ({"a": 1}, Mapping[PositiveInt, NonNegative], "is 'a'; expected a whole number"),
        ("gpu", Literal["auto", "cpu"], "'auto' or 'cpu'"),
        ("blue", Colour, "'red'"),
        (5, Callable[[str], int], "callable"),
        (np.zeros(3, np.float32), Vector, "an array of float64"),
        (np.zeros((3, 1)), Vector, "one-dimensional"),
        (5, Walks, "a Walks: something with legs, walk"),
        (Dog, Walks, "a Walks"),
        ([], Annotated[Sequence[str], "not empty"], "not empty"),
    ],
)
def test_what_is_refused_is_named(value, annotation, said):
    with pytest.raises(ConfigurationError, match=rf"^x.*{said}"):
        require("x", value, annotation)


def test_arrays_of_a_type_alias_are_checked():
    """`NDArray` is one from NumPy 2.5 on, which wants Python 3.12."""
    scalar = TypeVar("scalar", bound=np.generic)
    array = np.ndarray[tuple[Any, ...], np.dtype[scalar]]
    alias = TypeAliasType("alias", array, type_params=(scalar,))
    require("x", np.zeros(2), alias[np.float64])
    with pytest.raises(ConfigurationError, match="expected an array of float64"):
        require("x", np.zeros(2, int), alias[np.float64])


def test_functions_and_classes_are_called_with_what_they_say():
    @checked("box")
    class Box:
        def __init__(self, width: Positive, name: str = "a"):
            self.width = width

    assert Box(2).width == 2
    with pytest.raises(ConfigurationError, match=r"^box\.width is -1; expected"):
        Box(-1)
    with pytest.raises(ConfigurationError, match=r"^box\.name is 3; expected text$"):
        Box(1, name=3)
    with pytest.raises(TypeError):
        Box()
