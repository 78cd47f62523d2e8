"""Parts of the physics by hand: closed forms, limits, and small clusters computed on paper."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hydra.utils import instantiate

from conftest import CONF, names
from conftest import composed as composed_config
from ringyard import Allocation, Cluster, Simulator
from ringyard.bounds import isolated_bounds, simulation_bounds
from ringyard.errors import ConfigurationError
from ringyard.fabric import Fabric, interconnect, latency_seconds, network, ring_bytes_per_second
from ringyard.performance import LoadedMemory, composite
from ringyard.performance.composite import (
    coefficient_row,
    server_efficiency,
    step_seconds,
)
from ringyard.performance.host_resources import (
    bandwidth_slowdown,
    cpu_job_seconds,
    input_seconds,
    stored_bytes,
    useful_cores,
)
from ringyard.performance.model import progress_per_iteration, statistical_efficiency
from ringyard.performance.ring import overlapped_seconds
from ringyard.profiles import catalogue, model_id, profile
from ringyard.restart import constant
from ringyard.state.records import BatchSplit, Job, JobKind
from small_simulations import arrived, specs
from tools.equations.parameter_server_errors import refit
from tools.measured_sets.aiturbo import CALIBRATION

INF = float("inf")


def seconds(sim, job):
    return float(sim.state.jobs["iteration_seconds"][0, job])


def with_servers(workers, servers):
    """Parameter-server jobs of one model."""
    jobs = specs(*[(count, "aiturbo_resnet50") for count in workers])
    kinds = np.full(len(jobs), int(JobKind.PARAMETER_SERVER))
    return replace(jobs, kind=kinds, parameter_servers=np.array(servers))


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
        sim = arrived(
            Cluster.homogeneous(4, 4), specs((len(gpus), "vgg16")), composite(network, interconnect)
        )
        sim.apply([Allocation(0, gpus)])
        assert seconds(sim, 0) == pytest.approx(own.compute_seconds + expected)


def test_overlap():
    assert overlapped_seconds(3.0, 4.0, 1.0) == 7.0
    assert overlapped_seconds(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert overlapped_seconds(3.0, 4.0, 200.0) == pytest.approx(4.0)  # full overlap: the longer
    assert overlapped_seconds(3.0, 0.0, 2.5) == pytest.approx(3.0)
    assert overlapped_seconds(0.0, 0.0, 2.5) == 0.0


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


def test_memory_bandwidth_and_cpu_jobs():
    full = LoadedMemory().slowdowns
    assert bandwidth_slowdown(50.0, 100.0, full) == 1.0
    assert bandwidth_slowdown(150.0, 100.0, full) == 1.5
    jobs = Job.zeros(3)
    jobs["compute_seconds"], jobs["asked_cores"], jobs["cores_per_worker"] = 2.0, 4, [4, 8, 4]
    jobs["bandwidth_slowdown"], jobs["memory_bandwidth_cap"] = [1.0, 1.0, 1.5], [1.0, 1.0, 0.5]
    assert [cpu_job_seconds(job) for job in jobs] == [2.0, 1.0, 6.0]


def test_memory_slows_down_before_it_is_full():
    """Half of the work waits for memory. At 80 % of its bandwidth an access takes 1.5 times as long."""
    memory = LoadedMemory({0.4: 1.0, 0.8: 1.5, 1.0: 3.0}, stalled_share=0.5).slowdowns
    slower = {u: bandwidth_slowdown(100.0 * u, 100.0, memory) for u in (0.1, 0.4, 0.7, 1.0, 2.0, 5.0)}
    # jobs that request 100 move 80 bytes a second, 1.25 times as slow. If they request 200, memory is full
    assert slower == pytest.approx({0.1: 1.0, 0.4: 1.0, 0.7: 1.125, 1.0: 1.25, 2.0: 2.0, 5.0: 5.0})
    loads = np.linspace(0.01, 6.0, 600)
    found = np.array([bandwidth_slowdown(load, 1.0, memory) for load in loads])
    assert (np.diff(found) >= 0).all()
    assert (loads / found <= 1.0 + 1e-12).all()  # memory never moves more than it can
    assert (found >= np.maximum(loads, 1.0)).all()


@pytest.mark.parametrize(
    "latencies", [{}, {0.4: 1.0}, {0.8: 1.2, 0.4: 1.0, 1.0: 2.0}, {0.4: 1.5, 1.0: 1.2}, {0.5: 0.9, 1.0: 1.0}]
)
def test_latencies_that_no_memory_has_are_refused(latencies):
    with pytest.raises(ConfigurationError, match=r"memory\.latencies"):
        LoadedMemory(latencies)


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


def test_parameter_server_steps_leave_their_form_by_model_and_size():
    jobs = with_servers([1, 1, 2, 2, 3], [1, 2, 1, 2, 1])
    form, other, again = (
        arrived(Cluster.homogeneous(1, 4), jobs, composite(1e9, 4e10, step_deviation=one), seed=seed)
        .view()
        .column("isolated_iteration_seconds")
        for one, seed in ((0.0, 0), (0.12, 0), (0.12, 1))
    )
    z = np.log(other / form) / 0.12
    assert len(set(z.tolist())) == len(jobs)
    assert 0.3 < np.sqrt((z**2).mean()) < 2.0
    assert (other == again).all()  # of the hardware, not of a run


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
    for name in CALIBRATION:
        theta = coefficient_row(profile(f"aiturbo_{name}"))[:6]
        assert theta == pytest.approx(refit(name), rel=1e-3, abs=1e-5)


# network


def links(sim):
    return sim.state.jobs["contenders"][0, : len(sim.jobs)].tolist()


def spread_pairs(contention, count, **cluster):
    """`count` jobs of two GPUs on servers (0, 1), (1, 2), ..., each ring across two servers."""
    jobs = specs(*[(2, "vgg16")] * count)
    sim = arrived(
        Cluster.homogeneous(count + 1, 2, **cluster), jobs, composite(1e9, 1e12, contention=contention)
    )
    sim.apply([Allocation(j, (2 * j + 1, 2 * j + 2)) for j in range(count)])
    return sim


def test_max_min_by_hand():
    # a chain: the middle link of three rings carries two, all links alike: every ring gets half, or more
    # where it is alone: ring 0 uses servers 0, 1; ring 1 uses 1, 2; ring 2 uses 2, 3
    assert links(spread_pairs("max_min", 3)) == [2.0, 2.0, 2.0]
    # two rings share server 1 with ring 0 only: what ring 0 cannot use elsewhere is theirs
    jobs = specs((2, "vgg16"), (2, "vgg16"), (2, "vgg16"), (2, "vgg16"))
    sim = arrived(Cluster.homogeneous(4, 3), jobs, composite(1e9, 1e12, contention="max_min"))
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


def test_two_rings_on_one_link_at_shares_of_three_to_one():
    own = profile("vgg16")
    alone = own.gradient_bytes / 1e9
    duty = alone / (own.compute_seconds + alone)
    others = {"worst_link": 1.0, "max_min": 1.0, "live_transfers": duty}  # how much of a ring is on its links
    for contention, part in others.items():
        for racks in ({}, {"servers_per_rack": 1}):
            model = composite(1e9, 1e12, contention=contention, overlap_exponent=1.0)
            sim = arrived(Cluster.homogeneous(2, 2, **racks), specs((2, "vgg16"), (2, "vgg16")), model)
            sim.apply([Allocation(0, (0, 2), link_share=3.0), Allocation(1, (1, 3))])
            assert links(sim) == pytest.approx([1 + part / 3, 1 + part * 3])
            first, second = (own.compute_seconds + alone * rings for rings in links(sim))
            assert [seconds(sim, 0), seconds(sim, 1)] == pytest.approx([first, second])
            iterations = 100.0 / (own.compute_seconds + own.gradient_bytes / 1e12)
            while not sim.done:
                sim.advance()
            ends = sim.state.jobs["end_seconds"][0, :2]
            left = iterations * (1 - first / second)  # of the second ring, when the first ends
            later = iterations * first + left * (own.compute_seconds + alone)
            assert ends == pytest.approx([iterations * first, later])


def test_a_change_of_link_shares_takes_no_time_and_lasts_until_the_job_stops():
    sim = spread_pairs("worst_link", 2)
    fair = links(sim)
    sim.apply([Allocation(0, (1, 2), link_share=4.0)])
    assert links(sim) == [1.25, 5.0]
    job = sim.state.jobs[0, 0]
    assert job["num_preemptions"] == 0
    assert job["pause_ends_seconds"] <= sim.now
    sim.apply([Allocation(0, (1, 2))])
    assert links(sim) == [1.25, 5.0]
    sim.apply([Allocation(0), Allocation(0, (1, 2))])
    assert links(sim) == fair == [2.0, 2.0]


def test_what_a_heavy_ring_cannot_use_goes_to_its_neighbours():
    jobs = specs(*[(2, "vgg16")] * 3)
    sim = arrived(Cluster.homogeneous(3, 2), jobs, composite(1e9, 1e12, contention="max_min"))
    sim.apply([Allocation(0, (0, 2)), Allocation(1, (1, 4), link_share=3.0), Allocation(2, (3, 5))])
    # server 0: 1/4 and 3/4; server 2: ring 2 has what ring 1 leaves; server 1: it has room for both
    assert links(sim) == pytest.approx([4.0, 4 / 3, 4.0])


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
    sim = arrived(Cluster.homogeneous(1, 4), jobs, composite(INF, INF), restart=constant(30.0, 2.0))
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
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, composite(INF, INF))
    own = profile("resnet50_imagenet")
    iterations = 100.0 / (own.fixed_seconds + own.sample_seconds * 64)
    fastest, work = isolated_bounds(sim)
    assert fastest[0] == pytest.approx(iterations * (own.fixed_seconds + own.sample_seconds * 32), rel=0.02)
    assert work[0] == pytest.approx(iterations * (own.fixed_seconds + own.sample_seconds * 128), rel=0.02)
    rigid = Simulator(Cluster.homogeneous(1, 4), specs((2, "resnet50_imagenet")), composite(INF, INF))
    assert simulation_bounds(rigid).isolated_mean_jct == pytest.approx(100.0)


def test_bounds_give_no_job_more_gpus_than_there_are():
    """They once read past the table of servers that so many GPUs take."""
    jobs = replace(specs((2, "resnet50"), (1, "vgg16")), max_gpus=np.array([50_000, 50_000]))
    capped = replace(jobs, max_gpus=np.array([4, 4]))
    sims = [Simulator(Cluster.homogeneous(2, 2), table, composite(1e9, 4e10)) for table in (jobs, capped)]
    assert simulation_bounds(sims[0]) == simulation_bounds(sims[1])


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
    sim = arrived(cluster, jobs, composite(1e9, 1e9))
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
        {"out_of_order_backprop": 1.5},
        {"batch_split": "fair"},
        {"straggler_cv": -0.1},
        {"network": 0.0},
        {"contention": "max_min", "xi_1": 0.5},
    ],
)
def test_composed_constants_out_of_range(options):
    with pytest.raises(ConfigurationError, match="expected"):
        composite(**{"network": 1e9, "interconnect": 1e9, **options})


def test_out_of_order_backprop_hides_transfers_up_to_the_longer_of_the_two():
    jobs = replace(specs((2, "resnet50_imagenet")), iterations=np.array([10.0]))
    own = profile("resnet50_imagenet")
    compute, ring = own.compute_seconds, own.gradient_bytes / 1e9  # 2 m (w - 1) / w / B
    for reordered, exponent in ((0.0, own.overlap_exponent), (0.5, 2 * own.overlap_exponent), (1.0, INF)):
        physics = composite(1e9, 1e10, out_of_order_backprop=reordered)
        sim = arrived(Cluster((1, 1)), jobs, physics)
        sim.apply([Allocation(0, (0, 1))])
        expected = overlapped_seconds(compute, ring, exponent)
        assert seconds(sim, 0) == pytest.approx(expected)
        assert reordered < 1 or expected == max(compute, ring)


@pytest.mark.parametrize(
    ("model", "fixed"), [("resnet50_imagenet", None), ("a3c_pong", 1.0), ("vgg16_imagenet", 0.0)]
)
def test_unlike_gpus_take_shares_of_the_batch_by_their_speed(model, fixed):
    cluster = Cluster((2, 1), gpu_types=("v100", "p100"))
    own = profile(model)
    jobs = replace(specs((3, model), (2, model)), iterations=np.full(2, 100.0))
    if fixed is not None:
        jobs = replace(jobs, fixed_fraction=np.full(2, fixed))
    part = float(jobs.fixed_fraction[0])
    p100 = np.array(own.relative_seconds("p100"))
    found = {}
    splits = {"equal": BatchSplit.EQUAL, "by_speed": BatchSplit.BY_SPEED}
    for split, other in itertools.pairwise((*splits, "equal")):
        sim = arrived(cluster, jobs, composite(INF, INF, batch_split=split), losses=True)
        sim.apply([Allocation(0, (0, 1, 2))])
        found[split] = seconds(sim, 0) / own.compute_seconds
        same = replace(jobs, batch_split=np.full(2, splits[split]))
        job_decides = arrived(cluster, same, composite(INF, INF, batch_split=other))
        job_decides.apply([Allocation(0, (0, 1, 2))])
        assert seconds(job_decides, 0) == seconds(sim, 0)
        sim.advance()
        assert sim.metrics().kernel_utilisation <= 1.0
        sim.apply([Allocation(1, (0, 1))])
        assert seconds(sim, 1) == pytest.approx(own.compute_seconds)  # like GPUs: the batch in equal parts
    fixed_p100, sample_p100 = p100
    slowest = part * fixed_p100 + (1 - part) * sample_p100
    shares = [(found["by_speed"] - part * f) / ((1 - part) * s or INF) for f, s in ((1, 1), (1, 1), p100)]
    assert found["equal"] == pytest.approx(slowest)
    if part < 1.0:  # all end together, and the shares are the whole batch
        assert sum(shares) == pytest.approx(3.0)
        assert found["by_speed"] < slowest
    else:  # there is nothing to split
        assert found["by_speed"] == pytest.approx(fixed_p100)
    if part == 0.0:  # batch / sum of speeds
        assert found["by_speed"] == pytest.approx(3 / (2 + 1 / sample_p100))


def test_lower_bounds_hold_where_gangs_split_their_batch_by_speed():
    cluster = Cluster((1, 1), gpu_types=("v100", "p100"))
    jobs = specs(*[(2, "resnet50_imagenet")] * 8)
    jobs = replace(jobs, iterations=np.full(8, 100.0), fixed_fraction=np.full(8, 0.5))
    sim = arrived(cluster, jobs, composite(INF, INF, batch_split="by_speed"))
    for job in range(8):
        sim.apply([Allocation(job, (0, 1))])
        sim.advance()
    bounds = simulation_bounds(sim)
    assert bounds.mean_jct <= sim.metrics().mean_jct * (1 + 1e-9)
    assert bounds.makespan <= sim.metrics().makespan * (1 + 1e-9)


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


@pytest.mark.parametrize("name", names("network"))
def test_networks_tell_wire_speed_from_achieved_speed(name):
    """Both figures have a source, and the table of docs/physics.md shows them as they are."""
    fabric = network(name)
    kind, _, reference = fabric.source.partition(": ")
    assert kind in ("trainings", "trainings at least", "benchmark")
    assert reference
    assert fabric.wire_source
    wire, figures = fabric.wire_bytes_per_second, fabric.bytes_per_second
    assert (wire is None) == ("does not say" in fabric.wire_source)
    got, falls = f"{figures / 1e9:.3g}" if isinstance(figures, float) else "", "not measured"
    if isinstance(figures, dict):
        by_servers = list(figures.values())
        got = ", ".join(f"{figure / 1e9:.3g} on {count}" for count, figure in figures.items())
        falls = "yes" if by_servers[-1] < 0.95 * max(by_servers) else "no"
    speed = "not published" if wire is None else f"{wire / 1e9:.4g}"
    row = f"| `{name}` | {speed} | {got} | {kind} | {falls} |"
    assert row in (CONF.parent / "docs/physics.md").read_text().splitlines()


def test_a_ring_is_not_faster_than_its_wire():
    with pytest.raises(
        ConfigurationError, match=r"is 5e\+10, faster than its wire, 6\.25e\+09; expected bytes"
    ):
        Fabric({2: 1e9, 8: 50e9}, wire_bytes_per_second=6.25e9)
    assert Fabric(INF, wire_bytes_per_second=6.25e9).bandwidth(np.array([2])) == INF  # costs nothing


def test_unknown_fabrics_say_which_there_are():
    with pytest.raises(
        ConfigurationError, match=r"unknown network 'token_ring'; expected one of .*ethernet_10g"
    ):
        network("token_ring")
