"""Kernels: functions compiled to machine code on first use, and kept on disk."""

import functools
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaExperimentalFeatureWarning
from numba.core.typing.templates import AbstractTemplate
from numba.extending import lower_builtin, typeof_impl

from ringyard.compiled.types import signature_of

__all__ = [
    "LinkedKernel",
    "announce_compilation",
    "compiled",
    "entry_point",
    "kernel",
    "linked_kernel",
    "whole",
]

warnings.filterwarnings("ignore", category=NumbaExperimentalFeatureWarning)

_announced = False

F = TypeVar("F", bound=Callable[..., Any])


# _nrt=False: kernels allocate nothing, so they need no reference counts; counting the state's arrays
# cost ten times the work of a short loop over servers.
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}


@functools.cache
def _kernel_sources() -> int:
    """Checksum of the files of this package, of which any may take part in a kernel."""
    checksum = 0
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        text = file.read_bytes()
        if b"ringyard.compiled" in text:
            checksum = zlib.crc32(text, checksum)
    return checksum


def _linked_by(function: Any, seen: set[int]) -> Iterator["LinkedKernel"]:
    """The linked kernels that a Python function calls, straight or through plain kernels."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, LinkedKernel):
            yield value
        elif isinstance(value, Dispatcher):
            yield from _linked_by(value.py_func, seen)


def compiled(function: Callable[..., Any]) -> Any:
    """A numba dispatcher with this project's options and two cares that numba does not take.

    Numba watches only the file of the function itself, but kernels are compiled into one another: a change
    of any file makes cached machine code stale. And machine code from the cache needs the linked kernels
    that it calls to be there first.
    """
    dispatcher: Any = numba.njit(**_OPTIONS)(function)
    cache = dispatcher._cache
    file = getattr(cache, "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _kernel_sources())
    load = cache.load_overload

    def load_after_linking(signature: Any, context: Any) -> Any:
        for linked in _linked_by(function, set()):
            linked.link()
        try:
            return load(signature, context)
        except (AttributeError, ImportError):  # machine code of another version, for types that are gone
            cache.flush()
            return None

    cache.load_overload = load_after_linking
    return dispatcher


def kernel(function: F) -> F:
    """Compile lazily to machine code, without the GIL, cached on disk; it may not allocate arrays.

    A kernel is compiled anew into each kernel that calls it: right for small ones.
    """
    kept: F = compiled(function)
    return kept


class LinkedKernel:
    """A kernel compiled once, for the types of its annotations; see `linked_kernel`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.symbol = f"{function.__module__}.{function.__qualname__}"
        self._function = function
        self._dispatcher: Any = None

    @functools.cached_property
    def signature(self) -> Any:
        """What the annotations declare, as numba knows it."""
        return signature_of(self._function)

    def link(self) -> Any:
        """The dispatcher, compiled (or read from the cache) and known to the linker by its symbol."""
        if self._dispatcher is None:
            dispatcher = compiled(self._function)
            dispatcher.compile(self.signature)
            dispatcher.disable_compile()
            library = dispatcher.overloads[self.signature.args]
            address = library.library.get_pointer_to_function(library.fndesc.llvm_func_name)
            llvm.add_symbol(self.symbol, address)
            self._dispatcher = dispatcher
        return self._dispatcher

    def __call__(self, *arguments: Any) -> Any:
        """Call from Python."""
        return self.link()(*arguments)


def linked_kernel(function: F) -> F:
    """As `kernel`, but compiled by itself, once, and called by name: right for large ones.

    Its arguments are converted to what its annotations declare.
    """
    linked: Any = LinkedKernel(function)
    return linked


@typeof_impl.register(LinkedKernel)  # type: ignore[untyped-decorator]
def _type_of_linked(value: LinkedKernel, context: Any) -> Any:
    return _linked_type(value)


@functools.cache
def _linked_type(linked: LinkedKernel) -> Any:
    """The numba type of a linked kernel: one that accepts what converts to its signature."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        key = linked

        def generic(self, arguments: Any, keywords: Any) -> Any:
            if keywords or len(arguments) != len(linked.signature.args):
                return None
            return linked.signature

    Template.__name__ = linked.symbol

    @lower_builtin(linked, *linked.signature.args)  # type: ignore[untyped-decorator]
    def call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        linked.link()
        convention = context.call_conv
        declared = convention.get_function_type(signature.return_type, signature.args)
        function = cgutils.get_or_insert_function(builder.module, declared, linked.symbol)
        status, result = convention.call_function(
            builder, function, signature.return_type, signature.args, arguments
        )
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result

    return types.Function(Template)


def entry_point(function: Any, *examples: Any) -> Callable[..., Any]:
    """A kernel compiled for the types of `examples`, to be called without looking at types again.

    Numba looks at the types of all arguments at every call, some 20 us for what a step needs. The caller
    vouches for them instead: other types crash.
    """
    argument_types = tuple(numba.typeof(example) for example in examples)
    function.compile(argument_types)
    point: Callable[..., Any] = function.overloads[argument_types].entry_point
    return point


@kernel
def whole(value: float) -> int:
    """A number as a 64-bit integer, its fraction cut off: what NamedTuples of kernels are made of."""
    return np.int64(value)  # type: ignore[return-value]


def announce_compilation(function: Any) -> None:
    """Say so on standard error, once, if a kernel's machine code is not in numba's cache yet.

    Args:
        function: a linked kernel that every simulation needs.
    """
    global _announced
    python: FunctionType = function.__wrapped__
    cache = numba.njit(**_OPTIONS)(python).stats.cache_path
    if not _announced and not any(Path(cache).glob(f"*.{python.__qualname__}-*.nbi")):
        print("ringyard: compiling the simulator, once (some 30 s)", file=sys.stderr, flush=True)
    _announced = True
