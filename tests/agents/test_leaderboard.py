"""Rows of the leaderboard, the workloads behind them, and the score of a file with a scheduler."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra

from conftest import ROOT, composed
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.cli import main
from ringyard_agents.evaluation import leaderboard
from ringyard_agents.evaluation.judge import _load
from ringyard_agents.evaluation.leaderboard import CONFIG, Levels, compare_rows, read_rows
from ringyard_agents.evaluation.ranking import holm, holm_confidences, p_value, ratio_interval
from ringyard_agents.evaluation.selection import COMPARISON_SEED_OFFSET
from ringyard_agents.evaluation.tune import TUNING_SEED_OFFSET
from tools import figures

ROWS = read_rows(figures.ROWS)
SECRETS = ("0123456789abcdef", "another secret of the maintainers")


@pytest.fixture
def few(monkeypatch):
    """Two workloads in each set, and a small environment."""
    for one in CONFIG["sets"].values():
        monkeypatch.setitem(one, "workloads", 2)
    small = ["workload.num_jobs=12", "cluster.num_servers=2"]
    monkeypatch.setitem(CONFIG["environments"]["sharing"]["splits"], "load", small)


def secret_file(folder, text=SECRETS[0]):
    file = folder / "secret"
    file.write_text(f"{text}\n")
    return str(file)


def run(capsys, *words, code=0):
    GlobalHydra.instance().clear()
    assert main(list(words)) == code, capsys.readouterr()
    return capsys.readouterr()


def table(count=3, **fields):
    """Rows of one table: a published scheduler that is the best, and others."""
    rng = np.random.default_rng(3)
    hard = rng.lognormal(0.0, 0.5, 20)
    rows = []
    for number in range(count):
        values = hard * rng.lognormal(0.03 * number, 0.1, 20)
        row = dict.fromkeys(CONFIG["fields"], "")
        row |= {
            "name": f"row {number}",
            "published": number == 0,
            "sees_durations": True,
            "only_starts": False,
        }
        rows.append(
            row
            | {"mean_jct": float(values.mean()), "bound_mean_jct": 1.0, "values": values.tolist()}
            | fields
        )
    return rows


def test_sets_are_those_of_training_tuning_and_comparing():
    train, tune, compare = (composed(command) for command in ("train", "tune", "compare"))
    assert CONFIG["sets"]["train"] | {"used_by": ""} == {
        "seed": train.seed,
        "workloads": train.num_workloads,
        "used_by": "",
    }
    found = {name: (one["seed"], one["workloads"]) for name, one in CONFIG["sets"].items()}
    assert found["validation"] == (tune.seed + TUNING_SEED_OFFSET, max(tune.seeds, tune.fast_seeds))
    assert found["test"] == (compare.seed + COMPARISON_SEED_OFFSET, compare.seeds)
    assert len({seed for seed, _ in [*found.values(), (train.evaluate.workload_seed, 0)]}) == len(found) + 1


def test_levels_of_different_sets_have_no_workload_in_common(tmp_path):
    sets = {name: Levels.find("sharing", "standard", name) for name in ("train", "validation", "test")}
    sets["hidden"] = Levels.find("sharing", "standard", "hidden", secret_file(tmp_path))
    drawn = {}
    for name, levels in sets.items():
        for workload in range(min(levels.workloads, 60)):
            key = np.random.default_rng((levels.seed, workload)).bytes(16)
            assert drawn.setdefault(key, name) == name
    assert len(drawn) == 60 + 60 + 40 + 40


def test_hidden_levels_depend_on_the_secret_alone(tmp_path):
    first, second = (Levels.find("full", "standard", "hidden", secret_file(tmp_path, one)) for one in SECRETS)
    assert first.seed != second.seed
    assert min(first.seed, second.seed) >= 2**32  # no `seed=` reaches them
    assert Levels.find("full", "load", "hidden", secret_file(tmp_path, SECRETS[0])).seed == first.seed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--environment", "sharin"], "--environment is 'sharin'; expected sharing"),
        (["--split", "lod"], "--split is 'lod'; expected load"),
        (["--set", "tets"], "--set is 'tets'; expected test"),
        (
            ["--set", "hidden"],
            "--set is hidden, and --secret has 0 characters; expected --set hidden and a file",
        ),
        (["--set", "hidden", "--secret", "SHORT"], "--secret has 4 characters; expected"),
        (["--secret", "LONG"], "--set is test, and --secret has 16 characters; expected"),
        (["--set", "hidden", "--secret", "none"], "No such file or directory: none"),
        (["mine:model.zip"], "model.zip"),
        (["pollx"], "expected pollux"),
    ],
)
def test_wrong_words_are_one_line_before_anything_runs(words, said, few, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "LONG").write_text(SECRETS[0])
    (tmp_path / "SHORT").write_text("tiny")
    (tmp_path / "model.zip").write_bytes(b"PK")
    error = run(capsys, "leaderboard", "srsf", *words, code=2).err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "docs").exists()


def test_a_row_is_what_compare_measures(few, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = CONFIG["environments"]["sharing"]["splits"]["load"]
    entries = ["fifo_backfill", "srsf", "{slow: {scheduler: sjf@pack, options: {reserve_unplaced: true}}}"]
    given = [*entries, "--environment", "sharing", "--split", "load", "--rows", "rows", "--workers", "1"]
    said = run(capsys, "leaderboard", *given).out
    listed = f"schedulers=[{','.join(entries)}]"
    options = [
        "experiment=sharing",
        "tuning=sharing",
        "seeds=2",
        "workers=1",
        "plots=false",
        "tensorboard=false",
    ]
    run(capsys, "compare", *options, *words, listed, "name=run")
    runs = figures.pd.read_csv(tmp_path / "runs" / "run" / "runs.csv")
    rows = read_rows(tmp_path / "rows")
    assert len(rows) == len(entries)
    for row in rows:
        own = runs[runs["scheduler"] == row["name"]]
        assert row["values"] == own["mean_jct"].tolist()
        assert row["mean_jct"] == np.mean(row["values"])
        assert row["bound_mean_jct"] == own["bound_mean_jct"].to_numpy().mean()
        assert (row["observability"], row["capabilities"]) == (
            *own["observability"][:1],
            *own["capabilities"][:1],
        )
        assert row["name"] in said
    assert {row["name"]: row["reference"] for row in rows}["slow"] in {row["name"] for row in rows} | {None}
    (command,) = {row["command"] for row in rows if row["name"] == "slow"}
    again = figures.shlex.split(command)[1:]
    run(capsys, *again, "--rows", "rows", "--workers", "1")
    assert read_rows(tmp_path / "rows") == rows  # the command of a row measures it


def test_a_hidden_row_gives_no_seed_away(few, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = [
        "--environment",
        "sharing",
        "--split",
        "load",
        "--set",
        "hidden",
        "--rows",
        "rows",
        "--workers",
        "1",
    ]
    run(capsys, "leaderboard", "fifo_backfill", *given, "--secret", secret_file(tmp_path))
    (row,) = read_rows(tmp_path / "rows")
    text = json.dumps(row)
    assert row["seed"].startswith("sha256:")
    assert str(Levels.find("sharing", "load", "hidden", secret_file(tmp_path)).seed) not in text
    assert SECRETS[0] not in text
    assert str(tmp_path) not in text
    run(capsys, "leaderboard", "fifo_backfill", *given, "--secret", secret_file(tmp_path, SECRETS[1]))
    (other,) = read_rows(tmp_path / "rows")
    assert other["values"] != row["values"]


def test_rows_are_compared_with_the_best_published_row_of_their_class():
    names = ("published", "sees_durations", "only_starts", "mean_jct")
    rows = [
        row | {"name": name} | dict(zip(names, fields, strict=True))
        for row, (name, *fields) in zip(
            table(6),
            [
                ("all", True, True, False, 1.0),
                ("starts", True, True, True, 2.0),
                ("blind", True, False, True, 3.0),
                ("agent", False, True, False, 0.5),
                ("blind agent", False, False, False, 0.6),
                ("agent that starts", False, True, True, 0.7),
            ],
            strict=True,
        )
    ]
    found = {row["name"]: row["reference"] for row in compare_rows(rows)}
    assert found == {
        "all": None,
        "starts": None,
        "blind": None,
        "agent": "all",
        "blind agent": "blind",
        "agent that starts": "starts",
    }
    assert compare_rows(rows[3:4])[0]["reference"] is None  # without published rows


def test_rows_of_other_workloads_are_refused():
    rows = table()
    with pytest.raises(ConfigurationError, match="rows of other workloads"):
        compare_rows([*rows[:2], rows[2] | {"bound_mean_jct": 1.1}])
    with pytest.raises(ConfigurationError, match="rows of other workloads"):
        compare_rows([*rows[:2], rows[2] | {"values": rows[2]["values"][1:]}])


def test_holm_by_hand():
    """Of four tests the smallest has the level 5 % / 4, the next 5 % / 3; the first that is kept ends it."""
    p_values = np.array([0.03, 0.001, 0.04, 0.01])
    assert holm(p_values) == pytest.approx([0.06, 0.004, 0.06, 0.03])
    assert holm_confidences(p_values) == pytest.approx([0.975, 0.9875, 0.975, 1 - 0.05 / 3])
    assert holm_confidences(np.array([0.01, 0.02])) == pytest.approx([0.975, 0.95])  # all rejected
    assert holm_confidences(np.array([0.5])) == pytest.approx([0.95])


def test_intervals_exclude_no_difference_just_if_holm_rejects():
    rows = compare_rows(table(9))
    compared = [row for row in rows if row["reference"]]
    assert len(compared) == 8
    best = np.array(rows[0]["values"])
    p_values = np.array([p_value(np.array(row["values"]), best) for row in compared])
    assert [row["p_holm"] for row in compared] == pytest.approx(holm(p_values))
    rejected = [row["p_holm"] <= 0.05 for row in compared]
    assert rejected == [not row["low"] <= 1 <= row["high"] for row in compared]
    assert 0 < sum(rejected) < len(rejected)
    for row in compared:  # wider than an interval of one comparison
        alone = ratio_interval(np.array(row["values"]), best)
        assert row["low"] <= alone.low < alone.high <= row["high"]


@pytest.mark.parametrize(
    ("content", "said"),
    [("[]", "fields is []; expected"), ("{}", "has the fields ; expected name, "), ("{", "cannot be read")],
)
def test_a_file_that_is_no_row_is_named(content, said, tmp_path):
    (tmp_path / "row.json").write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        read_rows(tmp_path)
    assert "row.json" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("environment", CONFIG["environments"])
def test_every_split_changes_its_environment(environment):
    with hydra_initialized():
        plans = {
            split: Levels.find(environment, split, "test").plan(["fifo_backfill"], 1).tasks[0].environment
            for split in ("standard", *CONFIG["environments"][environment]["splits"])
        }
    assert set(plans) == {"standard", "load", "size", "restart"}
    for split, group in {"load": "workload", "size": "cluster", "restart": "restart"}.items():
        changed = [name for name in plans[split] if plans[split][name] != plans["standard"][name]]
        assert changed == [group]


def test_stored_rows_are_consistent_and_of_their_levels():
    assert ROWS
    tables = {}
    for row in ROWS:
        tables.setdefault(tuple(row[name] for name in leaderboard.TABLE), []).append(row)
        assert row["mean_jct"] == np.mean(row["values"])
        assert row["gap_to_bound"] == row["mean_jct"] / row["bound_mean_jct"] >= 1
        assert not row["commit"].endswith("-dirty")
        if row["set"] != "hidden":
            levels = Levels.find(row["environment"], row["split"], row["set"])
            assert (row["seed"], len(row["values"])) == (levels.seed, levels.workloads)
    for rows in tables.values():
        assert compare_rows(rows) == rows  # comparisons are of all rows that are there


@pytest.mark.parametrize("name", ["environment", "restarts_300"])
def test_stored_rows_have_the_values_of_the_results_pages(name):
    split = {"environment": "standard", "restarts_300": "restart"}[name]
    compared = 0
    for row in ROWS:
        stored = figures.read(f"{name}_{row['environment']}") if row["split"] == split else {}
        one = stored.get("schedulers", {}).get(row["name"])
        if one is not None:
            np.testing.assert_allclose(row["values"], one["values"]["mean_jct"], rtol=0, atol=6e-7)
            compared += 1
    assert compared >= 3


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['environment']}-{row['split']}-{row['name']}")
def test_stored_rows_hold(row):
    """The first workload gives the same again. Agents of others and hidden levels are not there."""
    agent = row["agent_sha256"] is not None and not row["scheduler"].startswith("zoo:")
    if agent or row["set"] == "hidden":
        pytest.skip("what it needs is not in the repository")
    levels = Levels.find(row["environment"], row["split"], row["set"])
    with hydra_initialized():
        entry = {row["name"]: {"scheduler": row["scheduler"], "options": row["options"]}}
        plan = levels.plan([entry], 1)
    assert leaderboard.run_tasks(plan.tasks, 1, lambda _: None)[0].metrics.mean_jct == row["values"][0]


GOOD = """
from ringyard import PlacementPlan
from ringyard_baselines.scheduler import Observability, Scheduler


class ShortestFirst(Scheduler):
    name = "shortest_first"
    observability = Observability.DURATIONS

    def __init__(self, placement):
        self.placement = placement

    def reset(self, cluster, jobs, rng):
        self.durations = jobs.duration_seconds

    def decide(self, view):
        print("text of the file")
        queue = sorted(view.waiting, key=lambda job: self.durations[job])
        return PlacementPlan(view).start(self.placement, queue)
"""
BODY = "class Mine:\n    def decide(self, view):\n        "
#: {case: content of the file, what the error says, limit in seconds}
BAD = {
    "an exception": (f"{BODY}raise KeyError('gpu')", "KeyError: 'gpu' (line 3)", 60),
    "an error at the import": ("import nope", "ModuleNotFoundError: No module named 'nope' (line 1)", 60),
    "an infinite loop": (f"{BODY}while True: pass", "it took more than ", 1),
    "sleep": (f"{BODY}import time; time.sleep(60)", "it took more than 3 s on the clock", 1),
    "memory": (f"{BODY}self.hog = bytearray(2**33)", "it took more than 64 MiB of memory", 60),
    "lists": (f"{BODY}x = []\n        while True: x.append([0] * 100000)", "64 MiB of memory", 60),
    "an end": (f"{BODY}import os; os._exit(3)", "its process ended with code 3", 60),
    "sys.exit": (f"{BODY}raise SystemExit(0)", "SystemExit: 0 (line 3)", 60),
    "no scheduler": ("x = 1", "bad.py defines none; expected one class with decide(view)", 60),
    "two schedulers": (f"{BODY}pass\n{BODY.replace('Mine', 'Other')}pass", "defines Mine, Other;", 60),
    "jobs wait": (f"{BODY}return []", "jobs", 60),
    "hidden columns": (GOOD.replace(".DURATIONS", ".NOTHING"), "expected Observability.DURATIONS", 60),
}
FAST = ("an exception", "an infinite loop", "memory")


def judged(folder, name, text, *words, code=0):
    """The one line that `ringyard judge` prints."""
    (folder / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "ringyard_agents",
        "judge",
        name,
        "--environment",
        "contention",
        "--workloads",
        "1",
    ]
    path = ":".join(str(ROOT / part) for part in ("envs", "baselines", "agents"))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [*command, *words], cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == code, done.stderr
    (line,) = done.stdout.splitlines()
    assert "text of the file" not in done.stderr
    return json.loads(line)


def test_a_good_file_gets_the_score_that_the_scheduler_has(tmp_path):
    found = judged(tmp_path, "good.py", GOOD)
    with hydra_initialized():
        plan = Levels.find("contention", "standard", "train").plan(["srsf", "sjf@consolidate"], 1)
    runs = {one.label: one.metrics.mean_jct for one in leaderboard.run_tasks(plan.tasks, 1, lambda _: None)}
    reference = runs.pop("srsf@consolidate")
    (mean,) = runs.values()
    assert found == {
        "score": mean / reference,
        "mean_jct": mean,
        "reference": "srsf@consolidate",
        "reference_mean_jct": reference,
        "observability": "durations",
        "capabilities": "start",
        "error": None,
    }


@pytest.mark.parametrize(
    "case", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in BAD]
)
def test_a_bad_file_is_one_line_of_json_and_an_exit_code(case, tmp_path):
    text, said, seconds = BAD[case]
    found = judged(tmp_path, "bad.py", text, "--seconds", str(seconds), "--memory", "64", code=2)
    assert said in found["error"]
    assert found["score"] is None


@pytest.mark.parametrize(
    ("text", "said"), [("x = 1", "defines none"), (BAD["two schedulers"][0], "defines Mine, Other")]
)
def test_a_file_has_one_scheduler(text, said, tmp_path, monkeypatch):
    file = tmp_path / f"judged_{said.split()[-1].lower()}.py"
    file.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SchedulerError, match=f"{file.name} {said}; expected one class with decide"):
        _load(file, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope.py"], "there is no file"),
        (["nope.py", "--environment", "sharin"], "--environment is 'sharin'; expected sharing"),
        (["nope.py", "--set", "hidden"], "--set is hidden; expected train, validation or test"),
    ],
)
def test_wrong_words_are_json_too(words, said, capsys):
    assert said in json.loads(run(capsys, "judge", *words, code=2).out)["error"]


def test_help_and_page_say_that_judging_protects_from_nothing(capsys):
    said = " ".join(run(capsys, "judge", "--help").out.split())
    page = " ".join((ROOT / "docs" / "leaderboard.md").read_text().split())
    for text in (said, page):
        assert "no protection from malice" in text
        assert "container or a virtual machine" in text
