"""What TensorBoard shows of comparisons and training runs: axes, lines, text, images."""

import csv
import json

import gymnasium
import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra
from matplotlib import pyplot
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from conftest import ROOT
from ringyard import ClusterEnv, experiment
from ringyard.errors import ConfigurationError
from ringyard_agents import JctCallback
from ringyard_agents.cli import main
from ringyard_agents.learning.models import ModelPolicy

CUSTOM = "custom_scalars__config__"


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        GlobalHydra.instance().clear()
        assert main([*words]) == 0

    return run


def events(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    found.Reload()
    return found


def charts(found):
    layout = layout_pb2.Layout.FromString(found.Tensors(CUSTOM)[0].tensor_proto.string_val[0])
    return {chart.title: list(chart.multiline.tag) for part in layout.category for chart in part.chart}


def text(found, name):
    return found.Tensors(f"{name}/text_summary")[0].tensor_proto.string_val[0].decode()


def test_a_comparison_says_what_its_axes_are(command, tmp_path):
    name = "name=quickstart_comparison"
    world = ("workload.num_jobs=8", "cluster.num_servers=1")
    command("compare", "schedulers=[fifo_backfill,srtf]", "seeds=2", "workers=1", name, *world)
    folder = tmp_path / "runs/quickstart_comparison/tensorboard"
    assert {one.name for one in folder.iterdir()} == {"comparison", "fifo_backfill", "srtf"}
    own, whole = events(folder / "srtf"), events(folder / "comparison")
    tags = own.Tags()["scalars"]
    assert {tag.partition("/")[0] for tag in tags} == {"simulated_seconds", "percentile_of_jobs"}
    for tag in tags:
        points = own.Scalars(tag)
        assert len(points) > 90  # no single dots
        if tag.startswith("simulated"):
            assert all(point.wall_time == point.step for point in points)
    assert [point.step for point in own.Scalars("percentile_of_jobs/JCT")] == list(range(1, 100))
    assert own.Tags()["images"] == []
    titles = charts(whole)
    assert [one.removesuffix("$") for tags in titles.values() for one in tags] == tags
    assert all("(s)" in title or "simulated seconds" in title for title in titles)
    said = text(whole, "comparison")
    assert "ringyard compare" in said
    assert '"commit": ' in said
    tables = [line for line in said.splitlines() if line.startswith("| scheduler |")]
    assert len(tables) == 1
    assert tables[0].count("|") <= 11  # wider ones cannot be read there
    everything = (tmp_path / "runs/quickstart_comparison/table.md").read_text()
    titles = everything.splitlines()[0].strip("| ").split(" | ")
    assert {"scheduler", "mean JCT [95% CI] (s)", "p99 (s)"} <= {*titles}
    assert {"scheduler", "mean JCT [95% CI] (s)"} <= {*tables[0].strip("| ").split(" | ")}
    notes = everything.partition("\n\n")[2].split("\n\n")
    assert all(note in said for note in notes if not note.startswith(("rho:", "p (Holm):", "options:")))
    cells = json.loads((ROOT / "examples/results.ipynb").read_text())["cells"]
    names = {}
    exec("\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "code"), names)
    assert list(names["by_workload"]) == ["fifo_backfill", "srtf"]
    assert len(names["jobs"]) == 2 * 2 * 8
    pyplot.close("all")
    images = {tag.removeprefix("plots/") for tag in whole.Tags()["images"]}
    assert images == {one.stem for one in (tmp_path / "runs/quickstart_comparison").glob("*.png")}


def test_training_has_its_baselines_in_the_same_chart(command, tmp_path):
    command(
        "train", "debug=tiny_training", "agent.num_envs=8", "plots=true", "cluster.num_servers=4", "name=mine"
    )
    folder = tmp_path / "runs/mine"
    found = events(folder / "tensorboard")
    baselines = json.loads((folder / "training.json").read_text())["baselines"]
    (lines, _) = charts(found).values()
    assert lines == ["^eval/mean_jct$", "^baselines/.*$"]
    for name, value in baselines.items():
        points = found.Scalars(f"baselines/{name}")
        assert [point.step for point in points] == [point.step for point in found.Scalars("eval/mean_jct")]
        assert [point.value for point in points] == pytest.approx([value] * len(points))
    rows = list(csv.DictReader((folder / "tensorboard/progress.csv").read_text().splitlines()))
    assert float(rows[0]["baselines/fifo_backfill"]) == baselines["fifo_backfill"]
    assert "debug=tiny_training" in text(found, "run")
    begun = found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = plugin_data_pb2.HParamsPluginData.FromString(begun).session_start_info.hparams
    assert settings["cluster.num_servers"].number_value == 4
    assert set(settings) == {"debug", "agent.num_envs", "cluster.num_servers"}
    assert "| fifo_backfill |" in text(found, "result")
    assert set(found.Tags()["images"]) == {"plots/learning_curves"}
    assert (folder / "learning_curves.png").is_file()
    command("train", "resume=runs/mine", "total_decisions=2500", "plots=false")
    assert len(events(folder / "tensorboard").Tags()["images"]) == 1  # of before


def test_plain_stable_baselines_logs_what_ringyard_train_logs(command, tmp_path):
    """The same baselines on the same workloads; an evaluation at the start, and each `every` decisions."""
    env = gymnasium.make("ringyard/Elastic-Weights-v0", num_workloads=2)
    model = PPO("MlpPolicy", env, n_steps=64, device="cpu", tensorboard_log=str(tmp_path / "sb3"))
    model.learn(4000, JctCallback(every=2000, workloads=2), tb_log_name="mine")
    found = events(tmp_path / "sb3/mine_1")
    assert next(one.step for one in found.Scalars("eval/mean_jct")) == 0
    assert len(found.Scalars("eval/mean_jct")) == 3
    for name in ("jct", "slowdown", "preemptions"):
        assert all(one.value > 0 for one in found.Scalars(f"rollout/episode_{name}"))
    words = ("experiment=elastic", "form=weights", "agent=ppo_weights", "agent.num_envs=1")
    words += ("agent.model.batch_size=128", "name=ours")
    command("train", *words, "total_decisions=1", "evaluate.workloads=2", "plots=false")
    ours = events(tmp_path / "runs/ours/tensorboard")
    for name in ("fifo_backfill", "sjf@consolidate"):
        [first, *_], [again, *_] = (one.Scalars(f"baselines/{name}") for one in (found, ours))
        assert first.value == again.value


def test_the_callback_plays_masked_models_and_refuses_other_environments(tmp_path):
    env = gymnasium.make("ringyard/Contention-Queue-v0", num_workloads=2)
    callback = JctCallback(workloads=2, schedulers=["srsf"])
    folder = str(tmp_path / "sb3")
    model = MaskablePPO("MultiInputPolicy", env, n_steps=32, device="cpu", tensorboard_log=folder)
    model.learn(32, callback)
    model.learn(32, callback)  # evaluates at the start again
    runs = [*(tmp_path / "sb3").iterdir()]
    assert len(runs) == 2
    for run in runs:
        points = events(run).Scalars("eval/mean_jct")
        assert [one.step for one in points] == [0, 32]
        assert points[0].value > 0
    with pytest.raises(ConfigurationError, match="not made by its id; expected one such as"):
        PPO("MultiInputPolicy", ClusterEnv(experiment("sharing")), n_steps=64).learn(64, JctCallback())
    with pytest.raises(ConfigurationError, match="not made by its id; expected one such as"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=64).learn(64, JctCallback())
    with pytest.raises(ConfigurationError, match="schedulers is 'srsf'; expected a list"):
        JctCallback(schedulers="srsf")


def test_a_model_that_learns_from_normalised_observations_is_evaluated_on_them():
    envs = make_vec_env("ringyard/Contention-Weights-v0", 1)
    model = PPO("MlpPolicy", VecNormalize(envs), n_steps=64, device="cpu")
    seen = []
    model.predict = lambda observation, **options: (seen.append(observation), model.action_space.sample())
    model.get_vec_normalize_env().obs_rms.mean += 100.0
    ModelPolicy(model, flat=True, scores=True).act(
        np.zeros((1, *model.observation_space.shape)), np.ones((1, 6))
    )
    assert np.all(seen[0] < -5)
