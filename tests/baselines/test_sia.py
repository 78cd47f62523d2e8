"""Sia's program against every choice, and its rules worked out by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from conftest import leaf
from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.performance import composite
from ringyard.placement import consolidate
from ringyard.profiles import model_id
from ringyard.restart import constant
from ringyard_baselines.papers import sia
from ringyard_baselines.papers.sia import Sia, _Profiles, choose_configurations
from small_simulations import perfect


def cheapest(cost, gpus, gpu_type, capacity):
    """Least cost of all choices that fit."""
    best = 0.0
    for chosen in itertools.product(range(-1, cost.shape[1]), repeat=len(cost)):
        used, total = np.zeros(len(capacity), int), 0.0
        for job, configuration in enumerate(chosen):
            if configuration >= 0:
                used[gpu_type[configuration]] += gpus[job, configuration]
                total += cost[job, configuration]
        if (used <= capacity).all():
            best = min(best, total)
    return best


@pytest.mark.parametrize("by", ["tables", "program"])
@pytest.mark.parametrize("seed", range(20))
def test_the_least_cost_is_what_trying_everything_finds(seed, by, monkeypatch):
    monkeypatch.setattr(sia, "_MAX_CELLS", 1e9 if by == "tables" else -1.0)
    rng = np.random.default_rng(seed)
    gpu_type = np.array([0, 0, 0, 1, 1])
    gpus = np.tile([1, 2, 4, 1, 2], (5, 1))
    cost = np.round(rng.uniform(0.1, 1.3, gpus.shape), 2) - 1.1
    cost[rng.random(cost.shape) < 0.2] = np.inf
    capacity = np.array([rng.integers(1, 8), rng.integers(0, 4)])
    chosen = choose_configurations(cost, gpus, gpu_type, capacity)
    rows = np.flatnonzero(chosen >= 0)
    used = np.bincount(gpu_type[chosen[rows]], gpus[rows, chosen[rows]], 2)
    assert (used <= capacity).all()
    assert cost[rows, chosen[rows]].sum() == pytest.approx(cheapest(cost, gpus, gpu_type, capacity))


def test_nothing_is_chosen_where_nothing_gains():
    none = choose_configurations(np.full((2, 1), 0.1), np.ones((2, 1), int), np.array([0]), np.array([4]))
    assert none.tolist() == [-1, -1]


def elastic(gpus, least, most, submitted=None, model=None):
    """Long jobs that may have some numbers of GPUs."""
    times = np.zeros(len(gpus)) if submitted is None else np.array(submitted)
    jobs = JobTable.from_columns(times, gpus, np.full(len(gpus), 1e5))
    if model:
        jobs = jobs.with_models(np.full(len(gpus), model_id(model)))
    return replace(jobs, min_gpus=np.array(least), max_gpus=np.array(most))


def simulated(cluster, jobs, restart_seconds=0.0, performance=None, **options):
    """A simulation before its first decision, and Sia."""
    scheduler = Sia(consolidate(), **options)
    sim = Simulator(cluster, jobs, performance or perfect(), constant(restart_seconds), round_seconds=60.0)
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    return sim, scheduler


def after(sim, scheduler, rounds):
    """GPUs of each job after some rounds."""
    for _ in range(rounds):
        sim.advance()
        sim.apply(scheduler.decide(sim.view(scheduler.observability)))
    return [len(sim.view().gpus_of(job)) for job in range(len(sim.jobs))]


def test_a_job_begins_on_its_fewest_gpus_and_at_most_doubles():
    sim, scheduler = simulated(Cluster.homogeneous(4, 4), elastic([2, 4], [1, 4], [16, 4]))
    assert [after(sim, scheduler, 1) for _ in range(5)] == [[1, 4], [2, 4], [4, 4], [8, 4], [12, 4]]


def test_configurations_are_powers_of_two_and_whole_servers():
    sim, _ = simulated(Cluster.homogeneous(3, 6), elastic([3, 5, 7], [1, 5, 7], [18, 5, 7]))
    sim.advance()
    known = _Profiles.of_view(sim.view(), 64)
    sizes = [known.gpus[job][known.goodput[job] > 0].tolist() for job in range(3)]
    assert sizes == [[1, 2, 4, 6, 12, 18], [5], [7]]
    assert known.servers[0, :6].tolist() == [1, 1, 1, 1, 2, 3]
    # of one GPU, of five and of seven: the least goodput counts as the fewest GPUs
    assert [known.goodput[job][known.goodput[job] > 0].min() for job in range(3)] == [1, 5, 7]


def test_each_job_gets_the_type_on_which_all_gain_most():
    cluster = Cluster((2, 2), ("t4", "a100"))
    models = [model_id("bert_base_squad"), model_id("neumf_ml1m")] * 2
    jobs = elastic([1] * 4, [1] * 4, [1] * 4).with_models(np.array(models))
    sim, scheduler = simulated(cluster, jobs, performance=composite(1e9, 40e9))
    assert after(sim, scheduler, 1) == [1] * 4
    gains = _Profiles.of_view(sim.view(), 64).goodput.max(axis=1)  # of an A100 over a T4
    held = [cluster.gpu_types[sim.view().gpus_of(job)[0] // 2] for job in range(4)]
    assert gains[0] > 1.5 * gains[1]
    assert held == ["a100", "t4"] * 2


def test_small_jobs_make_room_for_a_larger_one():
    """Two jobs of one GPU on two servers; one of four GPUs takes the server of the second."""
    jobs = elastic([1, 1, 4], [1, 1, 4], [1, 1, 4], [0.0, 0.0, 30.0])
    sim, scheduler = simulated(Cluster.homogeneous(2, 4), jobs)
    sim.advance()
    scheduler.decide(sim.view(scheduler.observability))
    sim.apply([Allocation(0, (0,)), Allocation(1, (4,))])
    assert after(sim, scheduler, 2) == [1, 1, 4]
    held = [sim.cluster.server_of_gpu[list(sim.view().gpus_of(job))].tolist() for job in range(3)]
    assert held[0] == held[1]
    assert set(held[2]) != set(held[0])
    assert sim.state.jobs["num_preemptions"][0, :3].sum() == 1


def test_a_change_counts_less_while_restarts_were_a_large_part_of_a_jobs_life():
    """Of 60 s a restart of 40 s is too much: 60 / 100 of twice the goodput, but 120 / 160 later.

    2 GPUs are worth 1.2^-0.5 = 0.91, one 1, and a second job on the other GPU -0.1 more.
    """
    for rounds, gpus in ((1, [1]), (2, [2])):
        sim, scheduler = simulated(Cluster.homogeneous(1, 2), elastic([1], [1], [2]), 40.0)
        assert after(sim, scheduler, rounds) == gpus
    jobs = elastic([1, 1], [1, 1], [2, 1], [0.0, 70.0])
    sim, scheduler = simulated(Cluster.homogeneous(1, 2), jobs, 40.0)
    assert after(sim, scheduler, 3) == [2, 0]


def test_jobs_change_not_while_they_restart():
    sim, scheduler = simulated(Cluster.homogeneous(1, 8), elastic([1], [1], [8]), 200.0)
    assert [after(sim, scheduler, 1) for _ in range(4)] == [[1], [2], [2], [2]]


def test_ties_go_to_what_runs_and_to_the_first():
    sim, scheduler = simulated(Cluster.homogeneous(1, 2), elastic([1] * 4, [1] * 4, [1] * 4))
    assert after(sim, scheduler, 1) == [1, 1, 0, 0]
    assert after(sim, scheduler, 3) == [1, 1, 0, 0]


def test_a_job_of_several_types_waits_for_room_and_stays():
    cluster = Cluster((2, 2), ("t4", "a100"))
    jobs = elastic([4, 1], [4, 1], [4, 1], [0.0, 30.0], model="bert_base_squad")
    sim, scheduler = simulated(cluster, jobs)
    assert after(sim, scheduler, 1) == [4, 0]
    assert after(sim, scheduler, 3) == [4, 0]


def test_without_ties_the_solver_decides():
    assert leaf("scheduler", "sia").tie_break == 1e-4
    sim, scheduler = simulated(Cluster.homogeneous(1, 2), elastic([1] * 4, [1] * 4, [1] * 4), tie_break=0.0)
    assert sum(after(sim, scheduler, 1)) == 2


def test_powers_above_zero_are_maximised():
    sim, scheduler = simulated(Cluster.homogeneous(1, 4), elastic([1, 1], [1, 1], [4, 4]), power=1.0)
    assert sum(after(sim, scheduler, 3)) == 4
