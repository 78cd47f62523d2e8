"""Mutants: drawn from the source, compiled anew, and noticed by tests or not."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from conftest import ROOT
from tools.mutants import CONFIG, PAGE, RESULTS, mutants_of, page

TOY = '''
from ringyard.compiled import kernel


@kernel
def one_more(number: float) -> float:
    return number + 1.0


@kernel
def twice_one_more(number: float) -> float:
    return one_more(number) * 2.0


def largest(values, default=7):
    """Return the largest of at most four values."""
    if len(values) > 4:
        raise ValueError(f"{len(values) - 4} too many")
    return max(values)
'''
TEST = """
from toy import largest, twice_one_more


def test_toy():
    assert twice_one_more(1.0) == 4.0
    assert largest([1, 3, 2]) == 3
"""
RUN = """
import json, sys
from dataclasses import asdict
from tools.mutants import preload, run_file
preload()
found = run_file(sys.argv[1], {"tests": [sys.argv[2]]}, [], int(sys.argv[3]), 0)
print(json.dumps([asdict(one) for one in found]))
"""


def outcomes(file, tests, number, folder):
    """{name: outcome} of a file's mutants, run by a process that has not imported the file."""
    folders = [ROOT, *(ROOT / name for name in ("envs", "baselines", "agents")), folder]
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(file), str(tests), str(number)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {one["name"]: one["outcome"] for one in json.loads(done.stdout)}


def test_mutants_by_hand():
    names = [one.name for one in mutants_of("toy.py", TOY)]
    assert names == [
        "one_more: number + 1.0 -> number - 1.0",
        "one_more: 1.0 -> 2.0",
        "twice_one_more: one_more(number) * 2.0 -> one_more(number) / 2.0",
        "twice_one_more: 2.0 -> 3.0",
        "largest: len(values) > 4 -> len(values) >= 4",
        "largest: len(values) > 4 -> not len(values) > 4",
        "largest: 4 -> 5",
        "largest: max(values) -> min(values)",
    ]


def test_kernels_of_a_mutant_are_compiled_anew(tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "test_toy.py").write_text(TEST)
    found = outcomes(tmp_path / "toy.py", tmp_path / "test_toy.py", 8, tmp_path)
    survived = {name for name, outcome in found.items() if outcome == "survived"}
    assert survived == {"largest: len(values) > 4 -> len(values) >= 4", "largest: 4 -> 5"}
    assert len(found) == 8


def test_every_paper_and_the_allocator_have_mutants():
    named = set(yaml.safe_load(CONFIG.read_text())["files"])
    folders = [ROOT / "baselines/ringyard_baselines/papers", ROOT / "envs/ringyard/allocator"]
    files = {str(file.relative_to(ROOT)) for folder in folders for file in folder.rglob("*.py")}
    assert named == {file for file in files if not file.endswith("__init__.py")}


def test_equivalent_mutants_are_mutants():
    for file, named in yaml.safe_load(CONFIG.read_text())["equivalent"].items():
        assert set(named) <= {one.name for one in mutants_of(file, (ROOT / file).read_text())}


@pytest.mark.skipif(not RESULTS.is_file(), reason="nothing was run yet: make mutants")
def test_the_page_is_what_was_found():
    assert page() == PAGE.read_text(), "write it again: python -m tools.mutants --number 0"


@pytest.mark.release
def test_mutants_of_the_statistics_are_noticed():
    file = "agents/ringyard_agents/evaluation/ranking.py"
    found = outcomes(file, "tests/agents/test_statistics.py", 60, ROOT)
    assert len(found) == 60
    assert sum(outcome == "tests" for outcome in found.values()) >= 0.8 * len(found)
