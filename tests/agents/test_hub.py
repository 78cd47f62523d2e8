"""Agents go to a model hub and come back, with a card that has measured numbers only."""

import contextlib
import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

from ringyard_agents.cli import main
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.shipped_agents import shipped_agents

AGENTS = shipped_agents()


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder: (its output, what it says on standard error)."""
    monkeypatch.chdir(tmp_path)

    def command(*words, code=0):
        GlobalHydra.instance().clear()
        capsys.readouterr()
        found = main(words)
        said = capsys.readouterr()
        assert found == code, said
        return said

    return command


def card_of(folder):
    """(front matter, text) of the card in a folder."""
    text = (folder / "README.md").read_text()
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


def metrics_of(header):
    """{environment: mean JCT} of a front matter."""
    [index] = header["model-index"]
    return {one["dataset"]["name"]: one["metrics"][0]["value"] for one in index["results"]}


@pytest.mark.parametrize("name", AGENTS)
def test_the_card_of_a_pretrained_agent_has_the_numbers_of_its_record(name, here, tmp_path):
    here("push", f"zoo:{name}", "./pushed")
    record = json.loads(AGENTS[name].with_suffix(".json").read_text())
    header, body = card_of(tmp_path / "pushed")
    assert header["library_name"] == "ringyard"
    environments = [*record["worlds"], *record["elsewhere"]]
    means = {f"{one['title']}, {one['workloads']} workloads": one["mean"] for one in environments}
    assert metrics_of(header) == means
    for one in environments:
        assert one["rows"][0]["mean JCT [95% CI] (s)"] in body
        assert one["rows"][0]["vs best published"] in body
    seed = record["training"]["shipped_seed"]
    assert f"seed={seed}\n" in body
    assert "SEED" not in body
    assert str(load_agent(f"zoo:{name}").observability) in body
    assert "None" not in body
    assert "'_target_'" not in body
    config = yaml.safe_load((tmp_path / "pushed" / "config.yaml").read_text())
    assert config["seed"] == seed
    assert (tmp_path / "pushed" / "agent.safetensors").read_bytes() == AGENTS[name].read_bytes()


def test_a_card_is_one_that_the_hub_reads(here, tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason='needs pip install "ringyard[hub]"')
    here("push", "zoo:sharing", "./sharing")
    data = hub.ModelCard.load(tmp_path / "sharing" / "README.md").data
    assert data.library_name == "ringyard"
    assert "EvolutionStrategies" in data.tags
    record = json.loads(AGENTS["sharing"].with_suffix(".json").read_text())
    first = data.eval_results[0]
    assert (first.metric_type, first.metric_value) == ("mean_jct", record["worlds"][0]["mean"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a short training run and a comparison with its agent."""
    home = tmp_path_factory.mktemp("hub")
    words = ["experiment=sharing", "action=scores", "observation=live_jobs", "agent=evolution"]
    few = ["workload.num_jobs=12", "seeds=2", "workers=1", "plots=false", "tensorboard=false"]
    with contextlib.chdir(home):
        GlobalHydra.instance().clear()
        assert not main(["train", *words, "debug=tiny_training", "total_decisions=500", "name=mine"])
        GlobalHydra.instance().clear()
        assert not main(["compare", words[0], "schedulers=[sjf,trained:runs/mine]", *few, "name=compared"])
    return home / "runs"


@pytest.fixture
def trained(runs, here, tmp_path):
    """The folder of a training run in the working folder, beside a comparison with its agent."""
    shutil.copytree(runs, tmp_path / "runs")
    return tmp_path / "runs" / "mine"


def test_a_run_is_pushed_loaded_and_compared(trained, here, tmp_path):
    here("push", "runs/mine", "me/mine", "--folder", "out", "--comparison", "runs/compared")
    header, body = card_of(tmp_path / "out")
    table = pd.read_csv(tmp_path / "runs" / "compared" / "table.csv").set_index("scheduler")
    assert metrics_of(header) == {"compared, 2 workloads": table.loc["trained", "mean_jct"]}
    assert "ringyard load me/mine --into runs/mine" in body
    assert "warning: 2 workloads" in body
    summary = json.loads((trained / "training.json").read_text())
    assert f"| agent | {summary['best']:,.6g} |" in body
    assert "| cluster.num_servers | 8 |" in body
    assert "| seed | 0 |" in body
    said = here("load", "./out", "--into", "runs/again").out
    assert "experiment=sharing" in said
    assert "mine:runs/again" in said
    again = tmp_path / "runs" / "again"
    assert (again / "agent.safetensors").read_bytes() == (trained / "agent.safetensors").read_bytes()
    words = ["workload.num_jobs=12", "seeds=2", "workers=1", "plots=false", "tensorboard=false"]
    here("compare", "experiment=sharing", "schedulers=[trained:runs/again]", *words, "name=other")
    other = pd.read_csv(tmp_path / "runs" / "other" / "table.csv").set_index("scheduler")
    assert other.loc["trained", "mean_jct"] == table.loc["trained", "mean_jct"]
    assert "again exists already" in here("load", "./out", "--into", "runs/again", code=2).err


def test_without_a_comparison_no_result_is_claimed(trained, here, tmp_path):
    here("push", "runs/mine", "./out")
    header, body = card_of(tmp_path / "out")
    assert "model-index" not in header
    assert "by which training chose the agent" in body


def test_a_comparison_must_have_the_agent_as_it_is_now(trained, here, tmp_path):
    table = tmp_path / "runs" / "compared" / "table.csv"
    assert (
        "comparison is 'runs/mine'"
        in here("push", "runs/mine", "./a", "--comparison", "runs/mine", code=2).err
    )
    assert "comparison is" in here("push", "zoo:joint", "./a", "--comparison", "runs/compared", code=2).err
    later = table.stat().st_mtime + 10
    os.utime(trained / "agent.safetensors", (later, later))
    said = here("push", "runs/mine", "./a", "--comparison", "runs/compared", code=2).err
    assert "after its training" in said
    assert not (tmp_path / "a").exists()


def test_a_run_folder_is_not_replaced(trained, here, tmp_path):
    before = (trained / "agent.safetensors").read_bytes()
    assert "is a run folder" in here("push", "zoo:sharing", "./runs/mine", code=2).err
    assert (trained / "agent.safetensors").read_bytes() == before


class Hub:
    """A model hub in a folder, with the methods of `huggingface_hub` that are used."""

    def __init__(self, folder):
        self.folder = folder

    def create_repo(self, repo, exist_ok):
        (self.folder / repo).mkdir(parents=True, exist_ok=exist_ok)
        return f"https://hub/{repo}"

    def upload_folder(self, repo_id, folder_path):
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)

    def snapshot_download(self, repo_id, revision, allow_patterns, local_dir):
        for name in allow_patterns:
            if (self.folder / repo_id / name).is_file():
                shutil.copy(self.folder / repo_id / name, local_dir)
        return local_dir


def test_a_repository_of_the_hub_is_written_and_read(here, tmp_path, monkeypatch):
    library = pytest.importorskip("huggingface_hub", reason='needs pip install "ringyard[hub]"')
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(library, "HfApi", lambda: hub)
    monkeypatch.setattr(library, "snapshot_download", hub.snapshot_download)
    assert "https://hub/me/sharing" in here("push", "zoo:sharing", "me/sharing").out
    (tmp_path / "hub" / "me" / "sharing" / "evil.pkl").write_bytes(pickle.dumps(1))
    here("load", "me/sharing")
    loaded = tmp_path / "runs" / "sharing"
    assert sorted(one.name for one in loaded.iterdir()) == [
        "README.md",
        "agent.safetensors",
        "config.yaml",
        "run.json",
    ]
    own, theirs = (load_agent(str(one)).policy.network for one in (loaded, "zoo:sharing"))
    for name, array in own.state_dict().items():
        assert np.array_equal(array, theirs.state_dict()[name])


def test_pickles_are_refused(here, tmp_path):
    (tmp_path / "theirs").mkdir()
    with zipfile.ZipFile(tmp_path / "theirs" / "model.zip", "w") as archive:
        archive.writestr("data", pickle.dumps(print))
    assert "reading one runs code" in here("load", "./theirs", code=2).err
    for words in (("push", "theirs/model.zip", "./x"), ("export", "theirs/model.zip", "x.onnx")):
        assert "holds pickles" in here(*words, code=2).err
    shutil.copy(tmp_path / "theirs" / "model.zip", tmp_path / "theirs" / "agent.safetensors")
    assert "not a usable checkpoint" in here("load", "./theirs", code=2).err
    assert not (tmp_path / "runs").exists()


def test_words_that_name_no_repository_are_refused(here):
    assert "REPO is 'mine'" in here("push", "zoo:sharing", "mine", code=2).err
    assert "REPO is 'a/b/c'" in here("load", "a/b/c", code=2).err
