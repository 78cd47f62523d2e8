"""Several worlds in one training run, and when it stops."""

import csv
import json

import numpy as np
import pytest
from omegaconf import OmegaConf

from ringyard_agents import cli

SMALL = "{small: ['workload.num_jobs=6', 'cluster.num_servers=2', 'workload.load=8']}"
TOY = [
    "train", "~agent", "+agent={_target_:toy_learner.ToyLearner}", "trust=[toy_learner.ToyLearner]",
    "name=two",
    "cluster.num_servers=4", "workload.num_jobs=12", "evaluate.every=1000", "evaluate.workloads=2",
    "evaluate.schedulers=[sjf]", "evaluate.patience=3", "total_decisions=100000",
]  # fmt: skip


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_in_several_worlds_is_judged_in_all_and_stops_when_it_gets_no_better(inside, capsys):
    assert cli.main([*TOY, f"worlds=[{SMALL}]"]) == 0
    found = json.loads((inside / "runs/two/training.json").read_text())
    assert found["decisions"] == 3000  # the first evaluation is at 0; three more are no better
    rows = list(csv.DictReader((inside / "runs/two/tensorboard/progress.csv").read_text().splitlines()))
    both = [float(rows[0][f"eval/{world}/mean_jct"]) for world in ("own", "small")]
    assert both[0] != both[1]
    assert found["best"] == pytest.approx(np.sqrt(np.prod(both)))
    ratio = float(rows[0]["eval/mean_jct_ratio_to_sjf"])
    assert ratio == pytest.approx(found["best"] / found["baselines"]["sjf"])
    # a file of somebody else's cannot name classes through the words of a world
    file = inside / "runs/two/config.yaml"
    config = OmegaConf.load(file)
    config.worlds = [{"theirs": ["restart._target_=pathlib.Path"]}]
    OmegaConf.save(config, file)
    assert cli.main(["train", "resume=runs/two", "trust=[toy_learner.ToyLearner]"]) == 2
    assert "trust=[pathlib.Path]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (f"[{SMALL},{SMALL}]", "has 'small' twice"),
        ("[nowhere]", "experiment/nowhere"),
        ("[{small: cluster}]", "expected the name of an experiment"),
        ("[{small: ['cluster.gpus=3']}]", "worlds: small: Could not override 'cluster.gpus'"),
    ],
)
def test_worlds_that_are_none_are_refused(inside, capsys, given, said):
    assert cli.main([*TOY, f"worlds={given}"]) == 2
    assert said in capsys.readouterr().err
    assert not (inside / "runs/two/agent.safetensors").exists()


def test_who_learns_in_one_world_says_so(capsys):
    assert cli.main(["train", "debug=tiny_training", f"worlds=[{SMALL}]", "name=one"]) == 2
    assert "learns in one world; got own, small" in capsys.readouterr().err
