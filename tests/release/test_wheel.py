"""The wheel and the source distribution, installed from a local index into an empty environment."""

import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from conftest import ROOT

pytestmark = pytest.mark.release

README = (ROOT / "README.md").read_text()
#: settings behind README's commands: less to do
SMALL = {
    "train": ["total_decisions=300", "num_workloads=4", "evaluate.every=300", "evaluate.workloads=2"],
    "compare": ["seeds=2", "workers=1"],
}


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


def files(wheel):
    """{file of a wheel: checksum}, without the list of files that it holds itself."""
    entries = zipfile.ZipFile(wheel).infolist()
    return {entry.filename: entry.CRC for entry in entries if not entry.filename.endswith("/RECORD")}


def test_the_source_distribution_builds_the_same_wheel(index, tmp_path):
    [source] = (index / "ringyard").glob("*.tar.gz")
    [wheel] = (index / "ringyard").glob("*.whl")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / source.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, folder=unpacked)
    assert files(tmp_path / wheel.name) == files(wheel)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_examples_of_the_readme_run_from_the_wheel(installed, tmp_path, code):
    short = code.replace("learn(50_000)", "learn(500)").replace("seeds=20", "seeds=2")
    assert short != code
    assert re.search(r"\d{3}", run(installed, "-c", short, folder=tmp_path).splitlines()[-1])


def test_commands_of_the_readme_run_from_the_wheel(installed, tmp_path):
    """Those of "On the command line", in one folder, in their order; TensorBoard lists and does not serve."""
    [block] = re.findall(r"## On the command line\n+```\n(.*?)```", README, re.DOTALL)
    lines = [shlex.split(line) for line in block.splitlines()]
    for program, *words in lines:
        more = SMALL[words[0]] if program == "ringyard" else ["--inspect"]
        said = run(installed.parent / program, *words, *more, folder=tmp_path)
    assert "eval/" in said
    assert {line[1] for line in lines} >= {"train", "compare"}
    assert (tmp_path / "runs" / "mine" / "agent.safetensors").exists()
