"""Which record fields the Python source of a compiled function reads."""

import dis
import inspect
from collections.abc import Hashable
from functools import cache
from types import CodeType
from typing import Any

__all__ = ["fields_read"]


def fields_read(function: Any, questions: str) -> frozenset[str]:
    """Names of all fields read or written by a compiled function and by the kernels it calls.

    As attributes (`job.kind`) or by a constant text (`job["kind"]`).

    Args:
        function: decorated with `kernel`, `linked_kernel` or `fills`, or plain Python.
        questions: a module whose kernels are not entered but named, as if they were fields of their name.
    """
    return _fields_read(function, questions)


@cache
def _fields_read(function: Hashable, questions: str) -> frozenset[str]:
    names: set[str] = set()
    seen: set[Any] = set()
    todo: list[Any] = [function]
    while todo:
        source = _source(todo.pop())
        if source is None or source in seen:
            continue
        seen.add(source)
        if source.__module__ == questions:
            names.add(source.__name__)
            continue
        attributes, texts = _named_in(source.__code__)
        used = inspect.getclosurevars(source)
        values = [*used.globals.values(), *used.nonlocals.values()]
        values += [one for value in values if isinstance(value, tuple | list) for one in value]
        names |= attributes | texts | {value for value in values if isinstance(value, str)}
        modules = [value for value in values if inspect.ismodule(value)]
        inside = [getattr(module, name, None) for module in modules for name in attributes]
        todo += values + [value for value in inside if hasattr(value, "python")]
    return frozenset(names)


_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"}


def _named_in(code: CodeType) -> tuple[set[str], set[str]]:
    """Attributes and texts in a function's code and in that of functions inside it."""
    steps = dis.get_instructions(code)
    attributes = {step.argval for step in steps if step.opname in _ATTRIBUTES}
    texts = {value for value in code.co_consts if isinstance(value, str)}
    for value in code.co_consts:
        if isinstance(value, CodeType):
            more = _named_in(value)
            attributes, texts = attributes | more[0], texts | more[1]
    return attributes, texts


def _source(value: Any) -> Any:
    """The Python function under a kernel or a compiled function; None for anything else."""
    value = getattr(value, "python", value)
    return value if inspect.isfunction(value) else None
