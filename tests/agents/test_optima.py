"""Exact optima of small instances, and policies that are cloned from them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ringyard import Cluster, consolidate, experiment, pack
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Actions
from ringyard.mdp.batch import ClusterBatch
from ringyard_agents.learning.cloning import CloneOptima, QueueTeacher, find_optimum
from ringyard_agents.learning.episodes import EpisodeRunner
from ringyard_agents.learning.evaluation import episode_metrics
from ringyard_agents.learning.group_relative import GroupRelative
from ringyard_agents.learning.policies import PointerPolicy

CONSOLIDATE = (consolidate(),)
SJF = partial(QueueTeacher, templates=["consolidate"])


def small(num_jobs, servers, templates=CONSOLIDATE, **changes):
    base = experiment("helios_like")
    actions = Actions(templates=templates, queue_order="duration", on_invalid="raise", **changes)
    workload = replace(base.workload, num_jobs=num_jobs, load=10.0)
    cluster = Cluster.homogeneous(servers, 4)
    return replace(base, cluster=cluster, workload=workload, actions=actions, num_workloads=16)


def least_total_jct(batch):
    """Of every sequence of actions from here on, one after the other."""
    if batch.done[0]:
        return float(batch.state.clusters["total_jct"][0])
    found = []
    for action in np.flatnonzero(batch.masks[0]):
        copy = batch.fork()
        copy.step(np.array([action]))
        found.append(least_total_jct(copy))
    return min(found)


def total_jct(config, workload, actions):
    one = ClusterBatch(config, 1)
    one.reset(np.zeros(1, np.int64), np.array([workload]))
    for action in actions:
        one.step(np.array([action]))
    assert one.done[0]
    return float(one.state.clusters["total_jct"][0])


@pytest.mark.parametrize(("servers", "workloads"), [(1, range(5)), (2, range(2))])
def test_no_sequence_of_actions_is_better(servers, workloads):
    config, better = small(3, servers), 0
    search, one = EpisodeRunner(config, 256), ClusterBatch(config, 1)
    sjf = [metrics.mean_jct for metrics in episode_metrics(SJF(config.actions), ClusterBatch(config, 5))]
    for workload in workloads:
        actions = find_optimum(search, workload, SJF(config.actions))
        one.reset(np.zeros(1, np.int64), np.array([workload]))
        least = least_total_jct(one)
        assert total_jct(config, workload, actions) == pytest.approx(least)
        better += least < 0.999 * 3 * sjf[workload]
    assert better > 0 or servers == 2


def test_searches_that_are_too_large_are_left_out():
    config = small(12, 1)
    assert find_optimum(EpisodeRunner(config, 16), 0, SJF(config.actions)) == []


def test_a_search_places_by_the_teachers_template():
    one, two = small(4, 2), small(4, 2, (pack(), consolidate()))
    for workload in range(3):
        found = [find_optimum(EpisodeRunner(c, 1024), workload, SJF(c.actions)) for c in (one, two)]
        assert total_jct(one, workload, found[0]) == total_jct(two, workload, found[1])
        starts = [action for action in found[1] if action < two.actions.num_starts]
        assert {action % 2 for action in starts} == {1}


def test_a_clone_of_optima_holds_better_schedules_than_the_heuristic():
    """The recorded decisions are those of small clusters, and replay to the optima."""
    config, teacher = small(30, 4), CloneOptima(policy=SJF, num_jobs=4, num_workloads=12, max_states=512)
    observations, masks, actions = teacher.recorder(config).demonstrations()
    assert len(actions) == len(masks) == len(observations["cluster"])
    assert masks[np.arange(len(actions)), actions].all()
    heuristic = SJF(config.actions).act(observations, masks)
    assert 0.02 < np.mean(heuristic != actions) < 0.6


def test_an_agent_is_cloned_from_optima_alone():
    config = small(30, 4)
    teacher = CloneOptima(policy=SJF, num_jobs=4, num_workloads=40, max_states=512, gradient_steps=200)
    network = partial(PointerPolicy, width=32)
    learner, measured = GroupRelative(network, num_envs=8, group_size=4, teacher=teacher), {}
    learner.setup({"one": config}, 0)
    learner.learn(0, measured.update)
    assert learner.decisions == 0
    assert measured["imitation/decisions"] > 100
    assert measured["imitation/accuracy"] > 0.7


def test_optima_of_jobs_that_are_preempted_are_refused():
    with pytest.raises(ConfigurationError, match=r"agent.teacher searches optima.*action=start"):
        CloneOptima(policy=SJF).recorder(small(6, 2, preemptive=True))
