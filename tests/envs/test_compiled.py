"""The mechanisms between Python and machine code, each on a kernel of its own."""

import ast
import copy
import errno
import functools
import gc
import importlib.util
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numba
import numpy as np
import pytest

from conftest import ROOT
from ringyard.compiled import (
    FloatVector,
    Record,
    Records2,
    bundle,
    cache,
    entry_point,
    f8,
    functions,
    i4,
    implements,
    interface,
    kernel,
    linked_kernel,
    to_int,
)
from ringyard.compiled.functions import Kernel
from ringyard.errors import ConfigurationWarning


class Cell(Record):
    count: i4
    value: f8


class Pair(NamedTuple):
    number: int
    share: float


@interface
class Scale(Protocol):
    def __call__(self, x: float, parameters: FloatVector) -> float: ...


@implements(Scale)
def times(x: float, parameters: FloatVector) -> float:
    return x * parameters[0]


@implements(Scale)
def plus(x: float, parameters: FloatVector) -> float:
    return x + parameters[0]


@bundle
class Rule:
    scale: Scale
    name: str
    parameters: FloatVector


@bundle
class World:
    cells: Records2[Cell]
    first: bool
    second: bool
    third: bool
    number: int
    rules: tuple[Rule, ...]
    share: float


@linked_kernel
def add(world: World, i: int, pair: Pair) -> float:
    cell = world.cells[0, i]
    cell.count += pair.number
    cell.value += pair.share * pair.number
    return cell.value


@kernel
def add_all(world: World) -> float:
    total = 0.0
    for i in range(world.cells.shape[1]):
        total += add(world, i, Pair(to_int(world.cells[0, i].count), world.share))
    return total


@linked_kernel
def stopped_once(x: float) -> float:
    return x + 1.0


@linked_kernel
def calls_it(x: float) -> float:
    return 2.0 * stopped_once(x)


@kernel
def flags(world: World) -> int:
    return 100 * int(world.first) + 10 * int(world.second) + int(world.third)


@kernel
def apply_all(world: World, x: float) -> float:
    for i in range(world.number):
        x = world.rules[i].scale(x, world.rules[i].parameters)
    return x


@kernel
def _half(x: int) -> float:
    return x / 2


@kernel
def halves(world: World) -> float:
    return _half(world.cells[0, 0].count) + _half(world.number)


def world(first=True, second=False, third=True, scale=times):
    cells = Cell.zeros(1, 3)
    cells["count"] = [[1, 2, 3]]
    rules = (Rule(scale, "a", np.array([3.0])), Rule(plus, "b", np.array([0.5])))
    return World(cells, first, second, third, len(rules), rules, 0.25)


def test_records_are_columns_and_rows():
    assert Cell.dtype.names == ("count", "filler_4", "value")
    assert Cell.dtype["value"] == np.float64
    assert world().cells["count"].tolist() == [[1, 2, 3]]


def test_kernels_write_through_bundles_and_link():
    made = world()
    assert add_all(made) == pytest.approx(0.25 * (1 + 2 + 3))
    assert made.cells["count"].tolist() == [[2, 4, 6]]
    assert add(made, 0, Pair(2, 1.0)) == pytest.approx(2.25)  # from Python as well


@pytest.mark.parametrize("reason", [KeyboardInterrupt, MemoryError("no room")])
def test_what_stops_a_compilation_inside_machine_code_is_raised(reason, monkeypatch, tmp_path):
    """A linked kernel is compiled at its first call. If that is stopped, the next call starts anew."""

    address_of, reasons = functions.internals.address_of, [reason, KeyboardInterrupt]

    def stopped(function):
        if reasons:  # and what raises the reason is stopped once, too
            raise reasons.pop(0)
        return address_of(function)

    monkeypatch.setenv("RINGYARD_CACHE_DIR", str(tmp_path))
    cache.folder_of.cache_clear()
    calling, called = (Kernel(one.python, linked=True) for one in (calls_it, stopped_once))
    with monkeypatch.context() as within:
        within.setattr(functions.internals, "address_of", stopped)
        with pytest.raises(reason if isinstance(reason, type) else type(reason)):
            calling(1.0)
    assert "address" not in vars(called)
    assert calling(1.0) == 4.0
    assert "address" in vars(called)
    cache.folder_of.cache_clear()


@pytest.mark.parametrize("given", [(True, False, True), (False, True, False), (False, False, True)])
def test_neighbouring_flags_are_told_apart(given):
    assert flags(world(*given)) == sum(10**p for p, on in zip((2, 1, 0), given, strict=True) if on)


def test_any_number_of_rules_in_order():
    assert apply_all(world(), 2.0) == 6.5
    assert entry_point(apply_all)(world(), 2.0) == 6.5


def test_a_kernel_is_compiled_once_for_what_it_declares():
    assert halves(world()) == 0.5 + 1.0  # an int32 field and an int64 one
    assert len(_half.inside.overloads) == 1


def test_bundles_survive_copies_and_pickles():
    made = world()
    apply_all(made, 1.0)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other._address != made._address
        other.cells["count"] = 0
        assert made.cells["count"].tolist() == [[1, 2, 3]]
        assert apply_all(other, 2.0) == 6.5


def test_what_cannot_be_packed_is_an_error_in_python():
    with pytest.raises(TypeError, match="expected a function with an interface"):
        apply_all(world(scale=lambda x, parameters: x), 1.0)
    wrong = World(Cell.zeros(1, 6)[:, ::2], True, True, True, 0, (), 0.0)
    with pytest.raises(TypeError, match="contiguous"):
        flags(wrong)


def test_an_entry_point_takes_no_bundle_of_another_class():
    made = world()
    assert entry_point(flags)(made) == flags(made)
    with pytest.raises(AttributeError, match="Rule has no field"):
        entry_point(flags)(made.rules[0])


def test_an_annotation_that_kernels_do_not_know_is_named():
    with pytest.raises(TypeError, match=r"kernels know no .*dict"):

        @interface
        class Odd(Protocol):
            def __call__(self, x: dict[str, int]) -> float: ...


def test_machine_code_of_another_version_is_compiled_anew(tmp_path):
    """Types that are gone, and edits of what a kernel calls: a cache is never an error and never old."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    inner = (
        "from typing import NamedTuple\nfrom ringyard.compiled import kernel\n"
        "class NAME(NamedTuple):\n    value: float\n"
        "Cell = NAME\n"
        "@kernel\ndef inner(cell: Cell) -> float:\n    return cell.value + NUMBER\n"
    )
    (package / "outer.py").write_text(
        "from mine.inner import Cell, inner\nfrom ringyard.compiled import linked_kernel\n"
        "@linked_kernel\ndef outer(cell: Cell) -> float:\n    return inner(cell)\n"
        "print(outer(Cell(0.0)))\n"
    )
    found = []
    for name, number in (("Old", "1.0"), ("Old", "1.0"), ("New", "2.0"), ("New", "3.0")):
        (package / "inner.py").write_text(inner.replace("NAME", name).replace("NUMBER", number))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", "import mine.outer"],
            cwd=tmp_path,
            env={
                "PYTHONPATH": str(ROOT / "envs"),
                "PATH": "/usr/bin:/bin",
                "HOME": str(tmp_path),
                "PYTHONDONTWRITEBYTECODE": "1",  # Python takes files of one second and length for the same
            },
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(float(done.stdout))
    assert found == [1.0, 1.0, 2.0, 3.0]


class KernelOfAFile:
    """A kernel in a file of its own and a folder for machine code, as each new process sees them."""

    def __init__(self, folder, monkeypatch):
        self.kept, self.monkeypatch = folder / "kept", monkeypatch
        self.source = folder / f"mine_{folder.name}.py"
        monkeypatch.setenv("RINGYARD_CACHE_DIR", str(self.kept))

    def write(self, body):
        self.source.write_text(
            f"from ringyard.compiled import kernel\n@kernel\ndef of(x: float) -> float:\n    return {body}\n"
        )

    def of_4(self):
        """What a new process computes, and whether its machine code was there already."""
        cache.folder_of.cache_clear()
        spec = importlib.util.spec_from_file_location(self.source.stem, self.source)
        module = importlib.util.module_from_spec(spec)
        self.monkeypatch.setitem(sys.modules, self.source.stem, module)
        spec.loader.exec_module(module)
        return module.of(4.0), bool(module.of.outside.stats.cache_hits)

    def files(self):
        return [file for file in self.kept.rglob("*") if file.is_file()]


@pytest.fixture
def kernel_of_a_file(tmp_path, monkeypatch):
    yield KernelOfAFile(tmp_path, monkeypatch)
    cache.folder_of.cache_clear()


def _cut(data):
    return data[: len(data) // 2]


def _changed(data):
    changed = bytearray(data)
    changed[len(data) * 2 // 3] ^= 255
    return bytes(changed)


@pytest.mark.parametrize("damage", [_cut, _changed, lambda data: b"", lambda data: b"no pickle"])
def test_a_damaged_file_is_compiled_anew(kernel_of_a_file, damage):
    """Each byte counts: cut short, changed anywhere, emptied or no pickle at all."""
    kernel_of_a_file.write("2.0 * x")
    again = [(8.0, False), (8.0, True)]
    assert [kernel_of_a_file.of_4(), kernel_of_a_file.of_4()] == again
    for file in kernel_of_a_file.files():
        file.write_bytes(damage(file.read_bytes()))
    assert [kernel_of_a_file.of_4(), kernel_of_a_file.of_4()] == again


def test_machine_code_of_earlier_sources_is_not_taken(kernel_of_a_file, monkeypatch):
    """Not where the process that compiled the later ones was stopped as it wrote either."""

    def interrupted(source, target):
        raise KeyboardInterrupt

    kernel_of_a_file.write("2.0 * x")
    assert kernel_of_a_file.of_4() == (8.0, False)
    before = kernel_of_a_file.files()
    kernel_of_a_file.write("3.0 * x + 1.0")
    with monkeypatch.context() as within:
        within.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kernel_of_a_file.of_4()
    assert kernel_of_a_file.files() == before
    assert [kernel_of_a_file.of_4(), kernel_of_a_file.of_4()] == [(13.0, False), (13.0, True)]


def test_machine_code_depends_on_what_lies_beside_its_source(kernel_of_a_file):
    kernel_of_a_file.write("2.0 * x")
    beside = kernel_of_a_file.source.with_name("constants.py")
    assert [kernel_of_a_file.of_4()[1], kernel_of_a_file.of_4()[1]] == [False, True]
    beside.write_text("HALF = 0.5\n")
    assert [kernel_of_a_file.of_4()[1], kernel_of_a_file.of_4()[1]] == [False, True]


def test_a_folder_that_cannot_be_written_to_is_a_warning(kernel_of_a_file):
    kernel_of_a_file.write("2.0 * x")
    kernel_of_a_file.kept.write_text("no folder")
    with pytest.warns(ConfigurationWarning, match=r"in .*kept.*set RINGYARD_CACHE_DIR to a folder with room"):
        assert kernel_of_a_file.of_4() == (8.0, False)
    assert kernel_of_a_file.of_4() == (8.0, False)  # once a process


def test_a_full_disk_costs_the_next_start_alone(kernel_of_a_file, monkeypatch):
    def full(**options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kernel_of_a_file.write("2.0 * x")
    with monkeypatch.context() as within:
        within.setattr(cache.tempfile, "mkstemp", full)
        with pytest.warns(
            ConfigurationWarning, match=r"in \S*kept \(No space left on device\).*RINGYARD_CACHE_DIR"
        ):
            assert kernel_of_a_file.of_4() == (8.0, False)
        assert kernel_of_a_file.of_4() == (8.0, False)  # once a process
    assert [kernel_of_a_file.of_4(), kernel_of_a_file.of_4()] == [(8.0, False), (8.0, True)]


def test_folders_that_were_not_used_for_long_are_removed(kernel_of_a_file):
    kernel_of_a_file.write("2.0 * x")
    folders = [kernel_of_a_file.kept / f"{kernel_of_a_file.source.stem}-{i:016x}" for i in range(30)]
    others = kernel_of_a_file.kept / f"another-{0:016x}"
    for when, folder in enumerate([others, *folders]):
        folder.mkdir(parents=True)
        (folder / "code").write_text("")
        os.utime(folder, (when, when))
    kernel_of_a_file.of_4()
    assert others.is_dir()
    assert [folder.is_dir() for folder in folders] == [False] * 15 + [True] * 15
    assert kernel_of_a_file.of_4() == (8.0, True)


def test_processes_that_compile_at_once_do_not_disturb_each_other(kernel_of_a_file):
    kernel_of_a_file.write("2.0 * x")
    code = f"import {kernel_of_a_file.source.stem} as mine; print(mine.of(4.0))"
    path = os.pathsep.join([str(kernel_of_a_file.source.parent), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [one.communicate(timeout=120)[0] for one in both] == ["8.0\n", "8.0\n"]
    assert kernel_of_a_file.of_4() == (8.0, True)


#: {what numba has as an attribute: what for}
PRIVATE = {
    "numba.core.options.DefaultOptions._nrt": "an option of `njit`: kernels count no references",
    "numba.core.dispatcher.Dispatcher.enable_caching": "sets `_cache`, which ours replaces",
    "numba.core.dispatcher.Dispatcher.compile": "compiles for a declared signature",
    "numba.core.dispatcher.Dispatcher.disable_compile": "calls convert arguments to the declared signature",
    "numba.core.compiler.CompileResult._reduce": "a compiled function as it is kept on disk",
    "numba.core.compiler.CompileResult._rebuild": "a compiled function from what is kept on disk",
    "numba.core.codegen.CodeLibrary.has_dynamic_globals": "whether machine code holds addresses",
    "numba.core.codegen.JITCodeLibrary.get_pointer_to_function": "where machine code begins",
    "numba.core.codegen.CPUCodeLibrary._optimize_final_module": "functions compiled into others do not",
    "numba.core.codegen.CPUCodeLibrary._finalize_final_module": "machine code, of linked kernels alone",
    "numba.core.funcdesc.FunctionDescriptor.llvm_func_name": "what machine code is called",
    "numba.core.callconv.CPUCallConv.get_function_type": "machine code calls machine code",
    "numba.core.callconv.CPUCallConv.call_function": "machine code calls machine code",
    "numba.core.callconv.CPUCallConv.return_status_propagate": "exceptions go up to Python",
}


def test_numba_has_what_is_used_of_its_insides():
    for name, use in PRIVATE.items():
        parts = name.split(".")
        class_at = next(i for i, part in enumerate(parts) if part[0].isupper())
        try:
            module = importlib.import_module(".".join(parts[:class_at]))
            functools.reduce(getattr, parts[class_at:], module)
        except (AttributeError, ImportError):
            pytest.fail(
                f"Numba {numba.__version__} has no {name}, which ringyard uses ({use}): mend"
                " ringyard/compiled/numba_internals.py and the range of versions in pyproject.toml"
            )


def test_the_readme_names_what_is_used_of_numbas_insides():
    room = ROOT / "envs" / "ringyard" / "compiled"
    page, internals = (room / "README.md").read_text(), room / "numba_internals.py"
    imported = set()
    for node in ast.walk(ast.parse(internals.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba.core"):
            imported |= {alias.name for alias in node.names}
    names = imported | {name.rpartition(".")[2] for name in PRIVATE}
    assert not {name for name in names if f"`{name}`" not in page}
    others = [
        file for file in (ROOT / "envs/ringyard/compiled").glob("*.py") if file.name != "numba_internals.py"
    ]
    assert not [file.name for file in others if re.search(r"llvmlite|numba\.(core|np)\b", file.read_text())]


def test_threads_that_meet_a_bundle_at_once_get_one_address():
    @bundle
    class Held:
        one: FloatVector
        two: FloatVector
        three: FloatVector

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(300):
                held, together = Held(*np.zeros((3, 2))), threading.Barrier(4)

                def ask(held=held, together=together):
                    together.wait()
                    return held._address

                addresses = {one.result() for one in [pool.submit(ask) for _ in range(4)]}
                assert addresses == {held._kept[-1].ctypes.data}
    finally:
        sys.setswitchinterval(usual)


def test_threads_that_ask_at_once_get_one_machine_code():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(20):
                fresh, together = Kernel(_half.python, linked=False), threading.Barrier(4)

                def ask(fresh=fresh, together=together):
                    together.wait()
                    return fresh.address, id(fresh.inside)

                assert len({one.result() for one in [pool.submit(ask) for _ in range(4)]}) == 1
    finally:
        sys.setswitchinterval(usual)


def test_compilations_are_said_once_if_one_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(cache, "_REPORTED_SECONDS", 0.05)
    cache._report.cache_clear()
    with cache.report_compilation():
        assert not gc.isenabled()
    assert gc.isenabled()
    for _ in range(2):
        with cache.report_compilation():
            time.sleep(0.5)
    assert capsys.readouterr().err == "ringyard: compiling kernels, once for this machine\n"


def test_a_compilation_that_is_interrupted_is_not_said_to_take_long(capsys, monkeypatch):
    monkeypatch.setattr(cache, "_REPORTED_SECONDS", 0.05)
    with pytest.raises(KeyboardInterrupt), cache.report_compilation():
        raise KeyboardInterrupt
    time.sleep(0.2)
    assert capsys.readouterr().err == ""
    assert gc.isenabled()
