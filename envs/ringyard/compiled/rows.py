"""Numbers as records: what kernels write by the names of fields into one vector."""

from typing import Any, TypeVar

from numba import types
from numba.extending import models, overload, register_model, typeof_impl

from ringyard.compiled.records import Record, Records1
from ringyard.compiled.types import Float32Vector

__all__ = ["take_rows"]

R = TypeVar("R", bound=Record)


class RecordClass(types.Opaque):  # type: ignore[misc]
    """Numba's view of a class of records, of which there are no instances.

    Args:
        record: the class.
    """

    def __init__(self, record: type[Record]) -> None:
        self.record = record
        super().__init__(name=f"RecordClass({record.__module__}.{record.__qualname__}: {record.numba_type})")


register_model(RecordClass)(models.OpaqueModel)


@typeof_impl.register(type(Record))  # type: ignore[untyped-decorator]
def _type_of_record_class(value: type[Record], context: Any) -> RecordClass:
    return RecordClass(value)


def take_rows(numbers: Float32Vector, count: int, record: type[R]) -> tuple[Records1[R], Float32Vector]:
    """In kernels: the first rows of a vector as records, and the numbers that follow them.

    Args:
        numbers: [n] at least `count` rows.
        count: of rows.
        record: their class, whose fields are all `f4`.
    """
    raise NotImplementedError("take_rows is for kernels")


@overload(take_rows, jit_options={"_nrt": False, "error_model": "numpy"})  # type: ignore[untyped-decorator]
def _take_rows(numbers: Any, count: Any, record: Any) -> Any:
    dtype = record.record.dtype
    width = dtype.itemsize // 4

    def take(numbers: Any, count: Any, record: Any) -> Any:
        end = count * width
        return numbers[:end].view(dtype), numbers[end:]

    return take
