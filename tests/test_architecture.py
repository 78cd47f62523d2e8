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


def test_baselines_do_not_know_one_another():
    shared = {
        "scheduler",
        "ordered",
        "preemptive",
        "planning",
        "predictors",
        "sizing",
        "speeds",
        "step_model",
        "targets",
    }
    shared |= {
        "evolution",
        "interference_networks",
        "ones_progress",
        "transfer_events",
    }  # parts of one paper each
    folder = ROOT / "baselines" / "ringyard_baselines"
    for file in folder.glob("*.py"):
        if file.stem in shared or file.stem == "__init__":
            continue
        for other in folder.glob("*.py"):
            if other.stem not in shared | {file.stem, "__init__"}:
                assert f"ringyard_baselines.{other.stem} " not in file.read_text(), (file.stem, other.stem)


def test_the_wheel_holds_packages_and_configs(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel")
    wheel = next(builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    held = zipfile.ZipFile(wheel).namelist()
    assert "ringyard/conf/scheduler/fifo.yaml" in held
    for package in ("ringyard", "ringyard_baselines", "ringyard_agents"):
        assert f"{package}/__init__.py" in held
    assert not any(name.startswith(("tests/", "runs/")) for name in held)


def test_an_edit_of_any_kernel_makes_cached_code_stale():
    from ringyard import compiled
    from ringyard.sim.setup import load

    stamp = load._cache._cache_file._source_stamp
    assert stamp[1] == compiled._kernel_sources()
