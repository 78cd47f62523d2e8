"""Score networks that begin as the allocator with other options."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from test_score_learners import random_workload

from ringyard import Cluster
from ringyard.allocator import Allocator, Estimate, StartOnly, attained
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Scores
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations import live_jobs
from ringyard_agents.learning.evaluation import episode_metrics
from ringyard_agents.learning.evolution import EvolutionStrategies
from ringyard_agents.learning.imitation import ImitateAllocator
from ringyard_agents.learning.score_networks import ScoreNetwork

SETTING = EnvConfig(
    cluster=Cluster.homogeneous(2, 4),
    workload=replace(random_workload(), num_jobs=40, load=8.0),
    observation=live_jobs(),
    actions=Scores(num_jobs=40, allocator=Allocator(gamma=0.0)),
    num_workloads=16,
)
OTHERS = replace(SETTING, cluster=Cluster.homogeneous(1, 4))


class Nothing:
    """Every score is 0."""

    flat = False

    def act(self, observations, masks):
        return np.zeros(masks.shape, np.float32)


def mean_jct(setting, policy):
    return np.mean([one.mean_jct for one in episode_metrics(policy, ClusterBatch(setting, 16))])


def under(setting, **options):
    """Mean JCT of the allocator with other options."""
    allocator = replace(setting.actions.allocator, **options)
    return mean_jct(replace(setting, actions=replace(setting.actions, allocator=allocator)), Nothing())


def taught(worlds, options, **more):
    """What a learner begins with."""
    teacher = ImitateAllocator(options, **({"episodes": 16, "gradient_steps": 600} | more))
    learner = EvolutionStrategies(
        network=partial(ScoreNetwork, context="mean"), teacher=teacher, group_size=2
    )
    curves = []
    learner.setup(worlds, seed=3)
    learner.learn(0, curves.append)
    return learner, curves


def test_one_network_begins_as_another_allocator_in_each_world():
    options = {"own": {"gamma": 0.5}, "others": {"gamma": 1.0, "running_factor": 0.5}}
    learner, [measured] = taught({"own": SETTING, "others": OTHERS}, options)
    assert measured["imitation/decisions"] > 100
    assert measured["imitation/rmse"] < 0.05
    for label, setting in (("own", SETTING), ("others", OTHERS)):
        wanted, usual = under(setting, **options[label]), under(setting)
        assert abs(usual / wanted - 1) > 0.3
        assert abs(mean_jct(setting, learner.policy) / wanted - 1) < 0.02


def test_without_options_nothing_changes():
    learner, _ = taught({"own": SETTING}, {}, gradient_steps=2)
    assert mean_jct(SETTING, learner.policy) == under(SETTING)


def test_it_is_the_same_again_and_of_another_seed_another():
    weights = []
    for seed in (3, 3, 4):
        learner = EvolutionStrategies(
            network=ScoreNetwork,
            teacher=ImitateAllocator({"own": {"gamma": 2.0}}, 1, gradient_steps=3),
            group_size=2,
        )
        learner.setup({"own": SETTING}, seed)
        learner.learn(0, lambda measured: None)
        weights.append(torch.cat([one.detach().reshape(-1) for one in learner.policy.network.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_run_that_goes_on_does_not_begin_again():
    learner, _ = taught({"own": SETTING}, {"own": {"gamma": 2.0}}, gradient_steps=3)
    learner.learn(1, lambda measured: None)
    saved, curves = learner.state(), []
    learner.setup({"own": SETTING}, 3, saved)
    learner.learn(0, curves.append)
    assert curves == [{}]
    assert all(np.array_equal(array, saved.arrays[name]) for name, array in learner.state().arrays.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"others": {"gamma": 1.0}},
            r"agent\.teacher\.options has .*others.*expected environments of the run: own",
        ),
        (
            {"own": {"size_power": 0.5}},
            r"agent\.teacher\.options\.own is .*expected \{gamma: NUMBER, running_factor",
        ),
        ({"own": 2.0}, r"agent\.teacher\.options\['own'\] is 2\.0; expected"),
        ({"own": {"unknown_seconds": -1.0}}, r"unknown_seconds.* is -1\.0; expected"),
        ({"own": {"gamma": -1.0}}, r"gamma is -1\.0; expected"),
        ({"own": {"gamma": "much"}}, r"\['gamma'\] is 'much'; expected"),
    ],
)
def test_options_that_fit_no_world_are_named(options, message):
    with pytest.raises(ConfigurationError, match=message):
        taught({"own": SETTING}, options)


def test_seconds_of_unknown_run_times_are_taught():
    unknown = replace(
        SETTING,
        observation=live_jobs(predictions=False),
        actions=Scores(
            num_jobs=40, allocator=Allocator(gamma=1.0, running_factor=0.3, estimate=attained(10.0))
        ),
    )
    learner, _ = taught({"own": unknown}, {"own": {"unknown_seconds": 10000.0}})
    wanted, usual = under(unknown, estimate=attained(10000.0)), under(unknown)
    assert abs(usual / wanted - 1) > 0.05
    assert abs(mean_jct(unknown, learner.policy) - wanted) < 0.5 * abs(usual - wanted)


def test_estimates_without_unknown_run_times_are_named():
    told = Estimate(attained().seconds, "told", attained().observability)
    setting = replace(SETTING, actions=Scores(num_jobs=40, allocator=Allocator(estimate=told)))
    with pytest.raises(ConfigurationError, match=r"estimate is told.*expected one of predicted, attained"):
        taught({"own": setting}, {"own": {"unknown_seconds": 10.0}})


def test_types_of_gpus_are_not_scored():
    """They begin at 0; the rest is taught as without them."""
    typed = replace(SETTING, actions=replace(SETTING.actions, type_scores=("v100", "t4")))
    learner, _ = taught({"own": typed}, {"own": {"gamma": 1.0}})
    wanted, usual = under(SETTING, gamma=1.0), under(SETTING)
    assert abs(usual / wanted - 1) > 0.3
    assert abs(mean_jct(typed, learner.policy) / wanted - 1) < 0.02


def test_worlds_where_jobs_are_only_started_are_refused():
    """Low scores make jobs wait there, which no option of the allocator does."""
    starting = replace(SETTING, actions=Scores(num_jobs=40, allocator=Allocator(start_only=StartOnly())))
    with pytest.raises(
        ConfigurationError,
        match=r"environment own, where the allocator only starts jobs.*expected action=scores",
    ):
        taught({"own": starting}, {"own": {"gamma": 1.0}})
