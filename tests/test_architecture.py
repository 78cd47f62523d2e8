"""The house: public names, conf as the registry, wheel contents."""

import ast
import importlib
import zipfile
from pathlib import Path

import pytest

from conftest import CONF, ROOT, names

MODULES = sorted(
    ".".join(file.relative_to(ROOT / folder).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("envs", "baselines", "agents")
    for file in (ROOT / folder).rglob("*.py")
    if file.name != "__main__.py"
)


@pytest.mark.parametrize("module", MODULES)
def test_public_names_exist_and_are_documented(module):
    imported = importlib.import_module(module)
    assert imported.__doc__, f"{module} does not say what it is"
    for name in getattr(imported, "__all__", ()):
        assert hasattr(imported, name), f"{module}.__all__ names {name}, which does not exist"


@pytest.mark.parametrize("package", ["ringyard", "ringyard.workloads", "ringyard_agents"])
def test_type_checkers_see_what_a_package_exports(package):
    module = importlib.import_module(package)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    imports = [one for one in stub.body if isinstance(one, ast.ImportFrom)]
    found = {name.asname: one.module for one in imports for name in one.names}
    assert set(found) == set(module.__all__) - {"__version__"}
    for name, home in found.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)


def test_every_leaf_says_what_it_is():
    for group in CONF.iterdir():
        if group.is_dir():
            for name in names(group.name):
                lines = (group / f"{name}.yaml").read_text().splitlines()
                assert any(line.startswith("# ") for line in lines[:3]), f"{group.name}/{name}.yaml"


def test_the_wheel_holds_packages_and_configs(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel")
    wheel = next(builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    held = zipfile.ZipFile(wheel).namelist()
    assert "ringyard/conf/scheduler/fifo_backfill.yaml" in held
    for package in ("ringyard", "ringyard_baselines", "ringyard_agents"):
        assert f"{package}/__init__.py" in held
        assert f"{package}/py.typed" in held
    assert not any(name.startswith(("tests/", "runs/", "tools/")) for name in held)
    for group in (ROOT / "tools" / "conf").iterdir():
        assert f"ringyard/conf/{group.name}/" not in {f"{name.rpartition('/')[0]}/" for name in held}


def kernels():
    """(file, definition) of every compiled function."""
    for folder in ("envs", "baselines", "agents"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", ())]
                if any(
                    mark in ("kernel", "linked_kernel") or mark.startswith("implements(") for mark in marks
                ):
                    yield file, node


def test_every_kernel_is_typed():
    found = list(kernels())
    assert len(found) > 200
    for file, node in found:
        hints = [argument.annotation for argument in node.args.args] + [node.returns]
        assert None not in hints, (file, node.name)
        assert ast.unparse(node.returns) != "Any", (file, node.name)
        untyped = {one.arg for one in node.args.args if ast.unparse(one.annotation) == "Any"}
        read = [one.value for one in ast.walk(node) if isinstance(one, ast.Attribute)]
        assert not untyped & {one.id for one in read if isinstance(one, ast.Name)}, (file, node.name)


def test_a_mistyped_field_in_a_kernel_is_an_error_of_mypy(tmp_path):
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "mine.py"
    file.write_text(
        "from ringyard.compiled import kernel\n"
        "from ringyard.state.arrays import State\n\n"
        "@kernel\n"
        "def mine(state: State, b: int, j: int) -> float:\n"
        "    return state.jobs[b, j].end_second\n"
    )
    said, _, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(file)])
    assert '"Job" has no attribute "end_second"' in said
