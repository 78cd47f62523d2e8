"""Runs of several schedulers on several workloads."""

import pytest

from conftest import composed
from ringyard.errors import SchedulerError
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import EvaluationTask, run_tasks

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
