"""Every block of the tutorials runs as it stands, in order; training and comparing with small sizes."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from hydra.core.global_hydra import GlobalHydra

from conftest import ROOT
from ringyard_agents.cli import main

BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
TUTORIALS = [page for page in PAGES if BLOCK.search(page.read_text())]
PACKAGES = os.pathsep.join(str(ROOT / name) for name in ("envs", "baselines", "agents"))

#: settings behind those of the pages: less to do
SMALL = {
    "train": ["total_decisions=300", "num_workloads=4", "evaluate.every=300", "evaluate.workloads=2"],
    "compare": ["workers=1", "plots=false", "tensorboard=false"],
}


def shell(commands, folder):
    """Commands of `ringyard` in this process; others, which change its surroundings, in a shell."""
    lines = commands.replace("\\\n", " ").splitlines()
    if all(line.startswith("ringyard ") for line in lines):
        for line in lines:
            command, *words = shlex.split(line)[1:]
            few = (
                ["seeds=2"] if any(word.startswith("seeds=") and word != "seeds=1" for word in words) else []
            )
            GlobalHydra.instance().clear()
            main([command, *words, *SMALL.get(command, []), *few])
        return
    settings = {**os.environ, "PYTHONPATH": PACKAGES}
    whole = (
        f'set -e\nringyard() {{ "{sys.executable}" -m ringyard_agents "$@" seeds=2 workers=1; }}\n{commands}'
    )
    done = subprocess.run(
        ["bash", "-c", whole], cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_something_to_run():
    assert len(TUTORIALS) >= 4


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
@pytest.mark.slow
def test_tutorials_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = {}
    for language, file, text in BLOCK.findall(page.read_text()):
        if file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
        elif language == "sh":
            shell(text, tmp_path)
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
