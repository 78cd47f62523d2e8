"""Schedules of the schedulers that share GPUs, worked out by hand."""

from dataclasses import replace
from zipfile import ZipFile

import numpy as np
import pytest

from conftest import composed, leaf
from ringyard import Cluster, JobTable, Simulator
from ringyard.errors import ConfigurationError
from ringyard.performance import composite, sensitivity_pressure
from ringyard.placement import consolidate, pack, share
from ringyard.profiles import model_id, profile
from ringyard.sim.allocation import Allocation
from ringyard_baselines.papers.burst_sharing import BurstSharing
from ringyard_baselines.papers.gandiva import Gandiva
from ringyard_baselines.papers.interference_aware import networks
from ringyard_baselines.papers.interference_aware.networks import (
    REFERENCES,
    InterferenceNetworks,
    job_profiles,
)
from ringyard_baselines.papers.interference_aware.scheduler import InterferenceAware, place_tasks
from ringyard_baselines.papers.sjf_bsbf import SjfBsbf
from small_simulations import arrived, simulated, times_of


def test_gandiva_packs_while_it_pays():
    models = [model_id("resnet50_imagenet"), model_id("a3c_pong")]
    jobs = JobTable.from_columns([0, 0], [1, 1], [1000.0, 1000.0]).with_models(np.array(models))
    cluster = Cluster.homogeneous(1, 1, gpu_type="v100", jobs_per_gpu=2)
    performance = composite(1e9, 40e9, interference=sensitivity_pressure())
    together = simulated(Gandiva(pack(), 50.0), cluster, jobs, performance)
    in_turn = simulated(Gandiva(pack(), 50.0, packing_threshold=2.0), cluster, jobs, performance)
    assert together.metrics().makespan < in_turn.metrics().makespan == pytest.approx(2000.0, rel=0.02)


def test_gandiva_packs_pairs_even_where_more_jobs_could_share():
    jobs = JobTable.from_columns(np.zeros(4), [1] * 4, [1000.0] * 4)
    jobs = jobs.with_models(np.full(4, model_id("a3c_pong")))
    cluster = Cluster.homogeneous(1, 2, gpu_type="v100", jobs_per_gpu=3)
    performance = composite(1e9, 40e9, interference=sensitivity_pressure())
    for seed in range(6):  # partners are drawn
        sim = Simulator(cluster, jobs, performance, round_seconds=50.0)
        scheduler = Gandiva(pack(), 50.0)
        scheduler.reset(cluster, jobs, np.random.default_rng(seed))
        while sim.now < 50.0:
            sim.advance()
            sim.apply(scheduler.decide(sim.view()))
        assert sorted(sim.view().gpus_of(job) for job in range(4)) == [(0,), (0,), (1,), (1,)]


def neighbours(*names, gpus=1, durations=None):
    count = len(names)
    jobs = JobTable.from_columns(np.zeros(count), [gpus] * count, durations or [1000.0] * count)
    jobs = jobs.with_models(np.array([model_id(name) for name in names]))
    cluster = Cluster.homogeneous(1, gpus, gpu_type="v100", jobs_per_gpu=2)
    return cluster, jobs, composite(1e9, 40e9, interference=sensitivity_pressure())


def excesses(cluster, jobs, performance, one=0, other=1):
    """Of two jobs beside one another, on the cluster's GPUs."""
    view = arrived(cluster, jobs, performance).view()
    own, beside = view.workers(one), view.workers(other)
    return view.interference(own, beside, 0).item(), view.interference(beside, own, 0).item()


PREEMPTIVE = ("srtf", "las", "tiresias", "gittins", "smallest_first", "themis", "synergy_tune", "drf")
SIZING = ("e_tiresias", "afs_l", "optimus", "gadget", "elastic_dp", "aiturbo", "pollux")


@pytest.mark.parametrize("name", PREEMPTIVE + SIZING)
def test_a_gpu_counts_for_every_job_that_the_rule_puts_on_it(name):
    world = neighbours("a3c_pong", "lstm_wikitext2")
    apart, together = (leaf("scheduler", name, f"placement={rule}") for rule in ("consolidate", "share"))
    assert sorted(times_of(simulated(together, *world)).start_seconds.tolist()) == [0.0, 0.0]
    assert max(times_of(simulated(apart, *world)).start_seconds) > 0.0


def test_sjf_bsbf_shares_only_where_the_pair_gains():
    mild = neighbours("a3c_pong", "lstm_wikitext2")
    harsh = neighbours("resnet50_imagenet", "resnet50_imagenet")
    assert max(excesses(*mild)) < 0.9 < max(excesses(*harsh))
    always = times_of(simulated(SjfBsbf(pack(), pair_test=False), *harsh))
    assert always.start_seconds.tolist() == [0.0, 0.0]
    for world in (mild, harsh):
        slow = 1 + np.array(excesses(*world))
        first = 1000.0 * slow.min()
        both = (first + 1000.0 + first * (1 - 1 / slow.max())) / 2
        start = times_of(simulated(SjfBsbf(pack()), *world)).start_seconds
        assert (start[1] == 0.0) == (both < 1500.0)


def test_burst_sharing_keeps_the_foreground_within_its_limit():
    for limit, start in ((1.0, 1000.0), (5.0, 0.0)):
        cluster, jobs, performance = neighbours("resnet50_imagenet", "a3c_pong", gpus=2)
        jobs = replace(jobs, num_gpus=np.array([2, 1]), min_gpus=np.array([2, 1]), max_gpus=np.array([2, 1]))
        found = times_of(simulated(BurstSharing(pack(), max_slowdown=limit), cluster, jobs, performance))
        assert found.start_seconds[1] == pytest.approx(start)


def test_burst_sharing_joins_the_idlest_foreground_job():
    names = ("a3c_pong", "cyclegan_monet", "lstm_wikitext2")
    _, jobs, performance = neighbours(*names)
    jobs = replace(jobs, num_gpus=np.array([2, 2, 1]), max_gpus=np.array([2, 2, 1]))
    cluster = Cluster.homogeneous(4, 1, gpu_type="v100", jobs_per_gpu=2)
    for first, second, gpus in (((0, 1), (2, 3), (2,)), ((2, 3), (0, 1), (0,))):
        sim = arrived(cluster, jobs, performance)
        sim.apply([Allocation(0, first), Allocation(1, second)])
        computing = BurstSharing._activity(sim.view().select(np.array([0, 1])))
        assert computing[1] < 0.9 * computing[0]  # gradients take more of its iterations
        sim.apply(BurstSharing(pack(), max_slowdown=10.0).decide(sim.view()))
        assert sim.view().gpus_of(2) == gpus


def test_burst_sharing_counts_the_time_in_which_the_foreground_waits_for_its_gradients():
    _, jobs, performance = neighbours("resnet50_imagenet", "lstm_wikitext2")
    jobs = replace(jobs, num_gpus=np.array([2, 1]), max_gpus=np.array([2, 1]))
    cluster = Cluster.homogeneous(2, 1, gpu_type="v100", jobs_per_gpu=2)
    sim = arrived(cluster, jobs, performance)
    sim.apply([Allocation(0, (0, 1))])
    view = sim.view()
    excess = view.interference(view.workers(0), view.workers(1), 0).item()
    computing = BurstSharing._activity(view.select(np.array([0]))).item()
    assert computing < 0.95
    for part, joins in ((computing + 0.02, True), (computing - 0.02, False)):
        found = BurstSharing(pack(), max_slowdown=1.0 + part * excess).decide(view)
        assert [one.job for one in found] == [1] * joins


def test_burst_sharing_joins_neither_background_jobs_nor_pairs():
    cluster, jobs, performance = neighbours("a3c_pong", "lstm_wikitext2")
    found = times_of(simulated(BurstSharing(pack(), max_slowdown=10.0), cluster, jobs, performance))
    assert found.start_seconds[1] == pytest.approx(1000.0)
    _, jobs, performance = neighbours("cyclegan_monet", *["a3c_pong"] * 3)
    jobs = replace(jobs, num_gpus=np.array([2, 1, 1, 1]), max_gpus=np.array([2, 1, 1, 1]))
    sim = arrived(Cluster.homogeneous(1, 2, gpu_type="v100", jobs_per_gpu=3), jobs, performance)
    sim.apply(BurstSharing(pack(), max_slowdown=10.0).decide(sim.view()))
    assert [sim.view().gpus_of(job) for job in range(4)] == [(0, 1), (0,), (1,), ()]


def test_reference_jobs_are_no_jobs_of_a_workload_that_shares_gpus():
    models = composed("simulate", "workload=sharing").workload.models.by_gpus[1]
    assert models
    assert not {(name, profile(name).batch_size) for name in models}.intersection(REFERENCES)


def test_weights_are_checked(tmp_path):
    with pytest.raises(ConfigurationError, match=r"tools\.interference"):
        InterferenceNetworks.load(tmp_path / "none.npz")
    np.savez(tmp_path / "bad.npz", weight=np.zeros(3))
    with pytest.raises(ConfigurationError, match="train it anew"):
        InterferenceNetworks.load(tmp_path / "bad.npz")


def test_interference_aware_chooses_the_mildest_neighbour():
    names = ("resnet50_imagenet", "a3c_pong", "lstm_wikitext2")
    cluster, jobs, performance = neighbours(*names)
    cluster = Cluster.homogeneous(2, 1, gpu_type="v100", jobs_per_gpu=2)
    sim = arrived(cluster, jobs, performance)
    scheduler = InterferenceAware(share(), min_speed=0.0)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    harm = [sum(excesses(cluster, jobs, performance, 2, other)) for other in (0, 1)]
    assert sim.view().gpus_of(2) == sim.view().gpus_of(int(np.argmin(harm)))


def test_each_stage_takes_predicted_exact_or_mean_losses():
    names = ("resnet50_imagenet", "a3c_pong", "lstm_wikitext2")
    cluster, jobs, performance = neighbours(*names)
    view = arrived(cluster, jobs, performance).view()
    true = np.array([[excesses(cluster, jobs, performance, i, j)[0] for j in range(3)] for i in range(3)])
    for similarity, iapp in (("predicted", "exact"), ("exact", "mean"), ("mean", "predicted")):
        scheduler = InterferenceAware(share(), similarity=similarity, performance=iapp)
        found = scheduler._predict(view)
        order = np.ix_([0], found.kind, found.kind)
        for kind, losses in ((similarity, found.similarity[order][0]), (iapp, found.performance[order][0])):
            if kind == "mean":
                assert np.ptp(losses) == 0.0
            else:
                exact = true / (1 + true)
                assert losses == pytest.approx(exact, abs=1e-9 if kind == "exact" else 0.15)
                assert np.ptp(losses) > 0.1
    with pytest.raises(ConfigurationError, match="similarity"):
        InterferenceAware(share(), similarity="constant")


def test_nlwp_weighs_interference_against_communication():
    # server 0: two shared GPUs; server 1: a free and a shared one; server 2: a free one
    losses, server = np.array([0.2, 0.3, 0.0, 0.6, 0.0]), np.array([0, 0, 1, 1, 2])
    for communication_cost, gpus in ((0.1, {2, 4}), (0.2, {2, 4}), (0.3, {0, 1})):
        found = place_tasks(losses, server, [0, 1, 2], 2, communication_cost)
        assert set(found) == gpus  # means: 0 + communication; (0.2 + 0.3) / 2; (0 + 0.6) / 2
    assert set(place_tasks(losses, server, [0, 1], 2, 0.01)) == {0, 2}  # server 2 was not named
    assert set(place_tasks(losses, server, [0, 1, 2], 4, 0.01)) == {0, 1, 2, 4}


def test_sjf_bsbf_shares_one_server_before_it_takes_several():
    # jobs 0 and 1 hold a GPU each of two servers of 2; job 2 wants two
    names = ["a3c_pong", "a3c_pong", "lstm_wikitext2"]
    _, jobs, performance = neighbours(*names, durations=[500.0, 600.0, 100.0])
    jobs = replace(jobs, num_gpus=np.array([1, 1, 2]), max_gpus=np.array([1, 1, 2]))
    cluster = Cluster.homogeneous(2, 2, gpu_type="v100", jobs_per_gpu=2)
    for rule, gpus in ((consolidate(), (0, 1)), (pack(), (1, 3))):
        sim = arrived(cluster, jobs, performance)
        sim.apply([Allocation(0, (0,)), Allocation(1, (2,))])
        sim.apply(SjfBsbf(rule).decide(sim.view()))
        assert sim.view().gpus_of(2) == gpus


def test_sjf_bsbf_shares_the_server_with_fewer_jobs():
    names = ["a3c_pong", "a3c_pong", "a3c_pong", "lstm_wikitext2"]
    _, jobs, performance = neighbours(*names, durations=[500.0, 500.0, 500.0, 100.0])
    gpus = np.array([1, 1, 2, 2])
    jobs = replace(jobs, num_gpus=gpus, max_gpus=gpus)
    cluster = Cluster.homogeneous(2, 2, gpu_type="v100", jobs_per_gpu=2)
    for places, there in ((((0,), (1,), (2, 3)), (2, 3)), (((2,), (3,), (0, 1)), (0, 1))):
        sim = arrived(cluster, jobs, performance)
        sim.apply([Allocation(job, held) for job, held in enumerate(places)])
        sim.apply(SjfBsbf(consolidate()).decide(sim.view()))
        assert sim.view().gpus_of(3) == there


def test_nlwp_pays_once_for_a_further_server():
    """Two tasks on each server cost one further server, 0.3; a third task on server 0 a mean loss of 0.1."""
    losses, server = np.array([0.0, 0.0, 0.4, 0.0, 0.0]), np.array([0, 0, 0, 1, 1])
    assert set(place_tasks(losses, server, [0, 1], 4, 0.3)) == {0, 1, 3, 4}


def test_clwp_names_servers_that_hold_the_job_first():
    """Server 2 holds both tasks. One on each of the others needs a further server."""
    jobs = JobTable.from_columns([0.0], [2], [100.0])
    sim = arrived(Cluster((1, 1, 2), jobs_per_gpu=2), jobs, composite(1e9, 40e9))
    scheduler = InterferenceAware(share())
    scheduler.reset(sim.cluster, jobs, np.random.default_rng(0))
    assert [one.gpu_ids for one in scheduler.decide(sim.view())] == [(2, 3)]


def test_nlwp_chooses_among_as_many_servers_as_the_job_has_tasks():
    """To CLWP all neighbours are alike, so that the smaller server is first. NLWP finds the milder ones."""
    names = ["resnet50_imagenet", "a3c_pong", "a3c_pong", "lstm_wikitext2"]
    _, jobs, performance = neighbours(*names)
    jobs = replace(jobs, num_gpus=np.full(4, 2), max_gpus=np.full(4, 2))
    cluster = replace(Cluster((2, 4)), gpu_types=("v100", "v100"), jobs_per_gpu=2)
    harm = [sum(excesses(cluster, jobs, performance, 3, other)) for other in (0, 1)]
    assert harm[1] < harm[0]
    sim = arrived(cluster, jobs, performance)
    sim.apply([Allocation(0, (0, 1)), Allocation(1, (2, 3)), Allocation(2, (4, 5))])
    scheduler = InterferenceAware(share(), similarity="mean", performance="exact", min_speed=0.0)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    assert sim.view().gpus_of(3) == (2, 3)


@pytest.mark.parametrize(
    ("names", "sizes", "starts"),
    [
        (("a3c_pong", "a3c_pong", "lstm_wikitext2"), (1, 1, 2), {False: 1000.0, True: 0.0}),
        (("a3c_pong", "lstm_wikitext2"), (2, 2), {False: 1000.0, True: 1000.0}),
    ],
)
def test_burst_sharing_joins_foreground_jobs_to_background_jobs_if_it_may(names, sizes, starts):
    """Two background jobs hold both GPUs, or one foreground job does. The last job is a foreground job."""
    _, jobs, performance = neighbours(*names)
    jobs = replace(jobs, num_gpus=np.array(sizes), max_gpus=np.array(sizes))
    jobs = replace(jobs, submit_seconds=np.arange(len(sizes)) * 1e-3)
    cluster = Cluster.homogeneous(1, 2, gpu_type="v100", jobs_per_gpu=2)
    for joins, start in starts.items():
        scheduler = BurstSharing(pack(), max_slowdown=10.0, join_background=joins)
        found = times_of(simulated(scheduler, cluster, jobs, performance))
        assert found.start_seconds[-1] == pytest.approx(start, abs=0.1)


def test_profiles_are_speeds_beside_the_references_and_those_of_the_references():
    suffered, inflicted = np.array([0.0, 1.0]), np.array([0.25, 3.0])
    assert job_profiles(suffered, inflicted).tolist() == [1.0, 0.5, 0.8, 0.25]


def test_weights_that_unpack_to_more_than_the_limit_are_not_read(monkeypatch):
    with ZipFile(networks.DEFAULT_WEIGHTS) as archive:
        size = sum(one.file_size for one in archive.infolist())
    monkeypatch.setattr(networks, "_MAX_BYTES", size)
    assert InterferenceNetworks.load().profiles
    monkeypatch.setattr(networks, "_MAX_BYTES", size - 1)
    with pytest.raises(ConfigurationError, match="unpacks to more than"):
        InterferenceNetworks.load()
