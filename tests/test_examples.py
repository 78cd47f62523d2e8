"""The examples run where their libraries are, and print what their pages show; each is short."""

import csv
import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
import warnings

import pytest
import torch

from conftest import ROOT
from ringyard.mdp.registration import environment_arguments

FOLDER = ROOT / "examples"
#: what the commands of an example printed
PRINTED = FOLDER / "printed"
#: {example: (libraries, arguments of its main)}
EXAMPLES = {
    "ppo": ((), {"total_steps": 4 * 256, "num_envs": 8, "num_steps": 64}),
    "sb3": ((), {"total_steps": 512, "num_envs": 4, "seeds": 1}),
    "mcts": ((), {"decisions": 4, "simulations": 30}),
    "minari_cloning": (("minari", "h5py"), {"count": 2, "batches": 300}),
    "torchrl_ppo": (("torchrl",), {"total_steps": 600, "frames": 300}),
    "tianshou_dqn": (("tianshou",), {"total_steps": 400, "num_envs": 2}),
    "rllib_ppo": (("ray.rllib",), {"total_steps": 1024, "batch": 512}),
    "skrl_ppo": (("skrl",), {"total_steps": 512, "num_envs": 4, "rollouts": 64, "seeds": 1}),
    "cleanrl_ppo": (("cleanrl.ppo_continuous_action",), {"total_steps": 2048, "seeds": 1}),
    "morl_linear": (("mo_gymnasium",), {"tries": 2, "preferences": 2}),
    "omnisafe_ppo_lag": (("omnisafe",), {"total_steps": 1000, "epoch": 500}),
    "rl_zoo_ppo": (("rl_zoo3",), None),  # no program, but settings of one
}
#: {example: its file}
FILES = {file.stem: file for file in (*FOLDER.glob("*.py"), *FOLDER.glob("*.yml"))}
PACKAGES = os.pathsep.join(str(ROOT / name) for name in ("envs", "baselines", "agents"))


def needs(name):
    """Skip where a library of an example is absent."""
    for library in EXAMPLES[name][0]:
        reason = f"examples/{name} needs {library}: see examples/README.md"
        if library != "omnisafe":
            pytest.importorskip(library, reason=reason)
        elif importlib.util.find_spec(library) is None:  # alone it cannot be imported: see its example
            pytest.skip(reason)


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Imports one; what libraries of others warn of is not ours."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module
    torch.set_num_threads(threads)
    for name in EXAMPLES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", [name for name, (_, arguments) in EXAMPLES.items() if arguments])
@pytest.mark.slow
def test_an_example_runs(name, example):
    needs(name)
    found = example(name).main(**EXAMPLES[name][1])
    assert found is None or isinstance(found, float)
    if name == "minari_cloning":
        assert found > 0.8  # two thirds of the decisions wait
    elif name == "sb3":
        assert found > 0
    elif name == "ppo":
        assert math.isnan(found) or found > 0  # no episode may have ended so soon


COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)


def said(command, folder):
    """What a command writes to standard output, in a process of its own."""
    tools = f'python() {{ "{sys.executable}" "$@"; }}\nringyard() {{ python -m ringyard_agents "$@"; }}\n'
    found = {"MINARI_DATASETS_PATH": str(folder), "PYTHONPATH": PACKAGES, "OMP_NUM_THREADS": "1"}
    settings = {**os.environ, **found}
    words = ["bash", "-c", tools + command]
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(str(folder), "") + "\n" * (not done.stdout.endswith("\n"))


def kinds(text):
    """The lines of a transcript without numbers, rules of tables and widths of columns."""
    plain = re.sub(r"[+-]?\d[\d.,]*(?:e[+-]\d+)?", "#", text)
    return {" ".join(re.sub(r"[-─━]{2,}", "-", line).split()) for line in plain.splitlines()}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.slow
def test_an_example_prints_what_its_page_shows(name, tmp_path, update_docs):
    """As users run it, in a folder of its own; `--update-docs` stores what it printed."""
    needs(name)
    shutil.copy(FILES[name], tmp_path)
    file = PRINTED / f"{name}.txt"
    now = "".join(f"$ {one}\n{said(one, tmp_path)}" for one in COMMAND.findall(file.read_text()))
    if update_docs:
        file.write_text(now)
    assert kinds(file.read_text()) == kinds(now), "run pytest tests/test_examples.py -m slow --update-docs"


def test_every_example_has_a_transcript():
    """Commands, and lines that they wrote."""
    assert {file.stem for file in PRINTED.glob("*.txt")} == EXAMPLES.keys()
    for name, file in FILES.items():
        text = (PRINTED / f"{name}.txt").read_text()
        assert file.name in COMMAND.search(text)[1]
        assert all(COMMAND.split(text)[2::2]), name


def test_transcripts_are_compared_without_numbers():
    assert kinds("a  1.5e-3 |\n----\n") == kinds("a 2 |\n-----------\n") == {"a # |", "-"}
    assert kinds("mean 1\n") != kinds("best 1\n")


def test_ids_with_the_module_need_no_import_of_ringyard(tmp_path):
    """Gymnasium has read no `gymnasium.envs` entry points since 1.0; "ringyard:ID" imports ringyard."""
    code = """
import gymnasium
assert not any(name.startswith("ringyard") for name in gymnasium.registry)
gymnasium.make("ringyard:ringyard/Contention-v1")
print(*(name for name in gymnasium.registry if name.startswith("ringyard/")))
"""
    names = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert names.split() == ["ringyard/Cluster-v0", *environment_arguments()]


def test_examples_import_what_the_packages_export():
    for file in FOLDER.glob("*.py"):
        assert not re.search(r"^\s*(from|import) ringyard\w*\.", file.read_text(), re.MULTILINE), file.name


def test_examples_are_short_and_listed():
    page = (FOLDER / "README.md").read_text()
    assert FILES.keys() == EXAMPLES.keys()
    for file in FILES.values():
        assert len(file.read_text().splitlines()) < 80
        assert f"| [{file.name}]({file.name}) |" in page


def test_examples_are_installed_as_the_table_of_libraries_says():
    """A row's command is that of a library in libraries.csv, or installs extras of ours alone."""
    rows = re.findall(
        r"^\| \[.*?\]\(.*?\) \| .*? \| (.*?) \|", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == len(EXAMPLES)
    with (FOLDER / "libraries.csv").open(newline="") as stream:
        tried = [
            (f"ringyard[{row['extras']}]", *row["requirements"].split()) for row in csv.DictReader(stream)
        ]
    for words in rows:
        found = tuple(re.findall(r'"(.*?)"', words))
        assert found in tried or len(found) == 1, words
