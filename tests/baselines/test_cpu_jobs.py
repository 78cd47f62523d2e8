"""Schedules of the schedulers that share out CPU cores, worked out by hand."""

from dataclasses import replace

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.performance import composed
from ringyard.placement import pack
from ringyard.profiles import model_id
from ringyard.sim.draft import Draft
from ringyard.sim.solo import solo_seconds
from ringyard_baselines.orders.fifo import fifo
from ringyard_baselines.papers.coda import Coda
from ringyard_baselines.papers.synergy import SynergyTune
from worlds import arrived, simulated, times_of


def cpu_world(cores, jobs):
    cluster = Cluster.homogeneous(1, 1, "v100", cores, 100e9)
    return cluster, jobs, composed(1e9, 40e9)


def hungry(duration, cores):
    """One job whose input pipeline wants more cores than it asks for."""
    jobs = JobTable.from_columns([0], [1], [duration]).with_models(np.array([model_id("alexnet_imagenet")]))
    return replace(jobs, cores_per_worker=np.array([cores]))


def test_coda_finds_cores_by_feedback():
    world = cpu_world(16, hungry(4000.0, 1))
    plain = simulated(fifo(pack()), *world).metrics()
    tuned = simulated(Coda(pack(), cpu_array=0.0), *world).metrics()
    assert tuned.mean_jct < 0.4 * plain.mean_jct
    assert tuned.gpu_activity > 2 * plain.gpu_activity
    assert simulated(Coda(pack(), cpu_array=1.0), *world).metrics().mean_jct >= 0.99 * plain.mean_jct


def test_coda_evicts_borrowers_for_training_jobs():
    helper = JobTable.cpu_only([0.0], [4], [100.0], [1e6])
    training = replace(hungry(50.0, 2), submit_seconds=np.array([10.0]))
    cluster, jobs, performance = cpu_world(4, helper.merged(training))
    sim = simulated(Coda(pack(), cpu_array=0.0), cluster, jobs, performance)
    assert times_of(sim).start_seconds.tolist() == [0.0, 10.0]
    assert sim.state.jobs["num_preemptions"][0, 0] == 1
    kept = simulated(Coda(pack(), cpu_array=1.0), cluster, jobs, performance)
    assert times_of(kept).start_seconds.tolist() == [0.0, 100.0]


def test_coda_caps_cpu_jobs_that_starve_training():
    helper = JobTable.cpu_only([200.0], [4], [2000.0], [30e9])
    training = replace(hungry(3000.0, 8), memory_bandwidth=np.array([3e9]))
    cluster, jobs, performance = cpu_world(16, training.merged(helper))
    sim = Simulator(cluster, jobs, performance, round_seconds=90.0)
    scheduler = Coda(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    while sim.now < 400:
        sim.apply(scheduler.decide(sim.view()))
        sim.advance()
    assert sim.state.jobs["memory_bandwidth_cap"][0, 1] == 0.5


def test_synergy_gives_and_takes_cores():
    cluster, jobs, performance = cpu_world(24, hungry(1000.0, 1))
    sim = arrived(cluster, jobs, performance)
    scheduler = SynergyTune(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    cores = int(sim.state.jobs["cores_per_worker"][0, 0])
    seconds = [solo_seconds(sim.view(), np.array([0]), cores_per_worker=c)[0] for c in (cores - 1, cores, 24)]
    assert seconds[1] <= seconds[2] / 0.95 < seconds[0]


def test_drafts_give_back_once():
    jobs = hungry(50.0, 2).merged(JobTable.cpu_only([0.0], [3], [10.0], [1e6]))
    cluster, jobs, performance = cpu_world(8, jobs)
    sim = arrived(cluster, jobs, performance)
    draft = Draft(sim.view())
    for job, allocation in ((0, Allocation(0, (0,))), (1, Allocation(1, server=0))):
        before = int(draft.free_cores_per_server[0])
        assert draft.take(allocation)
        for _ in range(2):
            draft.release(job)
            assert draft.free_cores_per_server[0] == before
