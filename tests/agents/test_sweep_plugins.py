"""Sweeps by plugins of Hydra, where ringyard[sweeps] is installed."""

import json
import os
import random
import subprocess
import sys

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from attacks.interruptions import SWEEPS, attack
from conftest import CONF, ROOT, names
from ringyard_agents.runs.sweep import load_study, queue_trials_again, tpe_sampler
from ringyard_agents.runs.sweep_job import read_job_records

TINY = ["workload.num_jobs=8", "cluster.num_servers=2"]
EXTRA = 'it needs pip install "ringyard[sweeps]"'


@pytest.fixture(autouse=True)
def installed():
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason=EXTRA)
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason=EXTRA)


def ringyard(folder, *words, code=0):
    path = ":".join(str(ROOT / part) for part in ("envs", "baselines", "agents"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "ringyard_agents", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
@pytest.mark.slow
def test_jobs_in_other_processes_fail_by_name_and_the_others_stay(tmp_path, launcher):
    words = ["performance.alpha=0.2,-1", *TINY, f"hydra/launcher={launcher}", "name=s"]
    out, error = ringyard(tmp_path, "simulate", "-m", *words, code=2)
    assert "1 of 2 jobs failed: 1; job 1 (performance.alpha=-1): performance.alpha is -1" in error
    table = pd.read_csv(tmp_path / "runs/s/sweep.csv")
    assert list(table["status"]) == ["done", "failed"]
    assert "mean jct" in (tmp_path / "runs/s/0/log.txt").read_text()
    assert "mean jct" not in out  # jobs share one terminal
    assert "Traceback" in (tmp_path / "runs/s/1/log.txt").read_text()


@pytest.mark.slow
def test_a_study_goes_on(tmp_path):
    words = [
        *(
            "train",
            "-m",
            "sweep=ppo_mlp",
            "debug=tiny_training",
            "agent.num_envs=8",
            "cluster.num_servers=2",
            "name=s",
        ),
        *("agent.model.n_steps=16", "agent.model.batch_size=64", "evaluate.every=200", "total_decisions=600"),
    ]
    folder = tmp_path / "runs/s"
    for trials in (2, 2, 3):
        ringyard(tmp_path, *words, f"hydra.sweeper.n_trials={trials}")
        assert [one.number for one in read_job_records(folder)] == [*range(trials)]
    _, error = ringyard(tmp_path, *words, "workload.num_jobs=9", code=2)
    assert "already has a sweep of 3 jobs" in error  # of another environment
    optuna = pytest.importorskip("optuna")
    trials = optuna.load_study(study_name="ringyard", storage=f"sqlite:///{folder}/study.db").trials
    best = [json.loads((folder / str(n) / "training.json").read_text())["best"] for n in range(3)]
    assert [one.value for one in trials] == best
    ringyard(tmp_path, "train", "resume=runs/s/0", "total_decisions=1200")
    assert json.loads((folder / "0" / "training.json").read_text())["decisions"] >= 1200


def test_a_seeded_search_draws_the_same_after_an_interruption():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def search(*parts):
        study = optuna.create_study()
        for count in parts:
            study.sampler = tpe_sampler(5, n_startup_trials=3)
            for _ in range(count):
                trial = study.ask()
                x = trial.suggest_float("x", 1e-3, 1.0, log=True)
                study.tell(trial, (x - 0.1) ** 2 + trial.suggest_int("n", 1, 9))
        return [one.params for one in study.trials]

    assert search(3, 2, 1) == search(6)
    assert len({one["x"] for one in search(6)}) == 6


def test_an_interrupted_trial_is_asked_for_again(tmp_path):
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path}/study.db"
    first = optuna.create_study(study_name="s", storage=storage)
    asked = [first.ask() for _ in range(3)]
    given = [one.suggest_float("x", 0.0, 1.0) for one in asked]
    first.tell(asked[1], 1.0)
    study = load_study(OmegaConf.create({"study_name": "s", "storage": storage}), ["x"])
    queue_trials_again(study, [0, 2])
    again = [study.ask() for _ in range(3)]
    assert [one.number for one in again] == [0, 2, 3]
    assert [one.suggest_float("x", 0.0, 1.0) for one in again][:2] == [given[0], given[2]]


@pytest.mark.parametrize("kind", SWEEPS)
@pytest.mark.slow
def test_a_killed_sweep_ends_like_an_undisturbed_one(kind):
    seed = random.randrange(2**31)
    assert attack(2, seed, kind)["lost"] == 0, f"seed {seed}"


@pytest.mark.parametrize("space", sorted(set(names("sweep")) - {"optuna"}))
def test_a_search_space_names_settings_that_there_are(space):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [f"sweep={space}"], return_hydra_config=True)
    params = config.hydra.sweeper.params
    assert params
    assert all(OmegaConf.select(config, name) is not None for name in params)
