"""From annotations to numba's types: a kernel's hints are its declared signature."""

import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from ringyard.compiled.records import Record, Records1, Records2, Records3

__all__ = [
    "BoolMatrix",
    "BoolVector",
    "Float32Cube",
    "Float32Matrix",
    "Float32Vector",
    "FloatCube",
    "FloatMatrix",
    "FloatVector",
    "Int32Matrix",
    "Int32Vector",
    "IntMatrix",
    "IntVector",
    "UIntVector",
    "numba_type_of",
    "signature_of",
]

# contiguous arrays of 1, 2 and 3 dimensions; plain names are of 64 bits
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
    """What kernels know an annotated argument, result or field as.

    Raises:
        TypeError: nothing of the kind.
    """
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
        return types.containers.BaseTuple.from_types(
            [numba_type_of(hints[name]) for name in fields._fields], annotation
        )
    if hasattr(annotation, "numba_type"):
        return annotation.numba_type
    raise TypeError(
        f"kernels know no {annotation!r}; expected int, float, bool, a record or bundle class, a slot, a"
        " NamedTuple, or one of the array types of ringyard.compiled.types"
    )


def signature_of(function: Callable[..., Any]) -> Any:
    """The numba signature that a function's annotations declare."""
    hints = typing.get_type_hints(function, include_extras=True)
    result = numba_type_of(hints.pop("return"))
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return result(*(numba_type_of(hints[name]) for name in names))
