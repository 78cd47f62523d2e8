"""What a scheduler may see of jobs: the flags, the columns that each shows, and the checks of both."""

import ast
import dis
import inspect
import textwrap
import typing
from collections.abc import Hashable
from enum import Flag, auto
from functools import cache
from types import CodeType
from typing import Any

import yaml

from ringyard.compiled.functions import Kernel
from ringyard.compiled.records import Record, Records1, Records2, Records3
from ringyard.config_folder import config_folder
from ringyard.errors import ObservabilityError
from ringyard.resources import RESOURCES
from ringyard.state import progress
from ringyard.state.records import ClusterRecord, Gpu, Job, Link, Server

_DIMENSIONS: dict[Any, int] = {Records1: 1, Records2: 2, Records3: 3}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"}


@cache
def fields_read(function: Hashable, others: tuple[type[Record], ...], questions: str) -> frozenset[str]:
    """Return the names of all fields read or written by a compiled function and the kernels it calls.

    They are attributes (`job.kind`) or constant texts (`job["kind"]`). Fields of `others` do not count where
    types show the record, as after `server = state.servers[b, s]`. Kernels of the module `questions` count as
    a field of their name and are not entered.
    """
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


class Observability(Flag):
    """What a scheduler, agent or rule may see besides arrivals, models and the present allocation.

    A scheduler declares its flags. Its view and its job table raise an error for everything else.
    """

    NOTHING = 0  #: arrivals and the present: waiting jobs, allocations, what monitors show of running jobs
    SIZES = auto()  #: what jobs ask for: GPUs, batch, cores, memory, bytes sent, acceptable completion time
    ATTAINED_SERVICE = auto()  #: GPU seconds and seconds for which a job has held resources
    DISTRIBUTION = auto()  #: the sorted GPU seconds of all jobs, without the job of each
    #: predicted work left, with the workload's error. Absent where a job is not predictable.
    PREDICTIONS = auto()
    DURATIONS = auto()  #: true run times and true work left
    TRAINING_CURVES = auto()  #: iterations, losses and validation metrics so far
    SPEEDS = auto()  #: how fast jobs run with other allocations, as profiling would measure it
    FUTURE = auto()  #: what cannot be known in advance: cancellations, failures, noise, errors of predictions
    HISTORY = auto()  #: run times, users and virtual clusters of jobs that ended before the first arrival
    #: all flags
    EVERYTHING = 2 * HISTORY - 1  # type: ignore[operator]

    def __str__(self) -> str:
        if self in (Observability.NOTHING, Observability.EVERYTHING):
            return str(self.name).lower()
        return ", ".join(_TABLE_TEXTS.get(one, str(one.name).lower().replace("_", " ")) for one in self)


#: flags that tables do not print by their names
_TABLE_TEXTS = {
    Observability.DISTRIBUTION: "distribution of durations",
    Observability.PREDICTIONS: "predicted durations",
    Observability.FUTURE: "the future",
    Observability.HISTORY: "ended jobs",
}

#: {column: flags, of which any one shows it}, as conf/observability.yaml says
COLUMNS = dict.fromkeys(Job.dtype.names or (), Observability.FUTURE)
for _flags, _columns in yaml.safe_load((config_folder() / "observability.yaml").read_text()).items():
    _any = Observability(sum(Observability[name].value for name in _flags.split()))
    COLUMNS |= dict.fromkeys(" ".join(_columns).split(), _any)
COLUMNS |= {name: Observability.SIZES for one in RESOURCES for name in (one.per_worker, one.asked)}

#: records with fields that need no flag, although some of these have the name of a column of jobs
_CLUSTER_RECORDS = (ClusterRecord, Server, Gpu, Link)


def check_column(name: str, observability: Observability) -> None:
    """Raise an ObservabilityError unless the declared flags show column `name`, a key of `COLUMNS`."""
    flags = COLUMNS.get(name)
    if flags is None:
        raise ObservabilityError(f"there is no column {name!r}; expected one of {', '.join(sorted(COLUMNS))}")
    if flags and not flags & observability:
        expected = " or ".join(f"Observability.{one.name}" for one in flags)
        raise ObservabilityError(
            f"{name} is hidden: the declared observability is {observability}"
            f"; expected {expected} as well: declare it, or do without"
        )


def check_reads(function: Any, observability: Observability, label: str) -> None:
    """Raise an ObservabilityError if the source of a compiled function reads a column that was not declared.

    A field counts unless types show that it is not a job's: `state.servers[b, s].num_gpus` is a server's. A
    call of a function of `ringyard.state.progress` counts as the column of that name. `label` names the
    function.
    """
    for name in sorted(fields_read(function, _CLUSTER_RECORDS, progress.__name__) & COLUMNS.keys()):
        try:
            check_column(name, observability)
        except ObservabilityError as error:
            raise ObservabilityError(f"{label}: {error}") from None
