"""The search of benchmarks/optimal_cloning.py finds optima."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from conftest import ROOT
from ringyard import Cluster, consolidate, experiment
from ringyard.mdp.actions import Actions
from ringyard.mdp.batch import ClusterBatch
from ringyard_agents.learning.cloning import QueueTeacher

sys.path.append(str(ROOT / "benchmarks"))
from optimal_cloning import optimum, play


def small(num_jobs, servers):
    base = experiment("quickstart")
    actions = Actions(templates=(consolidate(),), queue_order="duration", on_invalid="raise")
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


@pytest.mark.parametrize(("servers", "workloads"), [(1, range(5)), (2, range(2))])
def test_no_sequence_of_actions_is_better(servers, workloads):
    config, better = small(3, servers), 0
    sjf = QueueTeacher(config.actions, ["consolidate"])
    search, one = ClusterBatch(config, 256), ClusterBatch(config, 1)
    for workload in workloads:
        actions = optimum(search, workload, sjf.act)
        one.reset(np.zeros(1, np.int64), np.array([workload]))
        least = least_total_jct(one)
        assert play(search, workload, lambda *seen, left=actions: [left.pop(0)])[1] == pytest.approx(least)
        better += least < 0.999 * play(search, workload, sjf.act)[1]
    assert better > 0 or servers == 2


def test_searches_that_are_too_large_are_left_out():
    config = small(12, 1)
    sjf = QueueTeacher(config.actions, ["consolidate"])
    assert optimum(ClusterBatch(config, 16), 0, sjf.act) is None
