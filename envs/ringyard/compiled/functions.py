"""Kernels: functions compiled to machine code on first use, and kept on disk."""

import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Self, TypeVar

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaExperimentalFeatureWarning
from numba.core.typing.templates import AbstractTemplate
from numba.extending import lower_builtin, typeof_impl

from ringyard.compiled.ahead import compile_ahead, compiling_once, is_on_disk, missing_kernels
from ringyard.compiled.cache import machine_code, watch_sources
from ringyard.compiled.progress import announced, compiled_one
from ringyard.compiled.types import signature_of
from ringyard.errors import ConfigurationError

__all__ = ["FoundOnce", "Kernel", "entry_point", "kernel", "linked_kernel", "whole"]

warnings.filterwarnings("ignore", category=NumbaExperimentalFeatureWarning)

#: linked kernels that calls of slots need, wherever they are
_RAISING: list["Kernel"] = []

F = TypeVar("F", bound=Callable[..., Any])

_HOUSE = ("ringyard", "ringyard_baselines", "ringyard_agents")

#: watch the functions of this house that fill slots too, as those of others always are
WATCH_ALL = os.environ.get("RINGYARD_CHECK", "") not in ("", "0")


# _nrt=False: kernels allocate nothing, so they need no reference counts; counting the state's arrays
# cost ten times the work of a short loop over servers.
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}


class FoundOnce(functools.cached_property[Any]):
    """A cached property that one thread finds for all; that of `functools` has no lock since Python 3.12."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """The value, which stands in the instance from then on."""
        with global_compiler_lock:  # a lock beside it could be waited for by who compiles
            return super().__get__(instance, owner)


def is_foreign(function: Callable[..., Any]) -> bool:
    """Whether somebody else wrote a function: every index of it is held to the bounds of its array."""
    return function.__module__.partition(".")[0] not in _HOUSE


def _renamed(function: Callable[..., Any], suffix: str, names: dict[str, Any]) -> Any:
    """A copy with a cache file of its own, for which some global names mean something else."""
    original: Any = function
    copy = FunctionType(
        original.__code__,
        {**original.__globals__, **names},
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    functools.update_wrapper(copy, original)
    copy.__qualname__ = f"{original.__qualname__}.{suffix}"
    return copy


def _declares(function: Callable[..., Any]) -> bool:
    """Whether annotations say what all arguments are."""
    return Any not in function.__annotations__.values()


def _kept_on_disk(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Numba's own dispatcher.

    Raises:
        ConfigurationError: there is no folder for machine code.
    """
    try:
        return numba.njit(**options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        raise ConfigurationError(
            "there is no folder to keep machine code in: Ringyard's own and the home folder cannot be written"
            " to; set NUMBA_CACHE_DIR to one that can (export NUMBA_CACHE_DIR=/tmp/numba)"
        ) from error


def _dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """A numba dispatcher that cares for its cache as numba does not.

    Numba watches only the file of the function itself, but kernels are compiled into one another: a change of
    any file makes cached machine code stale. And machine code from the cache needs the linked kernels that it
    calls to be there first.
    """
    dispatcher: Any = _kept_on_disk(function, {**_OPTIONS, **options})
    cache = dispatcher._cache
    watch_sources(cache, function)
    compile_signature = dispatcher.compile

    def compile_once(signature: Any) -> Any:
        with compiling_once(getattr(cache, "_cache_file", None)):
            compiled = compile_signature(signature)
        compiled_one(f"{function.__module__}.{function.__qualname__}")
        return compiled

    dispatcher.compile = compile_once

    def load_after_linking(signature: Any, context: Any) -> Any:
        for linked in _linked_by(function, set()):
            linked.link()
        for raising in () if options["_nrt"] else _RAISING:
            raising.link()
        return machine_code(cache, signature, context)

    cache.load_overload = load_after_linking
    return dispatcher


def _called_by(function: Any) -> list["Kernel"]:
    """The kernels that a Python function names."""
    names = function.__code__.co_names
    values = [function.__globals__.get(name) for name in names]
    modules = [value for value in values if inspect.ismodule(value)]
    values += [getattr(module, name, None) for module in modules for name in names]
    return [value for value in values if isinstance(value, Kernel)]


def used_kernels(one: "Kernel") -> list["Kernel"]:
    """The kernels that a kernel calls."""
    return _called_by(one.python)


def _linked_by(function: Any, seen: set[int]) -> Iterator["Kernel"]:
    """The linked kernels that a Python function calls, straight or through plain kernels."""
    for value in _called_by(function):
        if id(value) not in seen:
            seen.add(id(value))
            if value.linked:
                yield value
            else:
                yield from _linked_by(value.python, seen)


def _found(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


class ByName:
    """A compiled function: pickled as its module and qualified name, and its own copy.

    Attributes:
        python: the plain function.
    """

    python: Any

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        """Where it is found.

        Raises:
            ConfigurationError: not there: it is a lambda, or was defined inside another function.
        """
        module, name = self.python.__module__, self.python.__qualname__
        try:
            found = _found(module, name)
        except (ImportError, AttributeError):
            found = None
        if found is not self:
            raise ConfigurationError(
                f"the compiled function {module}.{name} cannot be pickled: expected to find it by that name;"
                " define it at the top level of a module, not as a lambda or inside a function"
            )
        return _found, (module, name)

    def __copy__(self) -> Self:
        """Itself: it never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: it never changes."""
        return self


class Kernel(ByName):
    """A function compiled to machine code on first use, without the GIL, and kept on disk.

    Args:
        function: plain Python function; it may not allocate arrays.
        linked: see `linked_kernel`.
        raises: see `raising_kernel`.
        guarded: an index outside its array raises an IndexError, in the kernels compiled into it as well.

    Attributes:
        python: the plain function.
        linked: as given.
    """

    def __init__(
        self, function: Callable[..., Any], linked: bool, raises: bool = False, guarded: bool = False
    ) -> None:
        functools.update_wrapper(self, function)
        self.python: Any = function
        self.linked = linked
        self._options = {"_nrt": raises, "boundscheck": guarded}
        self._symbol = f"{function.__module__}.{function.__qualname__}"
        if raises:
            _RAISING.append(self)

    @FoundOnce
    def signature(self) -> Any:
        """What the annotations declare, as numba knows it."""
        return signature_of(self.python)

    @property
    def is_guarded(self) -> bool:
        """Whether indices are held to the bounds of arrays."""
        return self._options["boundscheck"]

    @FoundOnce
    def guarded(self) -> "Kernel":
        """The same, held to the bounds of arrays; a linked kernel stays as it is."""
        return self if self.linked or self.is_guarded else Kernel(self.python, False, guarded=True)

    @FoundOnce
    def _compiled(self) -> Any:
        """The function as it is compiled: a guarded one calls guarded kernels."""
        if not self.is_guarded:
            return self.python
        values = {name: self.python.__globals__.get(name) for name in self.python.__code__.co_names}
        kernels = {name: value.guarded for name, value in values.items() if isinstance(value, Kernel)}
        return _renamed(self.python, "guarded", kernels)

    @FoundOnce
    def inside(self) -> Any:
        """The dispatcher that other kernels call, without what Python needs to call it.

        Numba compiles a function anew for each combination of argument types (`int32` here, `int64` there);
        here annotations that declare them all count, and arguments are converted.
        """
        options = {**self._options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        dispatcher = _dispatcher(self._compiled, options)
        find_template = dispatcher.get_call_template

        def template_as_declared(arguments: Any, keywords: Any) -> Any:
            if dispatcher._can_compile and _declares(self.python):
                dispatcher.compile(self.signature)
                dispatcher.disable_compile()
            return find_template(arguments, keywords)

        dispatcher.get_call_template = template_as_declared
        return dispatcher

    @FoundOnce
    def outside(self) -> Any:
        """The dispatcher that Python calls; numba looks at the types of what it is given."""
        dispatcher = _dispatcher(_renamed(self._compiled, "from_python", {}), self._options)
        if not is_foreign(self.python) and not is_on_disk(getattr(dispatcher._cache, "_cache_file", None)):
            compile_signature = dispatcher.compile

            def compile_announced(signature: Any) -> Any:
                missing = missing_kernels(self, used_kernels)
                with announced(self.python.__qualname__, [one._symbol for one in missing]):
                    compile_ahead(self, len(missing))
                    return compile_signature(signature)

            dispatcher.compile = compile_announced
        return dispatcher

    @FoundOnce
    def address(self) -> int:
        """Where the machine code for the declared types begins, in numba's calling convention."""
        self.inside.compile(self.signature)
        self.inside.disable_compile()
        overload = self.inside.overloads[self.signature.args]
        return int(overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name))

    @property
    def cached(self) -> bool | None:
        """Whether machine code for other kernels is on disk; None: annotations do not say for which types."""
        if not _declares(self.python):
            return None
        return is_on_disk(self.cache_file)

    @property
    def cache_file(self) -> Any:
        """Where numba keeps the machine code for other kernels; None: nowhere."""
        return getattr(self.inside._cache, "_cache_file", None)

    def compile_declared(self) -> None:
        """Compile for other kernels, for the declared types."""
        if self.linked:
            self.link()
        else:
            self.inside.get_call_template(self.signature.args, {})

    def link(self) -> None:
        """Let the linker know the kernel by its name."""
        llvm.add_symbol(self._symbol, self.address)

    def call(self, context: Any, builder: Any, arguments: Any) -> Any:
        """Emit a call of the kernel by its name."""
        self.link()
        convention, signature = context.call_conv, self.signature
        declared = convention.get_function_type(signature.return_type, signature.args)
        function = cgutils.get_or_insert_function(builder.module, declared, self._symbol)
        status, result = convention.call_function(
            builder, function, signature.return_type, signature.args, arguments
        )
        if self in _RAISING:
            function.attributes.add("cold")
            convention.return_status_propagate(builder, status)
            return result
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result

    def __call__(self, *arguments: Any) -> Any:
        """Call from Python."""
        return self.outside(*arguments)


def kernel(function: F) -> F:
    """Decorate a function that is compiled into each kernel that calls it: right for small ones.

    A fully annotated one is compiled once, for the types it declares.
    """
    made: Any = Kernel(function, linked=False, guarded=is_foreign(function))
    return made


def linked_kernel(function: F) -> F:
    """Decorate a function that is compiled by itself and called by its name: right for large ones."""
    made: Any = Kernel(function, linked=True, guarded=is_foreign(function))
    return made


def raising_kernel(function: F) -> F:
    """Decorate a linked kernel that always raises, an exception with values if it likes.

    Numba counts references in it, as such exceptions need; callers know that no way leads back.
    """
    made: Any = Kernel(function, linked=True, raises=True)
    return made


@typeof_impl.register(Kernel)  # type: ignore[untyped-decorator]
def _type_of_kernel(value: Kernel, context: Any) -> Any:
    return _linked_type(value) if value.linked else types.Dispatcher(value.inside)


@functools.cache
def _linked_type(linked: Kernel) -> Any:
    """The numba type of a linked kernel: one that accepts what converts to its signature."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        key = linked

        def generic(self, arguments: Any, keywords: Any) -> Any:
            if keywords or len(arguments) != len(linked.signature.args):
                return None
            return linked.signature

    @lower_builtin(linked, *linked.signature.args)  # type: ignore[untyped-decorator]
    def call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return linked.call(context, builder, arguments)

    return types.Function(Template)


def entry_point(function: Any) -> Callable[..., Any]:
    """A kernel compiled for the types it declares, to be called from Python without looking at types again.

    Numba looks at the types of all arguments at every call, some microseconds for each bundle. The caller
    vouches for them instead: other types crash.
    """
    function.outside.compile(function.signature)
    point: Callable[..., Any] = function.outside.overloads[function.signature.args].entry_point
    return point


@kernel
def whole(value: Any) -> int:
    """A number as a 64-bit integer, its fraction cut off: what NamedTuples of kernels are made of."""
    return np.int64(value)  # type: ignore[return-value]
