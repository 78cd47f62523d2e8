"""Record classes: annotated fields that make a NumPy dtype and a type of kernels, and that mypy checks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, overload

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["Record", "Records1", "Records2", "Records3", "f4", "f8", "i4", "i8", "u8"]

# what a field is to a type checker, and how it is stored
i4 = Annotated[int, np.int32]
i8 = Annotated[int, np.int64]
u8 = Annotated[Any, np.uint64]  # kernels calculate modulo 2**64, which int does not
f4 = Annotated[float, np.float32]
f8 = Annotated[float, np.float64]


_Fields = list[tuple[str, type[np.generic]]]


def _stored(annotations: Mapping[str, Any]) -> _Fields:
    """Fields in their order; those of a tuple of names stand where the tuple does."""
    kinds = {name: kind.__metadata__[0] for name, kind in annotations.items()}
    several = {name: kind for name, kind in kinds.items() if isinstance(kind, tuple)}
    named = {field for fields in several.values() for field in fields}
    stored: _Fields = []
    for name, kind in kinds.items():
        if name in several:
            stored += [(field, np.int64) for field in several[name]]
        elif name not in named:
            stored.append((name, kind))
    return stored


def _without_gaps(fields: _Fields) -> _Fields:
    """Aligned fields, with a field of zeros wherever alignment would leave bytes that belong to none.

    NumPy does not copy such bytes, so that copies and pickles of equal records would differ.
    """
    filled: _Fields = []
    end = 0
    for name, kind in fields:
        if end % np.dtype(kind).itemsize:
            filled.append((f"filler_{end}", np.int32))
            end += 4
        filled.append((name, kind))
        end += np.dtype(kind).itemsize
    if end % max(np.dtype(kind).itemsize for _, kind in fields):
        filled.append((f"filler_{end}", np.int32))
    return filled


class _RecordMeta(type):
    """The class of record classes, by which kernels know them as arguments."""


class Record(metaclass=_RecordMeta):
    """Base of records; a subclass annotates its fields with `i4`, `i8`, `u8`, `f4` or `f8`.

    `_counted: Annotated[int, ("cores", "ram")]` stands for `i8` fields of these names. Those that kernels
    name are annotated as well, for type checkers; `field_reader` makes a kernel that takes their position.

    There are no instances: rows of arrays of `dtype` are what kernels (and type checkers) see as one.

    Attributes:
        dtype: aligned structured dtype of the fields, in order, and of fillers (`filler_4`: at byte 4) where
            an `i4` stands alone before a longer field; every byte belongs to a field.
        numba_type: the same as kernels know it.
    """

    dtype: ClassVar[np.dtype[np.void]]
    numba_type: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        cls.dtype = np.dtype(_without_gaps(_stored(cls.__annotations__)), align=True)
        cls.numba_type = numba.from_dtype(cls.dtype)

    @classmethod
    def zeros(cls, *shape: int) -> Any:
        """[*shape] records of zeros."""
        return np.zeros(shape, cls.dtype)

    if TYPE_CHECKING:  # a row, from Python

        def __getitem__(self, field: str) -> Any: ...
        def copy(self) -> Self:
            """An independent row."""


R = TypeVar("R", bound=Record)


class _Records(Generic[R]):
    """A structured array as type checkers see it; at run time it is a NumPy array."""

    if TYPE_CHECKING:
        shape: tuple[int, ...]
        size: int

        def __len__(self) -> int: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def copy(self) -> Self:
            """An independent array."""


class Records1(_Records[R]):
    """[n] records."""

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: int) -> R: ...
        @overload
        def __getitem__(self, key: str) -> NDArray[Any]: ...
        @overload
        def __getitem__(self, key: slice | NDArray[Any]) -> "Records1[R]": ...
        def __getitem__(self, key: Any) -> Any: ...


class Records2(_Records[R]):
    """[clusters, n] records."""

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: tuple[int, int]) -> R: ...
        @overload
        def __getitem__(self, key: str) -> NDArray[Any]: ...
        @overload
        def __getitem__(self, key: int | tuple[int, slice | NDArray[Any]]) -> Records1[R]: ...
        def __getitem__(self, key: Any) -> Any: ...


class Records3(_Records[R]):
    """[clusters, n, m] records."""

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: tuple[int, int, int]) -> R: ...
        @overload
        def __getitem__(self, key: str) -> NDArray[Any]: ...
        def __getitem__(self, key: Any) -> Any: ...
