"""The house: public names, conf as the registry, wheel contents."""

import importlib
import zipfile

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
    assert "ringyard/conf/scheduler/fifo.yaml" in held
    for package in ("ringyard", "ringyard_baselines", "ringyard_agents"):
        assert f"{package}/__init__.py" in held
    assert not any(name.startswith(("tests/", "runs/")) for name in held)


def test_an_edit_of_any_kernel_makes_cached_code_stale():
    from ringyard.compiled import functions
    from ringyard.sim.engine.setup import load

    stamp = load.inside._cache._cache_file._source_stamp
    assert stamp[1] == functions._sources(load.python)
