"""The allocator as a scheduler: what it must not know does not leak into what it decides."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.restart import constant
from ringyard_baselines.policies.allocating import allocator

BATCHES, SIZE = 5, 8


def decided(jobs, per_gpu):
    """All that is decided while jobs come; nothing ends before."""
    cluster = replace(Cluster.homogeneous(3, 4), jobs_per_gpu=per_gpu)
    sim = Simulator(cluster, jobs, ideal(), constant(1.0))
    scheduler = allocator(gamma=1.0, unknown_seconds=1.0, estimate="attained")
    scheduler.reset(cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    answers = []
    while sim.now <= 10.0 * (BATCHES - 1):
        answers.append((sim.now, list(scheduler.decide(sim.view(scheduler.observability)))))
        sim.apply(answers[-1][1])
        sim.advance()
    return answers


@pytest.mark.parametrize("per_gpu", [1, 2])
def test_jobs_that_look_alike_are_not_told_apart_by_when_they_will_end(per_gpu):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        submitted = np.repeat(10.0 * np.arange(BATCHES), SIZE)
        gpus = rng.integers(1, 5, len(submitted))
        first, second = (
            decided(JobTable.from_columns(submitted, gpus, rng.uniform(500.0, 5000.0, len(gpus))), per_gpu)
            for _ in range(2)
        )
        assert first == second
        assert len(first) >= BATCHES
