"""Find which fields of a record a compiled function may read, in its Python source."""

import ast
import dis
import inspect
import textwrap
import typing
from collections.abc import Hashable
from functools import cache
from types import CodeType
from typing import Any

from ringyard.compiled.functions import Kernel
from ringyard.compiled.records import Record, Records1, Records2, Records3

_DIMENSIONS: dict[Any, int] = {Records1: 1, Records2: 2, Records3: 3}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"}


def fields_read(function: Any, others: tuple[type[Record], ...], questions: str) -> frozenset[str]:
    """Return the names of all fields read or written by a compiled function and the kernels it calls.

    They are attributes (`job.kind`) or constant texts (`job["kind"]`). Fields of `others` do not count where
    types show the record, as after `server = state.servers[b, s]`. Kernels of the module `questions` count as
    a field of their name and are not entered.
    """
    return _fields_read(function, others, questions)


@cache
def _fields_read(function: Hashable, others: tuple[type[Record], ...], questions: str) -> frozenset[str]:
    names: set[str] = set()
    seen: set[Any] = set()
    todo: list[Any] = [function]
    while todo:
        compiled = todo.pop()
        source = _source(compiled)
        if source is None or source in seen:
            continue
        seen.add(source)
        if source.__module__ == questions:
            names.add(source.__name__)
            continue
        attributes, texts = _attributes_and_texts(source.__code__)
        used = inspect.getclosurevars(source)
        values = [*used.globals.values(), *used.nonlocals.values()]
        values += [one for value in values if isinstance(value, tuple | list) for one in value]
        names |= attributes - _attributes_of_others(compiled, source, others) | texts
        names |= {value for value in values if isinstance(value, str)}
        modules = [value for value in values if inspect.ismodule(value)]
        inside = [getattr(module, name, None) for module in modules for name in attributes]
        todo += values + [value for value in inside if hasattr(value, "python")]
    return frozenset(names)


@cache
def _hints_of(owner: Any) -> dict[str, Any]:
    return typing.get_type_hints(owner, include_extras=True) if inspect.isclass(owner) else {}


def _attributes_and_texts(code: CodeType) -> tuple[set[str], set[str]]:
    """Return attributes and texts in a function's code and in the functions inside it."""
    steps = dis.get_instructions(code)
    attributes = {step.argval for step in steps if step.opname in _ATTRIBUTES}
    texts = {value for value in code.co_consts if isinstance(value, str)}
    for value in code.co_consts:
        if isinstance(value, CodeType):
            more = _attributes_and_texts(value)
            attributes, texts = attributes | more[0], texts | more[1]
    return attributes, texts


def _source(value: Any) -> Any:
    """Return the Python function of a kernel or compiled function, None for anything else."""
    value = getattr(value, "python", value)
    return value if inspect.isfunction(value) else None


def _attributes_of_others(compiled: Any, source: Any, others: tuple[type[Record], ...]) -> set[str]:
    """Return attributes that a function reads of the records `others` alone."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(source))).body[0]
    except (OSError, SyntaxError):
        return set()
    if not isinstance(tree, ast.FunctionDef):  # a lambda
        return set()
    types = _types_of_names(tree, _types_of_arguments(compiled, source))
    owners: dict[str, set[bool]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owners.setdefault(node.attr, set()).add(_type_of(node.value, types) in others)
    return {name for name, are_others in owners.items() if are_others == {True}}


def _types_of_arguments(compiled: Any, source: Any) -> dict[str, Any]:
    """Return the argument types that are certain: those of an interface, or of a kernel's annotations."""
    if hasattr(compiled, "protocol"):
        said: Any = compiled.protocol.__call__
    elif isinstance(compiled, Kernel) and compiled.declares:
        said = source
    else:
        return {}
    hints = typing.get_type_hints(said, include_extras=True)
    there = [name for name in inspect.signature(said).parameters if name != "self"]
    own = inspect.signature(source).parameters
    return {name: hints[known] for name, known in zip(own, there, strict=False)}


def _types_of_names(function: ast.FunctionDef, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return {name: type} of arguments, and of variables with one type wherever they are set."""
    nested = (node for node in ast.walk(function) if node is not function.args)
    inner = [node for node in nested if isinstance(node, ast.arguments)]
    doubtful = {one.arg for node in inner for one in ast.walk(node) if isinstance(one, ast.arg)}
    values: dict[str, list[ast.expr]] = {}
    stored: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stored[node.id] = stored.get(node.id, 0) + 1
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
    types = {name: kind for name, kind in arguments.items() if name not in stored and name not in doubtful}
    for _ in values:  # types of some variables follow from those of others
        for name, assigned in values.items():
            if name in doubtful or name in arguments or len(assigned) < stored[name]:
                continue
            kinds = [_type_of(value, types) for value in assigned]
            if all(kind is not None and kind == kinds[0] for kind in kinds):
                types[name] = kinds[0]
    return types


def _type_of(node: ast.expr, types: dict[str, Any]) -> Any:
    """Return the type of an expression as annotations show it, None if they do not."""
    if isinstance(node, ast.Name):
        return types.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _type_of(node.value, types)
        return _hints_of(owner).get(node.attr)
    if isinstance(node, ast.Subscript):
        many = _type_of(node.value, types)
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        slices = any(isinstance(one, ast.Slice) for one in index)
        if _DIMENSIONS.get(typing.get_origin(many)) == len(index) and not slices:
            return typing.get_args(many)[0]
    return None
