"""Several processes learn one agent: what a single one learns, but for the order of sums."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import learns_together
import numpy as np
import pytest
import torch

from ringyard.errors import ConfigurationError
from ringyard.threads import set_num_threads
from ringyard_agents.learning.process_group import (
    SINGLE_PROCESS,
    Hardware,
    ProcessGroup,
    join_process_group,
    select_device,
)

FOLDERS = [str(Path(__file__).parents[2] / name) for name in ("envs", "baselines", "agents")]


def torchrun(*words, cwd):
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            *("--local-addr", "127.0.0.1", *words),
        ],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(FOLDERS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """Folder with what each of two processes has learnt."""
    folder = tmp_path_factory.mktemp("together")
    done = torchrun(learns_together.__file__, str(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", learns_together.learners())
def test_two_processes_learn_what_one_learns(learnt, name):
    alone = learns_together.learn(name, Hardware())
    first, second = (dict(np.load(learnt / f"{name}_{rank}.npz")) for rank in (0, 1))
    for running in ("played", "begun", "episodes", "discounted"):  # several processes begin new episodes
        alone.pop(running, None)
    assert set(first) == set(alone)
    for key, values in alone.items():
        assert np.array_equal(first[key], second[key]), key  # the same bits in both
        assert np.allclose(first[key], values, rtol=1e-4, atol=1e-6), key
    moved = [key for key in alone if key.startswith("network.") and np.abs(alone[key]).max() > 1e-4]
    assert moved


@pytest.mark.parametrize("name", ["ppo", "group_relative"])
def test_threads_learn_the_same_bits(name):
    try:
        found = []
        for threads in (1, 2, 5):
            set_num_threads(threads)
            found.append(learns_together.learn(name, Hardware()))
    finally:
        set_num_threads(None)
    for other in found[1:]:
        assert all(np.array_equal(values, other[key]) for key, values in found[0].items())


@pytest.mark.slow
def test_a_training_of_two_processes_writes_one_run_that_a_single_one_goes_on_with(tmp_path):
    words = ("agent=evolution", "action=scores", "observation=live_jobs", "debug=tiny_training")
    words += ("experiment=elastic", "workload.base.num_jobs=12", "~workload.num_jobs")
    words += (
        "constraint.metric=mean_slowdown",
        "constraint.bound=1.5",
        "evaluate.schedulers=[fifo_backfill]",
    )
    done = torchrun("-m", "ringyard_agents", "train", *words, "name=both", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agent: runs/both/agent.safetensors") == 1
    assert [one.name for one in (tmp_path / "runs").iterdir()] == ["both"]
    summary = json.loads((tmp_path / "runs" / "both" / "training.json").read_text())
    assert summary["decisions"] >= 2000
    more = ("train", "resume=runs/both", "total_decisions=2500")
    again = subprocess.run(
        [sys.executable, "-m", "ringyard_agents", *more],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(FOLDERS)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert again.returncode == 0, again.stderr
    summary = json.loads((tmp_path / "runs" / "both" / "training.json").read_text())
    assert summary["decisions"] >= 2500


def test_what_processes_cannot_share_is_refused():
    three = ProcessGroup(size=3)
    learner = learns_together.learners()["evolution"]
    learner.hardware = Hardware(process_group=three)
    with pytest.raises(ConfigurationError, match=r"workloads_per_round is 4 and there are 3 processes"):
        learner.setup(learns_together.environments_for(learner, "evolution"), 0)


WAIT = """
from ringyard_agents.cli import main
from ringyard_agents.learning import process_group
process_group._SILENT_SECONDS = 0.1
raise SystemExit(main(["train"]))
"""


@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGTERM), (1, signal.SIGINT)])
def test_a_process_that_waits_for_others_says_so_and_ends_by_a_signal(tmp_path, rank, number):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    settings = {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    waiting = subprocess.Popen(
        [sys.executable, "-c", WAIT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings},
        stderr=subprocess.PIPE,
        text=True,
        restore_signals=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert f"waiting for 1 more process at 127.0.0.1:{port} (WORLD_SIZE=2)" in waiting.stderr.readline()
        waiting.send_signal(number)
        assert waiting.wait(60) == 128 + number
        assert f"stopped by {number.name}" in waiting.stderr.read()
        assert not [*tmp_path.iterdir()]
    finally:
        waiting.kill()
        waiting.communicate()


def test_what_the_environment_says_of_processes_is_checked(monkeypatch):
    for text in ("two", "-1", ""):
        monkeypatch.setenv("WORLD_SIZE", text)
        with pytest.raises(ConfigurationError, match=f"the environment has WORLD_SIZE={text}; expected"):
            join_process_group()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert join_process_group() is SINGLE_PROCESS


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said():
    assert select_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigurationError, match="torch finds no GPU; expected device=cpu"):
        select_device("cuda")
