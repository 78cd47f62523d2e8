"""What words of a command line do: one line for what is wrong, folders of one's own."""

import shlex

import pytest
from hydra.core.global_hydra import GlobalHydra

from conftest import composed, names
from ringyard_agents.cli import main
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS
from ringyard_agents.config.schema import check_groups

#: {words: what the one line on standard error has to say}
WRONG = {
    "train seed=abc": "seed is 'abc'; expected a whole number",
    "train evaluate.every=ten": "evaluate.every is 'ten'; expected a number",
    "train agent=maskable_mlp agent.model.n_steps=2.5": "agent.model.n_steps is 2.5; expected a whole number",
    "train agent=maskable_mlp agent.model.learning_rate=abc": "agent.model.learning_rate is 'abc'; expected",
    "train agent=maskable_mlp agent.model.gama=1": "no gama in agent.model; expected gamma\n",
    "train agent=maskable_mlp +agent.model.nope=1": "sb3_contrib.MaskablePPO takes no nope; expected",
    "train agent.group_size=1.5": "agent.group_size is 1.5; expected a whole number",
    "train +reward.weight=2": "reward.weight is 2, but ringyard.mdp.rewards.job_completion_time takes",
    "train ~agent.learning_rate +agent.learn_rate=1": "expected learning_rate\n",
    "compare seeds=2.5": "seeds is 2.5; expected a whole number",
    "compare plots=maybe": "plots is 'maybe'; expected true or false",
    "compare +scheduler.power=2": 'since it runs several schedulers; expected "schedulers=[fifo, {mine:',
    "compare scheduler=sjf": "this command has no scheduler=, since it runs several",
    "compare placement=pack": "this command has no placement=, since it runs several",
    "compare scheduler.power=2": "this command has no scheduler=, since it runs several",
    "compare seed": "'seed' is not SETTING=VALUE",
    "tune +placement=pack": "schedulers=[fifo@pack, sjf@pack]",
    "simulate scheduler=fifo_backfill scheduler.power=2": "there is no power in scheduler; expected",
    "simulate nope=1": "; +nope=... adds it\n",
    "train experiment=sharing form=weights agent=ppo_weights agent.learing_rate=1": "; expected agent.model."
    "learning_rate\n",
    "train experiment=ringyard/Sharing-Weights-v0": "is an id for gymnasium.make; expected an experiment",
    "simulate path=x": "path: there is no path; expected workload=csv workload.path=\n",
    "train demotion=x": "demotion: there is no demotion; expected one of name, seed, ",
    "simulate cluster=5": "expected a name that --help GROUP lists",
    "simulate reward=jtc": "reward is 'jtc'; expected jct; see --help reward\n",
    "simulate cluster.num_server=4": "there is no num_server in cluster; expected num_servers\n",
    "simulate +cluster.nope=1": "ringyard.Cluster.homogeneous takes no nope; expected one of num_servers",
    "simulate ~cluster.num_servers": "cluster.num_servers is missing; give +cluster.num_servers=",
    "simulate cluster._target_=ringyard.Nope": "ringyard.Nope', which cannot be found",
    "simulate cluster._target_=nope.Nope": "nope.Nope', which cannot be found",
    "simulate +workload.models.nope=1": "workload.models.nope is 1",
    "simulate performance.alpha=abc": "performance.alpha is 'abc'",
    "simulate scheduler=tiresias scheduler.demotion=nope": "demotion is 'nope'",
    "simulate restart=constant restart.seconds=abc": "restart.seconds is 'abc'",
    "simulate scheduler=random scheduler.placement=5": "scheduler.placement is 5; expected a PlacementRule",
    "simulate scheduler.reserve_unplaced=maybe": ".reserve_unplaced is 'maybe'; expected true or false",
    "judge mine.py --seconds=-1": "--seconds is -1",
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_one_line_before_anything_runs(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    GlobalHydra.instance().clear()
    assert main(shlex.split(words)) == 2
    out, error = capsys.readouterr()
    assert WRONG[words] in error
    assert len(error.splitlines()) == 1
    assert out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "group", [*ENVIRONMENT_GROUPS, "action", "observation", "reward", "scheduler", "placement", "agent"]
)
def test_what_ships_calls_what_there_is(group):
    for name in names(group):
        command = "train" if group == "agent" else "simulate"
        check_groups(command, composed(command, f"{group}={name}"))


MINE = "_target_: ringyard_baselines.classic.start_only.sjf\nplacement: ${placement}\n"
TINY = [
    "workload.num_jobs=8",
    "cluster.num_servers=2",
    "seeds=2",
    "plots=false",
    "tensorboard=false",
    "workers=1",
]


@pytest.mark.parametrize("way", ["config-dir", "word", "file word", "yaml"])
def test_every_way_to_name_a_folder_of_ones_own_finds_the_same(way, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RINGYARD_CONF", "")
    GlobalHydra.instance().clear()
    (tmp_path / "own" / "scheduler").mkdir(parents=True)
    (tmp_path / "own" / "scheduler" / "mine.yaml").write_text(f"# Mine.\n{MINE}")
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / "my_compare.yaml").write_text(
        f"defaults: [compare, _self_]\nhydra: {{searchpath: ['file://{tmp_path}/own']}}\n"
    )
    words = {
        "config-dir": ["--config-dir", "own"],
        "word": ["hydra.searchpath=[own]"],
        "file word": [f"hydra.searchpath=[file://{tmp_path}/own]"],
        "yaml": ["--config-dir", "with", "--config-name", "my_compare"],
    }[way]
    assert main(["compare", *words, "schedulers=[fifo_backfill,mine@pack]", *TINY, "name=run"]) == 0, (
        capsys.readouterr()
    )
    assert "mine" in (tmp_path / "runs" / "run" / "table.csv").read_text()
