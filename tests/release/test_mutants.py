"""Mutants: single changes of the statistics behind every table, which its tests must notice."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

pytestmark = pytest.mark.release

MODULE = "agents/ringyard_agents/evaluation/statistics.py"
TESTS = "tests/agents/test_statistics.py"
#: share of mutants that may survive: changes that alter no result, such as a bound of rounding
MOST_SURVIVORS = 0.1


def test_tests_notice_changes_of_the_statistics(tmp_path):
    pytest.importorskip("cosmic_ray", reason='it needs pip install "ringyard[release]"')
    for part in ("agents", "baselines", "envs", "conf", "tests", "pyproject.toml"):
        source = ROOT / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / part)
    (tmp_path / "mutants.toml").write_text(
        f"""[cosmic-ray]
module-path = "{MODULE}"
timeout = 120.0
excluded-modules = []
test-command = "{sys.executable} -m pytest -x -p no:cacheprovider {TESTS}"
[cosmic-ray.distributor]
name = "local"
"""
    )

    def command(script, *words):
        words = [Path(sys.executable).with_name(script), *words]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    command("cosmic-ray", "init", "mutants.toml", "mutants.sqlite")
    command("cosmic-ray", "baseline", "mutants.toml")
    command("cosmic-ray", "exec", "mutants.toml", "mutants.sqlite")
    percent = float(command("cr-rate", "mutants.sqlite"))
    assert percent <= 100 * MOST_SURVIVORS, command("cr-report", "mutants.sqlite")
