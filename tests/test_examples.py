"""The examples run for a few hundred steps, where their libraries are; each is short."""

import importlib
import math
import os
import re
import subprocess
import sys
import warnings

import pytest
import torch

from conftest import ROOT
from ringyard.mdp.registration import environment_arguments

FOLDER = ROOT / "examples"
#: {example: (libraries, arguments of its main)}
EXAMPLES = {
    "ppo": ((), {"total_steps": 4 * 256, "num_envs": 8, "num_steps": 64}),
    "sb3": ((), {"total_steps": 512, "num_envs": 4, "seeds": 1}),
    "mcts": ((), {"decisions": 4, "simulations": 30}),
    "minari_cloning": (("minari", "h5py"), {"count": 2, "batches": 300}),
    "torchrl_ppo": (("torchrl",), {"total_steps": 600, "frames": 300}),
    "tianshou_dqn": (("tianshou",), {"total_steps": 400, "num_envs": 2}),
    "rllib_ppo": (("ray.rllib",), {"total_steps": 1024, "batch": 512}),
}


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Imports one; what libraries of others warn of is not ours."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module
    torch.set_num_threads(threads)
    for name in EXAMPLES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.slow
def test_an_example_runs(name, example):
    libraries, arguments = EXAMPLES[name]
    for library in libraries:
        pytest.importorskip(library, reason=f"examples/{name}.py needs {library}: see examples/README.md")
    found = example(name).main(**arguments)
    assert found is None or isinstance(found, float)
    if name == "minari_cloning":
        assert found > 0.8  # two thirds of the decisions wait
    elif name == "sb3":
        assert found > 0
    elif name == "ppo":
        assert math.isnan(found) or found > 0  # no episode may have ended so soon


#: {example: arguments of its command line that keep it short}
_SHORT = {
    "mcts": ["--simulations", "1"],
    "minari_cloning": ["--episodes", "1"],
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.slow
def test_an_example_runs_as_users_run_it(name, tmp_path):
    """In a process of its own, from an empty folder."""
    for library in EXAMPLES[name][0]:
        pytest.importorskip(library, reason=f"examples/{name}.py needs {library}: see examples/README.md")
    words = _SHORT.get(name, ["--total-steps", "2000"])
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_ids_with_the_module_need_no_import_of_ringyard(tmp_path):
    """Gymnasium has read no `gymnasium.envs` entry points since 1.0; "ringyard:ID" imports ringyard."""
    code = """
import gymnasium
assert not any(name.startswith("ringyard") for name in gymnasium.registry)
gymnasium.make("ringyard:ringyard/Contention-v1")
print(*(name for name in gymnasium.registry if name.startswith("ringyard/")))
"""
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert said.split() == ["ringyard/Cluster-v0", *environment_arguments()]


def test_examples_import_what_the_packages_export():
    for file in FOLDER.glob("*.py"):
        assert not re.search(r"^\s*(from|import) ringyard\w*\.", file.read_text(), re.MULTILINE), file.name


def test_examples_are_short_and_listed():
    page = (FOLDER / "README.md").read_text()
    files = {file.stem: file for file in FOLDER.glob("*.py")}
    assert files.keys() == EXAMPLES.keys()
    for name, file in files.items():
        assert len(file.read_text().splitlines()) < 80
        assert f"[{name}.py]({name}.py)" in page
