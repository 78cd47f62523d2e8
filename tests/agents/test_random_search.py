"""Random search for constant weights."""

import numpy as np
import pytest
from test_score_learners import Pairs

from ringyard import Cluster
from ringyard.allocator import Allocator
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Actions, Weights
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations import live_job_summary, queue_and_cluster
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.evaluation import episode_metrics
from ringyard_agents.learning.random_search import RandomSearch


def pairs(**options):
    """A long and a short job for one GPU, in either order."""
    actions = Weights(allocator=Allocator(gamma=0.0))
    parts = {"observation": live_job_summary(flat=True), "actions": actions} | options
    return EnvConfig(cluster=Cluster((1,)), workload=Pairs(), num_workloads=8, **parts)


def searched(decisions=2_000, saved=None, rounds=None):
    learner = RandomSearch(candidates=8, workloads_per_round=2)
    learner.setup({"one": pairs()}, 3, saved)
    learner.learn(decisions, lambda measured: rounds is not None and rounds.append(learner.state()))
    return learner


def test_weights_are_found_that_put_the_short_job_first(tmp_path):
    untrained = [one.mean_jct for one in episode_metrics(searched(0).policy, ClusterBatch(pairs(), 8))]
    assert np.mean(untrained) > 65.0
    learner = searched()
    found = [one.mean_jct for one in episode_metrics(learner.policy, ClusterBatch(pairs(), 8))]
    assert np.mean(found) == pytest.approx(60.0)  # (10 + 110) / 2
    learner.weights().write(tmp_path / "agent")
    loaded = RandomSearch().load(Checkpoint.read(tmp_path / "agent"))
    masks, shape = np.ones((5, 6), bool), (5, *loaded.network.observation_space.shape)
    one, other = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    assert loaded.act(one, masks).any()
    assert np.array_equal(loaded.act(one, masks), learner.policy.act(other, masks))  # whatever it sees


def test_a_search_goes_on_as_without_a_stop():
    rounds, rest = [], []
    searched(rounds=rounds)
    searched(saved=rounds[2], rounds=rest)
    assert len(rest) > 1
    biases = [state.arrays["network.action_net.bias"].tolist() for state in rounds]
    assert biases[-1] != biases[0]
    for wanted, found in zip(rounds[2:], rest, strict=True):
        assert found.to_bytes() == wanted.to_bytes()


def test_discrete_actions_have_no_constant_weights():
    with pytest.raises(ConfigurationError, match=r"expected continuous ones \(form=weights\)"):
        RandomSearch().setup({"one": pairs(observation=queue_and_cluster(flat=True), actions=Actions())}, 0)
