"""How Python becomes machine code: the only package that imports Numba. Its README has the mechanisms."""

from ringyard.compiled.bundles import bundle
from ringyard.compiled.functions import entry_point, field_reader, field_writer, kernel, linked_kernel, to_int
from ringyard.compiled.interfaces import (
    CompiledFunction,
    error_message,
    function_address,
    implements,
    interface,
    is_validated,
    raise_plugin_error,
)
from ringyard.compiled.records import (
    BoolMatrix,
    BoolVector,
    Float32Cube,
    Float32Matrix,
    Float32Vector,
    FloatCube,
    FloatMatrix,
    FloatVector,
    Int32Matrix,
    Int32Vector,
    IntMatrix,
    IntVector,
    Record,
    Records1,
    Records2,
    Records3,
    UIntVector,
    f4,
    f8,
    i4,
    i8,
    prefetch,
    take_rows,
    u8,
)

__all__ = ["BoolMatrix", "BoolVector", "Float32Cube", "Float32Matrix", "Float32Vector", "FloatCube"]
__all__ += ["FloatMatrix", "FloatVector", "Int32Matrix", "Int32Vector", "IntMatrix", "IntVector"]
__all__ += ["CompiledFunction", "Record", "Records1", "Records2", "Records3", "bundle", "take_rows", "to_int"]
__all__ += ["entry_point", "error_message", "field_reader", "field_writer", "function_address", "implements"]
__all__ += ["interface", "is_validated", "kernel", "linked_kernel", "prefetch", "raise_plugin_error"]
__all__ += ["UIntVector", "f4", "f8", "i4", "i8", "u8"]
