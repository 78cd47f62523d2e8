"""Networks over sets of jobs, and learners of scores."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from ringyard import Cluster, JobTable
from ringyard.allocator import Allocator
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.actions import Actions, Scores
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations import live_jobs, queue_and_cluster
from ringyard.profiles import model_id
from ringyard.restart import constant
from ringyard.workloads import Arrivals, LogNormalDurations, ModelMix, Sizes, Synthetic
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.evaluation import episode_metrics
from ringyard_agents.learning.evolution import EvolutionStrategies, PerturbedNetworks
from ringyard_agents.learning.group_relative import GroupRelative
from ringyard_agents.learning.job_policy import JobAttentionPolicy
from ringyard_agents.learning.score_networks import (
    PolicyInput,
    ScoreNetwork,
    ScorePolicy,
    read_observations,
    score_tensor,
)

NETWORKS = {context: partial(ScoreNetwork, context=context) for context in ("none", "mean", "attention")}


def random_workload():
    return Synthetic(
        num_jobs=12,
        sizes=Sizes({1: 3, 2: 2, 4: 1}),
        durations=LogNormalDurations(5.0, 1.5),
        arrivals=Arrivals(),
        models=ModelMix(),
        load=4.0,
    )


def features_of(world):
    batch = world.batch
    batch.reset(np.arange(1), np.arange(1))
    seen = read_observations(
        {name: rows[:1] for name, rows in batch.split(batch.observations).items()}, batch.masks[:1]
    )
    return seen.jobs.shape[2], seen.cluster.shape[1]


class Pairs:
    """A long and a short job at time 0, in either order: the short one first halves the mean JCT."""

    num_jobs = 2

    def sample(self, cluster, rng):
        return JobTable.from_columns([0.0, 0.0], [1, 1], rng.permutation([10.0, 100.0]))


def toy(**options):
    return EnvConfig(
        **{
            "cluster": Cluster((1,)),
            "workload": Pairs(),
            "observation": live_jobs(),
            "actions": Scores(num_jobs=4, allocator=Allocator(gamma=0.0)),
            "num_workloads": 8,
        }
        | options
    )


def random_network(kind, features=(5, 3)):
    """Whose last layer says something."""
    torch.manual_seed(1)
    network = NETWORKS[kind](*features)
    for own in network.parameters():
        torch.nn.init.normal_(own, std=0.5)
    return network


def random_seen(rng, counts, slots):
    present = np.arange(slots) < np.array(counts)[:, None]
    jobs = rng.standard_normal((len(counts), slots, 5), np.float32)
    return PolicyInput(jobs, present, rng.standard_normal((len(counts), 3), np.float32))


def matters(network, seen):
    """[clusters, slots] how much jobs matter to a network."""
    return score_tensor(network, seen)[..., 0].numpy()


@pytest.mark.parametrize("kind", NETWORKS)
def test_networks_score_any_number_of_jobs_in_any_order(kind):
    rng = np.random.default_rng(0)
    network = random_network(kind)
    seen = random_seen(rng, [4, 7, 1], 7)
    with torch.no_grad():
        scores = matters(network, seen)
        order = rng.permutation(7)
        moved = matters(network, PolicyInput(seen.jobs[:, order], seen.present[:, order], seen.cluster))
        alone = matters(network, PolicyInput(seen.jobs[:1, :4], seen.present[:1, :4], seen.cluster[:1]))
        fewer = seen.present.copy()
        fewer[1, 6] = False
        without = matters(network, seen._replace(present=fewer))
        assert score_tensor(NETWORKS[kind](5, 3), seen).abs().max() == 0  # untaught
    assert np.allclose(scores[:, order], moved, atol=1e-5)
    assert np.allclose(scores[0, :4], alone[0], atol=1e-5)  # absent jobs do not matter
    assert np.abs((scores * seen.present).sum(axis=1)).max() < 1e-5
    apart, apart_without = scores[1, :6] - scores[1, 0], without[1, :6] - without[1, 0]
    assert np.allclose(apart, apart_without, atol=1e-5) == (kind == "none")  # others do, in sets


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_population_scores_as_its_members_do(kind):
    rng = np.random.default_rng(0)
    network = random_network(kind)
    size = sum(one.numel() for one in network.parameters())
    changes = torch.as_tensor(rng.standard_normal((6, size), np.float32))
    seen, clusters = random_seen(rng, [4, 7, 1], 7), np.array([0, 3, 5])
    observations = {"jobs": seen.jobs.reshape(3, -1), "cluster": seen.cluster}
    scores = PerturbedNetworks(network, changes)(observations, seen.present, clusters)
    theta = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    for i, b in enumerate(clusters):
        one = NETWORKS[kind](5, 3)
        torch.nn.utils.vector_to_parameters(theta + changes[b], one.parameters())
        with torch.no_grad():
            alone = score_tensor(one, PolicyInput(*(part[i : i + 1] for part in seen)))[..., 0].clamp(-1, 1)
        assert np.allclose(scores[i, seen.present[i]], alone[0].numpy()[seen.present[i]], atol=1e-4)


class Scaled(ScoreNetwork):
    """A user's network, with a parameter that no layer has."""

    def __init__(self, *features, **options):
        super().__init__(*features, **options)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, *inputs):
        return self.scale * super().forward(*inputs)


def test_a_population_may_have_networks_of_its_own():
    rng = np.random.default_rng(0)
    seen, clusters = random_seen(rng, [4, 7], 7), np.arange(2)
    observations = {"jobs": seen.jobs.reshape(2, -1), "cluster": seen.cluster}
    own, plain = Scaled(5, 3), ScoreNetwork(5, 3)
    count = sum(one.numel() for one in plain.parameters())
    changes = torch.as_tensor(rng.standard_normal((2, count), np.float32))
    torch.nn.utils.vector_to_parameters(torch.zeros(count), plain.parameters())
    torch.nn.utils.vector_to_parameters(torch.cat((torch.ones(1), torch.zeros(count))), own.parameters())
    scaled = torch.cat((torch.tensor([[1.0], [0.0]]), changes), 1)
    scores = [
        PerturbedNetworks(*one)(observations, seen.present, clusters)
        for one in ((own, scaled), (plain, changes))
    ]
    assert np.allclose(scores[0][1], scores[1][1], atol=1e-6)
    assert np.allclose(scores[0][0], np.clip(2.0 * scores[1][0], -1.0, 1.0), atol=1e-2)


def learners():
    small = {"workloads_per_round": 2, "group_size": 4, "learning_rate": 0.1}
    return {
        "attention": EvolutionStrategies(network=NETWORKS["attention"], **small),
        "narrow": EvolutionStrategies(network=partial(ScoreNetwork, width=8), **small),
    }


@pytest.mark.parametrize("name", learners())
def test_learners_find_the_only_choice_that_matters(name):
    learner, world = learners()[name], toy()
    learner.setup({"one": world}, 0)
    batch = ClusterBatch(world, 8)
    before = np.mean([one.mean_jct for one in episode_metrics(learner.policy, batch)])
    learner.learn(1_000, lambda measured: None)
    after = np.mean([one.mean_jct for one in episode_metrics(learner.policy, batch)])
    assert before > after == pytest.approx(60.0)  # (10 + 110) / 2


def test_group_relative_learners_find_it_too():
    learner = GroupRelative(
        partial(JobAttentionPolicy, log_std_init=-1.0), num_envs=16, group_size=8, learning_rate=0.01
    )
    learner.setup({"one": toy()}, 0)
    learner.learn(2_000, lambda measured: None)
    found = [one.mean_jct for one in episode_metrics(learner.policy, ClusterBatch(toy(), 8))]
    assert np.mean(found) == pytest.approx(60.0)


@pytest.mark.parametrize("name", learners())
def test_what_is_learnt_in_several_worlds_is_saved_and_goes_on_bit_for_bit(tmp_path, name):
    worlds = {
        "slow": toy(num_workloads=3),
        "fast": toy(workload=random_workload(), cluster=Cluster.homogeneous(2, 4), restart=constant(5.0)),
    }
    rounds, again, other = [], learners()[name], learners()[name]

    def learn(learner):
        found = []
        learner.learn(300, lambda measured: found.append((learner.state().to_bytes(), dict(measured))))
        return found

    learner = learners()[name]
    learner.setup(worlds, 1)
    rounds = learn(learner)
    assert rounds[0][1] == {}
    assert {"rollout/slow/ep_rew_mean", "rollout/fast/ep_rew_mean", "train/learning_rate"} <= set(
        rounds[1][1]
    )
    assert learner.decisions >= 300
    assert len(rounds) >= 3
    for number in (0, 1):
        (tmp_path / "last").write_bytes(rounds[number][0])
        torch.rand(5), np.random.rand(5)  # another process draws other numbers
        again.setup(worlds, 1, Checkpoint.read(tmp_path / "last"))
        assert learn(again)[1:] == rounds[number + 1 :]
    learner.weights().write(tmp_path / "agent")
    loaded, large = (
        other.load(Checkpoint.read(tmp_path / "agent")),
        replace(worlds["fast"], actions=Scores(40)),
    )
    seen = ClusterBatch(large, 2)
    seen.reset(np.arange(2), np.arange(2))
    scores = loaded.act(seen.split(seen.observations), seen.masks)  # of any number of jobs
    assert np.array_equal(scores, learner.policy.act(seen.split(seen.observations), seen.masks))
    assert scores.dtype == np.float32
    assert not scores[~seen.masks].any()


def test_what_learners_of_scores_cannot_learn_in_is_refused():
    wrong = toy(observation=queue_and_cluster(), actions=Actions())
    with pytest.raises(ConfigurationError, match=r"here: .* needs action=scores"):
        EvolutionStrategies(network=ScoreNetwork).setup({"here": wrong}, 0)
    for bad in (
        {"group_size": 3},
        {"group_size": 1},
        {"noise_std": 0.0},
        {"ema_decay": 1.0},
        {"workloads_per_round": 0},
    ):
        (name,) = bad
        with pytest.raises(ConfigurationError, match=rf"agent\.{name} is .*; expected "):
            EvolutionStrategies(network=ScoreNetwork, **bad)
    with pytest.raises(ConfigurationError, match=r"agent\.network\.context is 'max'; expected"):
        EvolutionStrategies(network=partial(ScoreNetwork, context="max")).setup({"here": toy()}, 0)
    seen = {"jobs": np.zeros((1, 8), np.float32), "cluster": np.zeros((1, 3), np.float32)}
    with pytest.raises(CheckpointError, match="reads 5 features of a job and 3 of the cluster, got 2 and 3"):
        ScorePolicy(ScoreNetwork(5, 3)).act(seen, np.ones((1, 4), np.bool_))


def two_types(**options):
    """Two GPUs, of which the second is the faster; both jobs end sooner if the long one goes there."""
    cluster = Cluster.of_groups(
        [{"num_servers": 1, "gpus_per_server": 1, "gpu_type": kind} for kind in ("p100", "v100")]
    )
    return toy(cluster=cluster, workload=Modelled(), **options)


class Modelled(Pairs):
    """Both train a model that was measured on both types."""

    def sample(self, cluster, rng):
        return super().sample(cluster, rng).with_models(np.full(2, model_id("resnet50_imagenet")))


def test_evolution_learns_scores_for_gpu_types(tmp_path):
    scores = Scores(num_jobs=4, allocator=Allocator(gamma=0.0), type_scores=("p100", "v100"))
    world = two_types(actions=scores)
    learner = EvolutionStrategies(
        network=ScoreNetwork, workloads_per_round=2, group_size=8, learning_rate=0.1
    )
    learner.setup({"": world}, 0)
    batch = ClusterBatch(world, 8)

    def mean_jct():
        return np.mean([one.mean_jct for one in episode_metrics(learner.policy, batch)])

    before = mean_jct()
    learner.learn(3000, lambda measured: None)
    assert mean_jct() < before
    learner.weights().write(tmp_path / "agent")
    loaded = EvolutionStrategies(network=ScoreNetwork).load(Checkpoint.read(tmp_path / "agent"))
    batch.reset(np.arange(8), np.arange(8))
    seen = batch.split(batch.observations), batch.masks
    assert np.array_equal(loaded.act(*seen), learner.policy.act(*seen))
    assert loaded.act(*seen).reshape(8, 3, 4)[:, 1:, :2].any()
