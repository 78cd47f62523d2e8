"""Interfaces: signatures of functions that kernels receive as values, such as placement rules."""

import pickle
import zlib
from collections.abc import Callable
from ctypes import string_at
from typing import Any, TypeVar, cast

from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model

from ringyard.compiled import numba_internals as internals
from ringyard.compiled.functions import (
    VALIDATE_ALL,
    ByName,
    Kernel,
    LockedCachedProperty,
    NotLoadedError,
    is_third_party,
    raising_kernel,
)
from ringyard.compiled.numba_internals import cgutils, ir
from ringyard.compiled.records import signature_of
from ringyard.errors import PluginError

# what `ringyard.compiled` exports of it
__all__ = ["CompiledFunction", "error_message", "function_address", "implements", "interface", "is_validated"]
__all__ += ["raise_plugin_error"]

#: {number: text} of `error_message`, and {address: name} of plugged-in functions
_TEXTS: dict[int, str] = {}
_NAMES: dict[int, str] = {}


class _MachineCodeError(PluginError):
    """A `PluginError` raised by machine code, which passes numbers that become a sentence here."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sentence alone, since addresses are valid in one process only."""
        return PluginError, self.args


class InvalidResultError(_MachineCodeError):
    """What `raise_plugin_error` raises."""

    def __init__(self, text: int, function: int, job: int, got: float, expected: float, there: float) -> None:
        values = {"job": job, "got": got, "expected": expected, "there": there}
        super().__init__(_TEXTS[text].format(function=_NAMES[function], **values))


class RaisedInPluginError(_MachineCodeError):
    """An exception raised by the function at address `function`.

    `pickled` and `size` say where Numba keeps (class, arguments, place) of it.
    """

    def __init__(self, function: int, pickled: int, size: int) -> None:
        raised, arguments, _ = pickle.loads(string_at(pickled, size))
        if raised is NotLoadedError:  # no error of the function
            raise NotLoadedError
        text = ", ".join(map(str, arguments or ()))
        super().__init__(f"{_NAMES[function]} raised {raised.__name__}: {text}")


def error_message(text: str) -> int:
    """Return a number for `text`, which has {function}, {job}, {got}, {expected} and {there}."""
    number = zlib.crc32(text.encode())
    _TEXTS[number] = text
    return number


@raising_kernel
def raise_plugin_error(text: int, function: int, job: int, got: float, expected: float, there: float) -> None:
    """Raise a PluginError, which passes through all kernels up to Python, about row `job`.

    `text` is a number from `error_message`, `function` the `function_address` of the one at fault.
    """
    raise InvalidResultError(text, function, job, got, expected, there)


@raising_kernel
def _reraise(function: int, pickled: int, size: int) -> None:
    """Raise the exception of a plugged-in function again, with the function's name."""
    raise RaisedInPluginError(function, pickled, size)


C = TypeVar("C", bound=type)
P = TypeVar("P")
_WORD = ir.IntType(64)


class InterfaceType(types.Callable):  # type: ignore[misc]
    """Numba type of any function that implements an interface with this Numba `signature`.

    Its value is the function's address, and whether it is validated.
    """

    def __init__(self, signature: Any) -> None:
        self.signature = signature
        super().__init__(name=f"Slot({signature})")

    def get_call_type(self, context: Any, arguments: Any, keywords: Any) -> Any:
        """Return the interface's signature (`context`, `arguments`, `keywords`: Numba's)."""
        if keywords or len(arguments) != len(self.signature.args):
            return None
        return internals.signature(self.signature.return_type, *self.signature.args, recvr=self)

    def get_call_signatures(self) -> tuple[list[Any], bool]:
        """Return that signature alone."""
        return [self.signature], False

    def get_impl_key(self, signature: Any) -> type:
        """Return one key for all interfaces, which are called alike."""
        return InterfaceType


@register_model(InterfaceType)
class _InterfaceModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: InterfaceType) -> None:
        super().__init__(manager, kind, [("address", types.voidptr), ("validated", types.int64)])


@lower_builtin(InterfaceType, types.VarArg(types.Any))  # type: ignore[untyped-decorator]
def _call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Call by address. An error that comes back gets the name of the function, unless it has one."""
    address, given = builder.extract_value(arguments[0], 0), arguments[1:]
    declared = internals.signature(signature.return_type, *signature.args[1:])
    function = builder.bitcast(address, internals.function_type(context, declared).as_pointer())
    status, result = internals.emit_call(context, builder, function, declared, given)
    with cgutils.if_unlikely(builder, status.is_error):
        raised = builder.load(status.excinfoptr)
        nameless = builder.icmp_signed(
            "==", builder.extract_value(raised, internals.ALLOC_FLAG_IDX), ir.IntType(32)(0)
        )
        with builder.if_then(nameless):
            pickled = builder.ptrtoint(builder.extract_value(raised, internals.PICKLE_BUF_IDX), _WORD)
            size = builder.sext(builder.extract_value(raised, internals.PICKLE_BUFSZ_IDX), _WORD)
            raising: Any = _reraise
            raising.call(context, builder, [builder.ptrtoint(address, _WORD), pickled, size])
        context.call_conv.return_status_propagate(builder, status)
    return result


@intrinsic  # type: ignore[untyped-decorator]
def _function_address(context: Any, function: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(builder.extract_value(arguments[0], 0), _WORD)

    return (types.int64(function), emit) if isinstance(function, InterfaceType) else None


@intrinsic  # type: ignore[untyped-decorator]
def _is_validated(context: Any, function: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.icmp_unsigned("!=", builder.extract_value(arguments[0], 1), _WORD(0))

    return (types.boolean(function), emit) if isinstance(function, InterfaceType) else None


#: in kernels: the address of a function received through an interface, as `raise_plugin_error` takes it
function_address: Callable[[Any], int] = _function_address
#: in kernels: whether a function that came through an interface is held to all that it promises
is_validated: Callable[[Any], bool] = _is_validated


def interface(protocol: C) -> C:
    """Decorate a Protocol with a typed `__call__`: kernels accept any function that `implements` it.

    Its type depends on the signature alone, so a kernel that receives one is compiled once for all.
    """
    signature = signature_of(protocol.__call__)
    setattr(protocol, "signature", signature)  # noqa: B010
    setattr(protocol, "numba_type", InterfaceType(signature))  # noqa: B010
    return protocol


class CompiledFunction(ByName):
    """A function that implements an interface, compiled on first use.

    It is *validated* if indices outside arrays are errors and kernels check its results: always for functions
    of other packages, with RINGYARD_CHECK=1 for those of this project.
    """

    def __init__(self, function: Callable[..., Any], protocol: Any) -> None:
        self.python = function
        self.protocol = protocol
        self.validated = VALIDATE_ALL or is_third_party(function)
        self._kernel = Kernel(function, linked=True, guarded=self.validated)
        self.signature = self._kernel.signature = protocol.signature

    @LockedCachedProperty
    def address(self) -> int:
        """Address of its machine code.

        Raises:
            PluginError: it cannot be compiled.
        """
        try:
            address = self._kernel.address
        except Exception as error:  # numba lets errors of many kinds through
            lines = [line for line in str(error).splitlines() if line and not line.startswith("Failed in")]
            raise PluginError(
                f"{self.name} cannot be compiled as {self.protocol.__name__}: {type(error).__name__}"
                f" {' '.join(lines[:2])}"
            ) from error
        _NAMES[address] = self.name
        return address

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function from Python."""
        return self._kernel(*arguments)


def implements(protocol: type[P]) -> Callable[[P], P]:
    """Decorate a module-level function to make it a `CompiledFunction` of the interface `protocol`."""

    def decorate(function: P) -> P:
        value: Any = CompiledFunction(cast(Any, function), protocol)
        return value

    return decorate
