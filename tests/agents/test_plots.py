"""Plots of finished runs: their intervals, what is found in folders, what lies on what."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib import pyplot as plt
from scipy.stats import trim_mean

from ringyard.errors import ConfigurationError
from ringyard_agents.cli import main
from ringyard_agents.evaluation.ranking import mean_interval
from ringyard_agents.report.plots import _join_comparisons, group_by_settings
from ringyard_agents.report.time_series import (
    Band,
    band_of_means,
    band_of_ratios,
    band_of_shares,
    interquartile_mean,
)
from ringyard_agents.runs.run_index import TrainingResult, find_runs, short_names

RNG = np.random.default_rng(0)


def test_bands_are_student_s_and_the_bootstrap_s():
    values = RNG.normal(100, 1, (3, 40))
    band = band_of_means(values)
    for k in range(3):
        mean = mean_interval(values[k])  # of the logarithm: nearly the same far from 0
        assert [band.value[k], band.low[k], band.high[k]] == pytest.approx(
            [mean.value, mean.low, mean.high], rel=1e-4
        )
    held = np.array([[3.0, 5.0], [0.0, 0.0]])
    ratios = band_of_ratios(held, np.array([[4.0, 6.0], [0.0, 0.0]]))
    assert ratios.value[0] == 0.8
    assert ratios.low[0] < 0.8 < ratios.high[0]
    assert np.isnan(ratios.value[1])
    alone = band_of_means(values[:, :1])
    assert (alone.low == alone.value).all()
    assert ratios.within(0.0, 0.9).high[0] == 0.9


def test_shares_are_as_a_bootstrap_finds_them():
    holds = np.arange(40)[None, :] < np.array([[0], [10], [40]])
    band = band_of_shares(holds)
    drawn = holds[1][RNG.integers(0, 40, (20_000, 40))].mean(axis=1)
    assert band.value.tolist() == [0.0, 0.25, 1.0]
    assert [band.low[1], band.high[1]] == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.026)
    assert (band.low[0], band.high[0], band.low[2]) == (0.0, 0.0, 1.0)


def test_interquartile_means_are_drawn_within_tasks():
    tasks = [RNG.normal(1, 0.01, 30), RNG.normal(5, 0.01, 30)]
    found = interquartile_mean(tasks)
    assert found.value == pytest.approx(trim_mean(np.concatenate(tasks), 0.25))
    # the middle half is 15 of each task: were tasks drawn as well, it would reach from 1 to 5
    assert found.value - 0.02 < found.low < found.value < found.high < found.value + 0.02
    assert interquartile_mean([np.array([2.0])]).low == 2.0


def test_only_curves_of_several_samples_are_shaded():
    figure, axes = plt.subplots()
    x = np.arange(3.0)
    Band(x, x, x).draw(axes, x, "alone")
    assert not axes.collections
    Band(x, x - 1, x + 1).draw(axes, x, "several")
    (shade,) = axes.collections
    assert shade.get_facecolor()[0][:3] == pytest.approx(
        plt.matplotlib.colors.to_rgb(axes.lines[1].get_color())
    )
    plt.close(figure)


def training(folder, seed, agent, rate, values=(9.0, 7.0), baselines=None):
    """What a training run leaves, as far as plots read it."""
    (folder / "tensorboard").mkdir(parents=True)
    rows = {"decisions": [0, 50, 100 + seed], "eval/mean_jct": [values[0], np.nan, values[1]]}
    pd.DataFrame(rows).to_csv(folder / "tensorboard/progress.csv", index=False)
    summary = {"metric": "mean_jct", "baselines": baselines or {"fifo_backfill": 10.0}}
    (folder / "training.json").write_text(json.dumps(summary))
    settings = {"seed": seed, "name": folder.name, "agent": {"_target_": f"x.{agent}", "learning_rate": rate}}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))


def test_seeds_of_one_variant_are_one_curve(tmp_path):
    for number, (seed, agent) in enumerate([(0, "A"), (1, "A"), (0, "B")]):
        training(tmp_path / "sweep" / str(number), seed, agent, 0.1 if agent == "A" else 0.2)
    trained, compared, _ = find_runs([str(tmp_path / "sweep"), str(tmp_path / "sweep" / "0")])
    assert compared == []
    assert trained[0].curve.to_numpy().tolist() == [[0, 9], [100, 7]]
    groups = group_by_settings(trained)
    assert {label: [one.settings["seed"] for one in some] for label, some in groups.items()} == {
        "agent=A": [0, 1],
        "agent=B": [0],
    }
    assert list(group_by_settings(trained[:2])) == ["agent"]
    assert list(group_by_settings(trained[:1])) == ["0"]
    same = [replace(one, settings={**one.settings, "agent._target_": "x.A"}) for one in trained]
    assert list(group_by_settings(same)) == ["learning_rate=0.1", "learning_rate=0.2"]
    other = replace(same[0], folder=tmp_path, settings={**trained[0].settings, "agent.learning_rate": 0.3})
    assert [len(some) for some in group_by_settings([*trained, other]).values()] == [2, 1, 1]


def comparison(folder, jcts, bound=1.0):
    """The tables that a comparison leaves: {scheduler: mean JCT of each workload}."""
    folder.mkdir(parents=True)
    rows = [
        {
            "scheduler": label,
            "workload": k,
            "mean_jct": jct,
            "bound_mean_jct": bound + k,
            "blocking_rate": 0.0,
        }
        for label, each in jcts.items()
        for k, jct in enumerate(each)
    ]
    runs = pd.DataFrame(rows).assign(mean_work=1.0, mean_queueing=lambda each: each["mean_jct"] - 1.0)
    runs.to_csv(folder / "runs.csv", index=False)
    jobs = [runs.assign(jct=runs["mean_jct"] * k, outcome="completed", job_id=f"00{k}") for k in (1, 2)]
    pd.concat(jobs).to_csv(folder / "jobs.csv", index=False)


def test_comparisons_on_the_same_workloads_lie_on_each_other(tmp_path):
    comparison(tmp_path / "runs/a", {"fifo_backfill": [3.0, 4.0], "sjf": [2.0, 3.0]})
    comparison(tmp_path / "runs/b", {"fifo_backfill": [3.0, 4.0], "sjf": [2.5, 3.0]})
    comparison(tmp_path / "runs/c", {"fifo_backfill": [9.0, 8.0]}, bound=5.0)
    _, compared, _ = find_runs([str(tmp_path)])
    worlds = _join_comparisons(compared)
    assert {name: runs["scheduler"].unique().tolist() for name, (runs, _) in worlds.items()} == {
        "a": ["fifo_backfill", "sjf", "sjf (b)"],
        "c": ["fifo_backfill"],
    }
    assert len(worlds["a"][1]) == 2 * len(worlds["a"][0])
    assert set(worlds["a"][1]["job_id"]) == {"001", "002"}


def test_the_command_writes_what_it_says(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    comparison(tmp_path / "runs/a", {"fifo_backfill": [3.0, 4.0], "sjf": [2.0, 3.0]})
    comparison(tmp_path / "runs/c", {"fifo_backfill": [9.0, 8.0]}, bound=5.0)
    training(tmp_path / "runs/t0", 0, "A", 0.1)
    training(tmp_path / "runs/t1", 1, "A", 0.1, (8.0, 6.0))
    training(tmp_path / "runs/other", 1, "A", 0.1, baselines={"fifo_backfill": 11.0})
    assert main(["plot", "runs", "--out", "deep/plots", "--format", "svg"]) == 0
    names = {f"learning_curves_{k}" for k in (0, 1)} | {"performance_profile", "interquartile_means"}
    names |= {f"{name}_{world}" for name in ("jct_distribution", "losses") for world in "ac"}
    assert {one.name for one in (tmp_path / "deep/plots").iterdir()} == {f"{name}.svg" for name in names}
    assert capsys.readouterr().out.count("plot: ") == len(names)
    (tmp_path / "empty").mkdir()
    for words, said in (
        (["nope"], "there is no folder 'nope'"),
        (["empty"], "'empty' has no finished run"),
        (["runs", "--max-schedulers", "0"], "--max-schedulers is 0"),
        (["runs", "--most", "5"], "--most is called --max-schedulers now"),
    ):
        assert main(["plot", *words]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "runs/t1/training.json").write_text("{")
    half = (tmp_path / "runs/c/runs.csv").read_text()[:-4]
    (tmp_path / "runs/c/runs.csv").write_text(half)
    assert main(["plot", "runs"]) == 2
    said = capsys.readouterr()
    assert "runs/t1/training.json is not a complete file of a run" in said.err
    assert "runs/c/runs.csv is not a complete file of a run: its last line is incomplete" in said.err
    assert said.out.count("plot: ") == len(names) - 2  # of the other world there is nothing


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tensorboard/progress.csv", "decisions,eval/mean_jct\n"),
        ("tensorboard/progress.csv", "decisions,eval/mean_jct\n1,x\n"),
        ("config.yaml", ""),
        ("training.json", '{"metric": "mean_jct", "baselines": null}'),
        ("training.json", '{"metric": "mean_jct", "baselines": {"fifo_backfill": "x"}}'),
        ("training.json", "[]"),
        ("training.json", "[" * 100_000),
        ("tensorboard/progress.csv", "decisions,eval/mean_jct\n1,2\n3,"),
    ],
)
def test_a_training_run_that_is_not_whole_is_said_in_one_line(tmp_path, file, text):
    training(tmp_path / "t", 1, "evolution", 0.1)
    (tmp_path / "t" / file).write_text(text)
    with pytest.raises(ConfigurationError, match=f"t/{file} is not a complete file of a run"):
        find_runs([str(tmp_path)])


@pytest.mark.parametrize(
    "runs", ["", "fifo_backfill,0,abc,1,0\n", "fifo_backfill,0,1,1,0\nsjf,0,", "fifo_backfill,0,1,1,0\nsjf\n"]
)
def test_a_comparison_without_numbers_is_said_in_one_line(tmp_path, runs):
    (tmp_path / "runs.csv").write_text(f"scheduler,workload,mean_jct,bound_mean_jct,blocking_rate\n{runs}")
    (tmp_path / "jobs.csv").write_text("scheduler,workload,jct,outcome,job_id\n")
    with pytest.raises(ConfigurationError, match="is not a complete file of a run"):
        find_runs([str(tmp_path)])


def test_names_are_the_parts_that_differ(tmp_path):
    assert short_names([tmp_path / "a"]) == ["a"]
    assert short_names([tmp_path / "x/a", tmp_path / "x/b/c"]) == ["a", "b/c"]
    assert short_names([tmp_path / "x", tmp_path / "x/b"]) == ["x", "x/b"]


def test_curves_of_different_environments_are_not_averaged(tmp_path):
    runs = [
        TrainingResult(tmp_path / str(n), "mean_jct", pd.DataFrame(), {}, {"seed": n, "cluster.seed": n // 2})
        for n in range(3)
    ]
    assert [len(some) for some in group_by_settings(runs).values()] == [2, 1]
