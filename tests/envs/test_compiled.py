"""The mechanisms between Python and machine code, each on a kernel of its own."""

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import NamedTuple, Protocol

import numba
import numpy as np
import pytest

from conftest import ROOT
from ringyard.compiled import (
    FloatVector,
    Record,
    Records2,
    ahead,
    bundle,
    entry_point,
    f8,
    fills,
    i4,
    kernel,
    linked_kernel,
    progress,
    slot,
    whole,
)
from ringyard.compiled.cache import CacheFile
from ringyard.compiled.functions import Kernel, _dispatcher
from ringyard.errors import ConfigurationError


class Cell(Record):
    count: i4
    value: f8


class Pair(NamedTuple):
    number: int
    share: float


@slot
class Scale(Protocol):
    def __call__(self, x: float, parameters: FloatVector) -> float: ...


@fills(Scale)
def times(x: float, parameters: FloatVector) -> float:
    return x * parameters[0]


@fills(Scale)
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
        total += add(world, i, Pair(whole(world.cells[0, i].count), world.share))
    return total


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


@pytest.mark.parametrize("given", [(True, False, True), (False, True, False), (False, False, True)])
def test_neighbouring_flags_are_told_apart(given):
    assert flags(world(*given)) == sum(10**p for p, on in zip((2, 1, 0), given, strict=True) if on)


def test_any_number_of_rules_in_order():
    assert apply_all(world(), 2.0) == 6.5
    assert entry_point(apply_all)(world(), 2.0) == 6.5


def test_a_kernel_is_compiled_once_for_what_it_declares():
    assert halves(world()) == 0.5 + 1.0  # an int32 field and an int64 one
    _half.compile_declared()  # a cache may have had all that called it
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
    with pytest.raises(TypeError, match="fills a slot"):
        apply_all(world(scale=lambda x, parameters: x), 1.0)
    wrong = World(Cell.zeros(1, 6)[:, ::2], True, True, True, 0, (), 0.0)
    with pytest.raises(TypeError, match="contiguous"):
        flags(wrong)


def test_an_annotation_that_kernels_do_not_know_is_named():
    with pytest.raises(TypeError, match=r"kernels know no .*dict"):

        @slot
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
    """A kernel in a file of its own, with numba's files beside it, as each new process sees it."""

    def __init__(self, folder, monkeypatch):
        monkeypatch.setattr(numba.config, "CACHE_DIR", "")  # beside the source
        self.source, self.monkeypatch = folder / f"mine_{folder.name}.py", monkeypatch

    def write(self, body):
        self.source.write_text(
            f"from ringyard.compiled import kernel\n@kernel\ndef of(x: float) -> float:\n    return {body}\n"
        )

    def of_4(self):
        """What a new process computes, and whether its machine code was there already."""
        spec = importlib.util.spec_from_file_location(self.source.stem, self.source)
        module = importlib.util.module_from_spec(spec)
        self.monkeypatch.setitem(sys.modules, self.source.stem, module)
        spec.loader.exec_module(module)
        return module.of(4.0), bool(module.of.outside.stats.cache_hits)


def test_a_damaged_cache_is_compiled_anew(tmp_path, monkeypatch):
    """Each byte of numba's files counts: cut short, changed anywhere, emptied or no pickle at all."""
    kernel_of_a_file = KernelOfAFile(tmp_path, monkeypatch)
    kernel_of_a_file.write("2.0 * x")
    again = [(8.0, False), (8.0, True)]
    assert [kernel_of_a_file.of_4(), kernel_of_a_file.of_4()] == again
    for ending in ("nbi", "nbc"):
        for damage in (_cut, _changed, lambda data: b"", lambda data: b"no pickle"):
            for file in (tmp_path / "__pycache__").glob(f"*.{ending}"):
                file.write_bytes(damage(file.read_bytes()))
            assert [kernel_of_a_file.of_4(), kernel_of_a_file.of_4()] == again, (ending, damage)


@pytest.mark.parametrize("written", [0, 1])
def test_machine_code_of_earlier_sources_is_not_taken(tmp_path, monkeypatch, written):
    """Numba's index names a file in which, until it is written, there is machine code from before."""
    kernel_of_a_file = KernelOfAFile(tmp_path, monkeypatch)
    kernel_of_a_file.write("2.0 * x")
    assert kernel_of_a_file.of_4() == (8.0, False)
    kernel_of_a_file.write("3.0 * x + 1.0")
    replace, done = os.replace, []

    def interrupted(source, target):
        if len(done) == written:
            raise KeyboardInterrupt
        done.append(target)
        replace(source, target)

    with monkeypatch.context() as within:
        within.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kernel_of_a_file.of_4()
    assert [kernel_of_a_file.of_4(), kernel_of_a_file.of_4()] == [(13.0, False), (13.0, True)]


def test_processes_that_save_at_once_keep_their_machine_code_apart(tmp_path, monkeypatch):
    one, other, old = (CacheFile(str(tmp_path), "some", stamp) for stamp in ("new", "new", "old"))
    old.save("before", "code of earlier sources")
    save_index = one._save_index

    def save_the_other_first(overloads):
        monkeypatch.setattr(one, "_save_index", save_index)
        other.save("doubles", "code for doubles")
        save_index(overloads)

    monkeypatch.setattr(one, "_save_index", save_the_other_first)
    one.save("floats", "code for floats")
    assert one.load("floats") in ("code for floats", None)  # None: compiled once more
    assert one.load("doubles") in ("code for doubles", None)
    other.save("doubles", "code for doubles")
    one.save("floats", "code for floats")
    assert (one.load("floats"), one.load("doubles")) == ("code for floats", "code for doubles")
    assert len(list(tmp_path.glob("*.nbc"))) == 2


def _cut(data):
    return data[: len(data) // 2]


def _changed(data):
    changed = bytearray(data)
    changed[len(data) * 2 // 3] ^= 255
    return bytes(changed)


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
                assert addresses == {held._kept[0].ctypes.data}
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


def test_no_folder_for_machine_code_is_a_sentence(monkeypatch):
    def refuse(**options):
        raise RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")

    monkeypatch.setattr(numba, "njit", refuse)
    with pytest.raises(ConfigurationError, match="set NUMBA_CACHE_DIR to one that can"):
        _dispatcher(lambda: 0, {})


def beside(folder, *words):
    """A process with a cold cache of its own."""
    return subprocess.Popen(
        [sys.executable, *words],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_beside_compiles_what_a_kernel_is_made_of(tmp_path):
    done = beside(tmp_path, "-m", "ringyard.compiled.ahead", "ringyard.sim.engine.life", "arrive", "0")
    assert done.communicate(timeout=300)[0] == ""
    assert done.returncode == 0
    compiled = {file.name.partition("-")[0] for file in tmp_path.rglob("*.nbi")}
    assert {"queues.waiting_add", "waiting.waiting_at"} <= compiled
    assert "life.arrive" not in compiled  # whoever needs it compiles it
    check = "from ringyard.sim.engine.queues import waiting_add; print(waiting_add.cached)"
    assert beside(tmp_path, "-c", check).communicate(timeout=60)[0].split() == ["True"]


def test_what_another_process_compiles_is_left_to_it(tmp_path):
    file = SimpleNamespace(_index_path=str(tmp_path / "some.nbi"), _load_index=dict)
    hold = (
        "import sys; from types import SimpleNamespace; from ringyard.compiled.ahead import compiling_once\n"
        f"file = SimpleNamespace(_index_path={file._index_path!r}, _load_index=dict)\n"
        "with compiling_once(file): print('holds', flush=True); sys.stdin.read()"
    )
    other, compiled = beside(tmp_path, "-c", hold), []
    one = SimpleNamespace(cache_file=file, compile_declared=lambda: compiled.append(1))
    try:
        assert other.stdout.readline() == "holds\n"
        assert not ahead._compile_if_free(one)
        assert not compiled
    finally:
        other.communicate(timeout=60)
    assert ahead._compile_if_free(one)
    assert compiled == [1]


def test_a_long_compilation_is_said_before_and_after(capsys):
    names = [f"room.kernel_{i}" for i in range(30)]
    with progress.announced("play", names), progress.announced("inside", names):
        progress.compiled_one(names[0])
    with progress.announced("short", names[:3]):
        pass
    before, after = capsys.readouterr().err.splitlines()  # no terminal: no line for each kernel
    assert before == "ringyard: compiling play and 30 kernels that it calls, once for this machine ..."
    assert after == "ringyard: compiled in 0 s"


def test_a_compilation_that_is_interrupted_is_not_said_to_be_done(capsys):
    with pytest.raises(KeyboardInterrupt), progress.announced("play", [f"kernel_{i}" for i in range(30)]):
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines()[-1] == "ringyard: compilation stopped after 0 s"


def test_a_terminal_follows_what_is_compiled(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    names = [f"room.kernel_{i}" for i in range(30)]
    with progress.announced("play", names):
        progress.compiled_one(names[4])
        progress.compiled_one("another")
    assert "\r\x1b[K  1 of 30: room.kernel_4\r" in capsys.readouterr().err


def test_a_process_beside_gives_up_on_what_nobody_compiles(monkeypatch):
    monkeypatch.setattr(ahead, "_PATIENCE", 0.1)
    monkeypatch.setattr(ahead, "_can_compile", lambda one, find_used: False)
    stuck = SimpleNamespace(cached=False)
    monkeypatch.setattr(ahead, "_reachable", lambda root, find_used, number: [stuck])
    begin = time.monotonic()
    ahead.main("ringyard.sim.engine.life", "arrive", "0")
    assert time.monotonic() - begin >= 0.1
