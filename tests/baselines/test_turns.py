"""Schedules of the schedulers that let jobs take turns, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable
from ringyard.errors import ConfigurationError
from ringyard.performance import composite
from ringyard.placement import consolidate, pack
from ringyard.profiles import model_id
from ringyard_baselines.papers.aiturbo import AITurbo
from ringyard_baselines.papers.gandiva import Gandiva
from ringyard_baselines.papers.gavel import Gavel
from ringyard_baselines.papers.gittins import GittinsTiresias
from ringyard_baselines.papers.themis import Themis
from small_simulations import arrived, perfect, simulated, times_of


def times(scheduler, submit, gpus, durations, size=4):
    jobs = JobTable.from_columns(submit, gpus, durations)
    found = times_of(simulated(scheduler, Cluster.homogeneous(1, size), jobs))
    return found.start_seconds.tolist(), found.end_seconds.tolist()


def test_gandiva_slices_time():
    start, end = times(Gandiva(pack(), slice_seconds=10.0), [0, 0], [4, 4], [30.0, 30.0])
    assert start == [0, 10]
    assert end == [50, 60]


@pytest.mark.parametrize(
    ("servers", "sizes", "places", "moved"),
    [
        (3, [2, 3], [(0, 4), (1, 5, 8)], {1: 1}),  # one and two servers beyond what they need
        (5, [2, 10], [(0, 4), (1, 2, 3, 5, 6, 7, 8, 9, 10, 11)], {0: 1}),  # the larger needs 3 of 3
        (3, [2, 2], [(0, 1), (4, 5)], {}),
    ],
)
def test_gandiva_moves_the_most_scattered_job_to_fewer_servers(servers, sizes, places, moved):
    jobs = JobTable.from_columns([0, 0], sizes, [100.0, 100.0])
    sim = arrived(Cluster.homogeneous(servers, 4), jobs, perfect())
    sim.apply([Allocation(job, gpus) for job, gpus in enumerate(places)])
    for migrate in (True, False):
        scheduler = Gandiva(consolidate(), migrate=migrate)
        scheduler.reset(sim.cluster, jobs, np.random.default_rng(0))
        found = [one for one in scheduler.decide(sim.view()) if one.gpu_ids]
        held = {one.job: len(set(sim.cluster.server_of_gpu[list(one.gpu_ids)])) for one in found}
        assert held == (moved if migrate else {})
        assert scheduler.decide(sim.view()) == []  # only when a slice ends


def test_aiturbo_levels_matter_by_submission():
    # two unpredictable jobs: by score the one with less service runs, within a level the first one
    jobs = JobTable.from_columns([0, 0], [4, 4], [30.0, 30.0])
    jobs = replace(jobs, predictable_from=np.full(2, np.inf))
    for within, thresholds, second in (
        ("score", (30.0, 180.0), 10),
        ("submission", (30.0, 180.0), 30),
        ("submission", (3.0, 180.0), 10),
    ):
        scheduler = AITurbo(pack(), 10.0, thresholds, within)
        found = times_of(simulated(scheduler, Cluster.homogeneous(1, 4), jobs))
        assert found.start_seconds.tolist() == [0, second]
    with pytest.raises(ConfigurationError, match="'score' or 'submission'"):
        AITurbo(pack(), within_level="fifo")


def test_themis_leases_to_the_worst_off():
    # at 100 s: rho = (100 + 200) / (300 x 2) = 0.5 against (90 + 30) / (30 x 2) = 2
    start, end = times(Themis(pack(), lease_seconds=100.0), [0, 10], [4, 4], [300.0, 30.0])
    assert (start, end) == ([0, 100], [330, 130])


@pytest.mark.parametrize(
    ("submit", "durations", "starts"),
    [
        ([0, 0, 10, 20], [1000.0, 1000.0, 50.0, 100.0], [0, 0, 100, 150]),  # rho x 2: 1, 1, 2.8, 1.8
        ([0, 0, 10, 80], [1000.0, 1000.0, 100.0, 50.0], [0, 0, 100, 200]),  # 1, 1, 1.9, 1.4
    ],
)
def test_themis_offers_to_a_fifth_of_the_jobs_first_then_to_those_that_run(submit, durations, starts):
    """Of four jobs one is invited when the lease ends at 100 s, and a GPU is left for a running one."""
    assert times(Themis(pack(), lease_seconds=100.0), submit, [2] * 4, durations)[0] == starts


def test_gittins_prefers_who_may_end_soon():
    # of (1, 1, 100) GPU-quanta: fresh jobs first; the long one is stopped when its quantum is over
    start, end = times(GittinsTiresias(pack(), 10.0), [0, 1, 2], [1, 1, 1], [100.0, 10.0, 10.0], size=1)
    assert start == [0, 10, 20]
    assert end == [120, 20, 30]
    twice = times(GittinsTiresias(pack(), 20.0), [0, 1, 2], [2, 2, 2], [100.0, 10.0, 10.0], size=2)
    assert twice == (start, end)  # a quantum of 20 GPU seconds is over as soon


def test_gavel_gives_equal_time():
    start, end = times(Gavel(pack(), round_seconds=10.0), [0, 0], [4, 4], [30.0, 30.0])
    assert start == [0, 10]
    assert end == [50, 60]


def test_gavel_serves_gangs_larger_than_any_type():
    cluster = Cluster.of_groups(
        [{"num_servers": 1, "gpus_per_server": 2, "gpu_type": kind} for kind in ("k80", "v100")]
    )
    jobs = JobTable.from_columns([0, 0, 0], [3, 1, 1], [500.0, 3000.0, 3000.0])
    jobs = jobs.with_models(np.full(3, model_id("resnet50_imagenet")))
    assert simulated(Gavel(pack(), 100.0), cluster, jobs, composite(1e9, 40e9)).done


def test_gittins_looks_no_further_than_256_quanta():
    """Services of 400, 256 and 1 s: a fresh job has index 1/3, one that ran 255 s 1/2, a longer one 0."""
    start, end = times(GittinsTiresias(pack(), 1.0), [0, 399.5, 600], [1, 1, 1], [400.0, 1.0, 256.0], size=1)
    assert start == [0, 399.5, 600]
    assert end == [401, 400.5, 856]
