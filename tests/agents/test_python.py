"""What a program or a notebook does in a line: load an agent and act, measure schedulers, compare them."""

from dataclasses import replace

import gymnasium
import pytest
from hydra.utils import instantiate

import ringyard_agents
from conftest import composed
from ringyard import ClusterEnv
from ringyard.errors import CheckpointError, ConfigurationError, ObservabilityError
from ringyard.mdp.experiments import experiment
from ringyard.mdp.user_config import hydra_initialized
from ringyard.placement import consolidate
from ringyard.sim.placement_plan import PlacementPlan
from ringyard_agents.evaluation.compare import plan_comparisons
from ringyard_agents.evaluation.evaluate import run_task
from ringyard_agents.evaluation.selection import ComparisonRequest
from ringyard_agents.learning.agent_file import agent_parts, save_agent
from ringyard_agents.learning.learner import adapt_env_config, weights_with_spaces
from ringyard_agents.learning.vec_env import RingyardVecEnv

SMALL = ("workload.num_jobs=20",)


class InOrder:
    """FIFO, as one would write it in a notebook."""

    def decide(self, view):
        draft, started = PlacementPlan(view), []
        for job in view.waiting:
            allocation = draft.place(consolidate(), int(job))
            if allocation is None:
                break
            started.append(allocation)
        return started


def saved(folder, name, agent):
    """An agent of random weights, as training saves it, and the setting of its training."""
    config = composed("train", f"experiment={name}", f"agent={agent}")
    learner = instantiate(config.agent, _convert_="all")
    setting = adapt_env_config(learner, experiment(name))
    env = RingyardVecEnv(setting, 2)
    model = learner.model(env=env, seed=0, device="cpu")
    save_agent(weights_with_spaces(model.policy), agent_parts(config), folder / "agent.safetensors")
    return folder, setting


@pytest.mark.parametrize("agent", ["maskable_pointer", "maskable_mlp"])
def test_a_loaded_agent_acts_in_an_environment(agent, tmp_path):
    folder, setting = saved(tmp_path, "contention", agent)
    env = gymnasium.make("ringyard/Contention-v1", config=setting)
    loaded = ringyard_agents.load(folder, env)
    observation, info = env.reset(seed=0)
    for _ in range(30):
        action = loaded.act(observation, info["action_mask"])
        assert info["action_mask"][action] == 1
        observation, _, _, _, info = env.step(action)
    envs = gymnasium.make_vec("ringyard/Contention-v1", num_envs=3, config=setting)
    observations, infos = envs.reset(seed=0)
    actions = loaded.act(observations, infos["action_mask"])
    one, info = env.reset(seed=0)
    assert actions.shape == (3,)
    assert actions[0] == loaded.act(one, info["action_mask"])


def test_an_agent_that_ships_scores_jobs():
    setting = experiment("sharing", action="scores", observation="live_jobs")
    env = ClusterEnv(setting)
    agent = ringyard_agents.load("zoo:sharing", env)
    observation, info = env.reset(seed=0)
    for _ in range(5):
        scores = agent.act(observation, info["action_mask"])
        assert scores.shape == env.action_space.shape
        assert not scores[info["action_mask"] == 0].any()
        observation, _, _, _, info = env.step(scores)


def test_loading_says_what_differs(tmp_path):
    (tmp_path / "pointer").mkdir()
    (tmp_path / "rows").mkdir()
    pointer, setting = saved(tmp_path / "pointer", "contention", "maskable_pointer")
    rows, flat = saved(tmp_path / "rows", "contention", "maskable_mlp")
    scores = experiment("sharing", action="scores", observation="live_jobs")
    other = replace(setting, actions=replace(setting.actions, preemptive=not setting.actions.preemptive))
    larger = replace(flat, actions=replace(flat.actions, num_waiting=7))
    for checkpoint, world, said in (
        (pointer, flat, r"its observation: blocks \(flat=False\); the environment's: one row of numbers"),
        (rows, setting, r"its observation: one row of numbers \(flat=True\); the environment's: blocks"),
        (pointer, other, "its changes: .*; the environment's: preempt"),
        (pointer, experiment("sharing"), "its blocks: waiting, .*; the environment's: .*waiting_resources"),
        (rows, larger, r"its observation_space is Box\(.*expected the form"),
        (pointer, scores, r"its actions: discrete; the environment's: scores of jobs"),
        ("zoo:full", scores, "its scored GPU types: p100, t4, v100; the environment's: none"),
        ("zoo:sharing", ClusterEnv(setting), "its actions: scores of jobs .*; the environment's: discrete; "),
    ):
        with pytest.raises(CheckpointError, match=f"cannot act in this environment: .*{said}"):
            ringyard_agents.load(checkpoint, world)
    for nothing_of_ours in (gymnasium.make("CartPole-v1"), 5):
        with pytest.raises(ConfigurationError, match="expected an environment of Ringyard"):
            ringyard_agents.load("zoo:sharing", nothing_of_ours)


def test_evaluations_have_the_numbers_of_comparisons():
    frame = ringyard_agents.evaluate("sjf@consolidate", experiment="contention", seeds=3)
    config = composed("compare", "experiment=contention", "schedulers=[sjf@consolidate]", "seeds=3")
    with hydra_initialized():
        tasks = plan_comparisons(ComparisonRequest.read(config))[""].tasks
    assert frame["mean_jct"].tolist() == [run_task(task).metrics.mean_jct for task in tasks]
    assert frame["workload"].tolist() == [0, 1, 2]


def test_a_scheduler_is_an_object_that_decides():
    mine = ringyard_agents.evaluate(InOrder(), seeds=2, overrides=SMALL)
    fifo_backfill = ringyard_agents.evaluate("fifo_backfill@consolidate", seeds=2, overrides=SMALL)
    assert mine["scheduler"].unique().tolist() == ["InOrder"]
    assert mine["mean_jct"].tolist() == fifo_backfill["mean_jct"].tolist()
    table = ringyard_agents.compare([InOrder(), "sjf@consolidate"], seeds=2, overrides=SMALL)
    means = table.set_index("scheduler")["mean_jct"]
    assert means["InOrder"] == pytest.approx(mine["mean_jct"].mean())
    assert set(means.index) == {"InOrder", "sjf@consolidate"}
    assert table["reference"].tolist() == ["sjf@consolidate"] * 2


def test_a_scheduler_says_what_it_knows():
    class Curious(InOrder):
        def decide(self, view):
            return super().decide(view) if view.predicted_seconds.any() else []

    with pytest.raises(ObservabilityError, match="PREDICTIONS"):
        ringyard_agents.evaluate(Curious(), seeds=1, overrides=SMALL)


def test_agents_are_measured_like_schedulers():
    agent = ringyard_agents.load("zoo:sharing")
    frame = ringyard_agents.evaluate(agent, experiment="sharing", seeds=1)
    assert (
        frame["mean_jct"][0]
        == ringyard_agents.evaluate("zoo:sharing", experiment="sharing", seeds=1)["mean_jct"][0]
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scheduler": InOrder}, "expected a name such as"),
        ({"scheduler": "fifoo"}, "fifoo"),
        ({"scheduler": "fifo_backfill", "experiment": "sharin"}, "unknown experiment 'sharin'"),
        ({"scheduler": "fifo_backfill", "seeds": 0}, "seeds"),
        ({"scheduler": "fifo_backfill", "overrides": ["cluster.servers=3"]}, "overrides: .*servers"),
        ({"scheduler": "fifo_backfill", "overrides": ["seed=abc"]}, "seed is 'abc'; expected a whole number"),
        ({"scheduler": "fifo_backfill", "overrides": ["+cluster.servers=3"]}, "cluster.*servers"),
        (
            {"scheduler": "fifo_backfill", "overrides": ["seeds=3"]},
            "seeds=3 has no effect here; use the argument",
        ),
        (
            {"scheduler": "fifo_backfill", "overrides": ["workers=0"]},
            "workers=0 has no effect here",
        ),
        ({"scheduler": "fifo_backfill", "overrides": "seed=1"}, r"expected a list, such as \['seed=1'\]"),
    ],
)
def test_bad_input_is_a_sentence(given, said):
    with pytest.raises(ConfigurationError, match=said):
        ringyard_agents.evaluate(**given)


def test_comparisons_want_several_of_different_names():
    with pytest.raises(ConfigurationError, match="different names"):
        ringyard_agents.compare(["fifo_backfill", "fifo_backfill"])
    with pytest.raises(ConfigurationError, match=r"expected a list, such as \['fifo_backfill'\]"):
        ringyard_agents.compare("fifo_backfill")
    with pytest.raises(ConfigurationError, match=r"schedulers is None; expected a list, such as \['fifo'\]"):
        ringyard_agents.compare(None)
    with pytest.raises(ConfigurationError, match="reference is 'sjf'; expected fifo_backfill"):
        ringyard_agents.compare(["fifo_backfill"], seeds=1, overrides=SMALL, reference="sjf")
    with pytest.raises(AttributeError, match="no attribute 'evaluat'"):
        ringyard_agents.evaluat  # noqa: B018
