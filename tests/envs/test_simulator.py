"""Placement rules, metrics, bounds and errors, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.bounds import simulation_bounds
from ringyard.errors import ConfigurationError, PlacementError, SchedulerError, WorkloadError
from ringyard.performance import composite
from ringyard.placement import by_tier, consolidate, first_fit, least_contended, lwf, pack, spread
from ringyard.profiles import model_id, profile
from ringyard.restart import CORES_SECONDS, constant, growing, per_model
from ringyard.sim.metrics import timeline
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.state.records import JobKind
from small_simulations import arrived, rings, specs


def at_first_arrival(gpus, servers=(4, 4, 4), performance=None, held=()):
    """A simulator whose first jobs hold the given GPUs and whose last job asks for `gpus`."""
    sizes = [len(ids) for ids in held] + [gpus]
    jobs = JobTable.from_columns([0.0] * len(sizes), sizes, [100.0] * len(sizes))
    sim = Simulator(Cluster(servers), jobs, performance or ideal())
    sim.advance()
    sim.apply([Allocation(j, tuple(ids)) for j, ids in enumerate(held)])
    return sim, len(held)


def placed(rule, gpus, held=(), servers=(4, 4, 4)):
    sim, job = at_first_arrival(gpus, servers, held=held)
    allocation = PlacementPlan(sim.view()).place(rule, job)
    return allocation.gpu_ids if allocation else ()


def test_pack_takes_the_tightest_server_then_the_fewest():
    held = [(0, 1), (4,)]  # free: 2, 3, 4
    assert placed(pack(), 2, held) == (2, 3)
    assert placed(pack(), 3, held) == (5, 6, 7)
    assert placed(pack(), 6, held) == (5, 6, 8, 9, 10, 11)
    assert placed(pack(), 10, held) == ()


def test_spread_alternates():
    assert placed(spread(), 3) == (0, 4, 8)
    assert placed(spread(), 4, [(0, 1, 2)]) == (4, 5, 8, 9)


def test_first_fit_takes_the_lowest_ids():
    assert placed(first_fit(), 5, [(1, 4)]) == (0, 2, 3, 5, 6)


def test_consolidate_waits_rather_than_splits():
    held = [(0,), (4,), (8,)]
    assert placed(consolidate(), 4, held) == ()
    assert placed(consolidate(), 3, held) == (1, 2, 3)
    # one whole server; the rest goes to the server with the most free GPUs, as in the peer
    assert placed(consolidate(), 6, [(0,)]) == (4, 5, 6, 7, 8, 9)
    assert placed(consolidate(), 8, [(0,)]) == tuple(range(4, 12))
    assert placed(consolidate(), 7, [(0, 1), (4,)]) == (5, 6, 7, 8, 9, 10, 11)
    assert placed(consolidate(), 8, [(0,), (4,)]) == ()


def test_consolidate_counts_the_gpus_that_cores_leave():
    """On 4 GPUs and 8 cores, a job with 3 cores a GPU has room for 2: 4 GPUs are two whole servers."""
    jobs = JobTable.from_columns([0.0] * 2, [1, 4], [100.0] * 2)
    jobs = replace(jobs, cores_per_worker=np.array([1, 3]))
    sim = Simulator(Cluster((4, 4, 4), cores_per_server=(8, 8, 8)), jobs, ideal())
    sim.advance()
    assert PlacementPlan(sim.view()).place(consolidate(), 1).gpu_ids == (0, 1, 4, 5)
    sim.apply([Allocation(0, (0,))])
    assert PlacementPlan(sim.view()).place(consolidate(), 1).gpu_ids == (4, 5, 8, 9)


def test_least_contended_avoids_busy_links():
    # servers of 2: a job spans 0 and 1; the newcomer of 2 finds one GPU free on each of 0, 1, 2, 3
    held = [(0, 2), (4,), (6,)]
    assert placed(least_contended(), 2, held, (2, 2, 2, 2)) == (5, 7)
    assert placed(pack(), 2, held, (2, 2, 2, 2)) == (1, 3)
    assert placed(least_contended(), 3, held, (2, 2, 2, 2)) == (1, 3, 5)  # needs a busy link anyway


def test_by_tier_takes_one_server_then_one_rack_then_equal_parts():
    def places(gpus, held):
        jobs = JobTable.from_columns([0.0] * 2, [len(held), gpus], [100.0] * 2)
        cluster = Cluster((2,) * 6, rack_of_server=(0, 0, 1, 1, 2, 2))
        sim = Simulator(cluster, jobs, ideal())
        sim.advance()
        sim.apply([Allocation(0, held)])
        allocation = PlacementPlan(sim.view()).place(by_tier(), 1)
        return allocation.gpu_ids if allocation else ()

    assert places(2, (0, 2)) == (4, 5)
    assert places(3, (0, 8)) == (1, 2, 3)
    assert places(4, (0,)) == (4, 5, 6, 7)
    assert places(4, (0, 4, 8)) == (2, 3, 6, 7)  # two in each of two racks, where `pack` takes no care
    assert len(places(7, (0, 1))) == 7
    assert places(11, (0, 1)) == ()


def test_lwf_packs_small_jobs_low_and_large_ones_on_idle_servers():
    assert placed(lwf(1), 1, [(0,)]) == (1,)
    assert placed(lwf(1), 2, [(0,)]) == (4, 5)
    assert placed(lwf(2), 2, [(0,)]) == (1, 2)
    with pytest.raises(ConfigurationError, match="kappa"):
        lwf(-1)


BAD_ALLOCATIONS = {
    "no such job": (Allocation(9, (0,)), "there is no job"),
    "too few GPUs": (Allocation(1, (4,)), "expected 2 GPUs"),
    "twice the same GPU": (Allocation(1, (4, 4)), "twice"),
    "no such GPU": (Allocation(1, (4, 99)), "there is no GPU"),
    "held by another": (Allocation(1, (0, 4)), "held by job 0"),
    "stop a waiting job": (Allocation(1, ()), "expected a running job"),
}


@pytest.mark.parametrize("case", BAD_ALLOCATIONS)
def test_impossible_placements_say_why_and_change_nothing(case):
    allocation, words = BAD_ALLOCATIONS[case]
    sim, _ = at_first_arrival(2, held=[(0,)])
    before = [array.tobytes() for array in sim.state]
    with pytest.raises(PlacementError, match=words):
        sim.apply([allocation])
    assert [array.tobytes() for array in sim.state] == before


def test_only_present_jobs_take_gpus():
    jobs = JobTable.from_columns([0.0, 50.0], [1, 1], [10.0, 10.0])
    sim = Simulator(Cluster((2,)), jobs, ideal())
    sim.advance()
    with pytest.raises(PlacementError, match="future"):
        sim.apply([Allocation(1, (0,))])
    sim.apply([Allocation(0, (0,))])
    sim.advance()
    with pytest.raises(PlacementError, match="done"):
        sim.apply([Allocation(0, (0,))])


def test_migration_costs_a_restart():
    jobs = JobTable.from_columns([0.0, 40.0], [1, 1], [100.0, 500.0])
    sim = Simulator(Cluster((2,)), jobs, ideal(), constant(30.0))
    sim.advance()
    sim.apply([Allocation(0, (0,))])
    sim.apply([Allocation(0, (0,))])  # the same place: nothing happens
    assert sim.state.jobs["num_preemptions"][0, 0] == 0
    sim.advance()
    assert sim.now == 40.0
    sim.apply([Allocation(0, (1,))])
    assert sim.view().gpus_of(0) == (1,)
    sim.advance()
    assert sim.now == 40.0 + 30.0 + 60.0
    assert sim.state.jobs["num_preemptions"][0, 0] == 1


def test_restart_costs():
    jobs = JobTable.from_columns([0.0, 0.0], [1, 1], [1.0, 1.0]).with_models(
        np.array([model_id("vgg16"), model_id("resnet50")])
    )
    assert constant(5.0).restart_seconds(jobs).tolist() == [5.0, 5.0]
    assert constant(5.0).resize_seconds(jobs).tolist() == [5.0, 5.0]
    assert constant(5.0, 1.5).resize_seconds(jobs).tolist() == [1.5, 1.5]
    assert per_model(30.0).restart_seconds(jobs).tolist() == [30.0, 250.0]
    assert per_model(30.0, 2.0).resize_seconds(jobs).tolist() == [2.0, 2.0]
    assert constant(5.0, 1.5).servers_seconds(jobs).tolist() == [1.5, 1.5]  # as a resize
    assert constant(5.0, 1.5, 9.0).servers_seconds(jobs).tolist() == [9.0, 9.0]
    assert constant(5.0).cores_seconds(jobs).tolist() == [CORES_SECONDS] * 2
    assert per_model(30.0, 2.0, cores_seconds=3.0).cores_seconds(jobs).tolist() == [
        2.0,
        2.0,
    ]  # at most a resize
    cpu_only = JobTable.cpu_only(np.zeros(1), np.ones(1, int), np.ones(1), np.ones(1))
    assert constant(5.0).cores_seconds(cpu_only).tolist() == [0.0]
    with pytest.raises(ConfigurationError, match="restart"):
        constant(-1.0)


def test_restarts_grow_with_the_gpus_a_job_goes_on_with():
    jobs = JobTable.from_columns([0.0], [4], [100.0])
    jobs = replace(jobs, min_gpus=np.array([2]), max_gpus=np.array([8]))
    resize = {"resize_seconds": 2.0, "resize_growth": 0.5, "resize_jump": 7.0}
    sim = Simulator(Cluster((8,)), jobs, ideal(), growing(10.0, 3.0, jump=1.0, jump_gpus=8, **resize))
    sim.advance()

    def pause(*gpus):
        sim.apply([Allocation(0, gpus)])
        return sim.state.jobs["pause_ends_seconds"][0, 0] - sim.now

    assert pause(0, 1) == 0.0  # the first start is free
    assert pause(*range(8)) == 2.0 + 3 * 0.5 + 7.0
    pause()
    assert pause(4, 5, 6) == 10.0 + 3.0 * np.log2(3)  # by what it gets, not by what it asks for
    assert pause(4, 5) == 10.0 + 3.0 * np.log2(3)  # a resize does not cut a restart short
    pause()
    assert pause(*range(8)) == 10.0 + 3 * 3.0 + 1.0
    with pytest.raises(ConfigurationError, match="resize_seconds"):
        growing(1.0, resize_growth=1.0)


def test_a_change_in_place_takes_the_longest_of_its_pauses():
    jobs = replace(
        specs((2, "aiturbo_resnet50")),
        kind=np.array([int(JobKind.PARAMETER_SERVER)]),
        parameter_servers=np.array([2]),
        cores_per_worker=np.array([2]),
        cores_per_server_task=np.array([2]),
        max_gpus=np.array([4]),
        ram_per_worker=np.array([1e9]),
        duration_seconds=np.array([1e4]),
    )
    cluster = Cluster.homogeneous(1, 4, cores_per_server=40, ram_bytes_per_server=10**10)
    cost = growing(30.0, resize_seconds=6.0, resize_growth=1.0, servers_seconds=4.0, cores_seconds=2.0)
    sim = arrived(cluster, jobs, composite(1e9, 1e9), restart=cost, round_seconds=20.0)

    def pause(gpus=(0, 1), later=True, **change):
        sim.apply([Allocation(0, gpus, **change)])
        found = float(sim.state.jobs["pause_ends_seconds"][0, 0] - sim.now)
        if later:
            sim.advance()
        return found

    assert pause(later=False) == 0.0
    assert pause(cores_per_worker=1) == 0.0  # of a job that starts at this moment
    assert pause(cores_per_worker=3) == pause(cores_per_server_task=1) == 2.0
    assert pause(parameter_servers=1) == pause(parameter_servers=2, cores_per_worker=1) == 4.0
    assert pause(gpus=(0, 1, 2, 3), parameter_servers=1) == 6.0 + 2.0
    assert pause(gpus=(0, 1), cores_per_worker=2, later=False) == 6.0 + 1.0
    assert pause(parameter_servers=2) == 7.0  # ends no other pause
    before = sim.state.jobs["num_resizes"][0, 0]
    assert pause(ram_per_worker=2 * 10**9) == 0.0
    assert sim.state.jobs["num_resizes"][0, 0] == before + 1


def test_per_model_restarts_grow_as_measured_or_by_size():
    models = [profile(name) for name in ("aiturbo_vgg16", "bert_large", "gnmt")]
    ids = [model_id(model.name) for model in models]
    jobs = JobTable.from_columns([0.0] * 4, [1] * 4, [1.0] * 4).with_models(np.array([*ids, -1]))
    cost = per_model(30.0, growth=4.0, checkpoint_bytes_per_parameter=10.0, storage_bytes_per_second=1e8)
    measured = models[0].restart_seconds_per_doubling
    by_size = [4.0 + 10 * model.parameters / 1e8 for model in models[1:]]
    assert cost.restart_growth(jobs).tolist() == [measured, *by_size, 4.0]
    assert cost.resize_growth(jobs).tolist() == cost.restart_growth(jobs).tolist()
    assert per_model(30.0, 2.0).resize_growth(jobs).tolist() == [0.0] * 4


def test_decisions_in_rounds_only():
    jobs = JobTable.from_columns([0.0, 5.0, 120.0], [1, 1, 1], [63.0, 10.0, 7.0])
    sim = Simulator(Cluster((1,)), jobs, ideal(), round_seconds=20.0, rounds_only=True)
    decisions = []
    while not sim.done:
        sim.apply([Allocation(int(j), (0,)) for j in sim.view().waiting[: sim.view().num_free_gpus]])
        sim.advance()
        decisions.append(sim.now)
    # job 0 ends at 63, between two rounds; job 1 starts at the next; job 2 arrives at a round
    assert decisions == [0.0, 20.0, 40.0, 60.0, 80.0, 120.0, 127.0]
    assert sim.state.jobs["first_start_seconds"][0, :3].tolist() == [0.0, 80.0, 120.0]
    assert sim.state.jobs["end_seconds"][0, :3].tolist() == [63.0, 90.0, 127.0]
    with pytest.raises(ConfigurationError, match="round_seconds"):
        Simulator(Cluster((1,)), jobs, ideal(), rounds_only=True)


def test_metrics_by_hand():
    # one server of 2: job 0 (2 GPUs, 10 s), job 1 (1 GPU, 20 s) waits 8 s, job 2 (1 GPU, 5 s) 6 s
    jobs = JobTable.from_columns([0.0, 2.0, 4.0], [2, 1, 1], [10.0, 20.0, 5.0])
    sim = Simulator(Cluster((2,)), jobs, ideal())
    while not sim.done:
        view = sim.view()
        draft = PlacementPlan(view)
        placed = [draft.place(pack(), j) for j in view.waiting.tolist()]
        sim.apply([allocation for allocation in placed if allocation])
        sim.advance()
    metrics = sim.metrics()
    assert metrics.mean_jct == pytest.approx((10 + 28 + 11) / 3)
    assert metrics.makespan == 30
    assert metrics.mean_queueing == pytest.approx((0 + 8 + 6) / 3)
    assert metrics.mean_slowdown == pytest.approx((1 + 1.4 + 2.2) / 3)
    assert metrics.utilisation == pytest.approx((2 * 10 + 2 * 5 + 15) / 60)
    assert metrics.fragmentation == pytest.approx(15 / 60)  # from 15 to 30 one of two is free
    # GPUs asked: 2 until 2, 3 until 4, 4 until 10, then 2 or 1: shares 1, 1.5, 2, 1
    crowding = [(2 * 1 + 2 * 1.5 + 6 * 2) / 10, (2 * 1.5 + 6 * 2 + 20 * 1) / 28, (6 * 2 + 5 * 1) / 11]
    rho = [10 / (10 * crowding[0]), 28 / (20 * crowding[1]), 11 / (5 * crowding[2])]
    assert metrics.worst_fairness == pytest.approx(max(rho))
    assert metrics.mean_fairness == pytest.approx(np.mean(rho))
    ends, waiting, utilisation = timeline(sim.state, 0)
    widths = np.diff(ends, prepend=0.0)
    assert (waiting * widths).sum() == pytest.approx(8 + 6)
    assert (utilisation * widths).sum() == pytest.approx(45 / 2)


def test_bounds_by_hand():
    jobs = JobTable.from_columns([0.0, 1.0], [2, 1], [10.0, 2.0])

    def bounds_of(*acceptable):
        some = replace(jobs, acceptable_jct=np.array(acceptable))
        return simulation_bounds(Simulator(Cluster.homogeneous(1, 2), some, ideal()))

    bounds = bounds_of(np.inf, np.inf)
    assert bounds.isolated_mean_jct == 6.0
    # one machine, works 10 and 1: the short one preempts at 1 and ends at 2, the long one at 11
    assert bounds.pooled_mean_jct == pytest.approx((11 + 1) / 2)
    assert bounds.makespan == 11.0
    # without the long job the mean is the short one's; the long one is not done without
    free = bounds_of(100.0, np.inf)
    assert (free.isolated_mean_jct, free.pooled_mean_jct, free.makespan) == (2.0, 1.0, 3.0)
    kept = bounds_of(np.inf, 100.0)
    assert (kept.isolated_mean_jct, kept.pooled_mean_jct, kept.makespan) == (6.0, 6.0, 10.0)


def test_rounds_are_decision_points_only_while_jobs_are_there():
    jobs = JobTable.from_columns([0.0, 100.0], [1, 1], [25.0, 5.0])
    sim = Simulator(Cluster((1,)), jobs, ideal(), round_seconds=10.0)
    times = []
    while not sim.done:
        sim.apply([Allocation(int(j), (0,)) for j in sim.view().waiting])
        sim.advance()
        times.append(sim.now)
    assert times == [0.0, 10.0, 20.0, 25.0, 100.0, 105.0]
    with pytest.raises(ConfigurationError, match="round_seconds"):
        Simulator(Cluster((1,)), jobs, ideal(), round_seconds=0.0)


def test_wake_up_is_a_decision_point():
    sim = Simulator(Cluster((1,)), JobTable.from_columns([0.0], [1], [50.0]), ideal())
    sim.advance()
    sim.apply([Allocation(0, (0,))])
    sim.view().wake_at(12.5)
    sim.advance()
    assert sim.now == 12.5
    sim.advance()
    assert sim.now == 50.0


def test_unpredictable_jobs_hide_their_durations():
    jobs = JobTable.from_columns([0.0, 0.0], [1, 1], [5.0, 5.0])
    object.__setattr__(jobs, "predictable_from", np.array([0.0, np.inf]))
    sim = Simulator(Cluster((2,)), jobs, ideal())
    sim.advance()
    view = sim.view()
    assert view.predicted_seconds[0] == 5.0
    assert np.isnan(view.predicted_seconds[1])


def test_stalling_is_an_error():
    sim = Simulator(Cluster((1,)), JobTable.from_columns([0.0], [1], [5.0]), ideal())
    sim.advance()
    with pytest.raises(SchedulerError, match="1 jobs wait"):
        sim.advance()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([], [], []), "no jobs"),
        (([0.0, -1.0], [1, 1], [1.0, 1.0]), "submit_seconds"),
        (([float("nan")], [1], [1.0]), "submit_seconds"),
        (([0.0], [0], [1.0]), "num_gpus"),
        (([0.0], [1], [float("inf")]), "duration"),
        (([0.0, 1.0], [1], [1.0]), "shape"),
    ],
)
def test_bad_tables(columns, words):
    with pytest.raises(WorkloadError, match=words):
        JobTable.from_columns(*columns)


def test_bad_clusters():
    for make in (lambda: Cluster(()), lambda: Cluster((4, 0)), lambda: Cluster.homogeneous(0, 4)):
        with pytest.raises(ConfigurationError):
            make()
    with pytest.raises(WorkloadError, match="at most the cluster's 2 GPUs"):
        Simulator(Cluster((2,)), JobTable.from_columns([0.0], [3], [1.0]), rings())


@pytest.mark.parametrize("gpus", [(0, 0), (0, 4), (0, 1, 2, 3, 0), (0, -1)])
def test_those_before_a_refused_one_are_in_force(gpus):
    jobs = JobTable.from_columns([0.0, 0.0, 0.0], [1, 2, 1], [10.0, 10.0, 10.0])
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, ideal())
    sim.advance()
    with pytest.raises(PlacementError):
        sim.apply([Allocation(2, (3,)), Allocation(1, gpus), Allocation(0, (2,))])
    assert sim.view().running.tolist() == [2]
