"""Kernels that read and write one of several fields of a record, by its position among them.

A loop over the positions costs what naming each field costs: it is unrolled, and the choice with it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ringyard.compiled.functions import Kernel
from ringyard.compiled.records import Record

__all__ = ["field_reader", "field_writer"]

R = TypeVar("R", bound=Record)


def _compiled(record: type[Record], name: str, lines: Sequence[str], **annotations: Any) -> Any:
    arguments = ["record", *(one for one in annotations if one != "return")]
    source = "\n".join([f"def {name}({', '.join(arguments)}):", *lines])
    module = "ringyard.compiled.fields"
    names: dict[str, Any] = {"__name__": module}
    exec(compile(source, __file__, "exec"), names)
    function = names[name]
    function.__qualname__ = f"{record.__name__}.{name}"
    function.__annotations__ = {"record": record, **annotations}
    return Kernel(function, linked=False)


def field_reader(record: type[R], fields: Sequence[str]) -> Callable[[R, int], int]:
    """A kernel of (record, position): the field of whole numbers at this position.

    Args:
        record: class of the records.
        fields: names, at least one.
    """
    lines = [f"    if r == {i}:\n        return record.{name}" for i, name in enumerate(fields[:-1])]
    lines.append(f"    return record.{fields[-1]}")
    made = _compiled(record, f"read_{'_'.join(fields)}", lines, **{"r": int, "return": int})
    return cast("Callable[[R, int], int]", made)


def field_writer(record: type[R], fields: Sequence[str]) -> Callable[[R, int, int], None]:
    """A kernel of (record, position, value) that sets the field of whole numbers at this position.

    Args:
        record: class of the records.
        fields: names, at least one.
    """
    lines = [f"    if r == {i}:\n        record.{name} = value" for i, name in enumerate(fields)]
    annotations = {"r": int, "value": int, "return": None}
    made = _compiled(record, f"write_{'_'.join(fields)}", lines, **annotations)
    return cast("Callable[[R, int, int], None]", made)
