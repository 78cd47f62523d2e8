"""`ringyard compare` says where an agent is outside of what it was trained on."""

import hydra
import pytest

from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import SchedulerEntry, plain_groups
from ringyard_agents.evaluation.compare import training_range_notes

OUTSIDE = "outside of its training range"


def notes(agent, *words):
    with hydra_initialized():
        environment = plain_groups(hydra.compose("compare", list(words)))
        return training_range_notes({"agent": SchedulerEntry("agent", agent)}, environment)


@pytest.mark.parametrize("words", [["experiment=sharing"], ["experiment=full"], ["experiment=helios_like"]])
def test_an_environment_of_the_training_has_no_note(words):
    assert notes("zoo:joint", *words) == []


@pytest.mark.parametrize(
    ("agent", "words", "difference"),
    [
        (
            "zoo:sharing",
            ["experiment=sharing", "restart.seconds=300"],
            "restart.seconds is 300 (trained: 30)",
        ),
        ("zoo:sharing", ["experiment=sharing", "workload.load=4"], "workload.load is 4 (trained: 2.4)"),
        (
            "zoo:joint",
            ["experiment=full", "restart.seconds=300"],
            "restart.seconds is 300 (trained: 0 to 30)",
        ),
        (
            "zoo:sharing",
            ["experiment=sharing", "cluster.jobs_per_gpu=3"],
            "cluster.jobs_per_gpu is 3 (trained: 2)",
        ),
        (
            "zoo:sharing",
            ["experiment=sharing", "failures=rare"],
            "checkpoint_seconds is 1,800 (trained: none)",
        ),
        ("zoo:sharing", ["experiment=full"], "settings are not those of training"),
    ],
)
def test_what_lies_outside_is_named(agent, words, difference):
    [note] = notes(agent, *words)
    assert note.startswith(f"agent: {OUTSIDE}: ")
    assert difference in note


def test_within_the_range_of_several_environments_nothing_is_said():
    assert notes("zoo:joint", "experiment=sharing", "workload.load=4") == []
    assert notes("zoo:joint", "experiment=sharing", "restart.seconds=10") == []


def test_other_windows_of_a_trace_are_no_other_environment():
    words = [
        "workload=helios",
        "workload.path=venus_gpu_jobs.csv.gz",
        "restart=constant",
        "restart.seconds=30",
    ]
    assert OUTSIDE in str(notes("zoo:joint", *words))
    assert not any("workload.part" in one for one in notes("zoo:starts", *words, "workload.part=[0.6,1]"))


def test_runs_say_it_and_files_without_a_run_do_not(tmp_path):
    words = ["experiment=sharing", "restart.seconds=5", "environments=[]", f"hydra.run.dir={tmp_path}"]
    with hydra_initialized():
        config = hydra.compose("train", words[:3])
    (tmp_path / "agent.safetensors").touch()
    assert notes(f"agent:{tmp_path}", "experiment=sharing") == []
    from omegaconf import OmegaConf

    OmegaConf.save(config, tmp_path / "config.yaml")
    assert notes(f"agent:{tmp_path}", "experiment=sharing", "restart.seconds=5") == []
    [note] = notes(f"agent:{tmp_path / 'agent.safetensors'}", "experiment=sharing")
    assert "restart.seconds is 30 (trained: 5)" in note
