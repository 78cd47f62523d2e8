"""Pretrained agents of each learner and environment: cards, and the JCT that the page shows."""

import json
import sys

import pytest

import ringyard_agents
from conftest import ROOT

sys.path.insert(0, str(ROOT))  # `tools` is not installed

from tools.figures import LEARNERS, MORE_LEARNERS, PRETRAINED_BY_LEARNER, commands, read
from tools.pretrained import with_results

FOLDERS = sorted(PRETRAINED_BY_LEARNER.iterdir()) if PRETRAINED_BY_LEARNER.is_dir() else []
RESULTS = {
    f"{one['environment']}-{learner}": name
    for name, one in commands().items()
    for learner in one.get("learners", ())
}


def test_each_environment_has_agents_of_several_learners():
    names = {folder.name for folder in FOLDERS}
    for environment in ("contention", "cpu_gpu", "elastic", "full", "sharing"):
        assert {f"{environment}-{learner}" for learner in ("weights", "jobs", "queue")} <= names


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pretrained_agents_have_a_card_and_are_the_best_seed_of_the_stored_result(folder):
    environment, _, learner = folder.name.partition("-")
    content, run = read(RESULTS[folder.name]), json.loads((folder / "run.json").read_text())
    seed = run["seeds"]["seed"]
    best = {one: min(content["curves"][f"{environment}_{learner}_{one}"]["value"]) for one in range(3)}
    assert best[seed] == min(best.values())
    assert f"ringyard train {' '.join(run['arguments'])}" in [
        line.replace("'", "") for line in content["command"]
    ]
    card = (folder / "README.md").read_text()
    assert f"agents/pretrained/{folder.name}" in card
    assert "| scheduler |" in card
    assert with_results(card, RESULTS[folder.name]) == card, "run `python -m tools.pretrained --cards`"
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "agent.safetensors",
        "config.yaml",
        "run.json",
    ]
    assert (LEARNERS | MORE_LEARNERS)[learner]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pretrained_agents_schedule_as_their_stored_result_says(folder):
    environment, _, learner = folder.name.partition("-")
    seed = json.loads((folder / "run.json").read_text())["seeds"]["seed"]
    stored = read(RESULTS[folder.name])["schedulers"][f"{learner}_{seed}"]["values"]["mean_jct"][0]
    table = ringyard_agents.compare([{"agent": str(folder)}], environment, seeds=1)
    assert float(table["mean_jct"].iloc[0]) == pytest.approx(stored, rel=1e-6)
