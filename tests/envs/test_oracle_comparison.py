"""The compiled engine against its oracle, on fresh simulations and on those in which they once differed."""

from dataclasses import replace

import numpy as np
import pytest

from oracle.reference import ReferenceSimulator
from oracle_comparison import play, play_all
from random_simulations import fresh_seed
from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.state.records import JobOutcome
from small_simulations import rings


@pytest.mark.parametrize("simulations", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_engine_and_oracle_agree_on_fresh_simulations(simulations):
    events, disagreements = play_all(fresh_seed(), simulations)  # conftest.py prints the seed
    assert events > 10 * simulations
    assert not disagreements, "\n".join(disagreements)


@pytest.mark.parametrize("simulations", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_engine_and_oracle_agree_on_what_the_allocator_does(simulations):
    """Whatever its options and scores, each of its moves is legal, and comes to the same in both."""
    events, disagreements = play_all(fresh_seed(), simulations, allocating=True)
    assert events > 10 * simulations
    assert not disagreements, "\n".join(disagreements)


def both(cluster, jobs, performance=None, **options):
    """Engine and oracle at their first decision point."""
    sims = [
        each(cluster, jobs, performance or ideal(), **options) for each in (Simulator, ReferenceSimulator)
    ]
    for sim in sims:
        sim.advance()
    return sims


def outcomes(sim):
    if isinstance(sim, Simulator):
        return sim.state.jobs["outcome"][0, :-1].tolist()
    return [job.outcome for job in sim.jobs]


def ends(sim):
    if isinstance(sim, Simulator):
        return sim.state.jobs["end_seconds"][0, :-1].tolist()
    return [job.end for job in sim.jobs]


def contending_pair(*tolerance):
    """Two rings, each half as fast beside the other; acceptable is so many times their duration."""
    jobs = JobTable.from_columns([0.0, 0.0], [3, 3], [10.0, 10.0])
    jobs = replace(jobs, gradient_bytes=np.full(2, 1e9), acceptable_jct=np.array(tolerance) * 10.0)
    jobs = replace(jobs, compute_seconds=np.full(2, 1e-3))
    return both(Cluster((2, 2, 2)), jobs, rings(alpha=0.0, xi_2=0.0))


BESIDE = (Allocation(0, (0, 1, 2)), Allocation(1, (3, 4, 5)))


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        ((1.9, 1.9), [JobOutcome.BLOCKED, JobOutcome.COMPLETED]),  # only the other made the second late
        ((1.9, 1.2), [JobOutcome.BLOCKED, JobOutcome.COMPLETED]),
        ((1.1, 0.9), [JobOutcome.BLOCKED, JobOutcome.BLOCKED]),
        ((2.1, 1.9), [JobOutcome.COMPLETED, JobOutcome.BLOCKED]),
    ],
)
def test_late_jobs_are_blocked_one_after_the_other(tolerance, expected):
    for sim in contending_pair(*tolerance):
        sim.apply(BESIDE)
        while not sim.done:
            sim.advance()
        assert outcomes(sim) == expected


def test_a_scheduler_can_help_a_late_job_before_time_passes():
    for sim in contending_pair(1.9, 1.9):
        sim.apply(BESIDE)
        sim.apply([Allocation(1)])
        sim.advance()
        assert outcomes(sim) == [JobOutcome.COMPLETED, JobOutcome.COMPLETED]
        assert sim.now > 0
        assert len(sim.waiting if isinstance(sim, ReferenceSimulator) else sim.view().waiting) == 1


def test_times_tie_only_if_they_are_equal():
    """0.3 s are 3 iterations of 0.1 s, which end at 0.30000000000000004 s."""
    jobs = JobTable.from_columns([0.0, 0.3, 1.0], [1, 1, 1], [1.0, 1.0, 1.0])
    jobs = replace(jobs, iterations=np.array([3.0, 1.0, 1.0]), compute_seconds=np.full(3, 0.1))
    times = []
    for sim in both(Cluster((1,)), jobs, rings(xi_2=0.0)):
        sim.apply([Allocation(0, (0,))])
        times.append([])
        for _ in range(2):
            sim.advance()
            times[-1].append(sim.now)
    assert times == [[0.3, 0.1 * 3.0]] * 2
    assert 0.1 * 3.0 > 0.3


def test_jobs_alike_end_at_one_instant():
    """Though the first to leave frees a link of the others, whose ends have come."""
    jobs = JobTable.from_columns(np.zeros(3), [2, 2, 2], np.full(3, 1.0))
    jobs = replace(jobs, gradient_bytes=np.full(3, 3.3e8), compute_seconds=np.full(3, 0.3))
    for sim in both(Cluster((3, 3)), jobs, rings()):
        sim.apply([Allocation(j, (j, 3 + j)) for j in range(3)])
        sim.advance()
        assert sim.done
        assert len(set(ends(sim))) == 1


@pytest.mark.parametrize("seconds", [0.1, 3.3, 59.9, 1 / 3, 0.7, 7.0])
def test_rounds_are_multiples_of_their_length_and_always_later(seconds):
    jobs = JobTable.from_columns([0.0, 5000.0 * seconds], [1, 1], [2000.0 * seconds, 1.0])
    for sim in both(Cluster((1,)), jobs, round_seconds=seconds):
        sim.apply([Allocation(0, (0,))])
        for k in range(1, 2000):
            sim.advance()
            assert sim.now == k * seconds
        for _ in range(3):  # the job ends; without jobs there are no rounds, up to the next arrival
            if sim.now < 5000.0 * seconds:
                sim.advance()
        assert sim.now == 5000.0 * seconds
        sim.apply([Allocation(1, (0,))])
        sim.advance()
        assert 5000.0 * seconds < sim.now <= 5001.0 * seconds


#: an oracle with another rule plays these otherwise: all late jobs are blocked together, the next round is
#: (floor(t / r) + 1) r, progress is summed up event by event, neighbours' loads are summed as they are
SEEDS = (81, 3, 19, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_simulations_that_once_differed(seed):
    assert play(seed) > 0
