"""The allocator: sizes by marginal worth, places by stopping loose jobs and moving small ones."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, Simulator
from ringyard.allocator import (
    Allocator,
    Estimate,
    EstimateSecondsLeft,
    JobUtilities,
    empty_allocation_plan,
    write_utilities,
)
from ringyard.allocator.core_allocation import divide_cores, reclaim_cores
from ringyard.allocator.estimates import attained, predicted
from ringyard.allocator.target_sizes import set_target_gpus, set_weights
from ringyard.allocator.utilities import with_capacity_for
from ringyard.allocator.worker_resources import seconds_in_shape, with_cores
from ringyard.compiled import FloatMatrix, FloatVector, implements
from ringyard.errors import ObservabilityError, PluginError
from ringyard.jobs import JobTable
from ringyard.observability import Observability
from ringyard.performance import composite, ideal, pair_table
from ringyard.profiles import model_id
from ringyard.restart import constant
from ringyard.sim.engine.shape import asked_shape, current_shape
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard.state.arrays import State
from ringyard_baselines.policies.allocating import AllocatingScheduler, allocator
from small_simulations import arrived, specs


def jobs_of(gpus, seconds, submit=None):
    count = len(gpus)
    times = np.zeros(count) if submit is None else np.array(submit, float)
    return JobTable.from_columns(times, np.array(gpus), np.array(seconds, float))


def simulated(cluster, jobs, restart=0.0):
    return Simulator(cluster, jobs, ideal(), constant(restart))


def decide(sim, scheduler):
    """One decision, carried out; {job: its GPUs} after it."""
    sim.apply(scheduler.decide(sim.view(scheduler.observability)))
    view = sim.view(scheduler.observability)
    return {int(job): view.gpus_of(int(job)) for job in view.running}


def ready(sim, scheduler):
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    sim.advance()
    return scheduler


def test_gpus_go_where_they_add_most():
    """Greedy steps reach the best total of concave worths, found by trying every division of the GPUs."""
    rng = np.random.default_rng(7)
    for _ in range(30):
        count, gpus = 4, 8
        sim = simulated(Cluster.homogeneous(1, gpus), jobs_of([1] * count, rng.uniform(10, 1000, count)))
        sim.advance()
        sim.state.jobs["max_gpus"] = gpus
        gains = np.sort(rng.uniform(0.1, 1.0, (count, gpus)), axis=1)[:, ::-1]
        worth = np.pad(np.cumsum(gains, axis=1), ((0, 0), (1, 0)))
        plan = empty_allocation_plan(sim.state, gpus)
        write_utilities(plan, 0, JobUtilities(worth, np.ones_like(worth), np.ones(count)))
        config = Allocator().config
        set_weights(sim.state, 0, plan, config)
        set_target_gpus(sim.state, 0, plan, config)
        weight, target = plan.weight[0], plan.target_gpus[0]
        divisions = (one for one in itertools.product(range(gpus + 1), repeat=count) if sum(one) <= gpus)
        best = max(sum(weight[j] * worth[j, k] for j, k in enumerate(one)) for one in divisions)
        assert sum(weight[j] * worth[j, target[j]] for j in range(count)) == pytest.approx(best)
        assert target.sum() == gpus


def test_small_jobs_move_so_that_a_large_one_finds_a_server():
    """Two servers of 4 GPUs, half full; a job of 4 comes that weighs more."""
    sim = simulated(
        Cluster.homogeneous(2, 4), jobs_of([3, 3, 1, 1, 4], [1, 1, 900, 900, 50], [0, 0, 0, 0, 5])
    )
    scheduler = ready(sim, allocator())
    first = decide(sim, scheduler)
    assert {gpus[0] // 4 for gpus in (first[2], first[3])} == {0, 1}  # one beside each of the others
    while sim.now < 5:
        sim.advance()
        held = decide(sim, scheduler)
    assert set(held) == {2, 3, 4}
    assert len({gpu // 4 for gpu in held[4]}) == 1
    assert {gpu // 4 for gpu in (*held[2], *held[3])} == {1 - held[4][0] // 4}
    assert sim.state.jobs["num_preemptions"][0, :-1].sum() == 1  # one moved, nobody waits


def test_who_shall_hold_nothing_stops_only_where_others_need_its_gpus():
    sim = simulated(Cluster.homogeneous(1, 4), jobs_of([2, 2, 2, 1], [500, 400, 300, 10], [0, 0, 1, 1000]))
    scheduler = ready(sim, allocator())
    assert set(decide(sim, scheduler)) == {0, 1}
    sim.advance()
    assert set(decide(sim, scheduler)) == {1, 2}  # the longest stops
    sim.advance()
    assert set(decide(sim, scheduler)) == {0, 1}  # and goes on where one has ended


def test_a_job_larger_than_a_server_gets_whole_ones():
    sim = simulated(Cluster.homogeneous(3, 4), jobs_of([1, 1, 8], [900, 900, 10], [0, 0, 1]))
    scheduler = ready(sim, allocator())
    decide(sim, scheduler)
    sim.advance()
    held = decide(sim, scheduler)
    assert {gpu // 4 for gpu in held[2]} == {0, 1, 2} - {held[0][0] // 4}
    assert held[0][0] // 4 == held[1][0] // 4


def test_jobs_that_restart_dearly_are_not_thrown_about():
    """Equal jobs that come one after the other: nobody stops for another, whatever a restart costs."""
    for seconds in (0.0, 100.0):
        jobs = jobs_of([2] * 12, [300.0] * 12, np.arange(12) * 20.0)
        sim = simulated(Cluster.homogeneous(2, 4), jobs, seconds)
        scheduler = ready(sim, allocator())
        while not sim.done:
            decide(sim, scheduler)
            sim.advance()
        assert sim.state.jobs["num_preemptions"][0, :-1].sum() == 0


@pytest.mark.parametrize(("price", "stops"), [(0.0, 1), (1.0, 0)])
def test_a_stop_that_costs_more_than_it_saves_is_not_made(price, stops):
    """100 s left, and a restart of 90; a job of 50 s comes, for which the other would wait and restart."""
    sim = simulated(Cluster.homogeneous(1, 4), jobs_of([4, 4], [200, 50], [0, 100]), 90.0)
    scheduler = ready(sim, allocator(preemption_price=price))
    while not sim.done:
        decide(sim, scheduler)
        sim.advance()
    assert sim.state.jobs["num_preemptions"][0, :-1].tolist() == [stops, 0]


def test_a_stop_that_saves_more_than_it_costs_is_made():
    sim = simulated(Cluster.homogeneous(1, 4), jobs_of([4, 4], [2000, 50], [0, 100]), 90.0)
    scheduler = ready(sim, allocator(preemption_price=1.0))
    while not sim.done:
        decide(sim, scheduler)
        sim.advance()
    assert sim.state.jobs["num_preemptions"][0, :-1].tolist() == [1, 0]


@pytest.mark.parametrize(("price", "moved"), [(0.0, 1), (1.0, 0), (0.9, 1)])
def test_who_has_less_left_than_a_move_takes_does_not_make_room(price, moved):
    """As above: one of two jobs of 895 s moves for a larger one, if its restart of 950 s counts as less."""
    sim = simulated(
        Cluster.homogeneous(2, 4), jobs_of([3, 3, 1, 1, 4], [1, 1, 900, 900, 50], [0, 0, 0, 0, 5]), 950.0
    )
    scheduler = ready(sim, allocator(preemption_price=price))
    while sim.now < 5:
        decide(sim, scheduler)
        sim.advance()
    decide(sim, scheduler)
    assert sim.state.jobs["num_preemptions"][0, :-1].sum() == moved


@implements(EstimateSecondsLeft)
def _nonsense(state: State, b: int, config: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    out[:] = np.nan


def test_an_estimate_that_is_no_time_is_named():
    estimate = Estimate(_nonsense, "nonsense", Observability.NOTHING)
    sim = simulated(Cluster.homogeneous(1, 4), jobs_of([1], [10]))
    scheduler = ready(sim, AllocatingScheduler(Allocator(estimate=estimate)))
    with pytest.raises(PluginError, match=r"_nonsense.*job 0 nan seconds left.*expected a finite number"):
        scheduler.decide(sim.view(scheduler.observability))


def test_an_estimate_reads_what_it_says():
    with pytest.raises(ObservabilityError, match="hidden"):
        Estimate(Allocator().estimate.seconds, "peeking", Observability.SIZES)


def test_many_cpu_jobs_start_at_once():
    """More jobs than GPUs have places for: what a decision notes of them has room."""
    cluster = Cluster.homogeneous(1, 1, cores_per_server=200)
    helpers = JobTable.cpu_only(np.zeros(60), np.ones(60, int), np.full(60, 10.0), np.full(60, 1e6))
    sim = simulated(cluster, helpers)
    scheduler = ready(sim, allocator())
    assert len(scheduler.decide(sim.view(scheduler.observability))) == 60
    sim.apply(scheduler.decide(sim.view(scheduler.observability)))
    assert len(sim.view(scheduler.observability).running) == 60


def test_jobs_that_ask_for_no_cores_get_none_where_there_are_few():
    """8 GPUs and 4 cores: a job on all GPUs without cores starts."""
    sim = simulated(Cluster.homogeneous(1, 8, cores_per_server=4), jobs_of([8], [100]))
    assert len(decide(sim, ready(sim, allocator()))[0]) == 8


def busy_server(rng, cores_seconds):
    """A server of 4 GPUs and 12 cores, three running jobs that could use these, and a plan for them."""
    models = ("resnet50_imagenet", "alexnet_imagenet", "shufflenet_v2_imagenet", "mobilenet_v2_imagenet")
    jobs = replace(
        specs(*((1, str(name)) for name in rng.choice(models, 3))), cores_per_worker=np.ones(3, int)
    )
    cost = constant(30.0, cores_seconds=cores_seconds)
    cluster = Cluster.homogeneous(1, 4, cores_per_server=12)
    sim = arrived(cluster, jobs, composite(1e9, 1e9), restart=cost, round_seconds=5.0)
    cores = rng.multinomial(6, [1 / 3] * 3) + 1
    sim.apply([Allocation(j, (j,), cores_per_worker=int(cores[j])) for j in range(3)])
    sim.advance()
    plan = empty_allocation_plan(sim.state, 1)
    plan.seconds_left[0, :3], plan.weight[0, :3] = rng.uniform(50, 500, 3), rng.uniform(0.1, 1.0, 3)
    return sim, plan


def cores_worth(sim, plan, price):
    """{cores of each job: weighted speeds, less what changes cost} of every division of the cores."""
    jobs, physics = sim.state.jobs[0], sim.performance.physics
    held = jobs["cores_per_worker"][:3].tolist()
    cost = price * jobs["cores_seconds"][:3] / plan.seconds_left[0, :3]
    speeds = np.zeros((3, 11))
    for j in range(3):
        jobs[-1] = jobs[j]
        for cores in range(1, 11):
            seconds = seconds_in_shape(sim.state, 0, j, with_cores(current_shape(jobs[j]), cores), physics)
            worth = jobs["isolated_iteration_seconds"][j] / seconds - cost[j] * (cores != held[j])
            speeds[j, cores] = plan.weight[0, j] * worth
    divisions = (one for one in itertools.product(range(1, 11), repeat=3) if sum(one) <= 12)
    return {one: sum(speeds[j, cores] for j, cores in enumerate(one)) for one in divisions}


@pytest.mark.parametrize("cores_seconds", [0.0, 10.0])
def test_cores_change_where_that_is_worth_the_pause(cores_seconds):
    """Against every division of the cores: nearly the best, never worse than none, the best if it is free."""
    config = Allocator().config
    for seed in range(20):
        sim, plan = busy_server(np.random.default_rng(seed), cores_seconds)
        held = sim.state.jobs["cores_per_worker"][0, :3]
        before = tuple(held.tolist())
        worths = cores_worth(sim, plan, config.resize_price)
        divide_cores(sim.state, 0, 0, plan, config, sim.performance.physics)
        most = max(worths.values())
        missed = 0.0 if cores_seconds == 0.0 else 0.05 * (most - worths[before])
        assert worths[tuple(held.tolist())] >= most - missed - 1e-12
        sim, plan = busy_server(np.random.default_rng(seed), cores_seconds)
        plan.seconds_left[0, :3] = 1.0  # ends before a pause could be worth it
        divide_cores(sim.state, 0, 0, plan, config, sim.performance.physics)
        stays = tuple(sim.state.jobs["cores_per_worker"][0, :3].tolist()) == before
        assert stays == (cores_seconds > 0.0 or worths[before] == most)


def test_cores_that_are_dear_change_less_often():
    """Four jobs on a server with 12 cores, a decision every 5 s: weights shift as jobs get on."""
    models = ("alexnet_imagenet", "resnet50_imagenet", "shufflenet_v2_imagenet", "mobilenet_v2_imagenet")
    jobs = replace(
        specs(*((1, name) for name in models)),
        cores_per_worker=np.full(4, 3),
        duration_seconds=np.linspace(400.0, 1500.0, 4),
    )
    changes = []
    for seconds in (0.0, 10.0):
        cluster = Cluster.homogeneous(1, 4, cores_per_server=12)
        cost = constant(30.0, cores_seconds=seconds)
        sim = Simulator(cluster, jobs, composite(1e9, 1e9), cost, round_seconds=5.0)
        scheduler = ready(sim, allocator())
        while not sim.done:
            decide(sim, scheduler)
            sim.advance()
        changes.append(int(sim.state.jobs["num_resizes"].sum()))
    assert 0 < changes[1] < 0.7 * changes[0]


def shared(gpus, holders, seconds, restart):
    """{job: its GPUs} after one decision on one server; job 0 runs at a fourth of its speed beside job 1."""
    names = ("resnet18_cifar10", "a3c_pong", "lstm_wikitext2")
    pairs = {one: dict.fromkeys(names, 1.0) for one in names}
    pairs[names[0]][names[1]] = 0.25
    jobs = jobs_of([1, 1, 1], seconds).with_models(np.array([model_id(name) for name in names]))
    cluster = Cluster.homogeneous(1, gpus, gpu_type="v100", jobs_per_gpu=2)
    performance = composite(1e9, 40e9, interference=pair_table(pairs))
    sim = Simulator(cluster, jobs, performance, constant(restart))
    scheduler = ready(sim, allocator())
    sim.apply([Allocation(job, (gpu,)) for job, gpu in holders.items()])
    return decide(sim, scheduler)


@pytest.mark.parametrize(("restart", "after"), [(1.0, {0, 2}), (3000.0, {0, 1})])
def test_who_slows_another_makes_way_for_a_milder_job(restart, after):
    """Weights 0.032, 0.016 and 0.022; job 1 takes 0.024 from job 0, job 2 nothing."""
    assert set(shared(1, {0: 0, 1: 0}, [1000, 4000, 2000], restart)) == after


@pytest.mark.parametrize("restart", [1.0, 3000.0])
def test_who_is_slowed_moves_beside_a_milder_job(restart):
    held = shared(2, {0: 0, 1: 0, 2: 1}, [1000, 1100, 1200], restart)
    assert set(held) == {0, 1, 2}
    assert (held[0] == held[1]) == (restart > 1.0)


def test_estimates_of_seconds_left():
    """Two jobs of 400 s run for 100 s, one waits. The first's is predicted; 50 s are added where none is."""
    jobs = jobs_of([1, 1, 2], [400, 400, 400], [0, 0, 100])
    jobs = replace(jobs, predictable_from=np.array([0.0, np.inf, np.inf]))
    sim = simulated(Cluster.homogeneous(1, 2), jobs)
    sim.advance()
    sim.apply([Allocation(0, (0,)), Allocation(1, (1,))])
    sim.advance()
    for estimate, expected in ((predicted(50.0), [300, 150, 50]), (attained(50.0), [150, 150, 50])):
        plan = empty_allocation_plan(sim.state, 2)
        set_weights(sim.state, 0, plan, Allocator(estimate=estimate).config)
        assert plan.seconds_left[0, :3] == pytest.approx(expected)


@pytest.mark.parametrize("short", [0, 1])
def test_the_heavier_job_gets_the_gpu_type_that_speeds_it_up(short):
    """A P100 and a V100. The short job weighs more. The other one moves up later if restarts take no time."""
    cluster = Cluster.of_groups(
        [{"num_servers": 1, "gpus_per_server": 1, "gpu_type": kind} for kind in ("p100", "v100")]
    )
    seconds = [2000, 2000]
    seconds[short] = 500
    jobs = jobs_of([1, 1], seconds).with_models(np.full(2, model_id("resnet50_imagenet")))
    for restart, then in ((0.0, (1,)), (1000.0, (0,))):
        sim = simulated(cluster, jobs, restart)
        scheduler = ready(sim, allocator())
        assert decide(sim, scheduler) == {short: (1,), 1 - short: (0,)}
        sim.advance()
        assert decide(sim, scheduler) == {1 - short: then}


def test_plans_grow_with_the_sizes_of_the_next_jobs():
    sim = simulated(Cluster.homogeneous(1, 4), jobs_of([1, 1], [10, 10]))
    plan = empty_allocation_plan(sim.state, 2)
    plan.wanted_cores[:] = 3  # of the jobs before
    for sizes in (1, 2, 4):
        worth = np.tile(np.arange(sizes + 1.0), (2, 1))
        utilities = JobUtilities(worth, 8.0 * worth, np.full(2, float(sizes)))
        grown = with_capacity_for(plan, utilities)
        assert (grown is plan) == (sizes <= 2)
        write_utilities(grown, 0, utilities)
        assert grown.utility.shape == grown.batch_size.shape == (1, 2, max(sizes, 2) + 1)
        assert grown.utility[0, 1].tolist() == [*range(sizes + 1), *[0] * (2 - sizes)]
        assert grown.max_utility[0, :2].tolist() == grown.max_speed[0, :2].tolist() == [sizes, sizes]
        assert not grown.wanted_cores.any()


@pytest.mark.parametrize(("seconds", "together"), [(1200, {0, 1}), (1800, {0, 2})])
def test_a_job_joins_another_if_that_gains_more_than_the_other_loses(seconds, together):
    """Weights are 1 / sqrt(seconds). Job 0 would lose 0.75 x 0.0316 beside job 1, nothing beside job 2."""
    assert set(shared(1, {0: 0}, [1000, seconds, 1_000_000], 1.0)) == together


def test_the_tightest_server_that_fits_is_taken():
    sim = simulated(Cluster.homogeneous(2, 4), jobs_of([3, 1], [900, 900], [0, 1]))
    scheduler = ready(sim, allocator())
    sim.apply([Allocation(0, (4, 5, 6))])
    sim.advance()
    assert decide(sim, scheduler) == {0: (4, 5, 6), 1: (7,)}


def test_a_job_that_needs_all_servers_preempts_what_runs_there():
    sim = simulated(Cluster.homogeneous(2, 4), jobs_of([1, 8], [9000, 10], [0, 1]))
    scheduler = ready(sim, allocator())
    decide(sim, scheduler)
    sim.advance()
    assert decide(sim, scheduler) == {1: tuple(range(8))}


def test_a_job_that_was_preempted_has_its_restart_to_go():
    """30 s, and 100 s more than the job that never ran. A job of half a second counts as one of a second."""
    sim = simulated(Cluster.homogeneous(1, 2), jobs_of([1, 1, 1], [200, 100, 0.5], [0, 0, 100]), 30.0)
    sim.advance()
    sim.apply([Allocation(0, (0,))])
    sim.advance()
    sim.apply([Allocation(0)])
    plan = empty_allocation_plan(sim.state, 2)
    set_weights(sim.state, 0, plan, Allocator().config)
    assert plan.seconds_left[0, :3] == pytest.approx([100 + 30, 100, 1])


def test_cores_are_taken_back_as_far_as_they_are_missing():
    """Job 0 has 6 of 8 cores. Two workers with two cores each miss 2, with one core each nothing."""
    jobs = replace(specs((1, "alexnet_imagenet"), (2, "alexnet_imagenet")), cores_per_worker=np.array([6, 2]))
    sim = arrived(Cluster.homogeneous(1, 4, cores_per_server=8), jobs, composite(1e9, 1e9))
    sim.apply([Allocation(0, (0,), cores_per_worker=6)])
    plan, shape = empty_allocation_plan(sim.state, 4), asked_shape(sim.state.jobs[0, 1])
    held = []
    for cores in (1, 2):
        given = (plan, sim.performance.physics)
        held.append(reclaim_cores(sim.state, 0, 1, 0, 2, with_cores(shape, cores), *given))
        held.append(int(sim.state.jobs["cores_per_worker"][0, 0]))
    assert held == [False, 6, True, 4]


def test_a_job_gets_many_cores_where_a_few_are_not_worth_the_pause():
    """Alone on 12 cores, it holds 2. The pause costs more than two cores more gain, and less than four."""
    jobs = replace(specs((1, "alexnet_imagenet")), cores_per_worker=np.array([2]))
    cost = constant(30.0, cores_seconds=10.0)
    sim = arrived(Cluster.homogeneous(1, 4, cores_per_server=12), jobs, composite(1e9, 1e9), restart=cost)
    sim.apply([Allocation(0, (0,), cores_per_worker=2)])
    sim.state.clusters["wake_seconds"][0] = 20.0
    sim.advance()
    view, tried = sim.view(), np.arange(1, 13)
    seconds = isolated_iteration_seconds(view, np.zeros(12, int), cores_per_worker=tried)
    speed = view.column("isolated_iteration_seconds")[0] / seconds
    price = ((speed[3] + speed[5]) / 2 - speed[1]) / 10.0  # of a second
    config, plan = Allocator().config, empty_allocation_plan(sim.state, 1)
    plan.weight[0, 0], plan.seconds_left[0, 0] = 1.0, config.resize_price / price
    divide_cores(sim.state, 0, 0, plan, config, sim.performance.physics)
    assert sim.state.jobs["cores_per_worker"][0, 0] == 1 + np.argmax(speed)
    assert np.argmax(speed) > 5
