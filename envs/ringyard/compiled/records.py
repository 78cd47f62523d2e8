"""Records, arrays of them, and the Numba types of annotations."""

import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, overload

import numba
import numpy as np
from numba import extending, from_dtype, types
from numpy.typing import NDArray

from ringyard.compiled.numba_internals import cgutils, ir

# what `ringyard.compiled` exports of it
__all__ = ["BoolMatrix", "BoolVector", "Float32Cube", "Float32Matrix", "Float32Vector", "FloatCube"]
__all__ += ["FloatMatrix", "FloatVector", "Int32Matrix", "Int32Vector", "IntMatrix", "IntVector", "Record"]
__all__ += ["Records1", "Records2", "Records3", "UIntVector", "f4", "f8", "i4", "i8", "prefetch", "take_rows"]
__all__ += ["u8"]

# annotations of fields: the type for type checkers, and how the field is stored
i4 = Annotated[int, np.int32]
i8 = Annotated[int, np.int64]
u8 = Annotated[Any, np.uint64]  # Any, since kernels calculate modulo 2**64, unlike int
f4 = Annotated[float, np.float32]
f8 = Annotated[float, np.float64]
_Fields = list[tuple[str, type[np.generic]]]


def _fill_gaps(fields: _Fields) -> _Fields:
    """Return aligned fields with zeros in the gaps, since NumPy does not copy the contents of gaps."""
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
    """Metaclass by which kernels recognise record classes as arguments."""


class Record(metaclass=_RecordMeta):
    """Base class of records. A subclass annotates its fields with `i4`, `i8`, `u8`, `f4` or `f8`.

    There are no instances. Kernels and type checkers see rows of arrays of `dtype` as one.

    `_counted: Annotated[int, ("cores", "ram")]` stands for `i8` fields of these names, of which
    `field_reader` takes positions. Those that kernels name are annotated as well, for type checkers.
    """

    #: aligned structured dtype of the fields, in order, and of fillers (`filler_4`: at byte 4) where an
    #: `i4` stands alone before a longer field; every byte belongs to a field
    dtype: ClassVar[np.dtype[np.void]]
    numba_type: ClassVar[Any]  #: the same as kernels know it

    def __init_subclass__(cls) -> None:
        # the fields in order. Those of a tuple of names stand where the tuple does
        kinds = {name: kind.__metadata__[0] for name, kind in cls.__annotations__.items()}
        several = {name: kind for name, kind in kinds.items() if isinstance(kind, tuple)}
        named = {field for fields in several.values() for field in fields}
        stored: _Fields = []
        for name, kind in kinds.items():
            if name in several:
                stored += [(field, np.int64) for field in several[name]]
            elif name not in named:
                stored.append((name, kind))
        cls.dtype = np.dtype(_fill_gaps(stored), align=True)
        cls.numba_type = numba.from_dtype(cls.dtype)

    @classmethod
    def zeros(cls, *shape: int) -> Any:
        """Return an array of this `shape` of records of zeros."""
        return np.zeros(shape, cls.dtype)

    if TYPE_CHECKING:  # a row, from Python

        def __getitem__(self, field: str) -> Any: ...
        def copy(self) -> Self:
            """An independent row."""


R = TypeVar("R", bound=Record)
K = TypeVar("K", contravariant=True)


class _Records(Generic[R, K]):
    """A structured array as type checkers see it. At run time it is a NumPy array."""

    if TYPE_CHECKING:
        shape: tuple[int, ...]
        size: int

        def __len__(self) -> int: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def copy(self) -> Self:
            """An independent array."""

        @overload
        def __getitem__(self, key: K) -> R: ...
        @overload
        def __getitem__(self, key: str) -> NDArray[Any]: ...
        @overload
        def __getitem__(
            self, key: int | slice | NDArray[Any] | tuple[int, slice | NDArray[Any]]
        ) -> "Records1[R]": ...
        def __getitem__(self, key: Any) -> Any: ...


class Records1(_Records[R, int]):
    """[n] records."""


class Records2(_Records[R, tuple[int, int]]):
    """[clusters, n] records."""


class Records3(_Records[R, tuple[int, int, int]]):
    """[clusters, n, m] records."""


# contiguous arrays of 1, 2 and 3 dimensions, of 64 bits unless the name says otherwise
IntVector = Annotated[NDArray[np.int64], types.int64[::1]]
IntMatrix = Annotated[NDArray[np.int64], types.int64[:, ::1]]
Int32Vector = Annotated[NDArray[np.int32], types.int32[::1]]
Int32Matrix = Annotated[NDArray[np.int32], types.int32[:, ::1]]
UIntVector = Annotated[NDArray[np.uint64], types.uint64[::1]]
FloatVector = Annotated[NDArray[np.float64], types.float64[::1]]
FloatMatrix = Annotated[NDArray[np.float64], types.float64[:, ::1]]
FloatCube = Annotated[NDArray[np.float64], types.float64[:, :, ::1]]
Float32Vector = Annotated[NDArray[np.float32], types.float32[::1]]
Float32Matrix = Annotated[NDArray[np.float32], types.float32[:, ::1]]
Float32Cube = Annotated[NDArray[np.float32], types.float32[:, :, ::1]]
BoolVector = Annotated[NDArray[np.bool_], types.boolean[::1]]
BoolMatrix = Annotated[NDArray[np.bool_], types.boolean[:, ::1]]
_SCALARS = {int: types.int64, float: types.float64, bool: types.boolean, type(None): types.void}
_RECORD_ARRAYS: dict[Any, int] = {Records1: 1, Records2: 2, Records3: 3}


def numba_type_of(annotation: Any) -> Any:
    """Return the Numba type of an annotated argument, result or field; a TypeError if there is none."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return inner[1] if isinstance(inner[1], types.Type) else from_dtype(np.dtype(inner[1]))
    if origin in _RECORD_ARRAYS:
        dimensions = _RECORD_ARRAYS[origin]
        return types.Array(inner[0].numba_type, dimensions, "C")
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return inner[0].many
    if origin is tuple:
        return types.containers.BaseTuple.from_types([numba_type_of(one) for one in inner])
    if inspect.isclass(annotation) and issubclass(annotation, Record):
        return annotation.numba_type
    if inspect.isclass(annotation) and issubclass(annotation, tuple):
        hints = typing.get_type_hints(annotation, include_extras=True)
        fields: Any = annotation
        parts = [numba_type_of(hints[name]) for name in fields._fields]
        return types.containers.BaseTuple.from_types(parts, annotation)
    if hasattr(annotation, "numba_type"):
        return annotation.numba_type
    raise TypeError(
        f"kernels know no {annotation!r}; expected int, float, bool, a record or bundle class, an interface,"
        " a NamedTuple, or one of the array types of ringyard.compiled"
    )


def signature_of(function: Callable[..., Any]) -> Any:
    """Return the Numba signature that a function's annotations declare."""
    hints = typing.get_type_hints(function, include_extras=True)
    result = numba_type_of(hints.pop("return"))
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return result(*(numba_type_of(hints[name]) for name in names))


class RecordClass(types.Opaque):  # type: ignore[misc]
    """Numba type of the class `record` of records, of which there are no instances."""

    def __init__(self, record: type[Record]) -> None:
        self.record = record
        super().__init__(name=f"RecordClass({record.__module__}.{record.__qualname__}: {record.numba_type})")


extending.register_model(RecordClass)(extending.models.OpaqueModel)


@extending.typeof_impl.register(type(Record))  # type: ignore[untyped-decorator]
def _type_of_record_class(value: type[Record], context: Any) -> RecordClass:
    return RecordClass(value)


def take_rows(numbers: Float32Vector, count: int, record: type[R]) -> tuple[Records1[R], Float32Vector]:
    """Return the first `count` rows of `numbers` as `f4` records of a class, and the numbers after them."""
    raise NotImplementedError("take_rows is for kernels")


@extending.type_callable(take_rows)  # type: ignore[untyped-decorator]
def _type_take_rows(context: Any) -> Any:
    def result(numbers: Any, count: Any, record: Any) -> Any:
        return types.Tuple((types.Array(record.record.numba_type, 1, "C"), numbers))

    return result


@extending.lower_builtin(take_rows, types.Array, types.Integer, RecordClass)  # type: ignore[untyped-decorator]
def _take_rows(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit both views. Slices and `view` in Python would be compiled anew for each class, in 0.2 s."""
    numbers, count, _ = signature.args
    rows, _ = signature.return_type
    whole = context.make_array(numbers)(context, builder, arguments[0])
    num_rows = context.cast(builder, arguments[1], count, types.int64)
    taken = builder.mul(num_rows, num_rows.type(rows.dtype.size // 4))
    parts = []
    for kind, first, length in (
        (rows, num_rows.type(0), num_rows),
        (numbers, taken, builder.sub(whole.nitems, taken)),
    ):
        part = context.make_array(kind)(context, builder)
        part.data = builder.bitcast(builder.gep(whole.data, [first]), part.data.type)
        part.nitems, part.shape = length, builder.insert_value(part.shape, length, 0)
        part.itemsize = num_rows.type(rows.dtype.size if kind is rows else 4)
        part.strides = builder.insert_value(part.strides, part.itemsize, 0)
        parts.append(part._getvalue())
    return context.make_tuple(builder, signature.return_type, parts)


@extending.intrinsic  # type: ignore[untyped-decorator]
def _prefetch(context: Any, place: Any, num_bytes: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, option, address = ir.IntType(64), ir.IntType(32), cgutils.voidptr_t
        begin, count = arguments
        if isinstance(place, types.Array):
            array = context.make_array(place)(context, builder, begin)
            begin, size = array.data, builder.mul(array.nitems, array.itemsize)
            count = builder.select(builder.icmp_signed("<", size, count), size, count)
        kind = ir.FunctionType(ir.VoidType(), [address, option, option, option])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        begin = builder.ptrtoint(begin, word)
        ends = builder.and_(begin, word(-64)), builder.add(begin, count), word(64)
        with cgutils.for_range_slice(builder, *ends) as (line, _):  # into the second-level cache
            builder.call(function, [builder.inttoptr(line, address), option(0), option(2), option(1)])
        return context.get_dummy_value()

    return types.void(place, types.int64), emit


#: in kernels: start to load the first bytes, at most so many, of a record or array into the processor's cache
prefetch: Callable[[Any, int], None] = _prefetch
