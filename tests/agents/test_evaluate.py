"""Runs of several schedulers on several workloads."""

import pytest

from conftest import composed
from ringyard import Cluster, Simulator
from ringyard.errors import SchedulerError
from ringyard.performance import composite, pair_table, sensitivity_pressure
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import EvaluationTask, run_tasks, sharing_notes
from small_simulations import specs

GOOD = {
    "_target_": "ringyard_baselines.classic.start_only.fifo_backfill",
    "placement": {"_target_": "ringyard.placement.pack"},
}
BAD = {
    "_target_": "ringyard_baselines.classic.start_only.fifo_backfill",
    "placement": {"_target_": "small_simulations.nowhere"},
}


def tasks():
    config = composed("compare", "workload.num_jobs=10", "workload.max_gpus=8")
    world = {name: to_plain(config[name]) for name in ENVIRONMENT_GROUPS}
    return [EvaluationTask(label, one, world, 0, 0) for label, one in (("bad", BAD), ("good", GOOD))]


def test_a_failure_names_its_run():
    with pytest.raises(SchedulerError, match=r"bad, workload 0: .*the placement rule finds no GPUs"):
        run_tasks(tasks(), 1, lambda result: None)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_costs_only_itself(workers):
    failed = []
    results = run_tasks(tasks(), workers, lambda result: None, lambda task, error: failed.append(task.label))
    assert [result.label for result in results] == ["good"]
    assert failed == ["bad"]


@pytest.mark.parametrize(
    ("kind", "noted"), [("v100", False), ("p100", False), ("rtx_3090", True), ("t4", True)]
)
def test_gpu_types_without_measured_sharing_are_named(kind, noted):
    performance = composite(1e9, 1e9, interference=sensitivity_pressure())
    jobs = specs((1, "resnet50_imagenet"))
    shared, alone = (
        Simulator(Cluster.homogeneous(1, 2, kind, jobs_per_gpu=k), jobs, performance) for k in (2, 1)
    )
    assert [f" {kind} as on v100" in note for note in sharing_notes(shared)] == [True] * noted
    assert sharing_notes(alone) == []
    pairs = pair_table({"resnet50_imagenet": {"resnet50_imagenet": 0.7}})
    paired = Simulator(
        Cluster.homogeneous(1, 2, kind, jobs_per_gpu=2), jobs, composite(1e9, 1e9, interference=pairs)
    )
    assert len(sharing_notes(paired)) == (kind != "v100")
