"""Slots: functions that kernels receive as values, such as performance models and placement rules."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from numba.core import types
from numba.experimental import function_type  # noqa: F401  (registers functions as values)
from numba.extending import typeof_impl

from ringyard.compiled.functions import compiled
from ringyard.compiled.types import signature_of

__all__ = ["CompiledFunction", "fills", "slot"]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


def slot(protocol: C) -> C:
    """Decorate a Protocol with a typed `__call__`: kernels take any function that `fills` it.

    A field or argument annotated with it is typed by that signature alone, so that a kernel which receives
    one is compiled once for all functions of the slot, and its on-disk cache hits in the next process.
    """
    signature = signature_of(protocol.__call__)
    setattr(protocol, "signature", signature)  # noqa: B010
    setattr(protocol, "numba_type", types.FunctionType(signature))  # noqa: B010
    return protocol


class CompiledFunction(types.WrapperAddressProtocol):
    """A function compiled to a slot's signature, on first use.

    Args:
        function: plain Python function.
        protocol: the slot.

    Attributes:
        python: the plain function.
        numba_type: of the slot.
    """

    def __init__(self, function: Callable[..., Any], protocol: Any) -> None:
        self.python = function
        self.numba_type = protocol.numba_type
        self._signature = protocol.signature
        self._dispatcher: Any = None
        self._addresses: tuple[int, int] | None = None

    @property
    def dispatcher(self) -> Any:
        """The numba dispatcher, compiled (or read from the cache) on first use."""
        if self._dispatcher is None:
            dispatcher = compiled(self.python)
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
            overload = self.dispatcher.overloads[self._signature.args]
            names = (overload.fndesc.llvm_cfunc_wrapper_name, overload.fndesc.llvm_func_name)
            c_address, own = (overload.library.get_pointer_to_function(name) for name in names)
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


def fills(protocol: Any) -> Callable[[F], F]:
    """Decorate a module-level function to make it a `CompiledFunction` of a slot."""

    def decorate(function: F) -> F:
        value: Any = CompiledFunction(function, protocol)
        return value

    return decorate
