"""Ada-SRSF and its model of single transfers, worked out by hand and beside the public code."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.performance import composite
from ringyard.placement import lwf, pack, spread
from ringyard_baselines.classic.start_only import sjf
from ringyard_baselines.papers.ada_srsf.scheduler import AdaSrsf
from ringyard_baselines.papers.ada_srsf.transfers import JobMix, published_mix, simulate_transfers
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


def mix(*rows):
    model, workers, iterations, arrival = (np.array(column) for column in zip(*rows, strict=True))
    return JobMix(model, workers, iterations, arrival.astype(float))


def test_transfers_by_hand():
    # VGG-16: 36 + 54 ms computing; across servers + 526.4 MB x 0.856 ms each iteration
    assert simulate_transfers(mix((0, 4, 10, 0))).jct.tolist() == pytest.approx([900.0])
    alone = simulate_transfers(mix((0, 5, 10, 0)), num_servers=2)
    assert alone.jct.tolist() == pytest.approx([10 * (90 + 526.4 * 0.856)])
    # two rings on the same two servers, one transfer at a time: the second waits for the first
    pair = mix((0, 8, 1, 0), (0, 8, 1, 0))
    result = simulate_transfers(pair, num_servers=2, adaptive=False, max_transfers=1)
    one = 526.4 * 0.856
    assert sorted(result.jct.tolist()) == pytest.approx([90 + one, max(90 + one, 180) + one])


@pytest.mark.parametrize(
    ("model", "megabytes", "computing", "memory"),
    [
        (0, 526.4, 36 + 54, 4527.0),
        (1, 99.2, 25 + 37, 3213.0),
        (2, 103.0, 35 + 52, 3291.0),
        (3, 251.8, 32 + 47, 2751.0),
    ],
)
def test_models_of_the_public_code_send_compute_and_fill_the_memory(model, megabytes, computing, memory):
    """VGG-16, ResNet-50, Inception-v3, LSTM. Of two jobs on a GPU the shorter goes first if it holds both."""
    across = simulate_transfers(mix((model, 5, 10, 0)), num_servers=2)
    assert across.jct.tolist() == pytest.approx([10 * (computing + megabytes * 0.856)])
    pair = mix((model, 1, 100, 0), (model, 1, 10, 5 * computing))
    for room, expected in ((2 * memory, [110, 10]), (2 * memory - 1, [100, 105])):
        found = simulate_transfers(pair, num_servers=1, gpus_per_server=1, gpu_megabytes=room)
        assert found.jct.tolist() == pytest.approx([count * computing for count in expected])


def test_the_published_list_has_160_jobs_of_six_sizes():
    found = published_mix(np.random.default_rng(0))
    assert Counter(found.workers.tolist()) == {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
    assert set(found.model.tolist()) == {0, 1, 2, 3}
    assert (found.iterations.min(), found.iterations.max()) == (10, 60)
    assert 0.0 <= found.arrival[0] <= found.arrival[-1] <= 12_000.0
    assert (np.diff(found.arrival) >= 0.0).all()


def test_public_counting_error_makes_waiting_jobs_speed_up_transfers():
    # 100 MB or so: one asker doubles the rate of the transfer it waits for
    pair = mix((0, 8, 1, 0), (0, 8, 1, 0))
    honest = simulate_transfers(pair, num_servers=2)
    wrong = simulate_transfers(pair, num_servers=2, miscount=True)
    assert wrong.makespan < 0.85 * honest.makespan


def test_transfers_agree_with_runs_of_the_public_code():
    """Its own runs on 4 lists, mean JCT in ms; ours draw other lists from the same generator."""
    public = {
        (1, False, False): 18_610,
        (2, False, False): 19_452,
        (2, True, True): 11_728,
        (2, True, False): 18_321,
    }
    for (most, adaptive, miscount), reported in public.items():
        ours = [
            simulate_transfers(
                published_mix(np.random.default_rng(seed)), 1, most, adaptive, miscount
            ).jct.mean()
            for seed in range(8)
        ]
        assert np.mean(ours) == pytest.approx(reported, rel=0.3)


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


def test_transfers_are_placed_on_the_lightest_server():
    """Two jobs of two workers and two servers of two GPUs: each has its own server, and nothing to send."""
    pair = mix((0, 2, 10, 0), (0, 2, 10, 1))
    found = simulate_transfers(pair, num_servers=2, gpus_per_server=2)
    assert found.jct.tolist() == pytest.approx([900.0, 900.0])
