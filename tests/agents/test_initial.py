"""An agent that has learnt elsewhere learns on: its weights, and what it is made of."""

import csv
import json

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from conftest import WORDS_OF, names
from ringyard.config_folder import config_folder
from ringyard.errors import CheckpointError
from ringyard.mdp.experiments import build_env_config
from ringyard_agents import cli
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.evolution import EvolutionStrategies
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.resume import add_inherited_parts
from ringyard_agents.shipped_agents import shipped_agents

WORLD = ["cluster.num_servers=2", "workload.num_jobs=10", "workload.load=8", "num_workloads=4"]
SCORES = ["workload.num_jobs=6", "action=scores", "observation=live_jobs"]
JUDGED = ["evaluate.workloads=3", "evaluate.every=100", "evaluate.schedulers=[fifo_backfill]"]
FIRST = [
    "train", "name=first", *WORLD, *JUDGED, "action=scores", "observation=live_jobs", "agent=evolution",
    "action.allocator.gamma=0.3", "agent.network.width=5", "agent.noise_std=0.5", "total_decisions=600",
]  # fmt: skip
ON = ["train", "init=runs/first", *WORLD, *JUDGED, "total_decisions=1"]


def read(folder, name):
    return json.loads((folder / "runs" / name / "training.json").read_text())


def config_of(folder, name):
    with initialize_config_dir(str(folder / "runs" / name), version_base="1.3"):
        return compose("config")


def test_a_run_begins_as_good_as_the_agent_and_of_the_same_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(FIRST) == 0
    assert cli.main([*ON, "name=on", "agent.noise_std=0.01"]) == 0
    first, on = config_of(tmp_path, "first"), config_of(tmp_path, "on")
    assert (on.action, on.observation) == (first.action, first.observation)
    assert on.agent == {**first.agent, "noise_std": 0.01}
    rows = list(csv.DictReader((tmp_path / "runs/on/tensorboard/progress.csv").read_text().splitlines()))
    assert float(rows[0]["eval/mean_jct"]) == read(tmp_path, "first")["best"] != rows[0]["eval/mean_jct"]
    assert cli.main(["train", "resume=runs/on", "total_decisions=400"]) == 0  # needs the first no more
    assert read(tmp_path, "on")["decisions"] >= 400
    # a run that goes on takes nothing from another agent
    capsys.readouterr()
    assert cli.main(["train", "resume=runs/on", "init=zoo:starts", "total_decisions=900"]) == 2
    assert "init=zoo:starts does not agree with the run to resume" in capsys.readouterr().err
    # what it is told about its parts is about its own, not about those that a new run would have
    for word, said in (
        ("agent.noise_std=0.1", "agent.noise_std would be 0.1, in runs/on/config.yaml it is 0.01"),
        (
            "agent.teacher.sample_fraction=0.1",
            "there is no teacher in agent; expected one of ema_decay, group_size",
        ),
        ("agent.noise_sd=0.1", "there is no noise_sd in agent; expected noise_std"),
        ("action.allocator.gama=1", "there is no gama in action.allocator; expected gamma"),
    ):
        assert cli.main(["train", "resume=runs/on", word, "total_decisions=900"]) == 2
        assert said in capsys.readouterr().err
    assert cli.main(["train", "resume=runs/on", "agent.noise_std=0.01", "total_decisions=800"]) == 0
    capsys.readouterr()
    # what the run says of the allocator counts
    assert cli.main([*ON, "name=other", "action.allocator.gamma=3.0"]) == 0
    assert config_of(tmp_path, "other").action.allocator.gamma == 3.0
    capsys.readouterr()
    for words, said in (
        (["agent=ppo_attention"], "the run's agent has another network than"),
        (["observation=live_jobs_attained"], "it was trained with observation"),
        (["action=start"], "expected observation=live_jobs with action=scores"),
        (["agent=evolution", "agent.network.width=5", "environments=[nowhere]"], "experiment/nowhere"),
        (["init=zoo:joint", "agent.teacher.sample_fraction=0.1"], "leave agent.teacher out"),
        (["-m", "init=runs/first,runs/on"], "a run starts from one agent"),
        (["init=zoo:nobody"], "there is no agent 'zoo:nobody' in the zoo; expected one of"),
        (["init=runs/nowhere"], "there is no checkpoint runs/nowhere"),
    ):
        assert cli.main([*ON, "name=bad", *words]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "runs/bad").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parts": None}, "is not a trained agent"),
        ({"parts": {"agent": [1], "observation": {}, "action": {}}}, "is not a trained agent"),
        ({"parts": {"agent": {}, "observation": {}}}, "is not a trained agent"),
        ({"weights": None}, "is not a trained agent"),
        (
            {"parts": {"agent": {"defaults": ["evolution"]}, "observation": {}, "action": {}}},
            "has `defaults` in its config of agent",
        ),
    ],
)
def test_an_agent_of_damaged_parts_is_refused(tmp_path, change, said):
    sound = Checkpoint.read(shipped_agents()["elastic"])
    file = tmp_path / "agent.safetensors"
    Checkpoint(sound.arrays, {**sound.metadata, **change}).write(file)
    with pytest.raises(CheckpointError, match=said):
        add_inherited_parts([f"init={file}"])


@pytest.mark.parametrize("agent", names("agent"))
def test_every_learner_begins_with_weights_of_its_network(agent):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        learner = instantiate(compose("train", [f"agent={agent}"]).agent, _convert_="all")
        small = (
            SCORES
            if isinstance(learner, EvolutionStrategies)
            else ["debug=tiny_training", *["agent.num_envs=8"] * hasattr(learner, "num_envs")]
        )
        small = [*small, *WORDS_OF.get(agent, [])]
        config = compose("train", [f"agent={agent}", *small])
    learners = [instantiate(config.agent, _convert_="all") for _ in range(2)]
    for seed, learner in enumerate(learners):
        learner.setup({"one": adapt_env_config(learner, build_env_config(config, 4, 0))}, seed)
    given, learner = (one.weights() for one in learners)
    assert any((given.arrays[name] != learner.arrays[name]).any() for name in given.arrays)
    learners[1].load_weights(given)
    learner = learners[1].weights()
    assert all(np.array_equal(given.arrays[name], learner.arrays[name]) for name in given.arrays)
    assert learners[1].decisions == 0
