"""Schedules found by short cuts are those found the long way."""

from dataclasses import replace

import numpy as np

from ringyard import Cluster, JobTable, Simulator
from ringyard.failures import no_failures
from ringyard.placement import consolidate, pack, share
from ringyard_baselines.papers import gavel
from ringyard_baselines.papers.gavel import Gavel, max_min_shares
from small_simulations import everything, random_jobs, simulated

RULES = (pack, consolidate, share)


def one_type(rng):
    """A random world with many jobs on GPUs of one type."""
    cluster, _, performance, failures = everything(rng)
    cluster = type(cluster).homogeneous(4, 4, jobs_per_gpu=int(rng.integers(1, 3)))
    return cluster, random_jobs(rng, 40, 8, 200.0), performance, failures


def one_type_with_cores(rng):
    """As `one_type`, where jobs also want cores, so that some servers with free GPUs have no room."""
    cluster, jobs, performance, _ = one_type(rng)
    cores = rng.integers(1, 9, len(jobs))
    cluster, jobs = replace(cluster, cores_per_server=(16,) * 4), replace(jobs, cores_per_worker=cores)
    return cluster, jobs, performance, no_failures()  # gangs on all servers would never end


WORLDS = (everything, one_type, one_type_with_cores, one_type)


def played(make, worlds, first=0):
    """[worlds] all allocations of a scheduler."""
    schedules = []
    for seed in range(first, first + worlds):
        rng = np.random.default_rng(seed)
        cluster, jobs, performance, failures = WORLDS[seed % 4](rng)
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
    monkeypatch.setattr(Gavel, "_free_by_type", lambda *_: [10**6] * 9)
    assert swift == played(make, 12)


def test_gavel_has_one_type_where_the_cluster_names_none(monkeypatch):
    given = []

    def shares(throughput, scale, gpus):
        given.append((throughput.shape[1], gpus.tolist()))
        return max_min_shares(throughput, scale, gpus)

    monkeypatch.setattr(gavel, "max_min_shares", shares)
    simulated(Gavel(pack()), Cluster.homogeneous(2, 4), JobTable.from_columns([0, 0], [1, 8], [10.0, 10.0]))
    assert set(map(str, given)) == {"(1, [8.0])"}
