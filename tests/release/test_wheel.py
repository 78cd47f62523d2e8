"""The wheel and the source distribution, installed from a local index into an empty environment."""

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from conftest import ROOT

pytestmark = pytest.mark.release

README = (ROOT / "README.md").read_text()


def run(*words, folder):
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder that pip reads as a package index, with wheel and source distribution."""
    home = tmp_path_factory.mktemp("index")
    built = home / "ringyard"
    run(sys.executable, "-m", "hatchling", "build", "-d", built, folder=ROOT)
    links = [f'<a href="{file.name}">{file.name}</a>' for file in sorted(built.iterdir())]
    assert len(links) == 2, links
    (built / "index.html").write_text("\n".join(links))
    return home


@pytest.fixture(scope="module")
def installed(index, tmp_path_factory):
    """Python of an empty environment, into which the wheel was installed with its agents."""
    home = tmp_path_factory.mktemp("empty")
    venv.create(home / "venv", with_pip=True)
    python = home / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--index-url", index.as_uri(), "ringyard", folder=home)
    run(*pip, "-c", ROOT / "constraints.txt", "torch", folder=home)
    run(*pip, "-c", ROOT / "constraints.txt", "ringyard[agents]", folder=home)
    return python


def test_the_wheel_is_what_was_installed(installed, tmp_path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = run(
        installed, "-c", "import ringyard; print(ringyard.__version__, ringyard.__file__)", folder=tmp_path
    )
    number, file = said.split()
    assert number == version
    assert Path(file).is_relative_to(installed.parents[1])


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_examples_of_the_readme_run_from_the_wheel(installed, tmp_path, code):
    assert run(installed, "-c", code, folder=tmp_path)


def test_the_command_runs_from_the_wheel(installed, tmp_path):
    said = run(installed.parent / "ringyard", "simulate", "workload.num_jobs=20", folder=tmp_path)
    assert "mean jct" in said
