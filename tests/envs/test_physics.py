"""Every part of the physics by hand: closed forms, limits, and small clusters computed on paper."""

from dataclasses import replace

import numpy as np
import pytest
from hydra.utils import instantiate

from conftest import composed as composed_config
from conftest import names
from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.errors import ConfigurationError
from ringyard.fabric import Fabric, interconnect, latency_seconds, network, ring_bytes_per_second
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.performance import Interference, composed, pair_table, sensitivity_pressure
from ringyard.performance.allreduce import overlapped
from ringyard.performance.cpu import bandwidth_stretch, cpu_job_seconds, input_seconds, useful_cores
from ringyard.performance.elastic import progress_per_iteration, statistical_efficiency
from ringyard.performance.parameter_server import (
    calibration_design,
    coefficient_row,
    server_efficiency,
    step_seconds,
)
from ringyard.performance.storage import read_seconds, seconds_per_byte, stored_bytes
from ringyard.placement import fastest, share
from ringyard.profiles import GpuFigures, catalogue, model_id, profile
from ringyard.restart import constant
from ringyard.sim.bounds import bounds_of, fastest_alone
from ringyard.sim.draft import Draft
from ringyard.sim.solo import solo_seconds
from ringyard.state.on_gpus import Workers
from ringyard.state.records import JobKind
from worlds import arrived, figures, specs

INF = float("inf")


def seconds(sim, job):
    return float(sim.state.jobs["iteration_seconds"][0, job])


# formulas


def test_bandwidth_by_count():
    fabric = Fabric({2: 40.0, 8: 160.0}, 1e-3)
    assert (
        fabric.bandwidth(np.array([1, 2, 4, 8, 9, 64])).tolist()
        == [40.0, 40.0, pytest.approx(80.0), 160.0] + [160.0] * 2
    )
    row = fabric.row
    assert [ring_bytes_per_second(row, 0, n) for n in (1, 2, 8, 64, 1000)] == [
        40.0,
        40.0,
        160.0,
        160.0,
        160.0,
    ]
    assert latency_seconds(row, 0, 5) == pytest.approx(8e-3)  # 2 (w-1) steps
    assert Fabric(7.0).bandwidth(np.array([1, 99])).tolist() == [7.0, 7.0]


@pytest.mark.parametrize(
    "figures", [{}, {0: 1e9}, {2: -1e9}, {2: float("nan")}, {2: 1e9, 4: INF}, {2.5: 1e9}, 0.0, "fast"]
)
def test_fabrics_that_make_no_sense(figures):
    with pytest.raises(ConfigurationError, match=r"fabric\.bytes_per_second.*expected"):
        Fabric(figures)


def test_rings_follow_the_number_of_servers_and_of_gpus():
    network, interconnect = Fabric({2: 1e9, 4: 2e9}, 1e-3), Fabric({2: 10e9, 4: 30e9}, 1e-4)
    own = profile("vgg16")
    for gpus, expected in [
        ((0, 1), (1 * own.gradient_bytes / 10e9) + 2e-4),
        ((0, 1, 2, 3), (1.5 * own.gradient_bytes / 30e9) + 6e-4),
        ((0, 4), (1 * own.gradient_bytes / 1e9) + 2e-3),
        ((0, 4, 8, 12), (1.5 * own.gradient_bytes / 2e9) + 6e-3),
    ]:
        sim = arrived(Cluster.homogeneous(4, 4), specs((len(gpus), "vgg16")), composed(network, interconnect))
        sim.apply([Allocation(0, gpus)])
        assert seconds(sim, 0) == pytest.approx(own.compute_seconds + expected)


def test_overlap():
    assert overlapped(3.0, 4.0, 1.0) == 7.0
    assert overlapped(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert overlapped(3.0, 4.0, 200.0) == pytest.approx(4.0)  # full overlap: the longer
    assert overlapped(3.0, 0.0, 2.5) == pytest.approx(3.0)
    assert overlapped(0.0, 0.0, 2.5) == 0.0


def test_input_pipeline():
    assert input_seconds(64.0, 4, 100.0, 1.0) == pytest.approx(0.16)
    assert input_seconds(64.0, 4, 100.0, 2.0) == pytest.approx(0.32)
    assert input_seconds(64.0, 0, 100.0, 5.0) == 0.0  # cores not counted
    assert input_seconds(64.0, 4, INF, 5.0) == 0.0
    assert input_seconds(64.0, 10**9, 100.0, 1.0) == pytest.approx(0.0, abs=1e-6)  # infinite cores


def test_serial_work_bounds_what_cores_can_do():
    assert useful_cores(7, 0.0) == 7.0
    assert useful_cores(4, 0.25) == pytest.approx(2.0)
    assert useful_cores(10**9, 0.04) == pytest.approx(25.0)
    assert useful_cores(0, 0.04) == 0.0
    assert input_seconds(64.0, useful_cores(4, 0.25), 100.0, 1.0) == pytest.approx(0.32)


def test_what_is_cached_does_not_come_from_storage():
    assert stored_bytes(1e5, 1e11, 0.0) == 1e5
    assert stored_bytes(1e5, 1e11, 25e9) == pytest.approx(0.75e5)
    assert stored_bytes(1e5, 1e11, 2e11) == 0.0
    assert stored_bytes(1e5, INF, 1e12) == 1e5  # too large to cache
    assert read_seconds(512.0, 1e5, seconds_per_byte(4, 500e6)) == pytest.approx(512 * 1e5 / 125e6)


def test_memory_bandwidth_and_cpu_jobs():
    assert bandwidth_stretch(50.0, 100.0) == 1.0
    assert bandwidth_stretch(150.0, 100.0) == 1.5
    assert cpu_job_seconds(2.0, 4, 4, 1.0, 1.0) == 2.0
    assert cpu_job_seconds(2.0, 4, 8, 1.0, 1.0) == 1.0
    assert cpu_job_seconds(2.0, 4, 4, 1.5, 0.5) == 6.0


def test_statistical_efficiency():
    assert statistical_efficiency(1000.0, 100.0, 100.0) == 1.0  # batch at its base
    assert statistical_efficiency(1000.0, 100.0, 1200.0) == pytest.approx(0.5)
    assert statistical_efficiency(INF, 100.0, 1e9) == 1.0
    assert progress_per_iteration(1000.0, 100.0, 1200.0) == pytest.approx(6.0)
    assert progress_per_iteration(1e-9, 100.0, 1200.0) == pytest.approx(1.0)  # no noise: samples are wasted


def test_parameter_server_step():
    assert step_seconds(0.5, 2, 1, 2, 1.0, (0.1, 0.01, 0.02, 0.03)) == pytest.approx(
        0.5 + 0.2 + 0.02 + 0.02 + 0.06
    )
    assert step_seconds(0.5, 1, 10**9, 1, 1.0, (0.1, 0.0, 0.0, 0.0)) == pytest.approx(0.5)  # many servers
    assert server_efficiency(0.0, -2.0, 1.0, 3.0) == 1.0
    assert server_efficiency(1e3, -2.0, 1.0, 3.0) == pytest.approx(3.0)
    design = calibration_design(64.0, np.array([[2.0, 1.0, 2.0]]))
    assert design.tolist() == [[32.0, 1.0, 2.0, 2.0, 1.0, 2.0]]


def test_parameter_server_times_are_never_negative():
    # the published unconstrained fits are, in up to 29 of these 40 cells
    for model in catalogue():
        if model.step_coefficients is None:
            continue
        theta = model.step_coefficients
        for workers in range(1, 5):
            for servers in range(1, 11):
                compute = theta[0] * model.batch_size / workers + theta[1]
                assert step_seconds(compute, workers, servers, workers, 1.0, tuple(theta[2:])) > 0


def test_profiles_hold_the_refit():
    served = pytest.importorskip("ringyard_agents.validation.served")
    for name in served.CALIBRATION:
        theta = coefficient_row(profile(f"aiturbo_{name}"))[:6]
        assert theta == pytest.approx(served.refit(name), rel=1e-3, abs=1e-5)


# sharing


ONE, TWO = "resnet50_imagenet", "lstm_wikitext2"
SHARING = {
    ONE: {
        "v100": GpuFigures(0.01, 0.001, "drawn", {16: (0.4, 1.0), 64: (0.8, 3.0), 256: (0.0, 3.0)}),
        "t4": GpuFigures(0.05, 0.002, "drawn", {64: (0.5, 0.25)}),
    },
    TWO: {
        "v100": GpuFigures(0.02, 0.004, "drawn", {20: (0.3, 0.7)}),
        "t4": GpuFigures(0.02, 0.004, "drawn", {20: (2.0, 0.9)}),
    },
}


def test_gpus_that_only_compute_are_active_whatever_their_type_and_batch():
    kinds = ({"num_servers": 1, "gpus_per_server": 1, "gpu_type": kind} for kind in ("v100", "t4"))
    table = specs((1, "resnet50_imagenet"))
    table = replace(table, max_batch=4 * table.batch_size)
    physics = composed(INF, INF)
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
    return arrived(cluster, table, composed(INF, INF, interference=sensitivity_pressure()))


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
        assert Draft(sim.view()).place(share(), 2).gpu_ids == (1,)
        sim.apply([Allocation(0, (0,), batch_size=4.0)])  # V100: 0.3 x 1 + 0.4 x 0.7 = 0.58
        assert Draft(sim.view()).place(share(), 2).gpu_ids == (0,)


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
    sim = arrived(cluster, jobs, composed(INF, INF, interference=table))
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
        composed(1e9, 1e9, interference=sensitivity_pressure()),
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
        "v100": GpuFigures(0.010, 0.001, "drawn"),
        "t4": GpuFigures(0.050, 0.002, "drawn"),
        "k80": GpuFigures(0.020, 0.010, "drawn"),
        "a100": GpuFigures(0.040, 0.0005, "drawn"),
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


def test_solo_seconds_bounds_and_fastest_take_the_best_type_at_each_batch():
    with figures(KINDS):
        sim = beside((1, ONE, 16), cluster=of_types("v100", "a100"))
        small, large = 16 * (0.010 + 0.001), (0.040 + 0.0005 * 1024) / 64  # V100 at 1, A100 at 1,024 samples
        rows, batches = np.zeros(2, np.int64), np.array([1.0, 1024.0])
        assert solo_seconds(sim.view(), rows, batch_size=batches) == pytest.approx([small, large])
        a100 = sim.cluster.distinct_gpu_types.index("a100")
        on_a100 = solo_seconds(sim.view(), rows, batch_size=batches, gpu_type=a100)
        assert on_a100 == pytest.approx([16 * 0.0405, large])
        iterations = 100.0 / (0.010 + 0.001 * 16)
        assert fastest_alone(sim)[0] == pytest.approx([iterations * large], rel=0.02)
        assert fastest_alone(sim)[0] <= iterations * large
        for batch, gpus in ((1.0, (0,)), (1024.0, (2,))):
            shape = Allocation(0, (0,), batch_size=batch)
            assert Draft(sim.view()).place(fastest(), 0, shape).gpu_ids == gpus


def test_a_tables_own_seconds_are_scaled_part_by_part():
    with figures(KINDS):
        jobs = replace(
            specs((1, ONE), (1, ONE)), compute_seconds=np.ones(2), fixed_fraction=np.array([0.25, 1.0])
        )
        sim = arrived(of_types("v100", "t4"), jobs, composed(INF, INF))
        sim.apply([Allocation(0, (2,)), Allocation(1, (3,))])
        assert seconds(sim, 0) == pytest.approx(0.25 * 5 + 0.75 * 2)
        assert seconds(sim, 1) == pytest.approx(5.0)
        classes = sim.state.jobs["demand_class"][0, :2]
        assert classes[0] != classes[1]  # what is found for one is not true of the other


def test_cores_bound_the_input_pipeline_and_change_for_free():
    jobs = replace(specs((1, "resnet50_imagenet")), cores_per_worker=np.array([1]))
    cluster = Cluster.homogeneous(1, 1, gpu_type="v100", cores_per_server=8)
    sim = arrived(cluster, jobs, composed(1e9, 1e9), restart=constant(30.0))
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
    assert record["progress_from_seconds"] == sim.now  # no pause


def test_memory_bandwidth_is_shared_by_all_and_capped_for_cpu_jobs():
    jobs = JobTable.cpu_only([0.0, 0.0], [4, 4], [100.0, 100.0], [10e9, 5e9])
    cluster = Cluster.homogeneous(
        1, 1, cores_per_server=8, memory_bandwidth_bytes_per_second=30e9
    )  # 40 + 20 GB/s asked
    sim = arrived(cluster, jobs, composed(1e9, 1e9))
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


# network


def links(sim):
    return sim.state.jobs["contenders"][0, : len(sim.jobs)].tolist()


def spread_pairs(contention, count, **cluster):
    """`count` jobs of two GPUs on servers (0, 1), (1, 2), ..., each ring across two servers."""
    jobs = specs(*[(2, "vgg16")] * count)
    sim = arrived(
        Cluster.homogeneous(count + 1, 2, **cluster), jobs, composed(1e9, 1e12, contention=contention)
    )
    sim.apply([Allocation(j, (2 * j + 1, 2 * j + 2)) for j in range(count)])
    return sim


def test_max_min_by_hand():
    # a chain: the middle link of three rings carries two, all links alike: every ring gets half, or more
    # where it is alone: ring 0 uses servers 0, 1; ring 1 uses 1, 2; ring 2 uses 2, 3
    assert links(spread_pairs("max_min", 3)) == [2.0, 2.0, 2.0]
    # two rings share server 1 with ring 0 only: what ring 0 cannot use elsewhere is theirs
    jobs = specs((2, "vgg16"), (2, "vgg16"), (2, "vgg16"), (2, "vgg16"))
    sim = arrived(Cluster.homogeneous(4, 3), jobs, composed(1e9, 1e12, contention="max_min"))
    sim.apply(
        [
            Allocation(0, (0, 3)),  # servers 0, 1
            Allocation(1, (1, 4)),  # 0, 1
            Allocation(2, (2, 6)),  # 0, 2: server 0 carries three rings, a third each
            Allocation(3, (7, 9)),  # 2, 3: gets the two thirds of server 2 that ring 2 leaves
        ]
    )
    assert links(sim) == pytest.approx([3.0, 3.0, 3.0, 1.5])


def test_worst_link_counts_jobs_whatever_they_get():
    assert links(spread_pairs("worst_link", 3)) == [2.0, 2.0, 2.0]
    assert links(spread_pairs("none", 3)) == [0.0, 0.0, 0.0]


def test_live_transfers_count_duty_cycles():
    sim = spread_pairs("live_transfers", 2)
    own = profile("vgg16")
    transfer = own.gradient_bytes / 1e9
    duty = transfer / (own.compute_seconds + transfer)
    assert links(sim) == pytest.approx([1 + duty, 1 + duty])


@pytest.mark.parametrize("contention", ["worst_link", "max_min"])
def test_oversubscribed_uplinks(contention):
    # two racks of two servers; an uplink of oversubscription 4 carries half a ring
    options = {"servers_per_rack": 2, "uplink_oversubscription": 4.0}
    sim = spread_pairs(contention, 3, **options)
    # ring 1 crosses the racks alone: it gets half; rings 0 and 2 stay inside and share one server with it
    crossing, inside = {"worst_link": (2.0, 2.0), "max_min": (2.0, 2.0)}[contention]
    assert links(sim) == pytest.approx([inside, crossing, inside])
    alone = spread_pairs(contention, 1, servers_per_rack=1, uplink_oversubscription=4.0)
    assert links(alone) == pytest.approx([4.0])


# elastic


def test_resizing_by_hand():
    jobs = specs((2, "resnet50_imagenet"))
    own = profile("resnet50_imagenet")
    jobs = replace(
        jobs,
        min_gpus=np.array([1]),
        max_gpus=np.array([4]),
        min_batch=np.array([64.0]),
        max_batch=np.array([512.0]),
    )
    sim = arrived(Cluster.homogeneous(1, 4), jobs, composed(INF, INF), restart=constant(30.0, 2.0))
    sim.apply([Allocation(0, (0, 1))])
    assert seconds(sim, 0) == pytest.approx(own.fixed_seconds + own.sample_seconds * 64)
    total = float(sim.state.jobs["total_iterations"][0, 0])
    assert total == pytest.approx(100.0 / seconds(sim, 0))
    sim.apply([Allocation(0, (0, 1, 2, 3), batch_size=512.0)])
    step = own.fixed_seconds + own.sample_seconds * 128
    worth = 4 * (own.noise_scale + 128) / (own.noise_scale + 512)
    assert seconds(sim, 0) == pytest.approx(step / worth)
    sim.advance()
    assert sim.now == pytest.approx(2.0 + total * step / worth)  # one pause, then all the work
    assert sim.state.jobs["num_resizes"][0, 0] == 1
    assert sim.metrics().mean_queueing == 0.0


def test_bounds_know_what_elastic_jobs_could_do():
    jobs = specs((2, "resnet50_imagenet"))
    jobs = replace(jobs, min_gpus=np.array([1]), max_gpus=np.array([4]))
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, composed(INF, INF))
    own = profile("resnet50_imagenet")
    iterations = 100.0 / (own.fixed_seconds + own.sample_seconds * 64)
    fastest, work = fastest_alone(sim)
    assert fastest[0] == pytest.approx(iterations * (own.fixed_seconds + own.sample_seconds * 32), rel=0.02)
    assert work[0] == pytest.approx(iterations * (own.fixed_seconds + own.sample_seconds * 128), rel=0.02)
    rigid = Simulator(Cluster.homogeneous(1, 4), specs((2, "resnet50_imagenet")), composed(INF, INF))
    assert bounds_of(rigid).isolated_mean_jct == pytest.approx(100.0)


def test_bounds_give_no_job_more_gpus_than_there_are():
    """They once read past the table of servers that so many GPUs take."""
    jobs = replace(specs((2, "resnet50"), (1, "vgg16")), max_gpus=np.array([50_000, 50_000]))
    capped = replace(jobs, max_gpus=np.array([4, 4]))
    sims = [Simulator(Cluster.homogeneous(2, 2), table, composed(1e9, 4e10)) for table in (jobs, capped)]
    assert bounds_of(sims[0]) == bounds_of(sims[1])


# parameter servers


def test_a_parameter_server_job_takes_its_step_time():
    jobs = specs((2, "aiturbo_resnet50"))
    own = profile("aiturbo_resnet50")
    jobs = replace(
        jobs,
        kind=np.array([int(JobKind.PARAMETER_SERVER)]),
        parameter_servers=np.array([2]),
        cores_per_server_task=np.array([1]),
        cores_per_worker=np.array([1]),
    )
    cluster = Cluster.homogeneous(2, 2, cores_per_server=8)
    sim = arrived(cluster, jobs, composed(1e9, 1e9))
    sim.apply([Allocation(0, (0, 2))])
    a, b, d = own.server_efficiency
    ratio = (a * np.exp(-b * 5) + d) / (a * np.exp(-b) + d)
    theta = own.step_coefficients
    expected = own.compute_seconds + theta[2] * ratio * 2 / 2 + theta[3] * 2 + theta[4] * 2 + theta[5] * 2
    assert seconds(sim, 0) == pytest.approx(expected)
    assert sim.state.servers["free_cores"][0].tolist() == [6, 6]  # a worker and a server task on each
    sim.apply([Allocation(0, (0, 2), cores_per_server_task=5)])
    assert seconds(sim, 0) < expected
    sim.apply([Allocation(0)])
    assert sim.state.servers["free_cores"][0].tolist() == [8, 8]


@pytest.mark.parametrize(
    "options",
    [
        {"contention": "fastest"},
        {"overlap_exponent": 0.5},
        {"straggler_cv": -0.1},
        {"network": 0.0},
        {"contention": "max_min", "xi_1": 0.5},
    ],
)
def test_composed_constants_out_of_range(options):
    with pytest.raises(ConfigurationError, match="expected"):
        composed(**{"network": 1e9, "interconnect": 1e9, **options})


def test_models_are_in_the_catalogue():
    assert len([m for m in catalogue() if m.parameters and m.noise_scale and len(m.gpus) > 1]) >= 15
    assert model_id("vgg16") >= 0


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group in ("network", "interconnect") for name in names(group)],
)
def test_named_fabrics_are_as_configured(group, name):
    named = {"network": network, "interconnect": interconnect}[group](name)
    chosen = composed_config("simulate", f"{group}@performance.{group}={name}")
    assert instantiate(chosen.performance[group], _convert_="all") == named
    assert named.source


def test_unknown_fabrics_say_which_there_are():
    with pytest.raises(
        ConfigurationError, match=r"unknown network 'token_ring'; expected one of .*ethernet_10g"
    ):
        network("token_ring")
