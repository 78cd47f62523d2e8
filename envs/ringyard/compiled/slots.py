"""Slots: functions that kernels receive as values, such as performance models and placement rules."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba.core import types
from numba.experimental import function_type  # noqa: F401  (registers functions as values)

from ringyard.compiled.functions import ByName, Kernel
from ringyard.compiled.types import signature_of

__all__ = ["CompiledFunction", "fills", "slot"]

C = TypeVar("C", bound=type)
P = TypeVar("P")


def slot(protocol: C) -> C:
    """Decorate a Protocol with a typed `__call__`: kernels take any function that `fills` it.

    A field or argument annotated with it is typed by that signature alone, so that a kernel which receives
    one is compiled once for all functions of the slot, and its on-disk cache hits in the next process.
    """
    signature = signature_of(protocol.__call__)
    setattr(protocol, "signature", signature)  # noqa: B010
    setattr(protocol, "numba_type", types.FunctionType(signature))  # noqa: B010
    return protocol


class CompiledFunction(ByName):
    """A function that fills a slot, compiled on first use.

    Args:
        function: plain Python function.
        protocol: the slot.

    Attributes:
        python: the plain function.
        signature: that of the slot, as numba knows it.
    """

    def __init__(self, function: Callable[..., Any], protocol: Any) -> None:
        self.python = function
        self._kernel = Kernel(function, linked=False)
        self.signature = self._kernel.signature = protocol.signature

    @property
    def address(self) -> int:
        """Where its machine code begins."""
        return self._kernel.address

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function from Python."""
        return self._kernel(*arguments)


def fills(protocol: type[P]) -> Callable[[P], P]:
    """Decorate a module-level function to make it a `CompiledFunction` of a slot."""

    def decorate(function: P) -> P:
        value: Any = CompiledFunction(cast(Any, function), protocol)
        return value

    return decorate
