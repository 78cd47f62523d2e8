"""What a comparison's table says of rows that block jobs, of ties, of few or equal workloads; its files."""

import csv
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hydra.core.global_hydra import GlobalHydra

from conftest import composed, names
from ringyard.errors import PluginError
from ringyard_agents.cli import main
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import (
    EvaluationTask,
    build_object,
    check_tasks,
    make_simulator,
    run_task,
)
from ringyard_agents.evaluation.ranking import mean_interval, p_value, rank, ratio_interval, schedulers_frame
from ringyard_agents.evaluation.results_frame import runs_frame, write_frame
from ringyard_agents.evaluation.selection import supported_schedulers
from ringyard_agents.evaluation.tuned_configs import tuned_name_for
from ringyard_agents.report.comparison_table import (
    best_note,
    blocking_notes,
    interval_notes,
    table_rows,
    window_notes,
)
from ringyard_agents.report.tables import p_text
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.scheduler import Capabilities, run

FIFO = {
    "_target_": "ringyard_baselines.classic.start_only.fifo_backfill",
    "placement": {"_target_": "ringyard.placement.pack"},
}


def environment_configs(*words):
    config = composed("compare", "workload.num_jobs=8", *words)
    return {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}


@pytest.fixture(scope="module")
def one():
    return run_task(EvaluationTask("fifo_backfill", FIFO, environment_configs(), 0, 0))


def results(one, jct, blocked=None, **fields):
    """Rows by {label: [workloads] mean JCT} and {label: share that it blocks}."""
    return [
        replace(
            one,
            label=label,
            workload=k,
            metrics=replace(one.metrics, mean_jct=value, blocking_rate=(blocked or {}).get(label, 0.0)),
            **fields,
        )
        for label, values in jct.items()
        for k, value in enumerate(values)
    ]


def test_who_blocks_jobs_is_not_compared_by_the_others_times(one):
    runs = runs_frame(
        results(one, {"picky": [1.0, 1.1], "fifo_backfill": [9.0, 9.5], "sjf": [8.0, 8.7]}, {"picky": 0.25})
    )
    ranking = rank(runs)
    assert (ranking.rows, ranking.stars, ranking.reference) == (
        ["sjf", "fifo_backfill", "picky"],
        ["sjf"],
        "sjf",
    )
    rows = {row["scheduler"]: row for row in table_rows(schedulers_frame(runs, ranking), ranking)}
    assert [rows["picky"][name] for name in ("best", "vs sjf", "p (Holm)", "gap to bound")] == [""] * 4
    assert "" not in (rows["fifo_backfill"]["gap to bound"], rows["fifo_backfill"]["p (Holm)"])
    (note,) = blocking_notes(ranking)
    assert note.startswith("picky blocks 25.0% of the jobs: its mean JCT is that of the others")
    assert "adjusted for 1 comparison;" in "".join(interval_notes(ranking, 2))
    assert rank(runs, "left out").reference == "sjf"
    asked = rank(runs, "picky")
    assert asked.compared == []  # nobody else has served the same jobs
    assert {row["vs picky"] for row in table_rows(schedulers_frame(runs, asked), asked)} == {
        "reference",
        "",
    }


def test_tables_are_numbers_that_read_back(one, tmp_path):
    runs = runs_frame(results(one, {"fifo_backfill": [9.0, 9.5, 8.8], "sjf": [8.0, 8.7, 8.1]}))
    frame = schedulers_frame(runs, rank(runs))
    write_frame(tmp_path / "table.csv", frame)
    read = pd.read_csv(tmp_path / "table.csv", index_col="scheduler")
    fifo_backfill, mean = read.loc["fifo_backfill"], mean_interval(np.array([9.0, 9.5, 8.8]))
    exactly = partial(pytest.approx, rel=1e-14)  # not every pandas reads the last bit
    names = ("mean_jct", "mean_jct_low", "mean_jct_high")
    assert fifo_backfill[[*names]].tolist() == exactly([mean.value, mean.low, mean.high])
    assert (fifo_backfill["workloads"], fifo_backfill["reference"], fifo_backfill["best"]) == (
        3,
        "sjf",
        False,
    )
    ratio = ratio_interval(np.array([9.0, 9.5, 8.8]), np.array([8.0, 8.7, 8.1]))
    names = ("ratio", "ratio_low", "ratio_high")
    assert fifo_backfill[[*names]].tolist() == exactly([ratio.value, ratio.low, ratio.high])
    assert fifo_backfill["p_holm"] == exactly(p_value(np.array([9.0, 9.5, 8.8]), np.array([8.0, 8.7, 8.1])))
    assert read.loc["sjf", "ratio"] == 1
    assert np.isnan(read.loc["sjf", "p_holm"])
    assert table_rows(frame, rank(runs))[1]["vs sjf"].startswith(f"{100 * (ratio.value - 1):+.1f}% [")
    text = [name for name in read if not pd.api.types.is_numeric_dtype(read[name])]
    assert text == ["capabilities", "observability", "reference", "compared_by"]


def test_where_all_block_jobs_what_they_block_decides(one):
    blocked = {"fifo_backfill": 0.9, "good": 0.1, "fair": 0.3}
    found = results(one, {"fifo_backfill": [np.nan, np.nan], "fair": [1.0, 2.0], "good": [7.0, 9.0]}, blocked)
    found = [
        replace(r, metrics=replace(r.metrics, blocking_rate=r.metrics.blocking_rate * (1 + 0.1 * r.workload)))
        for r in found
    ]
    runs = runs_frame(found)
    ranking = rank(runs)
    assert (ranking.rows, ranking.stars) == (["good", "fair", "fifo_backfill"], ["good"])
    rows = table_rows(schedulers_frame(runs, ranking), ranking)
    assert rows[1]["blocked vs good"].startswith("+200.0% [")
    assert rows[2]["mean JCT [95% CI] (s)"] == "-"
    assert not any("nan" in text for row in rows for text in row.values())
    assert "good (start): 10.5% blocked" in best_note(rows)
    assert "every scheduler blocks jobs" in blocking_notes(ranking)[0]


def test_ties_go_to_who_was_named_first_and_not_to_random(one):
    same = {label: [5.0, 6.0] for label in ("random@pack", "sjf", "fifo_backfill")}
    same["fifo_backfill"] = [value * (1 - 1e-14) for value in same["fifo_backfill"]]  # the order of a sum
    assert rank(runs_frame(results(one, same))).order == ["sjf", "fifo_backfill", "random@pack"]


@pytest.mark.parametrize(
    ("workloads", "said"),
    [(1, "1 workload, so there are no intervals"), (3, "every scheduler has equal results")],
)
def test_equal_workloads_make_no_intervals(one, workloads, said):
    runs = runs_frame(results(one, {"fifo_backfill": [9.0] * workloads, "sjf": [8.0] * workloads}))
    ranking = rank(runs)
    rows = table_rows(schedulers_frame(runs, ranking), ranking)
    assert rows[1]["vs sjf"] == "+12.5%"
    assert rows[1]["mean JCT (s)"] == "9"
    assert "p (Holm)" not in rows[0]
    notes = "\n".join(interval_notes(ranking, workloads))
    assert said in notes
    assert "95" not in notes
    assert "Holm" not in notes


def test_a_p_value_that_three_digits_round_to_0_is_below_a_thousandth(one):
    runs = runs_frame(results(one, {"fifo_backfill": [9.0, 9.01, 9.02, 9.0], "sjf": [8.0, 8.01, 8.02, 8.0]}))
    ranking = rank(runs)
    rows = table_rows(schedulers_frame(runs, ranking), ranking)
    assert [row["p (Holm)"] for row in rows] == ["", "<0.001"]
    assert [p_text(value) for value in (0.00099, 0.001, 0.05, np.nan)] == ["<0.001", "0.001", "0.050", ""]


def test_a_window_is_said():
    assert window_notes((0.0, 1.0)) == []
    assert (
        "makespan, GPUs held, GPUs busy, preemptions and fragmented are of the whole run"
        in window_notes((0.2, 0.8))[0]
    )


TRACE = "job_id,submit_time,gpus,duration\n" + "".join(f"{i},{60 * i},2,{900 - 40 * i}\n" for i in range(12))


def test_workloads_without_a_draw_are_counted_as_one(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text(TRACE)
    config = composed("compare", "workload=csv", f"workload.path={file}", "failures=frequent")
    whole = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    parts = {**whole, "workload": {**whole["workload"], "window_jobs": 4}}
    for given, different in ((whole, 1), (parts, 3), (environment_configs(), 3)):
        assert (
            check_tasks([EvaluationTask("fifo_backfill", FIFO, given, workload, 0) for workload in range(3)])
            == different
        )


def boundless(placement, capabilities):
    """A scheduler that says it may do anything at all."""
    scheduler = fifo_backfill(placement)
    valid = capabilities is not None and capabilities >= 64
    scheduler.capabilities = Capabilities(capabilities) if valid else capabilities
    return scheduler


@pytest.mark.parametrize("capabilities", [None, 1, 64])
def test_a_scheduler_that_may_do_what_there_is_not_is_refused(capabilities):
    config = {**FIFO, "_target_": "agents.test_tables.boundless", "capabilities": capabilities}
    with pytest.raises(PluginError, match=r"fifo_backfill: capabilities is .*; expected Capabilities\.START"):
        check_tasks([EvaluationTask("mine", config, environment_configs(), 0, 0)])
    scheduler = boundless(build_object(FIFO["placement"]), capabilities)
    with pytest.raises(PluginError, match=r"expected Capabilities\.START"):
        run(make_simulator(environment_configs(), 0, 0, None), scheduler, np.random.default_rng(0))


def test_who_is_left_out_goes_by_its_entry():
    policy = {"_target_": "ringyard_baselines.papers.pac_ml.PartitioningHeuristic", "policy": "sequential"}
    policy["placement"] = FIFO["placement"]
    _, refused = supported_schedulers({"para_none": policy}, environment_configs(), 0)
    assert refused["para_none"].startswith("accepts or rejects jobs by")


def test_files_of_an_earlier_comparison_go(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def files(folder="runs/mine"):
        return {one.name for one in (tmp_path / folder).iterdir()}

    def command(*words):
        GlobalHydra.instance().clear()
        assert (
            main(["compare", "schedulers=[fifo_backfill,sjf]", "seeds=1", "workers=1", "name=mine", *words])
            == 0
        )
        return capsys.readouterr().out

    few = ("workload.num_jobs=8", "tensorboard=false")
    command(*few)
    table = {"table.csv", "table.md", "runs.csv", "jobs.csv"}
    pictures = {one for one in files() if one.endswith(".png")}
    assert len(pictures) == 7
    assert table <= files()
    mine = tmp_path / "runs" / "mine"
    (mine / "notes.png").touch()
    (mine / "tensorboard").mkdir()
    assert len({one["outcome"] for one in csv.DictReader((mine / "jobs.csv").read_text().splitlines())}) == 1
    command(*few, "plots=false")
    kept = {"config.yaml", "run.json", "measured.jsonl"}
    assert files() == table | kept | {"notes.png"}
    said = command("experiments=[sharing]", "plots=false", "tensorboard=false", "overwrite=true")
    assert "fifo_backfill@" in said  # as it was tuned for the environment
    assert files() == kept | {"notes.png", "sharing"}
    assert files("runs/mine/sharing") == table
    command(*few, "plots=false", "overwrite=true")
    assert files() == table | kept | {"notes.png"}


@pytest.mark.parametrize("name", sorted({*names("tuned")} & {*names("experiment")}))
def test_tuned_options_belong_to_todays_experiment(name):
    """What a network's figures refer to is no other environment."""
    config = composed("tune", f"experiment={name}")
    environment = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    assert tuned_name_for(environment) == name
    network = environment["performance"].get("network")
    if isinstance(network, dict):
        network["source"] = "elsewhere"
        assert tuned_name_for(environment) == name
        network["latency_seconds"] = 1.0
        assert tuned_name_for(environment) is None
