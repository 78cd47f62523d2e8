"""Numba as this project uses it: one decorator, and compiled functions that are passed as values."""

import functools
import importlib
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.experimental.function_type  # registers functions as values
from numba.core import cgutils
from numba.core.errors import NumbaExperimentalFeatureWarning
from numba.extending import intrinsic, typeof_impl

__all__ = [
    "CompiledFunction",
    "announce_compilation",
    "entry_point",
    "function_at",
    "function_value",
    "kernel",
]

warnings.filterwarnings("ignore", category=NumbaExperimentalFeatureWarning)

_announced = False

F = TypeVar("F", bound=Callable[..., Any])


# _nrt=False: kernels allocate nothing, so they need no reference counts; counting the state's arrays
# cost ten times the work of a short loop over servers.
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}


@functools.cache
def _kernel_sources() -> int:
    """Checksum of this package's files that hold compiled functions."""
    checksum = 0
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        text = file.read_bytes()
        if b"@kernel" in text or b"@function_value" in text:
            checksum = zlib.crc32(text, checksum)
    return checksum


def _watch_sources(dispatcher: Any) -> None:
    """Let a change of any kernel's file make cached machine code stale.

    Numba watches only the file of the function itself, but kernels are compiled into one another: without
    this, an edit would go on running old code.
    """
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _kernel_sources())


def kernel(function: F) -> F:
    """Compile lazily to machine code, without the GIL, cached on disk; it may not allocate arrays."""
    compiled: F = numba.njit(**_OPTIONS)(function)
    _watch_sources(compiled)
    return compiled


def entry_point(function: Any, *examples: Any) -> Callable[..., Any]:
    """A kernel compiled for the types of `examples`, to be called without looking at types again.

    Numba looks at the types of all arguments at every call, some 20 us for what a step needs. The caller
    vouches for them instead: other types crash.
    """
    argument_types = tuple(numba.typeof(example) for example in examples)
    function.compile(argument_types)
    point: Callable[..., Any] = function.overloads[argument_types].entry_point
    return point


class CompiledFunction(numba.types.WrapperAddressProtocol):  # type: ignore[misc]
    """A compiled function with a declared signature, usable as an argument of kernels.

    Numba types every such object by its signature alone, so that a kernel which receives one is
    compiled once for all functions of that signature and its on-disk cache hits in the next process.

    Args:
        function: plain Python function.
        signature: numba signature of the slot it fills.
    """

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.python = function
        self.numba_type = numba.types.FunctionType(signature)
        self._signature = signature
        self._dispatcher: Any = None
        self._addresses: tuple[int, int] | None = None

    @property
    def dispatcher(self) -> Any:
        """The numba dispatcher, compiled (or read from the cache) on first use."""
        if self._dispatcher is None:
            dispatcher = numba.njit(**_OPTIONS)(self.python)
            _watch_sources(dispatcher)
            dispatcher.compile(self._signature)
            dispatcher.disable_compile()
            self._dispatcher = dispatcher
        return self._dispatcher

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function from Python."""
        return self.dispatcher(*arguments)

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        """Pickle as the module-level name it was given."""
        return _named, (self.python.__module__, self.python.__qualname__)

    @property
    def addresses(self) -> tuple[int, int]:
        """Entry points: C calling convention, numba's own."""
        if self._addresses is None:
            compiled = self.dispatcher.overloads[self._signature.args]
            names = (compiled.fndesc.llvm_cfunc_wrapper_name, compiled.fndesc.llvm_func_name)
            c_address, own = (compiled.library.get_pointer_to_function(name) for name in names)
            self._addresses = (int(c_address), int(own))
        return self._addresses

    def __wrapper_address__(self) -> int:
        """Address of the C entry point (numba's protocol)."""
        return self.addresses[0]

    def signature(self) -> Any:
        """The declared signature (numba's protocol)."""
        return self._signature


@typeof_impl.register(CompiledFunction)  # type: ignore[untyped-decorator]
def _type_of_function(value: CompiledFunction, context: Any) -> Any:
    return value.numba_type


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def function_value(signature: Any) -> Callable[[Callable[..., Any]], CompiledFunction]:
    """Decorate a function to make it a `CompiledFunction` of `signature`."""

    def decorate(function: Callable[..., Any]) -> CompiledFunction:
        return CompiledFunction(function, signature)

    return decorate


def function_at(signature: Any) -> Any:
    """A compiled function `(addresses [n, 2], i) -> function` of the given signature.

    Kernels that receive functions as `CompiledFunction.addresses` in an array spare numba looking at
    Python objects at every call, some 4 us for each function.
    """
    function_type = numba.types.FunctionType(signature)

    @intrinsic  # type: ignore[untyped-decorator]
    def to_function(context: Any, c_address: Any, own_address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            function = cgutils.create_struct_proxy(function_type)(context, builder)
            function.c_addr = builder.inttoptr(arguments[0], cgutils.voidptr_t)
            function.jit_addr = builder.inttoptr(arguments[1], cgutils.voidptr_t)
            function.py_addr = cgutils.get_null_value(cgutils.voidptr_t)
            return function._getvalue()

        return function_type(numba.types.int64, numba.types.int64), generate

    @kernel
    def at(addresses: Any, i: int) -> Any:
        return to_function(addresses[i, 0], addresses[i, 1])

    return at


def announce_compilation(function: Any) -> None:
    """Say so on standard error, once, if a kernel's machine code is not in numba's cache yet.

    Args:
        function: a kernel that every simulation needs.
    """
    global _announced
    name = function.py_func.__qualname__
    if not _announced and not any(Path(function.stats.cache_path).glob(f"*.{name}-*.nbi")):
        print("ringyard: compiling the simulator, once (some 30 s)", file=sys.stderr, flush=True)
    _announced = True
