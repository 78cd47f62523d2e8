"""All that this package uses of Numba and llvmlite beyond their documented API, each with its reason.

A test looks for the names, and for what is used as an attribute, in the installed Numba (`PRIVATE` in
`tests/envs/test_compiled.py`).
"""

from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir  # what bundles, interfaces and calls by name are lowered to
from numba import config
from numba.core import cgutils  # shorthand for `ir`

# base of a dispatcher's cache: Numba's own looks at one source file, and writes an index before its data
from numba.core.caching import NullCache

# where the parts of an exception raised by machine code lie: calls through interfaces add the function's name
from numba.core.callconv import ALLOC_FLAG_IDX, PICKLE_BUF_IDX, PICKLE_BUFSZ_IDX
from numba.core.codegen import JITCodeLibrary  # what holds the machine code of a kernel

# how a kernel is compiled, and what comes of that, for the attributes of it that are used
from numba.core.compiler import Compiler, CompileResult, compile_result

# Numba compiles under this lock: a thread that compiles could wait for a second one beside it for ever
from numba.core.compiler_lock import global_compiler_lock

# kernels from the disk need this alone of what Numba initializes; the rest takes a third of a second
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps  # pickles that may hold functions

# how calls, attributes and items of own types are typed; `numba.extending` has the other half, lowering
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature

from ringyard.errors import ConfigurationError

if config.DISABLE_JIT:
    raise ConfigurationError("NUMBA_DISABLE_JIT=1 switches off the compiler that Ringyard runs on; unset it")

# what is imported here for others
__all__ = ["ALLOC_FLAG_IDX", "PICKLE_BUFSZ_IDX", "PICKLE_BUF_IDX", "AbstractTemplate"]
__all__ += ["AttributeTemplate", "NullCache", "cgutils", "dumps", "global_compiler_lock", "infer_global"]
__all__ += ["ir", "llvm", "signature"]


def processor() -> tuple[str, str, str]:
    """Return (triple, name, features) of the processor that machine code is made for."""
    features = config.CPU_FEATURES
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    return llvm.get_default_triple(), config.CPU_NAME or llvm.get_host_cpu_name(), features


class InlinedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A function that is only compiled into others: LLVM's code for it, from which no machine code is made.

    Its callers optimise it with themselves.
    """

    @property
    def codegen(self) -> "InlinedLibrary":
        """What sets the environment of functions in machine code: none, here."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing, since callers set it in their own machine code."""

    def _optimize_final_module(self) -> None:
        """Leave that to callers."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: it has no machine code."""
        self._ensure_finalized()
        return 0


class InlinedCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler of functions that are only compiled into others."""

    def compile_extra(self, function: Any) -> CompileResult:
        """Compile a Python function."""
        self.state.library = InlinedLibrary(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)


def set_cache(cache: NullCache, dispatcher: Any) -> None:
    """Let `dispatcher` read and store machine code in `cache`."""
    dispatcher._cache = cache


def serialize(compiled: CompileResult) -> Any:
    """Return what to pickle of a compiled function, None if it contains addresses of this process."""
    library = compiled.library
    if library.has_dynamic_globals:
        return None
    if isinstance(library, InlinedLibrary):
        description = compiled.fndesc
        description.typemap = description.calltypes = None  # large, and needed by the compiler alone
        return library.serialize_using_bitcode(), description, compiled.environment, compiled.signature
    reduced = compiled._reduce()
    for environment in reduced[-1]:  # of functions compiled into it
        library.codegen.set_env(environment.env_name, environment)
    return reduced


def deserialize(context: Any, reduced: Any) -> CompileResult:
    """Return the compiled function that `reduced` of `serialize` stands for, in a dispatcher's `context`."""
    rtsys.initialize(context)
    (name, kind, data), *others = reduced
    if kind != "bitcode":
        return CompileResult._rebuild(context, *reduced)
    library = InlinedLibrary(context.codegen(), name)
    library._final_module = llvm.parse_bitcode(data)
    library._finalized = True
    description, environment, signature = others
    return compile_result(
        target_context=context,
        typing_context=context.typing_context,
        library=library,
        environment=environment,
        entry_point=context.get_executable(library, description, environment),
        fndesc=description,
        signature=signature,
        objectmode=False,
    )


def compiled_for(dispatcher: Any, declared: Any) -> CompileResult:
    """Compile for the signature `declared` and return what `dispatcher` compiled."""
    dispatcher.compile(declared)
    return dispatcher.overloads[declared.args]


def address_of(compiled: CompileResult) -> int:
    """Return the address of machine code for calls by Numba's convention."""
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def function_type(context: Any, declared: Any) -> Any:
    """Return the llvm type of a function of signature `declared` in Numba's `context`."""
    return context.call_conv.get_function_type(declared.return_type, declared.args)


def emit_call(context: Any, builder: Any, function: Any, declared: Any, arguments: Any) -> tuple[Any, Any]:
    """Emit a call of `function` of signature `declared` with `arguments` (`context`, `builder`: Numba's)."""
    return context.call_conv.call_function(builder, function, declared.return_type, declared.args, arguments)
