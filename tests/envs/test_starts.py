"""An allocator that only starts jobs, and the placement of RLTune's optimiser."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from ringyard import Cluster, Simulator
from ringyard.allocator import Allocator, StartOnly
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.mdp.actions import Scores
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations import live_jobs
from ringyard.performance import ideal
from ringyard.placement import consolidate, least_fragmenting, place
from ringyard.sim.allocation import Allocation
from ringyard_baselines.classic.start_only import smallest_work
from ringyard_baselines.policies.allocating import AllocatingScheduler
from ringyard_baselines.scheduler import Capabilities, run


@pytest.mark.parametrize("rule", [consolidate, least_fragmenting])
@pytest.mark.parametrize("name", ["contention", "sharing", "cpu_gpu", "elastic"])
def test_scores_of_zero_start_the_smallest_work_first(name, rule):
    world = experiment(name)
    table = ClusterBatch(replace(world, num_workloads=1), 1).workload_cache.table(0)
    ends = []
    for scheduler in (AllocatingScheduler(Allocator(start_only=StartOnly(rule()))), smallest_work(rule())):
        sim = Simulator(world.cluster, table, world.performance, world.restart, failures=world.failures)
        run(sim, scheduler, np.random.default_rng(0))
        ends.append(sim.state.jobs["end_seconds"][0, :-1].tolist())
    assert scheduler.capabilities == Capabilities.START
    assert ends[0] == ends[1]


def batch_of(gpus, submit, allocator, jobs_per_gpu=1):
    """A server of 4 GPUs; jobs of 100 s; every one scored."""
    count = len(gpus)
    jobs = JobTable.from_columns(submit, gpus, [100.0] * count)
    sim = Simulator(Cluster.homogeneous(1, 4, jobs_per_gpu=jobs_per_gpu), jobs, ideal())
    setting = replace(
        experiment("contention"),
        cluster=sim.cluster,
        performance=sim.performance,
        actions=Scores(num_jobs=count, allocator=allocator),
        observation=live_jobs(),
        num_workloads=1,
    )
    batch = ClusterBatch(setting, 1, state=sim.state)
    batch.resume()
    return batch


def started(batch, scores):
    """When each job starts if it always has its score."""
    scores = np.array(scores, np.float32)
    while not batch.done[0]:
        live = batch.episode.live[0, : batch.episode.num_live[0]]
        given = np.zeros((1, len(scores)), np.float32)
        given[0, : len(live)] = scores[live]
        batch.step(given)
    return (batch.state.jobs["end_seconds"][0, :-1] - 100.0).tolist()


GPUS, SUBMIT = [3, 4, 1], [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("starts", "scores", "expected"),
    [
        (StartOnly(), [0, 1, -1], [0, 101, 1]),  # what fits starts beside what runs
        (StartOnly(strict=True), [0, 1, -1], [0, 100, 200]),  # the large one's turn: nobody passes it
        (StartOnly(strict=True), [0, -1, 1], [0, 101, 1]),
        (StartOnly(min_score=-0.5), [0, 0, -1], [0, 100, 200]),  # it would fit, and waits until nothing runs
        (StartOnly(min_score=-0.5), [-1, -1, -0.4], [0, 101, 1]),
    ],
)
def test_who_starts_when(starts, scores, expected):
    assert started(batch_of(GPUS, SUBMIT, Allocator(start_only=starts)), scores) == expected


@pytest.mark.parametrize(
    ("jobs_per_gpu", "min_score", "scores", "expected"),
    [
        (1, -1.0, [0, 0, -1], [0, 100, 101]),  # preempted after 99 s, by the job that had to wait
        (1, -0.5, [0, 0, -1], [0, 100, 200]),  # it would fit at once, and waits until nothing runs
        (2, -1.0, [0, 0, -1], [0, 1, 1]),
        (2, -0.5, [0, 0, -1], [0, 1, 101]),
        (1, -0.5, [-0.6, -0.4, -0.6], [100, 1, 101]),  # the second reaches it and preempts the first
    ],
)
def test_capacity_is_held_back_for_jobs_to_come(jobs_per_gpu, min_score, scores, expected):
    batch = batch_of(GPUS, SUBMIT, Allocator(gamma=0.0, min_score=min_score), jobs_per_gpu)
    assert started(batch, scores) == expected


def test_what_runs_stays():
    """However scores change, nobody is stopped, moved or resized."""
    world = experiment("elastic", action="scores", observation="live_jobs")
    actions = Scores(allocator=Allocator(start_only=StartOnly()))
    batch = ClusterBatch(replace(world, actions=actions, num_workloads=2), 2)
    batch.reset(np.arange(2), np.arange(2))
    draw = np.random.default_rng(3)
    while not batch.done.all():
        active = np.flatnonzero(~batch.done)
        batch.step(draw.uniform(-1, 1, batch.masks.shape).astype(np.float32), active)
    jobs = batch.state.jobs[:, :-1]
    assert not jobs["num_preemptions"].any()
    assert not batch.state.clusters["num_resizes"].any()


def least_cost(free, sizes, wanted, demand, weights):
    """RLTune's program for one job, by a solver: the least objective, and every server's own.

    Binary: x (a server each; one is 1), f (in part free), y (the next job fits). Then most and least free.
    """
    n = len(free)
    after = free[None, :] - wanted * np.eye(n)  # [x, server] GPUs free then
    one, nothing = np.eye(n), np.zeros((n, n))
    column = np.ones((n, 1))
    in_part = ((after > 0) & (after < sizes)).astype(float)
    rows = [
        np.hstack([after.T, nothing, nothing, -column, 0 * column]),  # free <= most
        np.hstack([-after.T, nothing, nothing, 0 * column, column]),  # least <= free
        np.hstack([in_part.T, -one, nothing, 0 * column, 0 * column]),  # f >= in part free
        np.hstack([-after.T, nothing, demand * one, 0 * column, 0 * column]),  # demand * y <= free
    ]
    choose = LinearConstraint(np.r_[np.ones(n), np.zeros(2 * n + 2)], 1, 1)
    found = milp(
        np.r_[np.zeros(n), np.full(n, weights[0]), np.full(n, -weights[2]), weights[1], -weights[1]],
        constraints=[choose, LinearConstraint(np.vstack(rows), -np.inf, 0)],
        integrality=np.r_[np.ones(3 * n), 0, 0],
        bounds=Bounds(0, np.r_[free >= wanted, np.ones(2 * n), np.inf, np.inf]),
    )
    own = (
        weights[0] * in_part.sum(1)
        + weights[1] * np.ptp(after, axis=1)
        - weights[2] * (after >= demand).sum(1)
    )
    return found.fun, own


def test_the_search_finds_what_a_solver_finds():
    rng = np.random.default_rng(4)
    differs = 0
    for _ in range(40):
        sizes = rng.choice([2, 4, 8], 6)
        held = rng.integers(0, sizes + 1)
        free = sizes - held
        wanted, demand = rng.integers(1, 4, 2)
        if free.max() < wanted:
            continue
        weights = rng.uniform(0, 1, 3)
        running = held[held > 0]
        jobs = JobTable.from_columns(
            np.zeros(len(running) + 2), [*running, wanted, demand], np.full(len(running) + 2, 9.0)
        )
        sim = Simulator(Cluster(tuple(sizes.tolist())), jobs, ideal())
        sim.advance()
        first = np.r_[0, np.cumsum(sizes)]
        for job, s in enumerate(np.flatnonzero(held)):
            sim.apply([Allocation(job, tuple(range(first[s], first[s] + held[s])))])
        out = np.zeros(sizes.sum(), np.int32)
        assert place(sim.state, 0, len(running), least_fragmenting(*weights), out) == wanted
        chosen = np.searchsorted(first, out[0], side="right") - 1
        least, own = least_cost(free, sizes, wanted, demand, weights)
        assert own[chosen] == pytest.approx(least, abs=1e-6)
        differs += own[free >= wanted].max() > least + 1e-6
    assert differs > 10


def test_a_job_larger_than_a_server_is_placed_as_by_consolidate():
    jobs = JobTable.from_columns([0.0, 0.0], [8, 2], [9.0, 9.0])
    sim = Simulator(Cluster.homogeneous(3, 4), jobs, ideal())
    sim.advance()
    places = [np.zeros(12, np.int32) for _ in range(2)]
    counts = [
        place(sim.state, 0, 0, rule, out)
        for rule, out in zip((least_fragmenting(), consolidate()), places, strict=True)
    ]
    assert counts == [8, 8]
    assert places[0].tolist() == places[1].tolist()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigurationError, match=r"action\.allocator\.start_only\.min_score is -2"):
        StartOnly(min_score=-2.0)
    with pytest.raises(ConfigurationError, match=r"action\.allocator\.min_score is 2"):
        Allocator(min_score=2.0)
    with pytest.raises(ConfigurationError, match=r"placement.imbalance"):
        least_fragmenting(imbalance=-1.0)
