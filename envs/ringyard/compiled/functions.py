"""Kernels: functions compiled to machine code on first use and kept on disk."""

import ctypes
import functools
import importlib
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from types import FunctionType
from typing import Any, Self, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.extending import lower_builtin, typeof_impl

from ringyard.compiled import numba_internals as internals
from ringyard.compiled.cache import OWN_PACKAGES, DiskCache, report_compilation
from ringyard.compiled.numba_internals import cgutils, ir, llvm
from ringyard.compiled.records import Record, signature_of
from ringyard.errors import ConfigurationError

# what `ringyard.compiled` exports of it
__all__ = ["entry_point", "field_reader", "field_writer", "kernel", "linked_kernel", "to_int"]

_LINKED: dict[str, "Kernel"] = {}  #: {module and qualified name: linked kernel}
#: why the kernel that machine code called last could not be loaded
_FAILURES: list[BaseException] = []
_POINTER = ir.IntType(8).as_pointer()
F = TypeVar("F", bound=Callable[..., Any])
#: whether to validate this project's functions too, as those of other packages always are
VALIDATE_ALL = os.environ.get("RINGYARD_CHECK", "") not in ("", "0")


class LockedCachedProperty(functools.cached_property[Any]):
    """A cached property that one thread computes for all. `functools` has had no lock since Python 3.12."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """Return the value, which is stored in `instance` (of class `owner`) from then on."""
        with internals.global_compiler_lock:
            return super().__get__(instance, owner)


def is_third_party(function: Callable[..., Any]) -> bool:
    """Whether a function is of another package, so that its indices are checked against array bounds."""
    return function.__module__.partition(".")[0] not in OWN_PACKAGES


def _copy_function(function: Callable[..., Any], suffix: str, names: dict[str, Any]) -> Any:
    """Return a copy with a cache file of its own, in which some global names mean something else."""
    original: Any = function
    known, defaults = {**original.__globals__, **names}, original.__defaults__
    copy = FunctionType(original.__code__, known, original.__name__, defaults, original.__closure__)
    functools.update_wrapper(copy, original)
    copy.__qualname__ = f"{original.__qualname__}.{suffix}"
    return copy


def _import_name(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


class ByName:
    """A compiled function, which is pickled as its module and qualified name and never copied."""

    python: Any  #: the plain function

    @property
    def name(self) -> str:
        """Module and qualified name."""
        return f"{self.python.__module__}.{self.python.__qualname__}"

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        """Return how to import it. A lambda, or what is defined inside another function, is an error."""
        module, name = self.python.__module__, self.python.__qualname__
        try:
            found = _import_name(module, name)
        except (ImportError, AttributeError):
            found = None
        if found is not self:
            raise ConfigurationError(
                f"the compiled function {module}.{name} cannot be pickled: expected to find it by that name;"
                " define it at the top level of a module, not as a lambda or inside a function"
            )
        return _import_name, (module, name)

    def __copy__(self) -> Self:
        """Return itself: it never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: it never changes."""
        return self


class Kernel(ByName):
    """A function compiled to machine code on first use, without the GIL, and kept on disk.

    The function allocates no arrays. If it is `guarded`, an index outside its array raises IndexError, also
    in kernels compiled into it. `linked_kernel` and `raising_kernel` explain the others.
    """

    def __init__(
        self, function: Callable[..., Any], linked: bool, raises: bool = False, guarded: bool = False
    ) -> None:
        functools.update_wrapper(self, function)
        self.python: Any = function
        self.linked = linked
        self.raises = raises
        self.is_guarded = guarded
        if linked:
            _LINKED[self.name] = self

    @LockedCachedProperty
    def signature(self) -> Any:
        """Numba signature that the annotations declare."""
        return signature_of(self.python)

    @property
    def declares(self) -> bool:
        """Whether annotations give the types of all arguments."""
        return Any not in self.python.__annotations__.values()

    @LockedCachedProperty
    def guarded(self) -> "Kernel":
        """The same with checked array bounds. A linked kernel stays as it is."""
        return self if self.linked or self.is_guarded else Kernel(self.python, False, guarded=True)

    @LockedCachedProperty
    def _compiled(self) -> Any:
        """The Python function to compile. That of a guarded kernel calls guarded kernels."""
        if not self.is_guarded:
            return self.python
        values = {name: self.python.__globals__.get(name) for name in self.python.__code__.co_names}
        kernels = {name: value.guarded for name, value in values.items() if isinstance(value, Kernel)}
        return _copy_function(self.python, "guarded", kernels)

    def _dispatcher(self, function: Any, **options: Any) -> tuple[Any, DiskCache]:
        """Return Numba's dispatcher with these `options` of `njit`, and its disk cache."""
        # _nrt=False: kernels allocate nothing, so they need no reference counts; counting the state's arrays
        # cost ten times the work of a short loop over servers
        dispatcher = numba.njit(
            nogil=True, error_model="numpy", _nrt=self.raises, boundscheck=self.is_guarded, **options
        )(function)
        cache = DiskCache(function)
        internals.set_cache(cache, dispatcher)
        return dispatcher, cache

    @LockedCachedProperty
    def _inside(self) -> tuple[Any, DiskCache]:
        """The dispatcher that other kernels call, without wrappers for Python."""
        options = {} if self.linked else {"pipeline_class": internals.InlinedCompiler}
        return self._dispatcher(self._compiled, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)

    @LockedCachedProperty
    def inside(self) -> Any:
        """The dispatcher that other kernels call. Numba compiles it for each combination of argument types.

        If annotations declare them all, arguments are converted instead.
        """
        if self.declares:
            self.declared  # noqa: B018
        return self._inside[0]

    @LockedCachedProperty
    def declared(self) -> Any:
        """What Numba compiled for the declared types."""
        compiled = internals.compiled_for(self._inside[0], self.signature)
        self._inside[0].disable_compile()
        return compiled

    @LockedCachedProperty
    def as_llvm(self) -> Any:
        """What Numba compiled, LLVM's code of the kernel and of those compiled into it."""
        if not self.linked:
            return self.declared
        function = _copy_function(self._compiled, "llvm", {})
        options = {"pipeline_class": internals.InlinedCompiler}
        dispatcher, _ = self._dispatcher(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)
        return internals.compiled_for(dispatcher, self.signature)

    @LockedCachedProperty
    def outside(self) -> Any:
        """The dispatcher that Python calls. Numba looks at the types of arguments."""
        function = _copy_function(self._compiled, "from_python", {})
        dispatcher, cache = self._dispatcher(function, no_cfunc_wrapper=True)
        compile_signature = dispatcher.compile

        def compile_announced(signature: Any) -> Any:
            with nullcontext() if cache.has(signature) else report_compilation():
                return compile_signature(signature)

        dispatcher.compile = compile_announced
        return dispatcher

    @LockedCachedProperty
    def address(self) -> int:
        """Address of the machine code of a linked kernel, in Numba's calling convention."""
        with nullcontext() if self._inside[1].has(self.signature) else report_compilation():
            return internals.address_of(self.declared)

    def call(self, context: Any, builder: Any, arguments: Any) -> Any:
        """Emit a call of the kernel, which is loaded at its first call (`context`, ...: Numba's)."""
        module, name = builder.module, f"address of {self.name}"
        if name not in module.globals:
            made = ir.GlobalVariable(module, _POINTER, name)
            made.linkage, made.initializer = "internal", _POINTER(None)
        cell = module.globals[name]
        address = cgutils.alloca_once_value(builder, builder.load(cell))
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(address))):
            kind = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer()])
            load = cgutils.get_or_insert_function(module, kind, "ringyard_load_kernel")
            load.attributes.add("cold")
            builder.store(builder.call(load, [context.insert_const_string(module, self.name), cell]), address)
        kind = internals.function_type(context, self.signature).as_pointer()
        function = builder.bitcast(builder.load(address), kind)
        status, result = internals.emit_call(context, builder, function, self.signature, arguments)
        if self.raises:
            context.call_conv.return_status_propagate(builder, status)
            return result
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return result

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel from Python."""
        return self.outside(*arguments)


def kernel(function: F) -> F:
    """Decorate a function that is compiled into each kernel that calls it, which suits small functions.

    A fully annotated function is compiled once, for the declared types.
    """
    made: Any = Kernel(function, linked=False, guarded=is_third_party(function))
    return made


def linked_kernel(function: F) -> F:
    """Decorate a function that is compiled by itself, at its first call, which suits large functions."""
    made: Any = Kernel(function, linked=True, guarded=is_third_party(function))
    return made


def raising_kernel(function: F) -> F:
    """Decorate a linked kernel that always raises, also exceptions with values, and never returns."""
    made: Any = Kernel(function, linked=True, raises=True)
    return made


class NotLoadedError(Exception):
    """Raised by machine code that called a kernel which could not be loaded: becomes what stopped that."""

    def __init__(self) -> None:
        raise _FAILURES.pop()


@raising_kernel
def _raise_failure() -> None:
    raise NotLoadedError


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _load_kernel(name: bytes, cell: int) -> int:
    """Return the address of a linked kernel, and store it at `cell`, for the next call from there."""
    try:
        address = _LINKED[name.decode()].address
    except BaseException as error:  # an interrupt too: what C calls can raise nothing
        _FAILURES.append(error)
        failing: Any = _raise_failure
        while "address" not in vars(failing):  # Ctrl-C again must not end in machine code without an address
            with suppress(BaseException):
                failing.address  # noqa: B018
        return int(failing.address)
    ctypes.c_void_p.from_address(cell).value = address
    return int(address)


llvm.add_symbol("ringyard_load_kernel", ctypes.cast(_load_kernel, ctypes.c_void_p).value)


@typeof_impl.register(Kernel)  # type: ignore[untyped-decorator]
def _type_of_kernel(value: Kernel, context: Any) -> Any:
    return _linked_type(value) if value.linked else types.Dispatcher(value.inside)


@functools.cache
def _linked_type(linked: Kernel) -> Any:
    """Return the Numba type of a linked kernel, which accepts what converts to its signature."""

    class Template(internals.AbstractTemplate):  # type: ignore[misc]
        key = linked

        def generic(self, arguments: Any, keywords: Any) -> Any:
            if keywords or len(arguments) != len(linked.signature.args):
                return None
            return linked.signature

    @lower_builtin(linked, *linked.signature.args)  # type: ignore[untyped-decorator]
    def call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return linked.call(context, builder, arguments)

    return types.Function(Template)


@functools.cache
def entry_point(function: Any) -> Callable[..., Any]:
    """Return a kernel for calls from Python that do not check argument types, which takes microseconds.

    The caller vouches for the declared types. Others crash.
    """
    return internals.compiled_for(function.outside, function.signature).entry_point


@kernel
def to_int(value: Any) -> int:
    """Return a number as a 64-bit integer without its fraction. NamedTuples in kernels need this."""
    return np.int64(value)  # type: ignore[return-value]


R = TypeVar("R", bound=Record)


def _kernel_from_source(record: type[Record], name: str, lines: Sequence[str], **annotations: Any) -> Any:
    arguments = ["record", *(one for one in annotations if one != "return")]
    source = "\n".join([f"def {name}({', '.join(arguments)}):", *lines])
    module = "ringyard.compiled.functions"
    names: dict[str, Any] = {"__name__": module}
    exec(compile(source, __file__, "exec"), names)
    function = names[name]
    function.__qualname__ = f"{record.__name__}.{name}"
    function.__annotations__ = {"record": record, **annotations}
    made: Any = Kernel(function, linked=False)
    return made


def field_reader(record: type[R], fields: Sequence[str]) -> Callable[[R, int], int]:
    """Return a kernel of (record, position) that reads one of the integer `fields` of a `record` class."""
    lines = [f"    if r == {i}:\n        return record.{name}" for i, name in enumerate(fields[:-1])]
    lines.append(f"    return record.{fields[-1]}")
    made = _kernel_from_source(record, f"read_{'_'.join(fields)}", lines, **{"r": int, "return": int})
    return cast("Callable[[R, int], int]", made)


def field_writer(record: type[R], fields: Sequence[str]) -> Callable[[R, int, int], None]:
    """Return a kernel of (record, position, value) that sets one of the integer `fields` of a `record`."""
    lines = [f"    if r == {i}:\n        record.{name} = value" for i, name in enumerate(fields)]
    annotations = {"r": int, "value": int, "return": None}
    made = _kernel_from_source(record, f"write_{'_'.join(fields)}", lines, **annotations)
    return cast("Callable[[R, int, int], None]", made)
