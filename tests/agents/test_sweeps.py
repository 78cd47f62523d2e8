"""Sweeps: what each job leaves, how they end, and going on with them."""

import json
import os
import pickle
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from conftest import CONF, composed
from ringyard.errors import ConfigurationError
from ringyard_agents.cli import main
from ringyard_agents.command_line import one_line
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS
from ringyard_agents.report.sweep_report import report_sweep
from ringyard_agents.runs.run_folder import RunFolder
from ringyard_agents.runs.sweep import _search_space
from ringyard_agents.runs.sweep_job import HydraJob, JobRecord, read_job_records
from ringyard_agents.runs.sweep_table import (
    best_job,
    describe_job,
    jobs_by_setting,
    override_values,
    sweep_table,
    swept_settings,
)

TINY = ["workload.num_jobs=8", "cluster.num_servers=2"]


def record(number, *words, objective=None, **more):
    status = "done" if objective is not None else "failed"
    return JobRecord(number, words, objective=objective, **{"status": status, **more})


def test_settings_of_jobs_are_numbers_where_they_are(tmp_path):
    one = record(3, "+a=1", "b=1e-3", "c=true", "d=[1,2]", "agent=x", objective=2.0)
    assert override_values(one.overrides) == {"a": 1, "b": 1e-3, "c": True, "d": "[1,2]", "agent": "x"}
    assert override_values(["d=2020-13-45"]) == {"d": "2020-13-45"}  # YAML looks for a date
    folder = tmp_path / "3"
    folder.mkdir()
    assert JobRecord.read(folder) is None
    for kept, read in ((2.0, 2.0), (float("nan"), None), (float("inf"), None)):  # JSON knows finite numbers
        replace(one, objective=kept).write(folder)
        assert JobRecord.read(folder) == replace(one, objective=read)


def test_the_mode_of_hydra_makes_a_sweep_as_m_does(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "seed=0,1", *TINY, "hydra.mode=MULTIRUN", "name=s"]) == 0
    assert list(pd.read_csv("runs/s/sweep.csv")["status"]) == ["done", "done"]
    assert main(["train", "resume=runs/s/0", "hydra.mode=MULTIRUN"]) == 2
    assert "resume continues one run" in capfd.readouterr().err
    assert main(["simulate", "-m", "seed=0,1", *TINY, "name='${now:%Y}'"]) == 0
    assert main(["simulate", "-m", "seed=0,1", *TINY, "name='${now:%Y}'"]) == 0
    assert main(["simulate", "seed=0,1", "-m", *TINY, "name=m"]) == 0  # anywhere among the words
    assert sum(one.startswith("20") for one in os.listdir("runs")) == 2  # the second has a suffix


@pytest.mark.parametrize("more", [[], ["-m"]])
def test_relative_paths_stay_those_of_the_folder_where_a_command_starts(tmp_path, monkeypatch, capfd, more):
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("job_id,submit_time,gpus,duration\n7,0,2,100\n")
    words = ["workload=csv", "workload.path=jobs.csv", "hydra.job.chdir=true", "name=s"]
    assert main(["simulate", *words, *more]) == 0, capfd.readouterr().err
    folder = "runs/s/0" if more else "runs/s"
    assert f"jobs: {folder}/jobs.csv" in capfd.readouterr().out
    assert Path(folder, "jobs.csv").is_file()
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize(
    "text",
    [
        '{"number": 3',
        "[]",
        "[" * 100_000,
        json.dumps(asdict(record(4, "a=1", objective=2.0))),
        json.dumps(asdict(record(3, "a=1", objective="low"))),
        json.dumps({**asdict(record(3)), "overrides": "a=1"}),
        json.dumps({**asdict(record(3)), "status": "well"}),
    ],
)
def test_a_job_whose_record_is_damaged_is_named_and_the_others_count(tmp_path, capsys, text):
    for number, objective in ((2, 5.0), (3, 1.0)):
        (tmp_path / str(number)).mkdir()
        record(number, f"seed={number}", objective=objective).write(tmp_path / str(number))
    (tmp_path / "3/job.json").write_text(text)
    (tmp_path / "²").mkdir()  # a digit, but no number
    assert main(["best", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert f"folder: {tmp_path / '2'}" in said.out
    assert f"left out: job 3: {tmp_path / '3/job.json'} is damaged" in said.err
    table = sweep_table(tmp_path, read_job_records(tmp_path))
    assert list(table["status"]) == ["done", "damaged"]
    (tmp_path / "2/job.json").write_text(text)
    assert main(["best", str(tmp_path)]) == 2
    assert "2/job.json is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["plain", "a[1]/b=c", "(2), it's", 'so "called"', "sp ace", "back\\slash"])
def test_what_best_prints_works_when_it_is_pasted(tmp_path, capsys, name):
    folder = tmp_path / name / "0"
    folder.mkdir(parents=True)
    record(0, "seed=1", objective=1.0).write(folder)
    (folder / "agent.safetensors").touch()
    assert main(["best", str(folder.parent)]) == 0
    (line,) = (
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("compare on other workloads than the objective: ")
    )
    (word,) = shlex.split(
        line.removeprefix("compare on other workloads than the objective: ringyard compare ")
    )
    assert OverridesParser.create().parse_override(word).value() == ["fifo_backfill", "sjf", f"best:{folder}"]
    (word,) = shlex.split(RunFolder(Path("runs", name), "train").name_override)
    assert OverridesParser.create().parse_override(word).value() == name


def test_a_table_has_what_was_swept_and_who_was_killed(tmp_path):
    records = [
        record(0, "seed=1", "x=a", "n=5", objective=3.0),
        record(1, "seed=2", "x=a", "n=5", error="it broke"),
        record(2, "seed=1", "x=b", "n=5", status="running"),
    ]
    assert swept_settings(records) == ["seed", "x"]
    assert describe_job(records[2], ["seed", "x"]) == "2 (seed=1 x=b)"
    (tmp_path / "0").mkdir()
    summary = {"decisions": 7, "best": 3.0, "baselines": {"fifo_backfill": 6.0}}
    (tmp_path / "0" / "training.json").write_text(json.dumps(summary))
    table = sweep_table(tmp_path, records)
    assert list(table["status"]) == ["done", "failed", "killed"]
    assert table.loc[0, "ratio to fifo_backfill"] == 0.5
    assert "killed" in table.loc[2, "error"]


def test_what_is_searched_is_what_has_several_values():
    words = ["performance.alpha=tag(log,choice(1,2))", "seed=1,2", "name=s"]
    space = {"workload.load": "tag(log, interval(1, 4))", "seed": "int(interval(1, 3))"}
    sweeper = OmegaConf.create({"params": space})
    assert [one.key_or_group for one in _search_space(words, sweeper)] == [*space, words[0][:17], "seed"]


def test_the_best_is_of_the_setting_that_is_best_over_seeds():
    lucky = [record(0, "seed=0", "x=a", objective=1.0), record(1, "seed=1", "x=a", objective=9.0)]
    steady = [record(2, "seed=0", "x=b", objective=3.0), record(3, "seed=1", "x=b", objective=2.0)]
    failed = [record(4, "seed=0", "x=c"), record(5, "seed=1", "x=c", objective=float("nan"))]
    assert best_job([*lucky, *steady, *failed]).number == 3
    assert [one.number for one in jobs_by_setting([*lucky, *steady])[0]] == [2, 3]
    assert best_job(failed) is None


def test_no_environment_depends_on_the_seed_of_a_training():
    for file in (one for group in ENVIRONMENT_GROUPS for one in (CONF / group).glob("*.yaml")):
        assert "${seed" not in file.read_text(), file
    zero, one = (composed("train", "experiment=contention", *words) for words in ((), ("seed=1",)))
    assert zero.cluster == one.cluster


def test_results_of_different_environments_are_never_averaged(tmp_path, capsys):
    records = [record(n, f"seed={n}", "x=a", objective=1.0 + n) for n in range(3)]
    for one in records:
        folder = tmp_path / str(one.number)
        folder.mkdir()
        one.write(folder)
        cluster = {"seed": one.number // 2}  # drawn with another seed for the last job
        config = {group: {"a": 1} for group in ENVIRONMENT_GROUPS} | {"cluster": cluster}
        (folder / "config.yaml").write_text(json.dumps(config))
    assert main(["best", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 environments, and objectives compare only within one")
    assert "objective over 2 seeds: mean 1.5" in said
    assert f"folder: {tmp_path / '0'}" in said
    assert "best of 1 jobs: 2 (seed=2), objective 3" in said
    assert main(["best", str(tmp_path), "--folder"]) == 2
    assert f"{tmp_path / '0'}, {tmp_path / '2'}" in capsys.readouterr().err
    report_sweep(tmp_path, records)
    said = capsys.readouterr().out
    assert "the best of each environment first" in said
    assert said.count("best: job") == 2
    assert list(pd.read_csv(tmp_path / "sweep.csv")["environment"]) == [0, 0, 1]


def test_a_job_that_travels_knows_that_it_is_elsewhere():
    arrived = pickle.loads(pickle.dumps(HydraJob("simulate", "module:function")))
    assert isinstance(arrived, HydraJob)
    assert (arrived.command, arrived.function_path, arrived.in_worker) == (
        "simulate",
        "module:function",
        True,
    )


def simulate(*words):
    return main(["simulate", "-m", *TINY, *words])


def test_a_sweep_ends_with_one_table_and_goes_on(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    command = ["name='a[1]/b=c'", "seed=1,2", "performance.alpha=0.2,-1"]
    assert simulate(*command) == 2
    out, error = capfd.readouterr()
    assert "runs/a[1]/b=c/sweep.csv" in out
    assert "2 of 4 jobs failed: 1, 3; job 1 (performance.alpha=-1 seed=1): performance.alpha is -1" in error
    own = [line for line in error.splitlines() if not line.startswith("ringyard: compil")]
    assert len(own) == 1, error
    folder = tmp_path / "runs" / "a[1]" / "b=c"
    table = pd.read_csv(folder / "sweep.csv")
    assert list(table["status"]) == ["done", "failed", "done", "failed"]
    assert list(table["seed"]) == [1, 1, 2, 2]
    assert sorted(one for one in os.listdir(folder) if one.isdigit()) == ["0", "1", "2", "3"]
    assert json.loads((folder / "2" / "run.json").read_text())["arguments"][-2:] == [
        "seed=2",
        "performance.alpha=0.2",
    ]

    assert main(["best", "a[1]/b=c", "--folder"]) == 0
    best = capfd.readouterr().out.strip()
    assert best == f"runs/a[1]/b=c/{table['objective'].idxmin()}"

    (folder / "0" / "jobs.csv").write_text("kept")
    assert simulate(*command) == 2  # those that failed run again, the others do not
    assert (folder / "0" / "jobs.csv").read_text() == "kept"
    capfd.readouterr()

    assert simulate("name='a[1]/b=c'", "seed=3") == 2
    assert "already has a sweep of 4 jobs" in capfd.readouterr().err
    assert len(read_job_records(folder)) == 4
    assert simulate("name='a[1]/b=c'", "seed=3", "overwrite=true") == 0
    assert [one.number for one in read_job_records(folder)] == [0]
    assert "kept" not in (folder / "0" / "jobs.csv").read_text()


def test_a_plugin_that_is_not_there_names_its_extra():
    said = "In 'hydra/config': Could not find 'hydra/sweeper/optuna'"
    assert one_line(HydraException(said)).endswith('pip install "ringyard[sweeps]"')
    typo = (
        "Could not find 'hydra/launcher/joblib2'\n\nAvailable options in 'hydra/launcher':\n\tbasic\n\tjoblib"
    )
    assert one_line(HydraException(typo)).startswith("hydra/launcher is 'joblib2'; expected joblib;")


def test_names_that_sweeps_cannot_have(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert simulate("name=a,b") == 2
    assert "name has several values" in capfd.readouterr().err
    assert main(["simulate", *TINY, "name=one"]) == 0
    assert simulate("name=one", "seed=1,2") == 2
    assert "runs/one has a single run" in capfd.readouterr().err
    assert main(["best", "nowhere"]) == 2
    assert "no jobs of a sweep" in capfd.readouterr().err


def test_training_goes_on_where_its_job_was_stopped(tmp_path, monkeypatch):
    from ringyard_agents.learning.train import TrainingRun

    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "-m",
        "debug=tiny_training",
        "agent.num_envs=8",
        "cluster.num_servers=2",
        "seed=0,1",
        "name=s",
    ]
    finish = TrainingRun.finish
    monkeypatch.setattr(
        TrainingRun, "finish", lambda run: (_ for _ in ()).throw(ConfigurationError("power cut"))
    )
    assert main(words) == 2
    assert [one.status for one in read_job_records(tmp_path / "runs/s")] == ["failed", "failed"]
    monkeypatch.setattr(TrainingRun, "finish", finish)
    assert main(words) == 0
    records = read_job_records(tmp_path / "runs/s")
    for one in records:
        folder = tmp_path / "runs/s" / str(one.number)
        assert one.objective == json.loads((folder / "training.json").read_text())["best"]
        assert len(json.loads((folder / "run.json").read_text())["resumed"]) == 1


def test_another_run_of_a_name_is_refused_or_replaces_it(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    few = [*TINY, "schedulers=[fifo_backfill,sjf]", "name=c", "workers=1", "tensorboard=false"]
    assert main(["compare", *few, "seeds=2"]) == 0
    before = (tmp_path / "runs/c/table.csv").read_bytes()
    assert main(["compare", *few, "seeds=2", "plots=false"]) == 0
    assert (tmp_path / "runs/c/table.csv").read_bytes() == before
    assert not (tmp_path / "runs/c/losses.png").exists()
    capfd.readouterr()
    assert main(["compare", *few, "seeds=3"]) == 2
    assert "runs/c has a run with seeds=2, but this command has 3" in capfd.readouterr().err
    assert (tmp_path / "runs/c/table.csv").read_bytes() == before
    assert main(["compare", *few, "seeds=3", "overwrite=true"]) == 0
    assert (tmp_path / "runs/c/table.csv").read_bytes() != before
    assert main(["simulate", *TINY, "name=s"]) == 0
    assert main(["simulate", *TINY, "name=s", "scheduler=sjf"]) == 2
    assert "overwrite=true" in capfd.readouterr().err
