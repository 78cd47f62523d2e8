"""Ringyard beside other libraries: pip resolves each pair, and infos reach those that are installed."""

import csv
import json
import re
import subprocess
import sys
import tomllib
import venv

import gymnasium
import numpy as np
import pytest
from packaging.requirements import Requirement

from conftest import ROOT

#: a row per library: name, extras of ours, requirements, whether they go together, what pip chose or why not
FILE = ROOT / "examples" / "libraries.csv"
PAGE = ROOT / "examples" / "README.md"
ROWS = list(csv.DictReader(FILE.read_text().splitlines()))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: packages whose versions the table shows, beside the library's own
_SHOWN = ("gymnasium", "numpy", "pandas", "torch")
_BEGIN, _END = "<!-- written by pytest tests/test_libraries.py -m slow --update-docs -->\n", "<!-- end -->\n"


@pytest.fixture(scope="module")
def resolve(tmp_path_factory):
    """Resolves requirements beside our wheel: ({package: version}, "") or (None, pip's message)."""
    home = tmp_path_factory.mktemp("libraries")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = home.glob("*.whl")
    venv.create(home / "empty", with_pip=True)
    pip = [home / "empty" / "bin" / "python", "-m", "pip", "install", "--dry-run", "--quiet"]

    def found(extras, *requirements):
        report = home / "report.json"
        ours = f"{wheel}[{extras}]" if extras else wheel
        words = ["--ignore-installed", "--report", report, ours, *requirements]
        done = subprocess.run([*pip, *words], cwd=home, capture_output=True, text=True, check=False)
        if done.returncode:
            return None, done.stdout + done.stderr
        packages = (one["metadata"] for one in json.loads(report.read_text())["install"])
        return {one["name"].lower().replace("_", "-"): one["version"] for one in packages}, ""

    return found


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_can_be_installed(extra, resolve):
    versions, message = resolve(extra)
    assert versions is not None, message
    for one in map(Requirement, EXTRAS[extra]):
        assert one.specifier.contains(versions[one.name.lower()], prereleases=True), one


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["library"])
def test_a_library_goes_together_with_ours_or_not(row, resolve, update_docs):
    versions, message = resolve(row["extras"], *row["requirements"].split())
    assert (versions is not None) == (row["together"] == "yes"), message
    if versions is None:
        assert re.search("ResolutionImpossible|conflict|require a different python", message), message
    elif update_docs:
        names = dict.fromkeys(
            [Requirement(one).name.lower() for one in row["requirements"].split()] + [*_SHOWN]
        )
        row["note"] = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
        with FILE.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(row), lineterminator="\n")
            writer.writeheader()
            writer.writerows(ROWS)
        head, _, rest = PAGE.read_text().partition(_BEGIN)
        PAGE.write_text(head + _BEGIN + table() + _END + rest.partition(_END)[2])


def table():
    lines = ["| library | install | together | versions that pip chose, or why not |", "|---|---|---|---|"]
    for row in ROWS:
        ours = f"ringyard[{row['extras']}]" if row["extras"] else "ringyard"
        words = " ".join(f'"{one}"' for one in (ours, *row["requirements"].split()))
        lines.append(f"| {row['library']} | `pip install {words}` | {row['together']} | {row['note']} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_libraries_is_that_of_the_file():
    assert _BEGIN + table() + _END in PAGE.read_text(), (
        "run pytest tests/test_libraries.py -m slow --update-docs"
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what libraries of others warn of is not ours
def test_minari_records_infos_and_makes_the_environment_again(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari", reason='needs pip install "minari[create]"')
    pytest.importorskip("jax", reason='Minari records with jax: pip install "minari[create]"')
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    plain = {"action": "scores", "observation": "live_jobs", "flat": True, "max_episode_steps": 20}
    env = minari.DataCollector(gymnasium.make("ringyard/Sharing-v1", **plain), record_infos=True)
    for seed in (3, 4):
        env.reset(seed=seed)
        while not any(env.step(env.action_space.sample())[2:4]):
            pass
    env.create_dataset("ringyard/random-v0")
    [episode, _] = minari.load_dataset("ringyard/random-v0")
    again = minari.load_dataset("ringyard/random-v0").recover_environment()
    assert again.spec.kwargs == env.unwrapped.spec.kwargs
    _, info = again.reset(seed=3)
    infos = [info]
    for action, reward in zip(episode.actions, episode.rewards, strict=True):
        *values, info = again.step(action)
        assert values[1] == reward
        infos.append(info)
    assert values[3]  # truncated after 20 steps
    for name, recorded in episode.infos.items():
        assert np.array_equal(recorded, [one[name] for one in infos]), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arguments", [{}, {"num_envs": 2}], ids=["one", "vector"])
def test_torchrl_reads_infos_through_ends_of_episodes(arguments):
    libs = pytest.importorskip("torchrl.envs", reason="needs torchrl: see examples/README.md")
    env = libs.GymEnv("ringyard:ringyard/Contention-v1", max_episode_steps=5, **arguments)
    if not arguments:
        env.auto_register_info_dict()
    following = env.rollout(12, break_when_any_done=False)["next"]
    assert following["truncated"].sum() == 2 * arguments.get("num_envs", 1)
    assert following["workload"].unique().numel() > 1
    env.close()
