"""Mutants of the code (`-` for `+`, `<` for `<=` ...) that the tests of a module must notice."""

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from conftest import ROOT

pytestmark = pytest.mark.release

#: {module: (its tests, the share of its mutants that they must notice)}
MODULES = {
    "agents/ringyard_agents/evaluation/statistics.py": ("tests/agents/test_statistics.py", 0.8),
}


@pytest.mark.parametrize(("module", "tests", "share"), [(name, *rest) for name, rest in MODULES.items()])
def test_mutants_are_noticed(module, tests, share, tmp_path):
    pytest.importorskip("cosmic_ray", reason='it needs pip install "ringyard[mutation]"')
    copy = tmp_path / "copy"  # files are mutated in place
    for name in ("agents", "baselines", "envs", "conf", "tests", "pyproject.toml"):
        whole, there = ROOT / name, copy / name
        there.parent.mkdir(exist_ok=True)
        (shutil.copytree if whole.is_dir() else shutil.copy)(whole, there)
    (copy / "mutation.toml").write_text(
        f"""[cosmic-ray]
module-path = "{module}"
timeout = 120.0
excluded-modules = []
test-command = "{sys.executable} -m pytest -x -q -p no:cacheprovider {tests}"

[cosmic-ray.distributor]
name = "local"
"""
    )
    paths = os.pathsep.join(str(copy / name) for name in ("envs", "baselines", "agents"))
    for words in (["baseline"], ["init", "found.sqlite"], ["exec", "found.sqlite"]):
        command = [sys.executable, "-m", "cosmic_ray.cli", words[0], "mutation.toml", *words[1:]]
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with sqlite3.connect(copy / "found.sqlite") as results:
        outcomes = [row[0] for row in results.execute("select test_outcome from work_results")]
    noticed = sum("KILLED" in str(outcome).upper() for outcome in outcomes)
    assert len(outcomes) > 50
    assert noticed >= share * len(outcomes), f"{noticed} of {len(outcomes)} mutants noticed"
