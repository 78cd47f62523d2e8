"""The command line as a user meets it."""

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
import warnings
from datetime import datetime
from unittest import mock

import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from conftest import ROOT, WORDS_OF, composed, names
from ringyard import Cluster, Simulator
from ringyard.errors import ConfigurationWarning, WorkloadWarning
from ringyard.sim.metrics import LOSS_NAMES
from ringyard_agents.cli import main
from ringyard_agents.command_line import exit_code
from ringyard_agents.config.schema import SETTINGS, check_settings
from ringyard_agents.learning.agent import load_agent
from ringyard_baselines.scheduler import run
from small_simulations import random_jobs, rings

TINY = ["workload.num_jobs=15", "cluster.num_servers=2"]


def ringyard(folder, *arguments, code=0):
    """Run the command in `folder`; its (stdout, stderr). `process` takes seconds longer."""
    GlobalHydra.instance().clear()
    out, error = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        mock.patch.dict(os.environ, {"COLUMNS": "160"}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        found = main(arguments)
    assert found == code, out.getvalue() + error.getvalue()
    return out.getvalue(), error.getvalue()


def process(folder, *arguments, code=0, warnings="ignore"):
    """As `ringyard`, in a process of its own."""
    path = ":".join(str(ROOT / part) for part in ("envs", "baselines", "agents", "tests"))
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-m", "ringyard_agents", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """As `ringyard`, in this process: it has imported everything and computed for a while already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def command(*arguments, code=0):
        GlobalHydra.instance().clear()
        capsys.readouterr()
        found = main(arguments)
        said = capsys.readouterr()
        assert found == code, said
        return said

    return command


@pytest.fixture
def jobs_file(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_time,gpus,duration\n7,0,2,100\n9,5,4,50\n11,6.5,1,20\n")
    return file


def csv_workload(file):
    return ["workload=csv", f"workload.path={file}", "cluster.num_servers=1", "performance=ideal"]


def test_simulate_writes_what_it_says(tmp_path, jobs_file):
    out, _ = ringyard(
        tmp_path,
        "simulate",
        "scheduler=fifo",
        *csv_workload(jobs_file),
        "output.jobs_csv=out/x.csv",
        "name=run",
    )
    assert "mean jct" in out
    rows = list(csv.DictReader((tmp_path / "out" / "x.csv").read_text().splitlines()))
    assert {"job_id", "submit_time", "gpus", "start_time", "end_time", "jct", "outcome"} <= set(rows[0])
    assert [row["job_id"] for row in rows] == ["7", "9", "11"]
    assert [float(row["start_time"]) for row in rows] == [0, 100, 150]
    assert [float(row["jct"]) for row in rows] == [100, 145, 163.5]
    record = json.loads((tmp_path / "runs" / "run" / "run.json").read_text())
    assert record["command"] == "simulate"
    assert record["seeds"] == {"seed": 0}
    assert record["versions"]["numpy"] == np.__version__
    assert datetime.fromisoformat(record["date"]).tzinfo is not None
    assert record["cpu"]
    assert record["cores"] >= 1
    assert "fifo" in (tmp_path / "runs" / "run" / "config.yaml").read_text()


BAD = {
    "unknown scheduler": (["scheduler=nope"], "nope"),
    "missing file": (["workload=csv", "workload.path=nope.csv"], "no such trace file"),
    "missing path": (["workload=csv"], "workload.path"),
    "unknown key": (["workload.nope=1"], "nope"),
    "wrong type": (["cluster.num_servers=many"], "whole number"),
    "bad constant": (["performance.alpha=-1"], "alpha"),
    "no named networks": (["performance=sjf_bco", "network@performance.network=ethernet_25g"], "ring_10gbe"),
    "no memory figures": (["cluster=a100", "performance=ring_a100"], "workload=sharing"),
    "bad threshold": (["scheduler=tiresias", "scheduler.starvation_knob=0"], "starvation_knob"),
    "a rule for who has none": (["scheduler=allocator", "placement=pack"], "leave placement out"),
    "an agent": (["scheduler=zoo:elastic"], "schedulers=[zoo:elastic] of `ringyard compare`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_code_2(tmp_path, case):
    overrides, word = BAD[case]
    _, error = ringyard(tmp_path, "simulate", *overrides, code=2)
    lines = [line for line in error.splitlines() if not line.startswith("ringyard: compiling")]
    assert len(lines) == 1, error
    assert lines[0].startswith("ringyard simulate: ")
    assert word in lines[0]


BAD_ROWS = {
    "too large": ("1,0,9,5", "at most the cluster's 4 GPUs"),
    "unsorted": ("1,5,1,5\n2,4,1,5", "ascending"),
    "negative": ("1,-5,1,5", "line 2: submit_time is '-5'; expected seconds from 0"),
    "not a number": ("1,0,1,nan", "line 2: duration is 'nan'; expected a run time above 0 s"),
    "text": ("1,0,one,5", "'one'"),
    "fraction of a GPU": ("1,0,1.5,5", "whole number"),
    "no duration": ("1,0,1,0", "line 2: duration is '0'; expected a run time above 0 s"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_named(tmp_path, case):
    rows, word = BAD_ROWS[case]
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_time,gpus,duration\n" + rows + "\n")
    _, error = ringyard(tmp_path, "simulate", *csv_workload(file), code=2)
    assert word in error
    assert "Traceback" not in error


def test_rows_left_out_are_one_line(tmp_path):
    file = tmp_path / "cut.csv"
    file.write_text("submit_s,num_gpus,duration_s\n0,1,5\n1,0,5\n")
    _, error = process(tmp_path, "simulate", "workload=helios", "workload.path=cut.csv", warnings="default")
    lines = [line for line in error.splitlines() if "left out" in line]
    assert [line.partition(" jobs")[0] for line in lines] == ["ringyard simulate: cut.csv: left out 1 of 2"]
    assert "WorkloadWarning" not in error


def test_ids_and_tenants_come_back_and_what_is_left_out_is_said_once(tmp_path):
    file = tmp_path / "cut.csv"
    rows = [f"job-{i:02d},{'6214e9' if i % 3 else '7f04ca'},{10 * i},{i % 5},{20 + i}" for i in range(30)]
    file.write_text("job_id,vc,submit_s,num_gpus,duration_s\n" + "\n".join([*rows, "big,6214e9,9,9,9"]))
    _, error = process(
        tmp_path,
        "compare",
        "workload=philly",
        "workload.path=cut.csv",
        "workload.reader.where.tenant=[6214e9,7f04ca]",
        "workload.reader.where.submit_s=[0,250]",
        "workload.max_gpus=8",
        "workload.window_jobs=null",
        "cluster.num_servers=1",
        "cluster.gpus_per_server=8",
        "schedulers=[fifo_backfill,srtf]",
        "seeds=2",
        "workers=2",
        "plots=false",
        "tensorboard=false",
        "name=run",
        warnings="default",
    )
    assert [line for line in error.splitlines() if "compil" not in line] == [
        "ringyard compare: cut.csv: where tenant=[7f04ca,6214e9], submit_s=[0,250] keeps 26 of 31 rows;"
        " left out 5 of 26 jobs: 5 without GPUs (the first is line 2)",
        "ringyard compare: left out 1 of 21 jobs: they ask for more than 8 GPUs (workload.max_gpus)",
    ]
    jobs = list(csv.DictReader((tmp_path / "runs" / "run" / "jobs.csv").read_text().splitlines()))
    ids = {f"job-{i:02d}": "6214e9" if i % 3 else "7f04ca" for i in range(25) if i % 5}
    assert {(job["job_id"], job["vc"]) for job in jobs} == set(ids.items())


def test_the_same_warning_is_one_line(capsys):
    def twice():
        for _ in range(2):
            print(warnings.formatwarning("1 of 2 rows", WorkloadWarning, "readers.py", 1), end="")
        return 0

    assert exit_code("ringyard train", twice) == 0
    assert capsys.readouterr().out == "ringyard train: 1 of 2 rows\n"


def test_what_only_training_hears_is_said_to_change_nothing(here):
    small = ["workload.num_jobs=3", "cluster.num_servers=2", "name=one"]
    unused = ["action=scores", "action.allocator.gamma=3"]
    with pytest.warns(ConfigurationWarning, match="^action=scores action.allocator.gamma=3 has no effect"):
        here("simulate", *small, *unused)
    here("simulate", *small, "overwrite=true")  # warnings are errors
    here(
        "train",
        "debug=tiny_training",
        "agent.num_envs=8",
        "cluster.num_servers=4",
        "reward=makespan",
        "name=two",
    )


def test_missing_column_names_those_there_are(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("id,arrival,num,secs\n1,0,1,5\n")
    _, error = ringyard(tmp_path, "simulate", *csv_workload(file), code=2)
    assert "arrival" in error
    names = ["job_id=id", "submit=arrival", "gpus=num", "duration=secs"]
    ringyard(tmp_path, "simulate", *csv_workload(file), *(f"workload.reader.{name}" for name in names))


@pytest.mark.parametrize("command", SETTINGS)
def test_every_setting_says_what_it_may_be(command):
    config = composed(command)
    wholes = {name for name in config if OmegaConf.is_dict(config[name]) and name not in SETTINGS[command]}
    given = {name for name in config if name not in wholes}
    given |= {f"{whole}.{name}" for whole in wholes for name in config[whole]}
    assert given == {*SETTINGS[command], "name"}
    check_settings(command, config)


def test_usage_and_unknown_commands(tmp_path):
    assert "compare" in ringyard(tmp_path, "--help")[0]
    assert "unknown command" in ringyard(tmp_path, "fly", code=2)[1]
    assert "schedulers" in ringyard(tmp_path, "compare", "--help")[0]
    assert "philly" in ringyard(tmp_path, "traces")[0]
    assert "no such trace file" in ringyard(tmp_path, "traces", "philly", "nope", code=2)[1]


def test_train_resume_compare(tmp_path, here):
    tiny = ["debug=tiny_training", "agent.num_envs=8", "cluster.num_servers=4"]
    here("train", *tiny, "name=first")
    folder = tmp_path / "runs" / "first"
    for name in ("agent.safetensors", "last.safetensors", "config.yaml", "run.json", "tensorboard"):
        assert (folder / name).exists(), name
    before = json.loads((folder / "training.json").read_text())
    assert before["decisions"] >= 2000
    curves = (folder / "tensorboard" / "progress.csv").read_text().splitlines()
    out, _ = here("train", "resume=runs/first", "total_decisions=4000")
    after = json.loads((folder / "training.json").read_text())
    assert after["decisions"] >= 4000
    assert after["best"] <= before["best"]
    assert after["baselines"] == before["baselines"]  # the same world, of the run's own config
    assert "agent.safetensors" in out
    longer = (folder / "tensorboard" / "progress.csv").read_text().splitlines()
    assert longer[: len(curves)] == curves
    assert len(longer) > len(curves)
    record = json.loads((folder / "run.json").read_text())
    assert "name=first" in record["arguments"]
    assert [one["arguments"] for one in record["resumed"]] == [["resume=runs/first", "total_decisions=4000"]]
    assert OmegaConf.load(folder / "config.yaml").total_decisions == 4000
    for word in ("reward=makespan", "agent.learning_rate=0.1", "seed=1", "experiment=sharing", "name=second"):
        _, error = here("train", "cluster.num_servers=4", "resume=runs/first", word, code=2)
        assert f"{word} does not agree with the run to resume" in error
    best = (folder / "agent.safetensors").read_bytes()
    (folder / "agent.safetensors").write_bytes(best[:-1])
    _, error = here("train", "resume=runs/first", code=2)
    assert "agent.safetensors is not a usable checkpoint" in error
    (folder / "agent.safetensors").write_bytes(best)
    assert os.listdir(tmp_path / "runs") == ["first"]  # no folder for what only went on

    toy = ["~agent", "+agent={_target_:toy_learner.ToyLearner}", *tiny[2:], "workload.num_jobs=12"]
    toy += ["evaluate.every=1000", "evaluate.workloads=2"]
    here("train", *toy, "name=toy", "total_decisions=2000")
    again = ["resume=runs/toy", "total_decisions=3000"]
    _, error = here("train", *again, code=2)
    assert "trust=[toy_learner.ToyLearner]" in error
    here("train", *again, "trust=[toy_learner.ToyLearner]")
    assert json.loads((tmp_path / "runs" / "toy" / "training.json").read_text())["decisions"] == 3000

    same = ["compare", "schedulers=[fifo_backfill,sjf@pack,srtf,mine:runs/first,toy:runs/toy]", "seeds=3"]
    same += ["workload.num_jobs=30", "workload.load=10", "cluster.num_servers=4"]
    _, error = here(*same, code=2)
    assert "trust=[toy_learner.ToyLearner]" in error
    same.append("trust=[toy_learner.ToyLearner]")
    out, _ = here(*same, "name=c1")
    everything = (tmp_path / "runs" / "c1" / "table.md").read_text()
    assert re.search(r"mine .*sizes, attained service", everything)
    assert "adjusted for 4 comparisons" in everything
    assert "warning: 3 workloads" in out
    assert re.search(r"vs (fifo_backfill|sjf@pack): relative difference of the mean JCT", out)
    # no agent is the reference unless one says so
    for name in ("table.csv", "runs.csv", "jobs.csv", "jct_distribution.png", "losses.png"):
        assert (tmp_path / "runs" / "c1" / name).stat().st_size > 0
    assert len(list((tmp_path / "runs" / "c1" / "tensorboard").iterdir())) == 6  # and the whole
    here(*same, "name=c2", "workers=1", "plots=false", "tensorboard=false")
    first, second = (
        list(csv.DictReader((tmp_path / "runs" / name / "runs.csv").read_text().splitlines()))
        for name in ("c1", "c2")
    )
    for row in (*first, *second):
        del row["wall_seconds"]
    assert first == second  # one process or many
    for row in first:
        parts = [float(row[name]) for name in row if name.startswith("lost_to_")]
        assert len(parts) == len(LOSS_NAMES)
        parts += [float(row["mean_queueing"]), float(row["mean_work"])]
        assert sum(parts) == pytest.approx(float(row["mean_jct"]))
    jct = {
        label: [row["mean_jct"] for row in first if row["scheduler"] == label]
        for label in ("fifo_backfill", "sjf@pack", "mine", "toy")
    }
    assert jct["toy"] == jct["sjf@pack"]  # as agents place
    assert jct["mine"] != jct["fifo_backfill"] != jct["sjf@pack"]


def test_agents_are_named(tmp_path):
    _, error = ringyard(tmp_path, "compare", "schedulers=[fifo_backfill,ppo]", "checkpoint=runs/mine", code=2)
    assert "mine:runs/mine" in error
    _, error = ringyard(tmp_path, "compare", "schedulers=[fifo_backfill,ppo]", code=2)
    assert "mine:runs/quickstart" in error
    _, error = ringyard(tmp_path, "compare", "schedulers=[fifo_backfill,mine:nowhere]", code=2)
    assert "no checkpoint nowhere" in error
    _, error = ringyard(tmp_path, "compare", "schedulers=[fifo_backfill,a:x,a:y]", code=2)
    assert "different labels" in error
    _, error = ringyard(tmp_path, "compare", "schedulers=[fifo_backfill,sjf:x]", code=2)
    assert "the name of another" in error
    for label in ("../../../out", str(tmp_path / "out"), "..", "a" * 300):
        _, error = ringyard(tmp_path, "compare", f"schedulers=[fifo_backfill,'{label}:x']", code=2)
        assert "without /; put a label before a run folder, such as mine:runs/mine" in error


def test_sweep_runs_every_job_and_reports_the_bad_one(tmp_path):
    _, error = ringyard(
        tmp_path, "simulate", "-m", "seed=1,2", "performance.alpha=0.2,-1", *TINY, "name=sweep", code=2
    )
    assert "alpha" in error
    assert len(list((tmp_path / "runs" / "sweep").glob("*/jobs.csv"))) == 2


SCORES = ["action=scores", "observation=live_jobs", "agent.workloads_per_round=2", "agent.group_size=2"]
SOME_AGENTS = ("evolution", "group_relative", "maskable_mlp")
SCORING = ("evolution", "evolution_taught")


@pytest.mark.parametrize(
    "agent",
    [one if one in SOME_AGENTS else pytest.param(one, marks=pytest.mark.slow) for one in names("agent")],
)
def test_every_agent_trains(tmp_path, agent):
    words = SCORES if agent in SCORING else WORDS_OF.get(agent, [])
    words = [*words, "agent.teacher.gradient_steps=20"] if agent in ("evolution_taught", "optimum") else words
    words = [*words, "agent.teacher.num_workloads=20"] if agent == "optimum" else words
    words = [*words, "agent.batch_size=64", "agent.num_envs=8"] if "offline" in agent else words
    ringyard(
        tmp_path, "train", f"agent={agent}", *words, "cluster.num_servers=4", "workload.num_jobs=12",
        "total_decisions=256", "num_workloads=8", "evaluate.every=128", "evaluate.workloads=2", "name=run",
    )  # fmt: skip
    scheduler = load_agent(str(tmp_path / "runs" / "run"))
    sim = Simulator(Cluster.homogeneous(4, 4), random_jobs(np.random.default_rng(0), 20, 8), rings())
    run(sim, scheduler, np.random.default_rng(0))
    assert sim.done
    assert not scheduler.published


@pytest.mark.slow
def test_an_experiment_is_the_whole_command(tmp_path):
    ringyard(
        tmp_path, "train", "experiment=sharing", "workload.num_jobs=12", "num_workloads=8", "name=run",
        "agent.num_envs=8", "agent.group_size=4", "total_decisions=1000", "evaluate.every=1000",
        "evaluate.workloads=2",
    )  # fmt: skip
    same = ["experiment=sharing", "workload.num_jobs=12"]
    schedulers = "schedulers=[fifo_backfill@share,mine:runs/run]"
    ringyard(tmp_path, "compare", *same, schedulers, "seeds=2", "name=compared")
    everything = (tmp_path / "runs" / "compared" / "table.md").read_text()
    assert re.search(r"mine .*sizes, attained service", everything)
    assert "mean jct" in ringyard(tmp_path, "simulate", *same)[0]


@pytest.mark.parametrize("name", [one for one in names("experiment") if not one.endswith("comparison")])
def test_every_experiment_is_simulated(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    GlobalHydra.instance().clear()
    workload = composed("simulate", f"experiment={name}").workload
    keys = {"workload": workload, "workload.base": workload.get("base", {})}
    few = [f"{key}.num_jobs=12" for key, about in keys.items() if "num_jobs" in about]
    few = [] if name == "full" else few  # with all its jobs some are cancelled before they start
    assert main(["simulate", f"experiment={name}", *few, "name=run"]) == 0
    with (tmp_path / "runs" / "run" / "jobs.csv").open() as stream:
        starts = [row["start_time"] for row in csv.DictReader(stream)]
    assert starts
    assert ("" in starts) == (name == "full")


def test_nothing_runs_before_every_scheduler_is_sound(tmp_path):
    _, error = ringyard(
        tmp_path, "compare", "schedulers=[fifo_backfill,lwf_nope]", "seeds=2", "name=bad", *TINY, code=2
    )
    assert "lwf_nope" in error
    assert not (tmp_path / "runs" / "bad" / "runs.csv").exists()


def test_a_training_run_is_replaced_and_shortened_only_if_asked(tmp_path):
    tiny = ["train", "debug=tiny_training", "agent.num_envs=8", "cluster.num_servers=2", "name=mine"]
    ringyard(tmp_path, *tiny)
    before = (tmp_path / "runs/mine/last.safetensors").read_bytes()
    _, error = ringyard(tmp_path, *tiny, "seed=1", code=2)
    assert "resume=runs/mine" in error
    _, error = ringyard(tmp_path, "train", "resume=runs/mine", "total_decisions=100", code=2)
    assert "has learnt from" in error
    _, error = ringyard(tmp_path, "train", "-m", "resume=runs/mine", "total_decisions=1e4,2e4", code=2)
    assert "without -m" in error
    assert (tmp_path / "runs/mine/last.safetensors").read_bytes() == before
    assert os.listdir(tmp_path / "runs") == ["mine"]
    wild = ["overwrite=true", "agent.learning_rate=1e10", "agent.teacher=null"]
    _, error = ringyard(tmp_path, *tiny, *wild, code=2)
    assert "learning has diverged" in error
    assert OmegaConf.load(tmp_path / "runs/mine/config.yaml").agent.learning_rate == 1e10


@pytest.mark.parametrize("words", [["--total-decisions", "5"], ["--total_decisions=5"]])
def test_a_setting_with_dashes_is_told_how_settings_are_written(tmp_path, words):
    _, error = ringyard(tmp_path, "train", *words, code=2)
    assert "settings are written without dashes: total_decisions=VALUE" in error
