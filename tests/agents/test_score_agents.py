"""Agents that score jobs: they play alike everywhere, learn, and are kept."""

import csv
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from stable_baselines3 import PPO
from test_cli import ringyard

from conftest import composed
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.allocator import Allocator, StartOnly, attained
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.actions import Actions, Scores
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations import live_jobs
from ringyard.observability import Observability
from ringyard.placement import least_fragmenting
from ringyard.restart import constant
from ringyard.state.random_numbers import derive_seed
from ringyard_agents.learning.agent import (
    AgentScheduler,
    _with_preemption_price,
    agent_capabilities,
    load_agent,
)
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.evaluation import episode_metrics
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.score_networks import ScoreNetwork, ScorePolicy
from ringyard_agents.learning.stable_baselines import StableBaselines
from ringyard_agents.predictors.hazard_file import allocator_hazard
from ringyard_baselines.policies.allocating import AllocatingScheduler
from ringyard_baselines.scheduler import Capabilities, run


class Weighing:
    """Scores are a fixed function of the jobs' features: it prefers jobs that run, and the odd ones."""

    flat = False

    def act(self, observations, masks):
        features = observations["jobs"].reshape(*masks.shape, -1)
        weights = np.random.default_rng(0).normal(size=features.shape[-1])
        return np.tanh(features @ weights).astype(np.float32)


STARTS = Allocator(start_only=StartOnly(least_fragmenting(), min_score=-0.5))


@pytest.mark.parametrize(("rounds", "allocator"), [(None, Allocator()), (200.0, Allocator()), (None, STARTS)])
@pytest.mark.parametrize("name", ["contention", "sharing", "cpu_gpu", "elastic", "full"])
def test_an_agent_decides_as_it_drives_and_as_it_learns(name, rounds, allocator):
    whole = experiment(name)
    jobs = whole.workload.sample(whole.cluster, np.random.default_rng(5)).rows(slice(0, 25))
    actions = Scores(num_jobs=10, allocator=allocator, round_seconds=rounds)
    world = replace(whole, actions=actions, observation=live_jobs(), num_workloads=1, workload=_Table(jobs))
    batch = ClusterBatch(world, 1)
    episode_metrics(Weighing(), batch)
    ends = [batch.state.jobs["end_seconds"][0, : len(jobs)].tolist()]
    for compiled in (True, False):
        scheduler = AgentScheduler(Weighing(), live_jobs(), actions)
        sim = Simulator(
            whole.cluster,
            jobs,
            whole.performance,
            whole.restart,
            scheduler.round_seconds,
            seed=derive_seed(world.workload_seed, 0),
            failures=whole.failures,
        )
        run(sim, scheduler, np.random.default_rng(0), compiled)
        ends.append(sim.state.jobs["end_seconds"][0, :-1].tolist())
    assert ends[0] == ends[1] == ends[2]


class Equal:
    """The same score for every job."""

    flat = False

    def act(self, observations, masks):
        return np.zeros(masks.shape, np.float32)


def test_an_agent_knows_the_past_of_tenants_as_the_allocator_does():
    """With equal scores it decides as `allocator_hazard` does, however it is run."""
    whole = replace(experiment("tenants"), cluster=Cluster.homogeneous(4, 4))
    jobs = whole.workload.sample(whole.cluster, np.random.default_rng(5)).rows(slice(0, 80))
    assert len(jobs.past.run_seconds) == 2000
    world = replace(whole, num_workloads=1, workload=_Table(jobs))
    batch = ClusterBatch(world, 1)
    episode_metrics(Equal(), batch)
    ends = [batch.state.jobs["end_seconds"][0, : len(jobs)].tolist()]
    agent = AgentScheduler(Equal(), whole.observation, whole.actions)
    for scheduler, compiled in ((agent, True), (agent, False), (allocator_hazard(), True)):
        sim = Simulator(whole.cluster, jobs, whole.performance, whole.restart)
        run(sim, scheduler, np.random.default_rng(0), compiled)
        ends.append(sim.state.jobs["end_seconds"][0, :-1].tolist())
    assert ends[0] == ends[1] == ends[2] == ends[3]
    sim = Simulator(whole.cluster, jobs, whole.performance, whole.restart)
    run(sim, AllocatingScheduler(Allocator(0.75, estimate=attained())), np.random.default_rng(0))
    assert sim.state.jobs["end_seconds"][0, :-1].tolist() != ends[0]


@pytest.mark.parametrize("rounds", [None, 200.0])
def test_an_agent_sees_what_the_allocator_estimates_however_it_is_run(rounds):
    world = replace(experiment("tenants"), cluster=Cluster.homogeneous(4, 4), num_workloads=1)
    jobs = world.workload.sample(world.cluster, np.random.default_rng(5)).rows(slice(0, 80))
    world = replace(world, workload=_Table(jobs), actions=replace(world.actions, round_seconds=rounds))
    batch = ClusterBatch(world, 1)
    episode_metrics(Weighing(), batch)
    for compiled in (True, False):
        agent = AgentScheduler(Weighing(), world.observation, world.actions)
        assert agent.observability & Observability.HISTORY
        sim = Simulator(world.cluster, jobs, world.performance, world.restart, agent.round_seconds)
        run(sim, agent, np.random.default_rng(0), compiled)
        ends = sim.state.jobs["end_seconds"][0, :-1].tolist()
        assert ends == batch.state.jobs["end_seconds"][0, : len(jobs)].tolist(), compiled


def test_a_network_scores_all_live_jobs_however_few_its_training_showed():
    torch.manual_seed(2)
    blocks = {block.name: len(block.features) for block in live_jobs().blocks}
    network = ScoreNetwork(blocks["jobs"], blocks["cluster"], context="mean")
    torch.nn.init.normal_(network.score[-1].weight)
    jobs = JobTable.from_columns(np.zeros(40), np.ones(40, int), np.linspace(100.0, 500.0, 40))
    ends = []
    for shown, compiled in ((3, True), (3, False), (40, True)):
        agent = AgentScheduler(ScorePolicy(network), live_jobs(), Scores(num_jobs=shown))
        sim = Simulator(Cluster.homogeneous(2, 4), jobs, ideal(), constant(30.0), seed=0)
        run(sim, agent, np.random.default_rng(0), compiled)
        ends.append(sim.state.jobs["end_seconds"][0, :-1].tolist())
        assert agent.actions.num_jobs == shown  # in an environment it answers as it learnt
    assert ends[0] == ends[1] == ends[2]


def test_an_agent_at_play_counts_stops_as_it_is_told():
    """Sharing with restarts of 5 minutes (`zoo:sharing` learnt with 30 s): fewer stops, sooner done."""
    whole = experiment("sharing")
    found = []
    for price in (None, 0.0, 1.0):
        agent = load_agent("zoo:sharing", preemption_price=price)
        jobs = whole.workload.sample(whole.cluster, np.random.default_rng(3))
        sim = Simulator(whole.cluster, jobs, whole.performance, constant(300.0), seed=0)
        run(sim, agent, np.random.default_rng(0))
        found.append((sim.metrics().mean_jct, int(sim.state.jobs["num_preemptions"][0, :-1].sum())))
    assert found[0] == found[1]
    assert found[2][0] < found[0][0]
    assert found[2][1] < found[0][1]


def test_a_price_of_stops_that_is_none_is_named():
    with pytest.raises(ConfigurationError, match=r"preemption_price is -1.*expected"):
        load_agent("zoo:sharing", preemption_price=-1.0)
    with pytest.raises(
        ConfigurationError, match=r"never preempts \(action=scores_start\); expected preemption_price: null"
    ):
        load_agent("zoo:starts", preemption_price=1.0)
    with pytest.raises(
        ConfigurationError, match="expected preemption_price: null, or an agent that scores jobs"
    ):
        _with_preemption_price(Actions(), 1.0, "mine")


class Typed:
    """Scores of all kinds, by the jobs' features."""

    flat = False

    def act(self, observations, masks):
        features = observations["jobs"].reshape(*masks.shape, -1)
        weights = np.random.default_rng(0).normal(size=(features.shape[-1], 3))
        scores = np.tanh(features @ weights) * masks[..., None]
        return scores.transpose(0, 2, 1).reshape(len(masks), -1).astype(np.float32)


class _Table:
    """Always the same jobs."""

    def __init__(self, jobs):
        self.jobs, self.num_jobs = jobs, len(jobs)

    def sample(self, cluster, rng):
        return self.jobs


class _Pairs:
    """A long and a short job at time 0, in either order."""

    num_jobs = 2

    def sample(self, cluster, rng):
        return JobTable.from_columns([0.0, 0.0], [1, 1], rng.permutation([10.0, 100.0]))


def ppo(**options):
    return StableBaselines(partial(PPO, "MlpPolicy", **options), True, 16)


def toy(learner):
    """One GPU; the allocator alone takes jobs as they come, so that the agent has to say which is short."""
    actions = Scores(num_jobs=2, allocator=Allocator(gamma=0.0))
    setting = EnvConfig(cluster=Cluster((1,)), workload=_Pairs(), observation=live_jobs(), actions=actions)
    return adapt_env_config(learner, replace(setting, num_workloads=16))


def mean_jct(policy, world):
    return np.mean([one.mean_jct for one in episode_metrics(policy, ClusterBatch(world, 16))])


def test_ppo_learns_who_matters_and_is_kept(tmp_path):
    learner = ppo(n_steps=32, batch_size=128, learning_rate=3e-3, gamma=1.0)
    world = toy(learner)
    learner.setup({"one": world}, 0)
    learner.learn(1, lambda measured: None)
    middle = learner.state()
    learner.learn(8_000, lambda measured: None)
    assert mean_jct(learner.policy, world) == pytest.approx(60.0)  # (10 + 110) / 2
    middle.write(tmp_path / "last")
    again = ppo(n_steps=32, batch_size=128, learning_rate=3e-3, gamma=1.0)
    again.setup({"one": world}, 0, Checkpoint.read(tmp_path / "last"))
    again.learn(8_000, lambda measured: None)
    wanted = learner.weights().arrays
    assert all(np.array_equal(array, wanted[name]) for name, array in again.weights().arrays.items())
    loaded = ppo().load(learner.weights())
    assert mean_jct(loaded, world) == pytest.approx(60.0)
    with pytest.raises(CheckpointError, match=r"not of the same training|rows of"):
        mean_jct(loaded, replace(world, actions=Scores(num_jobs=3)))


@pytest.mark.parametrize("name", ["group_relative", "maskable_mlp"])
def test_who_chooses_among_actions_cannot_score(name):
    learner = instantiate(composed("train", f"agent={name}").agent)
    with pytest.raises(ConfigurationError, match="agent=ppo_weights"):
        adapt_env_config(learner, experiment("sharing", action="scores", observation="live_jobs"))


def test_what_an_agent_knows_and_may_do_is_what_its_allocator_does():
    unknowing = Scores(allocator=Allocator(estimate=attained()))
    assert agent_capabilities(unknowing) == Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES
    agent = AgentScheduler(Weighing(), live_jobs(), unknowing)
    assert agent.observability == live_jobs().observability | unknowing.observability
    assert not unknowing.observability & (Observability.PREDICTIONS | Observability.DURATIONS)
    starting = Scores(allocator=Allocator(estimate=attained(), start_only=StartOnly()))
    assert agent_capabilities(starting) == Capabilities.START
    assert starting.observability == Observability.ATTAINED_SERVICE | Observability.SIZES


def test_train_and_compare_by_command(tmp_path):
    world = ["experiment=sharing", "action=scores", "observation=live_jobs", "action.num_jobs=16"]
    ringyard(
        tmp_path, "train", *world, "agent=ppo_mlp", "agent.num_envs=4", "agent.model.n_steps=64", "name=mine",
        "agent.model.batch_size=64", "total_decisions=512", "num_workloads=4", "evaluate.workloads=2",
        "evaluate.every=256", "workload.num_jobs=20",
    )  # fmt: skip
    folder = tmp_path / "runs" / "mine"
    assert json.loads((folder / "training.json").read_text())["decisions"] == 512
    assert isinstance(load_agent(str(folder)).actions, Scores)
    ringyard(
        tmp_path, "compare", *world[:1], "schedulers=[fifo_backfill,allocator,mine:runs/mine]", "seeds=2",
        "name=table", "workload.num_jobs=20", "plots=false", "tensorboard=false", "workers=1",
    )  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "runs" / "table" / "runs.csv").read_text().splitlines()))
    assert {row["scheduler"] for row in rows} == {"fifo_backfill", "allocator", "mine"}
    assert all(float(row["mean_jct"]) > 0 for row in rows)


def test_ppo_plays_scores_for_gpu_types():
    learner = ppo(n_steps=8, batch_size=64)
    world = toy(learner)
    world = replace(world, actions=replace(world.actions, type_scores=("v100", "t4")))
    learner.setup({"one": world}, 0)
    learner.learn(1, lambda measured: None)
    assert mean_jct(learner.policy, world) > 0
    assert learner.policy.network.action_space.shape == (6,)
