"""Ada-SRSF and link shares, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.performance import composite
from ringyard.placement import lwf, pack, spread
from ringyard_baselines.classic.start_only import sjf
from ringyard_baselines.papers.ada_srsf.scheduler import AdaSrsf
from ringyard_baselines.papers.link_shares import LinkShares
from ringyard_baselines.scheduler import run
from small_simulations import random_jobs, simulated, specs, times_of


def test_ada_srsf_gates_rings_on_shared_links():
    cluster = Cluster.homogeneous(3, 2)
    jobs = JobTable.from_columns([0, 0], [3, 3], [100.0, 100.0])
    for share_of_bytes, starts in ((0.3, [0.0, 0.0]), (0.5, [0.0, 100.0])):
        table = replace(jobs, gradient_bytes=np.array([1e3, share_of_bytes * 1e3]))
        table = replace(table, duration_seconds=np.array([100.0, 100.5]))
        found = times_of(simulated(AdaSrsf(lwf(1)), cluster, table))
        assert found.start_seconds.tolist() == starts
    for most, starts in ((1, [0.0, 100.0]), (2, [0.0, 0.0])):
        found = times_of(simulated(AdaSrsf(lwf(1), False, most), cluster, jobs))
        assert found.start_seconds.tolist() == starts


def two_rings(contention="worst_link", models=("vgg16", "vgg16"), seconds=(400.0, 100.0), **parts):
    """Two gangs of two GPUs, which `spread` puts on the same two servers, and how long they take alone."""
    jobs = replace(specs(*[(2, model) for model in models]), duration_seconds=np.array(seconds))
    cluster = Cluster.homogeneous(2, 2)
    return Simulator(cluster, jobs, composite(1e9, 1e12, contention=contention, **parts), seed=0)


def shares(sim, **options):
    """The link shares of two rings after the first decision."""
    scheduler = LinkShares(spread(), **options)
    sim.advance()
    sim.apply(scheduler.decide(sim.view(scheduler.observability)))
    return sim.state.jobs["link_share"][0, :2].tolist()


def test_link_shares_follow_the_time_left_and_the_load():
    # 400 and 100 s left, the median between them is 1 / sqrt of both: rounded to powers of 2
    assert shares(two_rings()) == [0.5, 2.0]
    assert shares(two_rings(), time_power=0.0) == [1.0, 1.0]
    assert shares(two_rings(seconds=(1e5, 10.0)))[0] == 0.125
    assert shares(two_rings(seconds=(4.0, 0.1))) == [0.5, 2.0]  # as if a second were left
    heavy = two_rings(models=("vgg16", "resnet50"), seconds=(100.0, 100.0))
    first, second = shares(heavy, time_power=0.0, load_power=1.0)
    assert first > 1.0 > second


def test_another_share_draws_no_other_stragglers():
    sim = two_rings(straggler_cv=0.5)
    sim.advance()
    sim.apply([Allocation(0, (0, 2)), Allocation(1, (1, 3))])
    drawn = sim.state.jobs["straggler"][0, 0]
    for share in (4.0, 0.5, 2.0):
        sim.apply([Allocation(0, (0, 2), link_share=share)])
        assert sim.state.jobs["straggler"][0, 0] == drawn


def test_shares_by_time_left_end_the_short_ring_sooner_than_equal_division():
    ends = {}
    for power in (0.0, 1.0):
        sim = two_rings()
        run(sim, LinkShares(spread(), time_power=power), np.random.default_rng(0))
        ends[power] = sim.state.jobs["end_seconds"][0, :2]
    assert ends[1.0][1] < 0.8 * ends[0.0][1]
    assert ends[1.0].mean() < 0.95 * ends[0.0].mean()


@pytest.mark.parametrize("contention", ["worst_link", "max_min"])
def test_equal_division_is_shortest_job_first(contention):
    jobs = random_jobs(np.random.default_rng(3), 40, 6)
    found = []
    for scheduler in (LinkShares(pack(), time_power=0.0), sjf(pack()), LinkShares(pack())):
        sim = Simulator(Cluster.homogeneous(3, 4), jobs, composite(1e8, 1e12, contention=contention))
        run(sim, scheduler, np.random.default_rng(0))
        found.append(sim.state.jobs["end_seconds"][0, :40].tolist())
    assert found[0] == found[1] != found[2]


def test_a_ring_that_sends_next_to_nothing_counts_as_if_it_sent_a_byte_a_second():
    """1 and 4 bytes a second, 2.5 between them: rounded to powers of 2."""
    sim = two_rings(seconds=(100.0, 100.0))
    isolated = replace(sim.jobs, gradient_bytes=np.zeros(2))
    first = Simulator(sim.cluster, isolated, composite(1e9, 1e12), seed=0)
    first.advance()
    seconds = first.view().column("isolated_iteration_seconds")
    sent = replace(isolated, gradient_bytes=np.array([0.0, 4.0 * seconds[1]]))
    assert shares(
        Simulator(sim.cluster, sent, composite(1e9, 1e12), seed=0), time_power=0.0, load_power=1.0
    ) == [0.5, 2.0]


@pytest.mark.parametrize(("most", "gpus"), [(1, 1), (2, 3)])
def test_srsf_keeps_neither_jobs_on_one_server_nor_as_many_rings_as_may_share_a_link(most, gpus):
    """Beside a ring of 3 GPUs on servers of 2, whatever the jobs send."""
    jobs = replace(JobTable.from_columns([0, 0], [3, gpus], [100.0] * 2), gradient_bytes=np.full(2, 1e3))
    found = times_of(simulated(AdaSrsf(lwf(1), False, most), Cluster.homogeneous(3, 2), jobs))
    assert found.start_seconds.tolist() == [0.0, 0.0]
