"""The agents that ship are what their recipes and their page say, and new ones are made by one command."""

import json
import os
import platform
import subprocess
import sys

import pytest
import yaml
from hydra import compose, initialize_config_dir

from conftest import ROOT, TRACES, shared
from ringyard.config_folder import config_folder
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard_agents import cli
from ringyard_agents.config.compose import SchedulerEntry, accepts_placement
from ringyard_agents.evaluation.evaluate import run_task
from ringyard_agents.evaluation.tuned_configs import read_tuned
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.learning.agent_file import agent_parts, read_agent
from ringyard_agents.shipped_agents import shipped_agents
from tools import agents
from tools.agents import _can_be_evaluated
from tools.zoo.evaluation import race_of, read_records
from tools.zoo.page import agents_page
from tools.zoo.recipes import read_recipes
from tools.zoo.training import hardware, is_trained

RECIPES = {recipe.name: recipe for recipe in read_recipes()}
RECORDS = read_records()


def hydra():
    return initialize_config_dir(str(config_folder()), version_base="1.3")


def go_where_traces_are(name, folder, monkeypatch):
    """Into a folder with the traces that a recipe needs."""
    monkeypatch.chdir(folder)
    for file in RECIPES[name].files:
        (folder / file).symlink_to(shared("data", "traces", TRACES[file], file))


@pytest.fixture
def composing():
    with hydra():
        yield


def test_every_agent_has_a_recipe_and_a_record():
    assert RECORDS
    assert RECORDS.keys() == RECIPES.keys() == shipped_agents().keys()
    for name in shipped_agents():
        assert load_agent(f"zoo:{name}").policy


@pytest.mark.filterwarnings("ignore::ringyard.errors.WorkloadWarning")
@pytest.mark.parametrize(
    ("name", "world"),
    [
        pytest.param(recipe.name, world, marks=pytest.mark.slow if i else ())
        for recipe in RECIPES.values()
        for i, world in enumerate(recipe.worlds)
    ],
)
def test_an_agent_is_as_good_as_its_record_says(name, world, composing, tmp_path, monkeypatch):
    go_where_traces_are(name, tmp_path, monkeypatch)
    recorded, label = RECORDS[name]["check"][world.label], f"zoo:{name}"
    tasks = race_of(world, {label: label}, len(recorded)).tasks
    found = [run_task(task).metrics.mean_jct for task in tasks if task.label == label]
    assert found == pytest.approx(recorded, rel=1e-6)
    assert len(found) >= 2


#: settings that came after the agents that ship were made, with values at which all is as it was
LATER = {"action": {"type_scores": [], "allocator": {"preemption_price": 0.0}}}


def completed(settings, later):
    """Settings, with those that they lack."""
    more = {name: completed(settings[name], one) for name, one in later.items() if isinstance(one, dict)}
    return later | settings | more


@pytest.mark.parametrize("name", RECORDS)
def test_an_agent_is_made_as_its_recipe_says(name, composing):
    config = compose("train", RECIPES[name].words(RECORDS[name]["training"]["shipped_seed"]))
    made = json.dumps(read_agent(shipped_agents()[name])[0])
    made = json.loads(made.replace('"quickstart"', '"helios_like"'))  # as the experiment was called then
    assert completed(made, LATER) == agent_parts(config)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.slow
def test_a_recipe_can_be_followed(name, composing):
    recipe = RECIPES[name]
    compose("train", recipe.words(0))
    for world in (*recipe.worlds, *recipe.elsewhere):
        compose("compare", list(world.overrides))
        named = [one for one in world.references if isinstance(one, str) and one != "all"]
        assert {one for one in named if accepts_placement(one)} <= read_tuned(world.best).keys()


@pytest.mark.filterwarnings("ignore::ringyard.errors.WorkloadWarning")
@pytest.mark.parametrize(
    ("name", "world"),
    [
        pytest.param(recipe.name, world, marks=pytest.mark.slow if i else ())
        for recipe in RECIPES.values()
        for i, world in enumerate(recipe.worlds)
    ],
)
@pytest.mark.slow
def test_whoever_an_agent_is_held_against_is_at_its_best(name, world, composing, tmp_path, monkeypatch):
    go_where_traces_are(name, tmp_path, monkeypatch)
    entries = race_of(world, {}, 2).entries.values()
    chosen = {
        SchedulerEntry.read(one).name for one in (*world.references, *world.rules) if not isinstance(one, str)
    }
    usual = {one.name for one in entries if accepts_placement(one.name)} - chosen
    assert usual <= read_tuned(world.best).keys()


def test_the_page_is_what_the_records_say():
    assert (ROOT / "docs" / "agents.md").read_text() == agents_page(RECORDS)


def test_an_agent_that_does_not_ship_is_named():
    with pytest.raises(CheckpointError, match=r"no agent 'zoo:nobody' in the zoo; expected one of zoo:"):
        load_agent("zoo:nobody")
    with pytest.raises(ConfigurationError, match="no agent 'nobody' in tools/conf/zoo; expected one of"):
        read_recipes("nobody")


TINY = ["cluster.num_servers=2", "workload.num_jobs=10", "workload.load=8"]
RECIPE = {
    "title": "a few jobs",
    "train": [
        *TINY, "num_workloads=4", "evaluate.workloads=3", "evaluate.every=200",
        "evaluate.schedulers=[allocator]", "action=scores", "observation=live_jobs", "agent=evolution",
        "agent.noise_std=0.5", "total_decisions=1500",
    ],
    "seeds": [0, 1],
    "best": "helios_like",
    "references": ["sjf"],
    "workloads": 4,
    "worlds": {"small": {"title": "two servers", "overrides": TINY}},
    "elsewhere": {
        "large": {"title": "three servers", "overrides": [*TINY, "cluster.num_servers=3"], "workloads": 2}
    },
}  # fmt: skip


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of one's own with a recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/zoo").mkdir(parents=True)
    (tmp_path / "mine/zoo/tiny.yaml").write_text(yaml.safe_dump(RECIPE))
    monkeypatch.setenv("RINGYARD_CONF", str(tmp_path / "mine"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where commands of other processes find tools
    return tmp_path


@pytest.mark.slow
def test_one_command_trains_goes_on_ships_judges_and_writes(own):
    [recipe] = read_recipes("tiny")
    assert cli.main(["train", *recipe.words(0), "total_decisions=1"]) == 0  # was stopped early
    with hydra():
        assert not is_trained(recipe, 0)
    command = [sys.executable, "-m", "tools.agents", "--only=tiny"]
    command += ["--workers=1", "--out=page/agents.md"]
    subprocess.run(command, check=True)
    assert len(json.loads((own / "runs/zoo_tiny_0/run.json").read_text())["resumed"]) == 1
    with hydra():
        assert all(is_trained(recipe, seed) for seed in (0, 1))
    record = json.loads((own / "mine/zoo/tiny.json").read_text())
    runs = record["training"]["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    shipped = min(runs, key=lambda run: run["best"])
    assert record["training"]["shipped_seed"] == shipped["seed"]
    assert shipped["best"] == min(value for _, value in shipped["curve"])
    assert (own / f"runs/zoo_tiny_{shipped['seed']}/agent.safetensors").read_bytes() == (
        recipe.weights.read_bytes()
    )
    [world], [elsewhere] = record["worlds"], record["elsewhere"]
    labels = [row["scheduler"] for row in world["rows"]]
    assert labels[:2] == ["zoo:tiny", f"seed {1 - shipped['seed']}"]
    assert set(labels[2:]) == {
        "sjf@consolidate",
        "allocator",
        "allocator_attained",
        "lower bound",
    }
    assert world["best"] in labels
    assert world["bound"] <= world["mean"]
    assert world["against_best"][0] == pytest.approx(world["mean"] / world["best_mean"] - 1)
    assert list(record["check"]) == [world["label"]]
    assert (len(record["check"][world["label"]]), elsewhere["workloads"]) == (4, 2)
    page = (own / "page/agents.md").read_text()
    assert "## zoo:tiny" in page
    assert (own / "page/images/agents_tiny.png").stat().st_size > 10_000
    before = recipe.record.read_text()
    subprocess.run([*command, "--skip-training"], check=True)  # every run was kept
    assert recipe.record.read_text() == before
    # a world that the recipe gets later is judged alone: what the record says of the others stays
    marked = json.loads(before)
    marked["worlds"][0]["mean"] = 12345.0
    recipe.record.write_text(json.dumps(marked))
    far = {"title": "farther", "overrides": [*RECIPE["elsewhere"]["large"]["overrides"], "workload.load=2.0"]}
    (own / "mine/zoo/tiny.yaml").write_text(
        yaml.safe_dump({**RECIPE, "elsewhere": {**RECIPE["elsewhere"], "far": {**far, "workloads": 2}}})
    )
    subprocess.run([*command, "--new-worlds"], check=True)
    after = json.loads(recipe.record.read_text())
    assert after["worlds"] == marked["worlds"]
    assert after["check"] == marked["check"]
    rows = {one["label"]: one for one in after["elsewhere"]}
    assert set(rows) == {"large", "far"}
    assert rows["large"] == elsewhere
    # another recipe does not take the old runs for its own
    other = {**RECIPE, "train": [*RECIPE["train"], "agent.workloads_per_round=3"]}
    (own / "mine/zoo/tiny.yaml").write_text(yaml.safe_dump(other))
    with hydra(), pytest.raises(ConfigurationError, match=r"agent\.workloads would be 3"):
        is_trained(read_recipes("tiny")[0], 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"references": None}, "references"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [3, 3]}, r"seeds is \[3, 3\]; expected different ones"),
        ({"learnt": 3}, "learnt, which is not known"),
        ({"worlds": {"large": {"title": "x", "overrides": []}}}, "worlds of one label"),
        ({"worlds": {"small": {"overrides": []}}}, "no title"),
    ],
)
def test_recipes_are_checked(own, change, said):
    (own / "mine/zoo/tiny.yaml").write_text(yaml.safe_dump(RECIPE | change))
    with pytest.raises(ConfigurationError, match=said):
        read_recipes("tiny")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"references": ["sjff"]}, "small: schedulers has 'sjff'; expected"),
        ({"references": ["all", "sjff"]}, "small: schedulers has 'sjff'; expected"),
        ({"references": ["allocator"]}, "small: references is ['allocator']; expected a published scheduler"),
        ({"best": "nowhere"}, "small: "),
        ({"rules": ["zoo:elastic"]}, "small: references and rules have zoo:elastic; expected schedulers"),
        ({"rules": [{"seed 1": {"scheduler": "sjf"}}]}, "small: references and rules have seed 1; expected"),
        ({"rules": [{"lower bound": {"scheduler": "sjf"}}]}, "small: references and rules have lower bound;"),
        ({"rules": ["srtf"]}, "small: rules has srtf@consolidate, which is published; expected it among"),
        ({"train": [*RECIPE["train"], "agent.sprd=3"]}, "train: Could not override 'agent.sprd'"),
        ({"train": [*RECIPE["train"], "agent=nobody"]}, "train: In 'train': Could not find 'agent/nobody'"),
        ({"train": [*RECIPE["train"], "environments=3"]}, "train: environments is 3; expected a list"),
        (
            {"elsewhere": {"far": {"title": "x", "overrides": ["cluster.servers=1"]}}},
            "far: Could not override",
        ),
    ],
)
def test_what_cannot_be_judged_is_not_trained(own, capsys, change, said):
    (own / "mine/zoo/tiny.yaml").write_text(yaml.safe_dump(RECIPE | change))
    assert agents.main(["--only=tiny", "--workers=1", "--out=page.md"]) == 2
    assert f"tools/conf/zoo: tiny: {said}" in capsys.readouterr().err
    assert not (own / "runs").exists()


def test_an_agent_whose_trace_is_not_there_is_left_out_unless_it_is_named(own, capsys):
    (own / "mine/zoo/tiny.yaml").write_text(yaml.safe_dump({**RECIPE, "files": {"mine.csv": "ask me"}}))
    assert agents.main(["--only=tiny", "--out=page.md"]) == 2
    said = "tiny needs files that are not in this folder: mine.csv (ask me)"
    assert said in capsys.readouterr().err
    shown = []
    [recipe] = read_recipes("tiny")
    assert not _can_be_evaluated(recipe, False, shown.append)
    assert shown == ["left out: tiny, which needs files that are not in this folder: mine.csv (ask me)"]
    (own / "mine.csv").touch()
    assert _can_be_evaluated(recipe, False, shown.append)
    assert _can_be_evaluated(recipe, True, shown.append)
    assert len(shown) == 1
    assert not (own / "runs").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"title": "t", "training": {}}'])
def test_a_damaged_record_is_met_before_anything_is_trained(own, capsys, content):
    (own / "mine/zoo/old.safetensors").write_bytes(shipped_agents()["elastic"].read_bytes())
    (own / "mine/zoo/old.json").write_text(content)
    assert agents.main(["--only=tiny", "--workers=1", "--out=page.md"]) == 2
    assert "mine/zoo/old.json is no record of `python -m tools.agents`" in capsys.readouterr().err
    assert not (own / "runs").exists()


def test_damaged_weights_are_met_before_anything_is_judged(own, capsys):
    (own / "mine/zoo/tiny.safetensors").write_bytes(b"nothing")
    (own / "mine/zoo/tiny.json").write_text(json.dumps(RECORDS["elastic"]))
    assert agents.main(["--only=tiny", "--skip-training", "--out=page.md"]) == 2
    assert "mine/zoo/tiny.safetensors" in capsys.readouterr().err
    assert not (own / "runs").exists()


def test_who_has_the_name_of_an_agent_that_ships_says_so_by_a_recipe(own):
    mine = own / "mine/zoo/elastic.safetensors"
    mine.write_bytes(shipped_agents()["sharing"].read_bytes())
    with pytest.raises(CheckpointError, match=r"elastic.safetensors has the name of a pretrained agent"):
        load_agent("zoo:elastic")
    (own / "mine/zoo/elastic.yaml").write_text(yaml.safe_dump(RECIPE))
    assert shipped_agents()["elastic"] == mine


def test_a_recipe_may_begin_with_an_agent(own):
    train = [*TINY, "num_workloads=2", "evaluate.workloads=2", "total_decisions=1"]
    recipe = RECIPE | {"train": ["experiment=helios_like", "init=zoo:elastic", *train]}
    (own / "mine/zoo/tiny.yaml").write_text(yaml.safe_dump(recipe))
    [recipe] = read_recipes("tiny")
    assert cli.main(["train", *recipe.words(0)]) == 0
    with hydra():
        assert is_trained(recipe, 0)


def test_a_recipe_that_is_no_yaml_is_named(own):
    (own / "mine/zoo/tiny.yaml").write_text("seeds: [0\n")
    with pytest.raises(ConfigurationError, match=r"tiny\.yaml is no yaml of a recipe"):
        read_recipes("tiny")


def test_hardware_is_named_wherever_it_runs(tmp_path, monkeypatch):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A Processor @ 2 GHz\n")
    cores = f"{len(os.sched_getaffinity(0))} cores"
    assert hardware(file) == f"A Processor @ 2 GHz, {cores}"
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert hardware(tmp_path / "none") == f"arm, {cores}"
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert hardware(tmp_path / "none") == f"{platform.machine()}, {os.cpu_count()} cores"
