"""Kernels on a GPU: LLVM's code of a kernel and of all that it calls, compiled for CUDA devices.

Numba compiles nothing for them: `Kernel.as_llvm` is the code that becomes machine code of the processor too.
Kernels that are loaded by name are linked, and `libdevice`, NVIDIA's library of mathematical functions, takes
the place of the C library. A thread runs a cluster. CuPy holds the arrays.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.bundles import pack_bundle
from ringyard.compiled.cache import folder_of, report_compilation
from ringyard.compiled.functions import _LINKED, Kernel
from ringyard.compiled.interfaces import CompiledFunction
from ringyard.compiled.numba_internals import llvm
from ringyard.errors import ActionError, ConfigurationError

_TRIPLE = "nvptx64-nvidia-cuda"
_MATH = "acos asin atan atan2 cos cosh exp exp2 expm1 log log10 log1p log2 nextafter pow sin sinh tan tanh"
_MATH_CALL = re.compile(rf"@(?:llvm\.|numba_|)({'|'.join(_MATH.split())})(?:\.f64)?\(")
#: where a kernel keeps the address of another, which it loads by name
_CELL = re.compile(r'^(@"?address of ([^"\s]+?)(?:\.\d+)?"?) = internal .*$', re.MULTILINE)
_SOURCE = Path(__file__).with_suffix(".ll")
#: threads of a block, and bytes of the stack of a thread
_BLOCK, _STACK_BYTES = 32, 16384


def functions_of(value: Any) -> dict[str, CompiledFunction]:
    """Return {name: function} of all in a bundle that implement interfaces."""
    if isinstance(value, CompiledFunction):
        return {value.name: value}
    names = value.numba_type.fields if hasattr(type(value), "numba_type") else ()
    parts = value if isinstance(value, tuple) else [getattr(value, name) for name in names]
    return {name: one for part in parts for name, one in functions_of(part).items()}


def link(entry: Kernel, functions: Mapping[str, CompiledFunction], triple: str, layout: str) -> Any:
    """Return LLVM's module of `ringyard_entry` and all that it needs.

    Args:
        entry: kernel of (bundle, cluster, number) that returns 0 or an error number.
        functions: {name: function}. `ringyard_functions` holds their addresses, in order.
        triple: target, as LLVM names it.
        layout: of data there.
    """
    todo = {entry.name: entry, **{name: one._kernel for name, one in functions.items()}}
    symbols: dict[str, str] = {}
    texts: list[str] = []
    while todo:
        name, kernel = todo.popitem()
        symbols[name] = name
        if not kernel.raises:
            compiled = kernel.as_llvm
            symbols[name] = compiled.fndesc.llvm_func_name
            texts.append(str(compiled.library._final_module))
            called = {found[2]: _LINKED[found[2]] for found in _CELL.finditer(texts[-1])}
            todo |= {other: one for other, one in called.items() if other not in symbols}
    own = [symbols[name] for name in functions]
    program, *threads = _SOURCE.read_text().split("; ---")
    places = {"count": len(own), "functions": ", ".join(f"ptr @{one}" for one in own)}
    places |= {"symbol": symbols[entry.name], "kind": "ptx_kernel" if triple == _TRIPLE else ""}
    declarations = "\n".join(f"declare i32 @{one}()" for one in own)
    texts.append(Template(program).substitute(places, declarations=declarations))
    made = llvm.parse_assembly(f";{threads[triple != _TRIPLE]}")
    made.triple, made.data_layout = triple, layout
    for text in texts:
        part = llvm.parse_assembly(_adapt(text, symbols, triple))
        part.triple, part.data_layout = triple, layout
        made.link_in(part)
    for function in made.functions:
        if not function.is_declaration and function.name in symbols.values():
            function.add_function_attribute("noinline")
    return made


def _adapt(text: str, symbols: Mapping[str, str], triple: str) -> str:
    """Return LLVM's code of a kernel for another target, with the kernels that it loads by name linked."""
    called = {symbols[found[2]] for found in _CELL.finditer(text)}
    text = _CELL.sub(lambda found: f"{found[1]} = internal constant ptr @{symbols[found[2]]}", text)
    text = re.sub(r"(?<== )common (local_unnamed_addr )?global", "internal global", text)
    text = text.replace("@llvm.prefetch.p0(", "@ringyard_prefetch(")
    if triple == _TRIPLE:
        text = _MATH_CALL.sub(r"@__nv_\1(", text)
    return text + "".join(f"\ndeclare i32 @{one}()" for one in sorted(called) if f"@{one}(" not in text)


def _libdevice() -> bytes:
    """Return NVIDIA's library of device functions: of a CUDA toolkit, or of an installed package."""
    folders = [os.environ.get("CUDA_HOME", "/usr/local/cuda*")]
    for spec in map(find_spec, ("nvidia", "triton")):
        folders += spec.submodule_search_locations or () if spec else ()
    for folder in folders:
        for file in glob(f"{folder}/**/libdevice*.bc", recursive=True):
            return Path(file).read_bytes()
    raise ConfigurationError(
        "there is no libdevice.10.bc, NVIDIA's library of device functions; see tools/cuda/__init__.py, or"
        " set CUDA_HOME to the folder of a CUDA toolkit"
    )


def write_ptx(entry: Kernel, functions: Mapping[str, CompiledFunction], capability: str) -> Path:
    """Write the program of `link` as PTX, NVIDIA's assembler, for a capability such as `sm_90`.

    The file is kept beside the machine code of the processor.
    """
    checked = [(name, one.validated) for name, one in functions.items()]
    key = repr((entry.name, checked, capability, llvm.llvm_version_info, _SOURCE.read_text())).encode()
    folder = folder_of("ringyard") or Path(tempfile.mkdtemp())
    file = folder / f"{hashlib.sha256(key).hexdigest()[:24]}.ptx"
    if file.is_file():
        return file
    with report_compilation():
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=capability, opt=3)
        program = link(entry, functions, _TRIPLE, str(machine.target_data))
        program.link_in(llvm.parse_bitcode(_libdevice()))
        for function in program.functions:
            if not function.is_declaration and function.name != "ringyard_entry":
                function.linkage = "internal"
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(program, builder)
        ptx = str(machine.emit_assembly(program))
    written = file.with_suffix(f".{os.getpid()}")
    written.write_text(ptx)
    return written.replace(file)


class Gpu:
    """CUDA device number `index` with copies of arrays and bundles. It works on CuPy's current stream."""

    def __init__(self, index: int = 0) -> None:
        try:
            import cupy

            self._cupy: Any = cupy
            self._device = cupy.cuda.Device(index)
            self._device.use()
            cupy.cuda.runtime.deviceSetLimit(0, _STACK_BYTES)
        except Exception as error:  # CuPy's errors are of many kinds
            needs = "tools/cuda/__init__.py says what is needed"
            raise ConfigurationError(f"no GPU can be used ({error}); {needs}") from error

    def load(self, entry: Any, bundle: Any, count: int) -> Callable[[int], None]:
        """Return what runs an `entry` (see `link`) for `count` clusters, with a number, without waiting."""
        #: {id: (array or bundle, its copy or the address of that)}
        self.copies: dict[int, tuple[Any, Any]] = {}
        functions = functions_of(bundle)
        addresses, run = self._compile(entry, functions)
        self._addresses = dict(zip(functions, addresses, strict=True))
        self.errors = self._upload(np.zeros(count, np.int32))  #: [clusters] error numbers, 0: none
        words = self.locate(bundle), self._place(self.errors)
        return lambda number: run(words[0], number, count, words[1])

    def copy(self, array: NDArray[Any]) -> Any:
        """Return the copy of an array, made once."""
        if id(array) not in self.copies:
            self.copies[id(array)] = array, self._upload(array)
        return self.copies[id(array)][1]

    def locate(self, value: Any) -> int:
        """Return the address of a function or of the copy of an array or bundle (see `pack_bundle`)."""
        if isinstance(value, CompiledFunction):
            return self._addresses[value.name]
        if isinstance(value, np.ndarray):
            return self._place(self.copy(value))
        if id(value) not in self.copies:
            self.copies[id(value)] = value, pack_bundle(value, self.locate)
        return int(self.copies[id(value)][1])

    def assign(self, copy: Any, values: Any) -> None:
        """Overwrite a copy with `values` of its shape and kind, which are there or in NumPy."""
        given = self._cupy.asarray(values)
        if given.shape != copy.shape or not np.can_cast(given.dtype, copy.dtype, "same_kind"):
            expected = f"{copy.dtype} of shape {copy.shape}"
            raise ActionError(f"actions are {given.dtype} of shape {given.shape}; expected {expected}")
        copy[...] = given

    def _compile(self, entry: Kernel, functions: Mapping[str, CompiledFunction]) -> tuple[Any, Any]:
        """Return the addresses of `functions`, and what runs the entry."""
        file = write_ptx(entry, functions, f"sm_{self._device.compute_capability}")
        module = self._cupy.RawModule(path=str(file))
        table = self._cupy.ndarray((len(functions),), np.int64, module.get_global("ringyard_functions"))
        kernel = module.get_function("ringyard_entry")

        def run(*words: int) -> None:
            kernel((-(-words[2] // _BLOCK),), (_BLOCK,), tuple(map(np.int64, words)))

        return table.get().tolist(), run

    def _upload(self, array: NDArray[Any]) -> Any:
        return self._cupy.asarray(array.view(np.uint8) if array.dtype.names else array)  # no records there

    def _place(self, copy: Any) -> int:
        return int(copy.data.ptr)
