"""The only room that knows numba; its README explains every mechanism and what it buys."""

from ringyard.compiled.bundles import bundle
from ringyard.compiled.complaints import complain, complaint
from ringyard.compiled.fields import field_reader, field_writer
from ringyard.compiled.functions import entry_point, kernel, linked_kernel, whole
from ringyard.compiled.records import Record, Records1, Records2, Records3, f4, f8, i4, i8, u8
from ringyard.compiled.rows import take_rows
from ringyard.compiled.slots import CompiledFunction, address_of, fills, is_watched, slot
from ringyard.compiled.types import (
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
    UIntVector,
)

__all__ = [
    "BoolMatrix",
    "BoolVector",
    "CompiledFunction",
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
    "Record",
    "Records1",
    "Records2",
    "Records3",
    "UIntVector",
    "address_of",
    "bundle",
    "complain",
    "complaint",
    "entry_point",
    "f4",
    "f8",
    "field_reader",
    "field_writer",
    "fills",
    "i4",
    "i8",
    "is_watched",
    "kernel",
    "linked_kernel",
    "slot",
    "take_rows",
    "u8",
    "whole",
]
