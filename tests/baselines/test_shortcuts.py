"""Schedules found by short cuts are those found the long way."""

import numpy as np

from ringyard import Simulator
from ringyard.placement import consolidate, pack, share
from ringyard_baselines.papers import gavel
from ringyard_baselines.papers.gavel import Gavel, max_min_shares
from small_simulations import everything, random_jobs

RULES = (pack, consolidate, share)


def one_type(rng):
    """A random world with many jobs on GPUs of one type."""
    cluster, _, performance, failures = everything(rng)
    cluster = type(cluster).homogeneous(4, 4, jobs_per_gpu=int(rng.integers(1, 3)))
    return cluster, random_jobs(rng, 40, 8, 200.0), performance, failures


def played(make, worlds, first=0):
    """[worlds] all allocations of a scheduler."""
    schedules = []
    for seed in range(first, first + worlds):
        rng = np.random.default_rng(seed)
        cluster, jobs, performance, failures = (everything, one_type)[seed % 2](rng)
        scheduler = make(RULES[seed % 3]())
        sim = Simulator(cluster, jobs, performance, None, scheduler.round_seconds, failures=failures)
        scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), rng)
        allocations = []
        while not sim.done:
            allocations.append(list(scheduler.decide(sim.view(scheduler.observability))))
            sim.apply(allocations[-1])
            if not sim.done:
                sim.advance()
        schedules.append(allocations)
    return schedules


def test_gavel_knows_the_shares_of_one_type(monkeypatch):
    rng = np.random.default_rng(0)
    swift = []
    for _ in range(80):
        sizes = ([1, 2, 4, 8], [2, 3, 5, 8, 16], [3, 6, 7])[rng.integers(3)]
        scale = rng.choice(sizes, rng.integers(1, 160)).astype(float)
        throughput = rng.choice(rng.uniform(1e-3, 30, 5), (len(scale), 1))
        given = throughput, scale, rng.choice([16.0, 60.0, 100.0, 1200.0], 1)
        swift.append((given, max_min_shares(*given)))
    monkeypatch.setattr(gavel, "_one_type_shares", lambda *_: None)
    for given, shares in swift:
        assert np.array_equal(shares, max_min_shares(*given))


def test_gavel_skips_no_job_that_it_could_start(monkeypatch):
    def make(rule):
        return Gavel(rule, 20.0)

    swift = played(make, 12)
    monkeypatch.setattr(gavel, "_one_type_shares", lambda *_: None)
    monkeypatch.setattr(Gavel, "_is_pack", lambda *_: False)
    monkeypatch.setattr(Gavel, "_free_by_type", lambda *_: [10**6] * 9)
    assert swift == played(make, 12)
