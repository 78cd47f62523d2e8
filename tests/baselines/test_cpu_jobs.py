"""Schedules of the schedulers that share out CPU cores, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.performance import composite
from ringyard.placement import consolidate, pack
from ringyard.profiles import model_id
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.papers.coda import Coda
from ringyard_baselines.papers.synergy import SynergyTune
from small_simulations import arrived, simulated, times_of


def cpu_cluster(cores, jobs):
    cluster = Cluster.homogeneous(1, 1, "v100", cores, 100e9)
    return cluster, jobs, composite(1e9, 40e9)


def hungry(duration, cores):
    """One job whose input pipeline wants more cores than it asks for."""
    jobs = JobTable.from_columns([0], [1], [duration]).with_models(np.array([model_id("alexnet_imagenet")]))
    return replace(jobs, cores_per_worker=np.array([cores]))


def test_coda_finds_cores_by_feedback():
    simulation = cpu_cluster(16, hungry(4000.0, 1))
    sim = simulated(fifo_backfill(pack()), *simulation)
    plain = sim.metrics()
    record = sim.state.jobs[0, 0]  # its one core is always the bottleneck
    preparing = (
        record["base_batch"] / record["samples_per_core_second"] * (1 + record["loading_serial_share"])
    )
    assert times_of(sim).gpu_activity == pytest.approx(record["base_compute_seconds"] / preparing)
    tuned = simulated(Coda(pack(), cpu_array_share=0.0), *simulation).metrics()
    assert tuned.mean_jct < 0.4 * plain.mean_jct
    assert tuned.gpu_activity > 2 * plain.gpu_activity
    assert (
        simulated(Coda(pack(), cpu_array_share=1.0), *simulation).metrics().mean_jct >= 0.99 * plain.mean_jct
    )


def test_coda_asks_again_for_cores_it_was_refused():
    # until 500 s a CPU job has all other cores: one core fewer is tried, and hurts; then one more each window
    helper = JobTable.cpu_only([0.0], [6], [500.0], [1e6])
    cluster, jobs, performance = cpu_cluster(8, helper.merged(hungry(4000.0, 2)))
    scheduler = Coda(pack(), cpu_array_share=0.0)
    sim = Simulator(cluster, jobs, performance, round_seconds=scheduler.round_seconds)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    steps = {}
    while sim.now < 1300:
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
        steps.setdefault(int(sim.state.jobs["cores_per_worker"][0, 1]), []).append(sim.now)
    assert {cores: seen[0] for cores, seen in steps.items()} == {
        2: 0, 1: 90, 3: 500, 4: 630, 5: 720, 6: 810, 7: 900, 8: 990
    }  # fmt: skip
    assert steps[2] == [0, 180, 270, 360, 450]


def test_coda_starts_the_group_with_the_least_share_first():
    # all GPUs are free at 50 s: a's oldest goes first, then b, who has none, then a has more than b
    jobs = JobTable.from_columns(
        [0, 1, 2, 3], [2, 1, 1, 1], [50.0, 100.0, 100.0, 100.0], vc=["", "a", "a", "b"]
    )
    cluster = Cluster.homogeneous(1, 2, cores_per_server=8)
    found = times_of(simulated(Coda(pack()), cluster, jobs))
    assert found.start_seconds.tolist() == [0, 50, 150, 50]
    alone = times_of(simulated(Coda(pack()), cluster, replace(jobs, vc=np.full(4, ""))))
    assert alone.start_seconds.tolist() == [0, 50, 50, 150]
    # of CPU-only jobs the share of cores decides
    helpers = JobTable.cpu_only([0, 1, 2, 3], [8, 5, 3, 3], [50.0, 100.0, 100.0, 100.0], np.zeros(4))
    found = times_of(simulated(Coda(pack()), cluster, replace(helpers, vc=jobs.vc)))
    assert found.start_seconds.tolist() == [0, 50, 150, 50]


def test_coda_evicts_borrowers_for_training_jobs():
    helper = JobTable.cpu_only([0.0], [4], [100.0], [1e6])
    training = replace(hungry(50.0, 2), submit_seconds=np.array([10.0]))
    cluster, jobs, performance = cpu_cluster(4, helper.merged(training))
    sim = simulated(Coda(pack(), cpu_array_share=0.0), cluster, jobs, performance)
    assert times_of(sim).start_seconds.tolist() == [0.0, 10.0]
    assert sim.state.jobs["num_preemptions"][0, 0] == 1
    kept = simulated(Coda(pack(), cpu_array_share=1.0), cluster, jobs, performance)
    assert times_of(kept).start_seconds.tolist() == [0.0, 100.0]


def test_coda_caps_cpu_jobs_that_starve_training():
    helper = JobTable.cpu_only([200.0], [4], [2000.0], [30e9])
    training = replace(hungry(3000.0, 8), memory_bandwidth=np.array([3e9]))
    cluster, jobs, performance = cpu_cluster(16, training.merged(helper))
    sim = Simulator(cluster, jobs, performance, round_seconds=90.0)
    scheduler = Coda(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    while sim.now < 400:
        sim.apply(scheduler.decide(sim.view()))
        sim.advance()
    assert sim.state.jobs["memory_bandwidth_cap"][0, 1] == 0.5


def test_synergy_gives_and_takes_cores():
    cluster, jobs, performance = cpu_cluster(24, hungry(1000.0, 1))
    sim = arrived(cluster, jobs, performance)
    scheduler = SynergyTune(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    cores = int(sim.state.jobs["cores_per_worker"][0, 0])
    seconds = [
        isolated_iteration_seconds(sim.view(), np.array([0]), cores_per_worker=c)[0]
        for c in (cores - 1, cores, 24)
    ]
    assert seconds[1] <= seconds[2] / 0.95 < seconds[0]


def test_synergy_stops_nobody_for_a_job_that_finds_no_room():
    """Two free GPUs on two servers are none for a job that wants both on one."""
    jobs = JobTable.from_columns(np.zeros(4), [1, 1, 2, 1], [10.0, 20.0, 30.0, 100.0])
    sim = arrived(Cluster.homogeneous(2, 2, cores_per_server=8), jobs, composite(1e9, 40e9))
    sim.apply([Allocation(0, (0,)), Allocation(3, (1,)), Allocation(1, (2,))])
    decided = []
    for rule in (consolidate(), pack()):
        scheduler = SynergyTune(rule)
        scheduler.reset(sim.cluster, jobs, np.random.default_rng(0))
        decided.append([(one.job, one.gpu_ids) for one in scheduler.decide(sim.view())])
    assert decided == [[], [(3, ()), (2, (1, 3))]]


def test_drafts_give_back_once():
    jobs = hungry(50.0, 2).merged(JobTable.cpu_only([0.0], [3], [10.0], [1e6]))
    cluster, jobs, performance = cpu_cluster(8, jobs)
    sim = arrived(cluster, jobs, performance)
    draft = PlacementPlan(sim.view())
    for job, allocation in ((0, Allocation(0, (0,))), (1, Allocation(1, server=0))):
        before = int(draft.free_cores_per_server[0])
        assert draft.allocate(allocation)
        for _ in range(2):
            draft.release(job)
            assert draft.free_cores_per_server[0] == before
