"""Record classes: annotated fields that make a NumPy dtype and a type of kernels, and that mypy checks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, overload

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["Record", "Records1", "Records2", "Records3", "f8", "i4", "i8", "u8"]

# what a field is to a type checker, and how it is stored
i4 = Annotated[int, np.int32]
i8 = Annotated[int, np.int64]
u8 = Annotated[Any, np.uint64]  # kernels calculate modulo 2**64, which int does not
f8 = Annotated[float, np.float64]


_Fields = list[tuple[str, type[np.generic]]]


def _stored(annotations: Mapping[str, Any]) -> tuple[_Fields, dict[str, tuple[str, ...]]]:
    """Fields in their order, and {vector: fields that it covers}.

    A vector's fields stand where it is annotated; annotations of their own only tell type checkers of them.
    """
    kinds = {name: kind.__metadata__[-1] for name, kind in annotations.items()}
    vectors = {name: kind for name, kind in kinds.items() if isinstance(kind, tuple)}
    covered = {field for vector in vectors.values() for field in vector}
    fields: _Fields = []
    for name, kind in kinds.items():
        if name in vectors:
            fields += [(field, np.int64) for field in vectors[name]]
        elif name not in covered:
            fields.append((name, kind))
    return fields, vectors


def _with_vectors(scalars: np.dtype[np.void], vectors: Mapping[str, tuple[str, ...]]) -> np.dtype[np.void]:
    """The same bytes, some of which are also fields that hold several numbers."""
    if not vectors:
        return scalars
    places: Any = scalars.fields
    names = list(scalars.names or ())
    formats: list[Any] = [places[name][0] for name in names]
    offsets = [places[name][1] for name in names]
    for name, fields in vectors.items():
        names.append(name)
        formats.append((np.int64, (len(fields),)))
        offsets.append(places[fields[0]][1])
    layout = {"names": names, "formats": formats, "offsets": offsets, "itemsize": scalars.itemsize}
    return np.dtype(layout, align=True)  # type: ignore[call-overload,no-any-return]


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


class Record:
    """Base of records; a subclass annotates its fields with `i4`, `i8`, `u8` or `f8`.

    `Annotated[IntVector, ("cores", "ram")]` is a vector: whole numbers of 64 bits, which are fields of these
    names as well. Kernels loop over the vector, or name the field.

    There are no instances: rows of arrays of `dtype` are what kernels (and type checkers) see as one.

    Attributes:
        dtype: aligned structured dtype of the fields, in order, and of fillers (`filler_4`: at byte 4) where
            an `i4` stands alone before a longer field; every byte belongs to a field.
        numba_type: the same as kernels know it.
    """

    dtype: ClassVar[np.dtype[np.void]]
    numba_type: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        fields, vectors = _stored(cls.__annotations__)
        cls.dtype = _with_vectors(np.dtype(_without_gaps(fields), align=True), vectors)
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
