"""`python -m tools.mutants`: change schedulers and the allocator in one place at a time, and run their tests.

Cosmic-ray and mutmut write each mutant to a file. Machine code is kept under a hash of the sources, so that
all kernels would be compiled for each mutant, which takes minutes. Here a mutant is in the memory of one
process, and only the kernels into which it is compiled are compiled again. Tests are imported once for all
mutants of a file, and kernels loaded once for all that are not in a kernel: each mutant runs in a fork.
"""

import argparse
import ast
import contextlib
import gc
import hashlib
import importlib
import inspect
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import yaml

from tools.config_files import TOOLS_CONF

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
PAGE = ROOT / "docs" / "mutants.md"
CONFIG = TOOLS_CONF / "mutants.yaml"
#: imported once for all mutants; none imports a file of `CONFIG`
_PRELOADED = ("scipy.stats", "scipy.optimize", "pandas", "hydra", "hypothesis", "ringyard.sim.simulator")
_PAIRS: list[Any] = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
]
_PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr)]
_SWAPS: dict[Any, Any] = {old: new for a, b in _PAIRS for old, new in ((a, b), (b, a))}
_SWAPS |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
_CALLS = {"min": "max", "any": "all", "minimum": "maximum", "floor": "ceil", "argmin": "argmax"}
_CALLS |= {new: old for old, new in _CALLS.items()} | {"sorted": "list"}
#: no mutants there: types, texts of errors, and defaults, which a test could only repeat
_LEFT_OUT = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "exc", "bases"}
_INTRODUCTION = """# Mutants

Written by `{command}`. A mutant is the code with one change: `<` for `<=`, `+` for `-`, a statement less. At
most {number} mutants of a file are drawn at random, with seed {seed}. *Noticed by tests* counts mutants with
which one of the file's own tests fails, crashes or does not end. *Or golden* adds those with which the
scheduler's metrics differ from the recorded ones (`tests/test_golden.py`). Shares leave out equivalent
mutants, which change nothing that a user sees. `tools/conf/mutants.yaml` names the tests of each file, and
the equivalent mutants. Tests were written for survivors: another draw may have a smaller share.
"""


@dataclass(frozen=True)
class Mutant:
    """One change of a source file, and what noticed it."""

    file: str
    source: str  #: hash of the file
    line: int
    name: str  #: function, and what stands there before and after
    outcome: str = ""  #: "tests", "golden" or "survived"
    noticed_by: str = ""  #: the first test that failed, "import", "crash", or "time" if tests did not end


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what replaces a node."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in _SWAPS:
            yield ast.Compare(left, [_SWAPS[type(operator)]()], right)
        case ast.BinOp(left, operator, right) if type(operator) in _SWAPS:
            yield ast.BinOp(left, _SWAPS[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(_SWAPS[type(operator)](), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call(ast.Name(name) as function, arguments, keywords) if name in _CALLS:
            yield ast.Call(ast.Name(_CALLS[name], function.ctx), arguments, keywords)
        case ast.Call(ast.Attribute(value, name, context), arguments, keywords) if name in _CALLS:
            yield ast.Call(ast.Attribute(value, _CALLS[name], context), arguments, keywords)
        case ast.AugAssign(target, operator, value) if type(operator) in _SWAPS:
            yield ast.AugAssign(target, _SWAPS[type(operator)](), value)
            yield ast.Pass()
        case ast.Break() | ast.Continue() | ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.Assign([ast.Subscript() | ast.Attribute()]):
            yield ast.Pass()


def _changes(
    node: ast.AST, function: str = ""
) -> Iterator[tuple[str, Any, ast.AST, ast.AST, str, int | None]]:
    """Yield (function, node, what replaces it, its parent, the parent's field, place in the field)."""
    for field, value in ast.iter_fields(node):
        for i, child in enumerate(value if isinstance(value, list) else [value]):
            setting = isinstance(node, ast.ClassDef) and isinstance(child, ast.AnnAssign | ast.Assign)
            setting |= (
                isinstance(node, ast.keyword) and node.arg == "strict"
            )  # of zip: it only checks lengths
            if field in _LEFT_OUT or setting or not isinstance(child, ast.AST):
                continue
            negated = [ast.UnaryOp(ast.Not(), child)] if field in ("test", "ifs") else []  # type: ignore[arg-type]
            for new in [*_variants(child), *negated]:
                yield function, child, new, node, field, i if isinstance(value, list) else None
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            yield from _changes(child, f"{function}.{child.name}".lstrip(".") if named else function)  # type: ignore[attr-defined]


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a module. Equal changes in one function have a number in their names."""
    seen: Counter[str] = Counter()
    digest, found = hashlib.sha256(source.encode()).hexdigest()[:16], []
    for function, old, new, *_ in _changes(ast.parse(source)):
        name = f"{function}: {ast.unparse(old)} -> {ast.unparse(new)}"
        seen[name] += 1
        again = f" ({seen[name]})" if seen[name] > 1 else ""
        found.append(Mutant(file, digest, old.lineno, " ".join(name.split()) + again))
    return found


def mutated(source: str, number: int) -> tuple[ast.Module, str]:
    """Return a module's tree with its mutant of that number, and the function that has it."""
    tree = ast.parse(source)
    function, old, new, parent, field, i = list(_changes(tree))[number]
    if i is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[i] = new
    ast.copy_location(new, old)
    return ast.fix_missing_locations(tree), function


def _is_imported(path: Path) -> bool:
    return any(getattr(module, "__file__", None) == str(path) for module in list(sys.modules.values()))


def _full_name(python: Any) -> str:
    """Return a function's name as `Mutant.name` has it."""
    return python.__code__.co_qualname.replace(".<locals>", "")


def _codes_within(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes_within(one)


def _kernels() -> list[Any]:
    from ringyard.compiled.functions import ByName

    return [one for one in gc.get_objects() if isinstance(one, ByName)]


def _kernels_within(function: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield kernels that a function calls, not those `seen`, nor inside linked ones."""
    from ringyard.compiled.functions import Kernel

    names = function.__code__.co_names
    values = [function.__globals__.get(name) for name in names]
    modules = [value for value in values if inspect.ismodule(value)]
    values += [getattr(module, name, None) for module in modules for name in names]
    for value in [value for value in values if isinstance(value, Kernel)]:
        if value not in seen:
            seen.add(value)
            if not value.linked:
                yield from _kernels_within(value.python, seen)
            yield value


def load_mutant(path: Path, tree: ast.Module, function: str) -> None:
    """Let this process import the mutant, or have its functions, and compile the kernels that contain it."""
    from ringyard.compiled.cache import DiskCache

    code = compile(tree, str(path), "exec")
    get_code: Any = SourceFileLoader.get_code

    def get_mutant(loader: Any, name: str) -> Any:
        return code if Path(loader.path) == path else get_code(loader, name)

    def contains(python: Any) -> bool:
        inlined = [kernel.python for kernel in _kernels_within(python, set()) if not kernel.linked]
        return any(
            Path(one.__code__.co_filename) == path and function in ("", _full_name(one))
            for one in (python, *inlined)
        )

    def unless_mutated(method: Any) -> Any:
        return lambda cache, *given: None if contains(cache._function) else method(cache, *given)

    if _is_imported(path):
        new = {(one.co_qualname, one.co_firstlineno): one for one in _codes_within(code)}
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and Path(one.__code__.co_filename) == path:
                own = new[one.__code__.co_qualname, one.__code__.co_firstlineno]
                # a mutant without `super()` has no variable `__class__` any more, a function keeps its own
                one.__code__ = own if own.co_freevars else own.replace(co_freevars=one.__code__.co_freevars)
    for name in ("load_overload", "save_overload"):
        setattr(DiskCache, name, unless_mutated(getattr(DiskCache, name)))
    setattr(SourceFileLoader, "get_code", get_mutant)  # noqa: B010


class _FirstFailure:
    """Remembers the first test that failed."""

    name = "import"

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.name == "import":
            self.name = report.nodeid


def _first_failure(*arguments: str) -> str:
    """Run pytest here and return the first test that failed, "import", or "" if all passed."""
    import pytest

    first = _FirstFailure()
    quiet = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return "" if pytest.main([*quiet, *arguments], plugins=[first]) == pytest.ExitCode.OK else first.name


def _child(tests: Sequence[str], seconds: float, prepare: Callable[[], object]) -> str:
    import hypothesis

    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    hypothesis.settings.register_profile("mutants", database=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    prepare()
    return _first_failure(*tests)


def run_tests(
    tests: Sequence[str], seconds: float = 900.0, prepare: Callable[[], object] = lambda: None
) -> tuple[str, float]:
    """Run tests in a process of their own.

    Args:
        tests: arguments of pytest.
        seconds: processor time after which the process is ended.
        prepare: called in the process before.

    Returns:
        `Mutant.noticed_by` (empty: all tests pass), and seconds of processor time.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.write(writing, _child(tests, seconds, prepare).encode())
            code = 0
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        said = "time" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "crash"
    elif status:
        raise RuntimeError(said)
    return said, usage.ru_utime + usage.ru_stime


def preload() -> None:
    """Import what all tests need, once for the processes of all mutants."""
    for module in _PRELOADED:
        importlib.import_module(module)


def run_file(
    file: str, suites: dict[str, Sequence[str]], stored: Sequence[Mutant], number: int, seed: int
) -> Iterator[Mutant]:
    """Yield the outcomes of some of a file's mutants, drawn at random. Those `stored` are not run again.

    This process must not have imported the file, and imports it.

    Args:
        file: path from the root of the checkout.
        suites: {outcome: tests that have it if they fail}, in order.
        stored: mutants with outcomes.
        number: of mutants, at most.
        seed: of the draw.
    """
    path = ROOT / file
    source = path.read_text()
    every = mutants_of(file, source)
    known = {(one.source, one.name): one for one in stored if one.file == file}
    drawn = random.Random(f"{seed} {file}").sample(range(len(every)), min(number, len(every)))
    yield from (
        known[every[i].source, every[i].name] for i in drawn if (every[i].source, every[i].name) in known
    )
    left = [i for i in drawn if (every[i].source, every[i].name) not in known]
    if not left:
        return
    if _is_imported(path):
        raise RuntimeError(f"{path} was imported before its mutant; expected that only tests import it")
    limits: dict[str, float] = {}

    def passed(outcome: str, failed: str, limit: float) -> None:
        if failed:
            raise SystemExit(f"{file}: {failed} fails without a mutant")
        limits[outcome] = limit

    def outcomes(numbers: Sequence[int], warm: bool = False) -> Iterator[Mutant]:
        for outcome, tests in suites.items() if numbers and not (warm or limits) else ():
            failed, used = run_tests(tests)
            passed(outcome, failed, 4 * used + 90)  # kernels may be compiled
        for i in numbers:
            found = replace(every[i], outcome="survived")
            for outcome, tests in suites.items():
                noticed, _ = run_tests(
                    tests, limits[outcome], partial(load_mutant, path, *mutated(source, i))
                )
                if noticed:
                    found = replace(found, outcome=outcome, noticed_by=noticed)
                    break
            yield found

    # on import, then with tests imported but no kernel loaded, then with all loaded
    functions = {i: mutated(source, i)[1] for i in left}
    yield from outcomes([i for i in left if not functions[i]])
    all_tests = [one for tests in suites.values() for one in tests]
    with open(os.devnull, "w") as silent, contextlib.redirect_stdout(silent):
        failed = _first_failure("--collect-only", *all_tests)
    if failed or any({"_inside", "outside"} & vars(kernel).keys() for kernel in _kernels()):
        raise RuntimeError(
            f"{file}: expected that its tests can be imported and load no kernels then: {failed}"
        )
    of_file = [one.python for one in _kernels() if Path(one.python.__code__.co_filename) == path]
    compiled = [i for i in left if functions[i] in set(map(_full_name, of_file))]
    yield from outcomes(compiled)
    plain = [i for i in left if functions[i] and i not in compiled]
    for outcome, tests in suites.items() if plain else ():
        begin = time.process_time()
        with open(os.devnull, "w") as silent, contextlib.redirect_stdout(silent):
            failed = _first_failure(*tests)
        passed(outcome, failed, 3 * (time.process_time() - begin) + 10)
    yield from outcomes(plain, warm=True)


def _in_a_fork(work: Callable[[], object]) -> None:
    """Run something in a process of its own, and end this one if it fails."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.wait4(child, 0)[1]:
        raise SystemExit(1)


def page() -> str:
    """Return the page in Markdown."""
    from tools.validation_page import markdown_table

    stored = json.loads(RESULTS.read_text())
    equivalent = yaml.safe_load(CONFIG.read_text())["equivalent"]
    mutants = [Mutant(**row) for row in stored["mutants"]]
    by_file = {
        f"`{file}`": [one for one in mutants if one.file == file]
        for file in dict.fromkeys(m.file for m in mutants)
    }
    rows, left = [], []
    for name, some in [*by_file.items(), ("**all**", mutants)]:
        same = [one for one in some if one.name in equivalent.get(one.file, {})]
        counts = [sum(one.outcome in ends for one in some) for ends in (("tests",), ("tests", "golden"))]
        shares = [f"{count / max(1, len(some) - len(same)):.0%}" for count in counts]
        rows.append([name, *map(str, (len(some), len(same), *counts)), *shares])
    for one in mutants:
        if one.outcome != "tests":
            change = one.name.replace("|", "\\|").replace("`", "")
            reason = equivalent.get(one.file, {}).get(one.name, "")
            left.append([f"{Path(one.file).name}:{one.line}", f"`{change}`", one.outcome, reason])
    header = ["file", "mutants", "equivalent", "noticed by tests", "or golden", "share", "or golden, share"]
    parts = [_INTRODUCTION.format(**stored), *markdown_table(header, rows)]
    parts += ["\n## What the files' own tests did not notice\n"]
    parts += markdown_table(["line", "function and change", "outcome", "why nothing changes"], left)
    return "\n".join(parts).rstrip() + "\n"


def _stored() -> list[Mutant]:
    rows = json.loads(RESULTS.read_text())["mutants"] if RESULTS.is_file() else []
    return [Mutant(**row) for row in rows]


def _run_and_store(file: str, number: int, seed: int, again: bool) -> None:
    config = yaml.safe_load(CONFIG.read_text())
    entry = config["files"][file]
    golden = [f"tests/test_golden.py::test_metrics_are_as_recorded[{one}]" for one in entry.get("golden", ())]
    suites = {"tests": entry["tests"]} | ({"golden": golden} if golden else {})
    stored = _stored()
    equivalent = config["equivalent"].get(file, {})
    usable = [one for one in stored if one.outcome == "tests" or one.name in equivalent or not again]
    command = f"python -m tools.mutants --number {number} --seed {seed}"
    about = {"command": command, "number": number, "seed": seed}
    found = []
    for one in run_file(file, suites, usable, number, seed):
        print(one.outcome, f"{file}:{one.line}", one.name, one.noticed_by, sep="  ", flush=True)
        found.append(one)
        kept = [one for one in _stored() if one.file != file] + found  # other files may be run meanwhile
        kept.sort(key=lambda one: (list(config["files"]).index(one.file), one.line))
        RESULTS.write_text(json.dumps({**about, "mutants": [asdict(one) for one in kept]}, indent=1) + "\n")


def main(words: Sequence[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help="files of tools/conf/mutants.yaml (all)")
    parser.add_argument(
        "--number", type=int, default=12, help="of mutants of a file, at most (12); 0: page only"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument("--again", action="store_true", help="run those again that tests did not notice")
    options = parser.parse_args(words)
    preload()
    files = options.files or list(yaml.safe_load(CONFIG.read_text())["files"])
    for file in files if options.number else ():
        _in_a_fork(partial(_run_and_store, file, options.number, options.seed, options.again))
    PAGE.write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
