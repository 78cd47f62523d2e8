"""RAM and storage: samples that nobody has cached are read, and all who read share their server's storage."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.errors import ConfigurationError, PlacementError, WorkloadError
from ringyard.performance import composite
from ringyard.placement import pack
from ringyard.restart import constant
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.workloads import Arrivals, Extended, LogNormalDurations, ModelMix, PerWorker, Sizes, Synthetic
from ringyard_baselines.papers.synergy import SynergyTune
from small_simulations import arrived

GB = 10**9
SAMPLE, DATASET = 1e5, 100e9
STORAGE = 100e6


def readers(*gpus, ram=0.0, batch=512.0, seconds=0.01):
    """Jobs that compute for `seconds` and read `batch` samples for each GPU."""
    count = len(gpus)
    jobs = JobTable.from_columns(np.zeros(count), gpus, np.full(count, 1000.0))
    sizes = np.array(gpus) * batch
    return replace(
        jobs,
        compute_seconds=np.full(count, seconds),
        fixed_fraction=np.ones(count),
        batch_size=sizes,
        min_batch=sizes,
        max_batch=sizes,
        ram_per_worker=np.broadcast_to(np.asarray(ram, dtype=np.float64), count).copy(),
        sample_bytes=np.full(count, SAMPLE),
        dataset_bytes=np.full(count, DATASET),
    )


def server(servers=1, gpus=4, ram=100 * GB, storage=STORAGE, cores=None):
    return Cluster.homogeneous(
        servers, gpus, cores_per_server=cores, ram_bytes_per_server=ram, storage_bytes_per_second=storage
    )


def seconds(sim, j):
    return float(sim.state.jobs["iteration_seconds"][0, j])


def test_storage_is_shared_by_those_who_read():
    sim = arrived(server(), readers(1, 2, 1, ram=[20e9, 20e9, 100e9]), composite(1e12, 1e12))
    alone = 512 * SAMPLE * 0.8 / STORAGE
    sim.apply([Allocation(0, (0,))])
    assert seconds(sim, 0) == pytest.approx(alone)
    sim.apply([Allocation(1, (1, 2), ram_per_worker=30 * GB)])  # its two workers cache 60 of 100 GB together
    assert seconds(sim, 0) == pytest.approx(3 * alone)
    assert seconds(sim, 1) == pytest.approx(3 * 512 * SAMPLE * 0.4 / STORAGE)
    with pytest.raises(PlacementError, match=r"100,000,000,000 bytes of RAM on server 0, but 20,000"):
        sim.apply([Allocation(2, (3,))])
    sim.apply([Allocation(1)])
    assert seconds(sim, 0) == pytest.approx(alone)
    assert sim.state.servers["free_ram"][0].tolist() == [80 * GB]


def test_who_has_cached_everything_reads_nothing_and_harms_nobody():
    sim = arrived(server(ram=200 * GB), readers(1, 1, ram=[20e9, 100e9]), composite(1e12, 1e12))
    sim.apply([Allocation(0, (0,)), Allocation(1, (1,))])
    assert seconds(sim, 0) == pytest.approx(512 * SAMPLE * 0.8 / STORAGE)
    assert seconds(sim, 1) == 0.01


def test_ram_changes_while_a_job_runs_and_costs_nothing():
    sim = arrived(server(), readers(1, ram=20e9), composite(1e12, 1e12), restart=constant(30.0))
    sim.apply([Allocation(0, (0,))])
    sim.apply([Allocation(0, (0,), ram_per_worker=60 * GB)])
    record = sim.state.jobs[0, 0]
    assert seconds(sim, 0) == pytest.approx(512 * SAMPLE * 0.4 / STORAGE)
    assert (record["pause_ends_seconds"], record["num_resizes"]) == (sim.now, 1)
    assert sim.view().allocation_of(0).ram_per_worker == 60 * GB
    sim.apply([Allocation(0)])
    assert sim.view().column("ram_per_worker")[0] == 20 * GB  # as it asks


def test_the_slowest_server_sets_the_pace_and_what_is_slower_than_storage_hides_it():
    cluster = Cluster((2, 2), ram_bytes_per_server=(GB, GB), storage_bytes_per_second=(100e6, 50e6))
    sim = arrived(cluster, readers(3, 1, seconds=0.01), composite(np.inf, np.inf))
    sim.apply([Allocation(0, (0, 1, 2))])
    assert seconds(sim, 0) == pytest.approx(512 * SAMPLE / 50e6)
    sim.apply([Allocation(1, (3,))])
    assert seconds(sim, 0) == pytest.approx(512 * SAMPLE * 2 / 50e6)
    slow = arrived(server(), readers(1, seconds=5.0), composite(1e12, 1e12))
    slow.apply([Allocation(0, (0,))])
    assert seconds(slow, 0) == 5.0


def test_a_cluster_without_storage_or_ram_is_as_it_was():
    jobs = readers(1, ram=20e9)
    sim = arrived(Cluster.homogeneous(1, 1), jobs, composite(1e12, 1e12))
    sim.apply([Allocation(0, (0,))])
    assert seconds(sim, 0) == 0.01
    assert sim.view().column("ram_per_worker")[0] == 0
    with pytest.raises(PlacementError, match=r"cluster\.ram_bytes_per_server is not set; set it"):
        sim.apply([Allocation(0, (0,), ram_per_worker=GB)])


def test_rules_place_where_there_is_ram():
    jobs = readers(1, 2, 3, ram=[40e9, 20e9, 20e9])
    draft = PlacementPlan(arrived(server(servers=2, ram=50 * GB), jobs, composite(1e12, 1e12)).view())
    assert draft.place(pack(), 0).gpu_ids == (0,)
    assert draft.place(pack(), 2) is None  # room for none and two of its workers
    assert draft.place(pack(), 1).gpu_ids == (4, 5)


def test_jobs_that_ask_for_more_ram_than_there_is():
    with pytest.raises(WorkloadError, match="at most a server's 50000000000 bytes"):
        Simulator(server(ram=50 * GB), readers(1, ram=60e9), composite(1e12, 1e12))
    with pytest.raises(WorkloadError, match="ask for less per worker"):
        Simulator(server(ram=50 * GB), readers(3, ram=20e9), composite(1e12, 1e12))
    with pytest.raises(ConfigurationError, match=r"cluster\.ram_bytes_per_server"):
        Cluster((1,), ram_bytes_per_server=(0.5,))
    with pytest.raises(WorkloadError, match=r"dataset_bytes 0\.0; expected"):
        replace(readers(1), dataset_bytes=np.zeros(1)).check()


def test_ram_is_drawn_and_at_most_the_fair_share():
    base = Synthetic(
        50, Sizes({1: 1}), LogNormalDurations(5.0, 1.0), Arrivals(), ModelMix({1: {"resnet50_imagenet": 1}})
    )
    jobs = Extended(base, [PerWorker("ram_per_worker", {10 * GB: 1, 90 * GB: 1})]).sample(
        server(ram=80 * GB), np.random.default_rng(0)
    )
    assert set(jobs.ram_per_worker.tolist()) == {10e9, 20e9}


def test_synergy_gives_ram_where_storage_is_short_and_takes_it_back():
    """At a quarter of the storage a job reads for 0.512 s (1 - RAM / 100 GB): 80 of 160 GB are enough."""
    cluster = server(ram=160 * GB, storage=400e6, cores=16)
    jobs = replace(
        readers(1, 1, 1, ram=10e9, seconds=0.1),
        submit_seconds=np.array([0.0, 10.0, 20.0]),
        samples_per_core_second=np.full(3, 1e4),
    )
    sim = Simulator(cluster, jobs, composite(1e12, 1e12))
    scheduler = SynergyTune(pack(), order="fifo")
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    held = []
    for _ in range(3):
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
        held.append((sim.view().column("ram_per_worker")[sim.view().running] / GB).tolist())
    assert held == [[80], [80, 80], [40, 80, 40]]  # the last one needs room: the first has its fair share now
    assert sim.view().column("cores_per_worker").tolist() == [4, 1, 4]


def test_synergy_asks_for_no_cores_that_others_hold_when_it_takes_ram():
    """Job 0's fair share is less RAM and more cores than it has; a CPU-only job has the cores."""
    cluster = server(gpus=2, ram=80 * GB, storage=400e6, cores=8)
    jobs = readers(1, 1, ram=10e9, seconds=0.1).merged(JobTable.cpu_only([0.0], [6], [500.0], [1e6]))
    sim = arrived(cluster, replace(jobs, samples_per_core_second=np.full(3, 1e4)), composite(1e12, 1e12))
    sim.apply([Allocation(2, server=0), Allocation(0, (0,), 1, ram_per_worker=80 * GB)])
    scheduler = SynergyTune(pack(), order="fifo")
    scheduler.reset(cluster, sim.jobs, np.random.default_rng(0))
    assert scheduler.decide(sim.view()) == []
