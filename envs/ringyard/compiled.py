"""Numba as this project uses it: one decorator, and compiled functions that are passed as values."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.experimental.function_type  # registers functions as values
from numba.core.errors import NumbaExperimentalFeatureWarning

__all__ = ["CompiledFunction", "function_value", "kernel"]

warnings.filterwarnings("ignore", category=NumbaExperimentalFeatureWarning)

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile lazily to machine code, without the GIL, cached on disk."""
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


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
        self._signature = signature
        self._dispatcher: Any = None

    @property
    def dispatcher(self) -> Any:
        """The numba dispatcher, compiled (or read from the cache) on first use."""
        if self._dispatcher is None:
            decorate = numba.njit(self._signature, cache=True, nogil=True, error_model="numpy")
            self._dispatcher = decorate(self.python)
        return self._dispatcher

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function from Python."""
        return self.dispatcher(*arguments)

    def __wrapper_address__(self) -> int:
        """Address of the C entry point (numba's protocol)."""
        compiled = self.dispatcher.overloads[self._signature.args]
        name = compiled.fndesc.llvm_cfunc_wrapper_name
        return int(compiled.library.get_pointer_to_function(name))

    def signature(self) -> Any:
        """The declared signature (numba's protocol)."""
        return self._signature


def function_value(signature: Any) -> Callable[[Callable[..., Any]], CompiledFunction]:
    """Decorate a function to make it a `CompiledFunction` of `signature`."""

    def decorate(function: Callable[..., Any]) -> CompiledFunction:
        return CompiledFunction(function, signature)

    return decorate
