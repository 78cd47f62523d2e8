"""Bounds that no schedule beats, and that are near the best ones."""

import itertools
import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from random_simulations import draw_allocation, draw_simulation, drawn_profiles, fresh_seed, simulator
from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.bounds import isolated_bounds, lagrangian, simulation_bounds
from ringyard.errors import PlacementError, SchedulerError
from ringyard.performance import composite, pair_table
from ringyard.placement import consolidate
from ringyard.profiles import GpuProfile, profile
from ringyard.state.records import JobStatus
from ringyard_baselines.classic.preemptive import srtf
from ringyard_baselines.scheduler import run
from small_simulations import elastic, figures, perfect, specs

INF = float("inf")


def at_once(gpus, durations):
    return JobTable.from_columns(np.zeros(len(gpus)), gpus, durations)


def bound(cluster, jobs, performance=None):
    return simulation_bounds(Simulator(cluster, jobs, performance or ideal())).mean_jct


def test_equal_jobs_at_once_are_bound_by_what_the_best_schedule_takes():
    """8 GPUs, 80 jobs of 100 s: waves of 8 that end at 100, 200 ... 1,000 s."""
    found = simulation_bounds(Simulator(Cluster.homogeneous(2, 4), at_once([1] * 80, [100.0] * 80), ideal()))
    assert found.isolated_mean_jct == 100.0
    assert found.pooled_mean_jct == pytest.approx(506.25)
    assert 515.0 < found.dual_mean_jct <= 550.0


def test_the_bound_of_many_jobs_is_a_little_below_that_of_few(monkeypatch):
    """Above `_MANY` jobs, less is tried: every choice of prices gives a lower bound."""
    jobs = JobTable.from_columns(np.zeros(200), np.ones(200), np.linspace(50.0, 100.0, 200))
    exact, tried = simulation_bounds(Simulator(Cluster.homogeneous(1, 2), jobs, ideal())).dual_mean_jct, []
    for sample, many in ((100, 1 << 16), (100, 100)):
        monkeypatch.setattr(lagrangian, "_SAMPLE", sample)
        monkeypatch.setattr(lagrangian, "_MANY", many)
        sim = Simulator(Cluster.homogeneous(1, 2), jobs, ideal())
        tried.append(simulation_bounds(sim).dual_mean_jct)
    assert 0.95 * exact < tried[1] <= tried[0] <= exact


def test_cores_bound_like_gpus():
    """80 jobs that take 50 s on the 8 cores of a server, four at a time: they end at 50, 100 ... 1,000 s."""
    cluster = Cluster.homogeneous(4, 1, cores_per_server=8)
    jobs = JobTable.cpu_only(np.zeros(80), [4] * 80, [100.0] * 80, np.zeros(80))
    found = simulation_bounds(Simulator(cluster, jobs, composite(INF, INF)))
    assert found.isolated_mean_jct == 50.0
    assert 495.0 < found.dual_mean_jct <= 525.0


def test_who_asks_for_cores_gets_some_and_what_they_take_is_counted():
    own = profile("resnet50_imagenet")
    cluster = Cluster.homogeneous(4, 8, cores_per_server=8)
    jobs = replace(specs(*[(1, "resnet50_imagenet")] * 64), cores_per_worker=np.full(64, 1))
    sim = Simulator(cluster, jobs, composite(INF, INF))
    sim.advance()
    with pytest.raises(PlacementError, match="job 0 is given 0 cores and asks for 1; expected 1 or more"):
        sim.apply([Allocation(0, (0,), cores_per_worker=0)])
    seconds = own.compute_seconds * 100.0 / sim.state.jobs["isolated_iteration_seconds"][0, 0]
    assert isolated_bounds(sim)[0] == pytest.approx(seconds)  # were all cores its own
    # 32 cores, 64 jobs: one core each for 32 of them, then for the others
    assert 145.0 < simulation_bounds(sim).dual_mean_jct <= 150.0


def test_fast_gpus_are_few():
    """2 V100 that are 4 times as fast as 6 T4: alone jobs are on a V100; together all are as good as 3.5."""
    model = "resnet18_cifar10"
    slow = {"v100": GpuProfile(0.0, 0.01, "drawn", {}), "t4": GpuProfile(0.0, 0.04, "drawn", {})}
    with figures({model: slow}):
        cluster = Cluster((1, 1, 6), gpu_types=("v100", "v100", "t4"))
        found = simulation_bounds(Simulator(cluster, specs(*[(1, model)] * 70), composite(INF, INF)))
    assert found.isolated_mean_jct == 100.0
    assert 1000.0 < found.dual_mean_jct < 1150.0  # 70 x 100 s of a V100 by 3.5 of them, ends spread evenly


def test_sharing_is_worth_what_the_mildest_neighbour_leaves():
    beside = 0.75
    pairs = pair_table({"vgg16": {"vgg16": beside}})
    cluster = Cluster.homogeneous(1, 4, jobs_per_gpu=2)
    found = simulation_bounds(
        Simulator(cluster, specs(*[(1, "vgg16")] * 80), composite(INF, INF, interference=pairs))
    )
    assert found.pooled_mean_jct == pytest.approx(100.0 * 81 / 2 / 4 / (2 * beside))
    # 8 at a time, each for 133.3 s: 10 waves
    assert 680.0 < found.dual_mean_jct <= 733.4


def test_a_faster_shape_is_not_an_efficient_one():
    """A job may have 4 GPUs; where rings cost, they are not 4 times as fast."""
    jobs = elastic([1] * 64, [100.0] * 64)
    ring = replace(jobs, gradient_bytes=np.full(64, 0.0))
    linear = bound(Cluster.homogeneous(2, 4), ring, perfect())
    assert linear == pytest.approx(
        100.0 * 65 / 2 / 8, rel=0.03
    )  # one after the other on 8 GPUs, 4 each at most
    costly = replace(jobs, gradient_bytes=np.full(64, 1e9), compute_seconds=np.full(64, 1.0))
    assert bound(Cluster.homogeneous(2, 4), costly, composite(1e9, 1e9)) > 1.04 * linear


@cache
def _left(work, arrivals, machines, now):
    """Least sum of the time in the system of jobs (work left, in slots) from a slot on, preempted at will."""
    if not any(work):
        return 0
    live = [j for j, left in enumerate(work) if left and arrivals[j] <= now]
    best = 10**9 if live else _left(work, arrivals, machines, now + 1)
    for chosen in itertools.combinations(live, min(machines, len(live))) if live else ():
        after = tuple(left - (j in chosen) for j, left in enumerate(work))
        best = min(best, len(live) + _left(after, arrivals, machines, now + 1))
    return best


def test_tiny_worlds_whose_best_schedule_is_known():
    """Never above the best schedule of all, and on average near it."""
    rng = np.random.default_rng(7)
    shares = []
    for _ in range(40):
        count, machines = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        work = tuple(int(left) for left in rng.integers(1, 5, count))
        arrivals = tuple(sorted(int(slot) for slot in rng.integers(0, 5, count)))
        jobs = JobTable.from_columns(np.array(arrivals, float), [1] * count, np.array(work, float))
        best = _left(work, arrivals, machines, arrivals[0]) / count
        shares.append(bound(Cluster((machines,)), jobs) / best)
    assert max(shares) <= 1.0 + 1e-12
    assert np.mean(shares) > 0.9


def test_a_job_that_leaves_anyway_asks_for_nothing():
    jobs = at_once([1] * 3, [100.0] * 3)
    gone = replace(jobs, cancel_seconds=np.array([10.0, INF, INF]))
    assert bound(Cluster((1,)), jobs) == pytest.approx(200.0)
    assert bound(Cluster((1,)), gone) == pytest.approx((10.0 + 100.0 + 200.0) / 3, rel=0.05)


def finished(sim, rng):
    """Plays at random until all jobs are done; False if that takes too long."""
    calm = bool(rng.random() < 0.6)
    for _ in range(400):
        if sim.done:
            return True
        records = sim.state.jobs[0, : len(sim.jobs)]
        for j in rng.permutation(len(sim.jobs)).tolist():
            status = records["status"][j]
            changes = status == JobStatus.RUNNING and not calm and rng.random() < 0.1
            if status != JobStatus.WAITING and not changes:
                continue
            try:
                allocation = draw_allocation(rng, sim, j, records[j], int(rng.integers(3)))
                sim.apply([] if allocation.reject else [allocation])
            except PlacementError:
                continue
        try:
            sim.advance()
        except SchedulerError:
            return False
    return False


def broken(seed):
    """(how many schedules of a random simulation came to an end, those below its bounds)."""
    below = []
    with drawn_profiles(seed):
        world = draw_simulation(seed)
        bounds = simulation_bounds(simulator(world))
        ended = 0
        for attempt in range(3):
            sim = simulator(world)
            if attempt:
                done = finished(sim, np.random.default_rng([seed, attempt]))
            else:
                failures = world.failures  # with outages that repeat, a job may never come to an end
                lasting = not np.isfinite(failures.mean_up_seconds) and not any(failures.outages)
                done = lasting and not world.rounds_only
                if done:
                    run(sim, srtf(consolidate()), np.random.default_rng(0))
            ended += done
            for name in ("mean_jct", "makespan") if done else ():
                found, least = getattr(sim.metrics(), name), getattr(bounds, name)
                if found < least * (1.0 - 1e-9) - 1e-15 * sim.now:  # times are rounded
                    below.append((seed, attempt, name, found, bounds))
    return ended, below


def test_steps_that_deviate_from_their_form_are_not_below_the_bounds():
    """A job with 3 parameter servers, for which steps with 2 take longer than with 1 or 3."""
    ended, below = broken(712610254)
    assert ended
    assert not below


def test_no_schedule_of_random_worlds_is_below_the_bounds():
    first, worlds = fresh_seed(), int(os.environ.get("RINGYARD_BOUND_WORLDS", "60"))
    played = [broken(seed) for seed in range(first, first + worlds)]
    assert [line for _, below in played for line in below] == []
    assert sum(ended for ended, _ in played) > worlds
