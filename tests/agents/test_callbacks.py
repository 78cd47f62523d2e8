"""Callbacks of the user's own are called by every learner, and may stop it."""

import json
import re
import sys
from types import SimpleNamespace

import pytest

from conftest import ROOT, names
from ringyard_agents import cli

TRAIN = ["train", "debug=tiny_training", "agent.num_envs=8", "name=run", "evaluate.every=300"]
MINE = "+callbacks.mine._target_=test_callbacks.Noting"


class Noting:
    """Notes what it is told; inherits nothing."""

    told = []

    def __init__(self, evaluations=99):
        self.left = evaluations
        self.told.clear()

    def on_training_start(self, run):
        assert run.learner.decisions == 0
        self.told.append(("start", run.folder.name))

    def on_evaluation(self, metrics):
        assert metrics["eval/mean_jct"] > 0
        self.left -= 1
        self.told.append(("evaluation", metrics["decisions"]))
        return self.left == 0

    def on_checkpoint(self, path):
        assert path.is_file()
        self.told.append(("checkpoint", path.name))

    def on_training_end(self):
        self.told.append(("end", None))


def decisions(folder):
    return json.loads((folder / "runs/run/training.json").read_text())["decisions"]


@pytest.mark.parametrize("agent", ["group_relative", "maskable_mlp"])
def test_a_callback_of_ones_own_is_told_of_a_training_and_stops_it(agent, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*TRAIN, f"agent={agent}", MINE, "+callbacks.mine.evaluations=2"]) == 0
    told = Noting.told
    assert told[0] == ("start", "run")
    assert told[-2:] == [("checkpoint", "last.safetensors"), ("end", None)]
    assert ("checkpoint", "agent.safetensors") in told
    evaluated = [count for what, count in told if what == "evaluation"]
    assert len(evaluated) == 2
    assert evaluated[1] == decisions(tmp_path) < 2000
    assert "stopped by the callback Noting" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+callbacks.mine._target_=builtins.dict"], "callbacks.mine is {}, which lacks on_training_start"),
        (["+callbacks.mine._target_=nowhere.Mine"], "nowhere"),
        ([MINE, "+callbacks.mine.evaluation=2"], "evaluation"),
        (["callbacks=none_such"], "none_such"),
        (["callbacks=stop_at_target", "callbacks.stop_at_target.target=-1"], "target is -1; expected"),
    ],
)
def test_a_wrong_callback_is_refused_before_the_training_starts(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*TRAIN, *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs/run/last.safetensors").exists()


def test_a_run_stops_at_a_target_and_goes_on_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "stop_at_target" in names("callbacks")
    assert cli.main([*TRAIN, "callbacks=stop_at_target", "callbacks.stop_at_target.target=1e9"]) == 0
    assert decisions(tmp_path) == 0  # any agent reaches it
    assert cli.main(["train", "resume=runs/run", "total_decisions=900", "callbacks=none"]) == 0
    assert decisions(tmp_path) >= 900


def test_the_callbacks_of_the_page_reach_weights_and_biases_and_mlflow(tmp_path, monkeypatch):
    """As docs/tracking.md has them, with stand-ins for the two libraries."""
    calls = []

    def library(*functions):
        return SimpleNamespace(
            **{name: lambda _name=name, **given: calls.append((_name, given)) for name in functions}
        )

    monkeypatch.setitem(sys.modules, "wandb", library("init", "finish"))
    mlflow = library("start_run", "end_run")
    mlflow.log_metrics = lambda values, step: calls.append(("log_metrics", {**values, "step": step}))
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    page = (ROOT / "docs" / "tracking.md").read_text()
    [code] = re.findall(r"```python title=tracking.py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "tracking.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = re.findall(r"\+callbacks\.\S+", page)
    assert len(settings) == 3
    assert cli.main([*TRAIN, "total_decisions=300", *settings]) == 0
    assert calls[0] == ("init", {"sync_tensorboard": True, "project": "ringyard"})
    assert calls[1] == ("start_run", {"run_name": "run"})
    assert {name for name, _ in calls[-2:]} == {"finish", "end_run"}
    logged = [given for name, given in calls if name == "log_metrics"]
    assert len(logged) >= 2
    assert all(given["eval/mean_jct"] > 0 and "baselines/sjf consolidate" in given for given in logged)
