"""Jobs on shared GPUs, on GPUs of several types, and beside others on cores and memory bandwidth, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable
from ringyard.bounds import isolated_bounds
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.performance import Interference, composite, pair_table, sensitivity_pressure
from ringyard.placement import fastest, share
from ringyard.profiles import GpuProfile, catalogue, profile
from ringyard.restart import constant
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard.state.gpu_effects import Workers
from small_simulations import arrived, figures, specs

INF = float("inf")


def seconds(sim, job):
    return float(sim.state.jobs["iteration_seconds"][0, job])


ONE, TWO = "resnet50_imagenet", "lstm_wikitext2"
SHARING = {
    ONE: {
        "v100": GpuProfile(0.01, 0.001, "drawn", {16: (0.4, 1.0), 64: (0.8, 3.0), 256: (0.0, 3.0)}),
        "t4": GpuProfile(0.05, 0.002, "drawn", {64: (0.5, 0.25)}),
    },
    TWO: {
        "v100": GpuProfile(0.02, 0.004, "drawn", {20: (0.3, 0.7)}),
        "t4": GpuProfile(0.02, 0.004, "drawn", {20: (2.0, 0.9)}),
    },
}


def test_gpus_that_only_compute_are_active_whatever_their_type_and_batch():
    kinds = ({"num_servers": 1, "gpus_per_server": 1, "gpu_type": kind} for kind in ("v100", "t4"))
    table = specs((1, "resnet50_imagenet"))
    table = replace(table, max_batch=4 * table.batch_size)
    physics = composite(INF, INF)
    sim = arrived(Cluster.of_groups(list(kinds)), table, physics, restart=constant(5.0), round_seconds=20.0)
    larger = float(2 * table.batch_size[0])
    for decided in (Allocation(0, (1,)), Allocation(0, (0,)), Allocation(0, (0,), batch_size=larger)):
        sim.apply([decided])
        sim.advance()
        assert sim.view().gpu_activity == pytest.approx([1.0])
    while not sim.done:
        sim.advance()
    assert sim.metrics().gpu_activity == pytest.approx(1.0 - 2 * 5.0 / sim.now)  # idle: a restart, a resize


def beside(*jobs, cluster=None):
    """Jobs of (GPUs, model, samples per GPU), any batch allowed, on servers of one V100 and one T4."""
    table = specs(*((gpus, model) for gpus, model, _ in jobs))
    batch = np.array([gpus * samples for gpus, _, samples in jobs], dtype=np.float64)
    compute = [profile(model).gpus["v100"].compute_seconds(samples) for _, model, samples in jobs]
    fixed = [profile(model).fixed_seconds for _, model, _ in jobs]
    table = replace(
        table,
        batch_size=batch,
        min_batch=batch / 64,
        max_batch=batch * 64,
        noise_scale=np.full(len(jobs), INF),
        compute_seconds=np.array(compute),
        fixed_fraction=np.array(fixed) / np.array(compute),
        sample_memory_bytes=np.zeros(len(jobs)),
    )
    kinds = ({"num_servers": 1, "gpus_per_server": 1, "gpu_type": kind} for kind in ("v100", "t4"))
    cluster = cluster or Cluster.of_groups(list(kinds), jobs_per_gpu=2)
    return arrived(cluster, table, composite(INF, INF, interference=sensitivity_pressure()))


@pytest.mark.parametrize(
    ("samples", "sensitivity", "pressure"),
    [
        (64, 0.8, 3.0),
        (32, 0.4 * 2**0.5, 3.0**0.5),  # half way from 16 to 64 in log samples
        (8, 0.4, 1.0),  # as at the smallest
        (1024, 0.0, 3.0),
        (128, 0.4, 3.0),  # a straight line to 0
    ],
)
def test_two_jobs_on_a_gpu_slow_one_another_by_their_batches(samples, sensitivity, pressure):
    with figures(SHARING):
        sim = beside((1, ONE, samples), (1, TWO, 20))
        sim.apply([Allocation(0, (0,))])
        alone = 0.01 + 0.001 * samples
        assert seconds(sim, 0) == pytest.approx(alone)
        assert sim.view().iteration_seconds(Allocation(1, (0,))) == pytest.approx(0.1 * (1 + 0.3 * pressure))
        sim.apply([Allocation(1, (0,))])
        assert seconds(sim, 0) == pytest.approx(alone * (1 + sensitivity * 0.7))
        assert seconds(sim, 1) == pytest.approx(0.1 * (1 + 0.3 * pressure))
        view = sim.view()
        both = view.workers([0, 1])
        found = view.interference(both, Workers(both.models[::-1], both.samples[::-1]), view.type_of_gpu[0])
        assert found == pytest.approx([sensitivity * 0.7, 0.3 * pressure])
        sim.apply([Allocation(1)])
        assert seconds(sim, 0) == pytest.approx(alone)


def test_sharing_follows_batches_and_gpu_types():
    with figures(SHARING):
        sim = beside((1, ONE, 64), (1, TWO, 20))
        sim.apply([Allocation(0, (0,)), Allocation(1, (0,))])
        assert seconds(sim, 1) == pytest.approx(0.1 * (1 + 0.3 * 3.0))
        sim.apply([Allocation(0, (0,), batch_size=16.0)])  # four steps, and gentler to its neighbour
        assert seconds(sim, 0) == pytest.approx(4 * 0.026 * (1 + 0.4 * 0.7))
        assert seconds(sim, 1) == pytest.approx(0.1 * (1 + 0.3 * 1.0))
        sim.apply([Allocation(0), Allocation(1), Allocation(0, (1,)), Allocation(1, (1,))])
        assert seconds(sim, 0) == pytest.approx((0.05 + 0.002 * 64) * (1 + 0.5 * 0.9))
        assert seconds(sim, 1) == pytest.approx(0.1 * (1 + 2.0 * 0.25))


def test_placing_beside_others_looks_at_the_gpu_type():
    with figures(SHARING):
        sim = beside((1, ONE, 64), (1, ONE, 64), (1, TWO, 20))
        sim.apply([Allocation(0, (0,)), Allocation(1, (1,))])
        # V100: 0.3 x 3 + 0.8 x 0.7 = 1.46; T4: 2 x 0.25 + 0.5 x 0.9 = 0.95
        assert PlacementPlan(sim.view()).place(share(), 2).gpu_ids == (1,)
        sim.apply([Allocation(0, (0,), batch_size=4.0)])  # V100: 0.3 x 1 + 0.4 x 0.7 = 0.58
        assert PlacementPlan(sim.view()).place(share(), 2).gpu_ids == (0,)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((2, 2)), "shape"),
        (np.full((len(catalogue()) + 1, len(GPU_MEMORY_BYTES), 1, 3), -1.0), "0 or more"),
        (np.full((len(catalogue()) + 1, len(GPU_MEMORY_BYTES), 2, 3), 1.0), "ascending"),
        (np.full((len(catalogue()) + 1, len(GPU_MEMORY_BYTES), 1, 3), np.inf), "above 0"),
    ],
)
def test_sharing_figures_out_of_range(array, said):
    with pytest.raises(ConfigurationError, match=said):
        Interference(array)


def test_the_worst_gpu_sets_a_gangs_pace_and_neighbours_add_up():
    jobs = specs((2, "resnet50_imagenet"), (1, "lstm_wikitext2"), (1, "lstm_wikitext2"))
    cluster = Cluster.homogeneous(1, 2, gpu_type="v100", jobs_per_gpu=3)
    table = pair_table(
        {
            "resnet50_imagenet": {"lstm_wikitext2": 0.8, "resnet50_imagenet": 0.5},
            "lstm_wikitext2": {"resnet50_imagenet": 0.4, "lstm_wikitext2": 1.0},
        }
    )
    sim = arrived(cluster, jobs, composite(INF, INF, interference=table))
    sim.apply([Allocation(0, (0, 1)), Allocation(1, (0,))])
    alone = profile("resnet50_imagenet").compute_seconds
    assert seconds(sim, 0) == pytest.approx(alone * 1.25)
    sim.apply([Allocation(2, (1,))])
    assert seconds(sim, 0) == pytest.approx(alone * 1.25)  # one neighbour on each GPU
    sim.apply([Allocation(2), Allocation(2, (0,))])
    assert seconds(sim, 0) == pytest.approx(alone * 1.5)  # two on the worst
    assert seconds(sim, 1) == pytest.approx(profile("lstm_wikitext2").compute_seconds * 2.5)


def test_a_neighbour_of_zero_pressure_costs_nothing():
    jobs = replace(specs((1, "resnet50_imagenet"), (1, "resnet50_imagenet")), model_ids=np.array([-1, -1]))
    sim = arrived(
        Cluster.homogeneous(1, 1, jobs_per_gpu=2),
        jobs,
        composite(1e9, 1e9, interference=sensitivity_pressure()),
    )
    sim.apply([Allocation(0, (0,)), Allocation(1, (0,))])
    assert seconds(sim, 0) == pytest.approx(jobs.compute_seconds[0])


# GPU types, cores, bandwidth


def of_types(*kinds, gpus=2):
    return Cluster.of_groups(
        [{"num_servers": 1, "gpus_per_server": gpus, "gpu_type": kind} for kind in kinds]
    )


KINDS = {
    ONE: {
        "v100": GpuProfile(0.010, 0.001, "drawn"),
        "t4": GpuProfile(0.050, 0.002, "drawn"),
        "k80": GpuProfile(0.020, 0.010, "drawn"),
        "a100": GpuProfile(0.040, 0.0005, "drawn"),
    }
}


def test_the_slowest_gpu_type_sets_the_pace_at_the_present_batch():
    with figures(KINDS):
        sim = beside((2, ONE, 16), cluster=of_types("v100", "t4", "k80"))
        sim.apply([Allocation(0, (0, 1))])
        assert seconds(sim, 0) == pytest.approx(0.010 + 0.001 * 16)
        assert sim.state.jobs["gpu_speed"][0, 0] == 1.0
        sim.apply([Allocation(0, (1, 2))])
        assert seconds(sim, 0) == pytest.approx(0.050 + 0.002 * 16)
        for samples, step in ((1, 0.050 + 0.002), (64, 0.020 + 0.010 * 64)):  # whichever is slower: T4, K80
            change = Allocation(0, (3, 4), batch_size=2.0 * samples)
            asked = sim.view().iteration_seconds(change)
            sim.apply([change])
            assert seconds(sim, 0) == asked == pytest.approx(step * 16 / samples)
            here = (0.010 + 0.001 * samples) / step
            assert sim.state.jobs["gpu_speed"][0, 0] == pytest.approx(here)


def test_isolated_seconds_bounds_and_fastest_take_the_best_type_at_each_batch():
    with figures(KINDS):
        sim = beside((1, ONE, 16), cluster=of_types("v100", "a100"))
        small, large = 16 * (0.010 + 0.001), (0.040 + 0.0005 * 1024) / 64  # V100 at 1, A100 at 1,024 samples
        rows, batches = np.zeros(2, np.int64), np.array([1.0, 1024.0])
        assert isolated_iteration_seconds(sim.view(), rows, batch_size=batches) == pytest.approx(
            [small, large]
        )
        a100 = sim.cluster.distinct_gpu_types.index("a100")
        on_a100 = isolated_iteration_seconds(sim.view(), rows, batch_size=batches, gpu_type=a100)
        assert on_a100 == pytest.approx([16 * 0.0405, large])
        iterations = 100.0 / (0.010 + 0.001 * 16)
        assert isolated_bounds(sim)[0] == pytest.approx([iterations * large], rel=0.02)
        assert isolated_bounds(sim)[0] <= iterations * large
        for batch, gpus in ((1.0, (0,)), (1024.0, (2,))):
            shape = Allocation(0, (0,), batch_size=batch)
            assert PlacementPlan(sim.view()).place(fastest(), 0, shape).gpu_ids == gpus


def test_a_tables_own_seconds_are_scaled_part_by_part():
    with figures(KINDS):
        jobs = replace(
            specs((1, ONE), (1, ONE)), compute_seconds=np.ones(2), fixed_fraction=np.array([0.25, 1.0])
        )
        sim = arrived(of_types("v100", "t4"), jobs, composite(INF, INF))
        sim.apply([Allocation(0, (2,)), Allocation(1, (3,))])
        assert seconds(sim, 0) == pytest.approx(0.25 * 5 + 0.75 * 2)
        assert seconds(sim, 1) == pytest.approx(5.0)
        classes = sim.state.jobs["demand_class"][0, :2]
        assert classes[0] != classes[1]  # what is found for one is not true of the other


def test_cores_bound_the_input_pipeline_and_change_for_free():
    jobs = replace(specs((1, "resnet50_imagenet")), cores_per_worker=np.array([1]))
    cluster = Cluster.homogeneous(1, 1, gpu_type="v100", cores_per_server=8)
    sim = arrived(cluster, jobs, composite(1e9, 1e9), restart=constant(30.0))
    own = profile("resnet50_imagenet")
    sim.apply([Allocation(0, (0,))])
    serial = 1.0 + (own.loading_serial_share or 0.0)
    assert seconds(sim, 0) == pytest.approx(own.batch_size / own.samples_per_core_second * serial)
    assert sim.view().free_cores_per_server.tolist() == [7]
    sim.apply([Allocation(0, (0,), cores_per_worker=8)])
    assert seconds(sim, 0) == pytest.approx(own.compute_seconds)
    record = sim.state.jobs[0, 0]
    assert record["num_resizes"] == 1
    assert record["num_preemptions"] == 0
    assert record["pause_ends_seconds"] == sim.now  # no pause


def test_memory_bandwidth_is_shared_by_all_and_capped_for_cpu_jobs():
    jobs = JobTable.cpu_only([0.0, 0.0], [4, 4], [100.0, 100.0], [10e9, 5e9])
    cluster = Cluster.homogeneous(
        1, 1, cores_per_server=8, memory_bandwidth_bytes_per_second=30e9
    )  # 40 + 20 GB/s asked
    sim = arrived(cluster, jobs, composite(1e9, 1e9))
    sim.apply([Allocation(0, server=0), Allocation(1, server=0)])
    assert sim.view().bandwidth_demand.tolist() == [2.0]
    assert seconds(sim, 0) == pytest.approx(2.0)
    assert seconds(sim, 1) == pytest.approx(2.0)
    sim.apply([Allocation(0, server=0, memory_bandwidth_cap=0.25)])  # 10 + 20 GB/s
    assert seconds(sim, 0) == pytest.approx(4.0)
    assert seconds(sim, 1) == pytest.approx(1.0)
    sim.apply([Allocation(1)])
    sim.apply([Allocation(0, cores_per_worker=8, server=0, memory_bandwidth_cap=0.25)])
    assert seconds(sim, 0) == pytest.approx(2.0)
