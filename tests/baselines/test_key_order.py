"""The order of keys: what a decision costs, counted in comparisons of keys."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from ringyard.compiled.functions import Kernel
from ringyard.state.records import JobStatus
from ringyard_baselines.policies import key_order
from ringyard_baselines.policies.priority_rule import KeyChanges


def comparisons(monkeypatch, key_changes, count):
    """Comparisons a job, if `count` jobs come at one instant and their keys are read in reverse."""
    compared = 0
    kernels = {name: one for name, one in vars(key_order).items() if isinstance(one, Kernel)}
    before = kernels["_before"].python

    def counted(*arguments):
        nonlocal compared
        compared += 1
        return before(*arguments)

    for name, one in kernels.items():
        monkeypatch.setattr(key_order, name, one.python)
    monkeypatch.setattr(key_order, "_before", counted)
    order = key_order.empty_order(np.ones(count, np.int32), key_changes)
    order = replace(order, counts=order.counts.view(np.recarray))
    cluster = SimpleNamespace(now=0.0, next_arrival=count, num_done=0, num_running=0)
    jobs = {(0, j): SimpleNamespace(row=j, status=JobStatus.WAITING) for j in range(count)}
    state = SimpleNamespace(clusters=[cluster], jobs=jobs)
    signs = [1.0, -1.0, 1.0, 1.0]
    priority = SimpleNamespace(
        key=lambda job, now, signs: job.row * signs[int(now)], key_changes=key_changes, parameters=signs
    )
    key_order._track_events(state, 0, order)
    for cluster.now in range(len(signs)):
        key_order._read_changed_keys(state, 0, order, priority)
    assert order.keys[count - 1] == count - 1
    assert order.length[0] == count
    monkeypatch.undo()
    return compared / count


@pytest.mark.parametrize("key_changes", KeyChanges)
def test_comparisons_of_a_job_grow_with_the_logarithm_of_the_jobs(monkeypatch, key_changes):
    """Keys that changed together were inserted one by one: n jobs took n x n comparisons."""
    few, many = (comparisons(monkeypatch, key_changes, count) for count in (128, 1024))
    assert many / few < 2.0 * np.log(1024) / np.log(128)
