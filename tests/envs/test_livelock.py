"""Whoever lets time stand still is told so, in every loop: none of them runs for ever."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, repeat

import numpy as np
import pytest

from ringyard import Allocation, Cluster, ClusterEnv, EnvConfig, JobTable, Simulator, ideal
from ringyard.compiled import FloatVector, implements
from ringyard.errors import SchedulerError
from ringyard.failures import Failures
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.observability import Observability
from ringyard.placement import pack
from ringyard.restart import constant
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import JobKey
from ringyard_baselines.scheduler import Scheduler, run
from small_simulations import arrived

ALWAYS_FAILING = Failures(1e-300, 1e-300, np.inf)


def two_jobs(begin=0.0):
    return JobTable.from_columns([begin, begin], [1, 1], [10.0, 10.0])


@implements(JobKey)
def _first_come(job: Job, now: float, parameters: FloatVector) -> float:
    return job.submit_seconds


@implements(JobKey)
def _at_once(job: Job, now: float, parameters: FloatVector) -> float:
    return np.nextafter(now, np.inf)


def impatient():
    """A scheduler that has to be asked again at once, always."""
    parameters = np.zeros(1)
    return PreemptiveScheduler(
        "impatient", _first_come, parameters, pack(), Observability.NOTHING, wake=_at_once
    )


@implements(JobKey)
def _who_waits(job: Job, now: float, parameters: FloatVector) -> float:
    return 1.0 if job.status == JobStatus.RUNNING else 0.0


def by_turns(round_seconds):
    """A scheduler that stops who runs, every round, for who waits."""
    return PreemptiveScheduler(
        "by_turns", _who_waits, np.zeros(1), pack(), Observability.NOTHING, round_seconds=round_seconds
    )


class Endless(Sequence):
    """These allocations, again and again."""

    def __init__(self, allocations):
        self.allocations = allocations

    def __len__(self):
        return 10**9

    def __getitem__(self, i):
        return self.allocations[i % len(self.allocations)]


class Answering(Scheduler):
    """Answers with these allocations."""

    name, observability, round_seconds = "answering", Observability.NOTHING, None

    def __init__(self, allocations):
        self.allocations = allocations

    def reset(self, cluster, jobs, rng):
        pass

    def decide(self, view):
        return self.allocations if len(view.waiting) + len(view.running) else []


def raises(cause):
    return pytest.raises(
        SchedulerError, match=rf"time does not advance beyond .* s: 10\d\d .* at most 1020; {cause}"
    )


@pytest.mark.parametrize(
    ("allocations", "cause"),
    [
        ((Allocation(0, (0,)), Allocation(0)), "job 0 changes again and again .*then an empty list"),
        ((Allocation(0, (0,)), Allocation(0, (1,))), "job 0 changes again"),
        ((Allocation(1, (1,)),), "its allocations change nothing"),
    ],
)
@pytest.mark.parametrize("begin", [0.0, 1e9])
def test_a_scheduler_that_never_stops_answering(allocations, cause, begin):
    with raises(cause):
        run(
            Simulator(Cluster((2,)), two_jobs(begin), ideal()),
            Answering(Endless(allocations)),
            np.random.default_rng(0),
        )


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("scheduler", "options", "cause"),
    [
        (impatient, {}, "the scheduler asks to be woken at once"),
        (lambda: fifo_backfill(pack()), {"failures": ALWAYS_FAILING}, "server 0 fails and returns"),
        (lambda: fifo_backfill(pack()), {"round_seconds": 1e-300}, "rounds follow every 1e-300 s"),
    ],
)
@pytest.mark.parametrize("begin", [0.0, 1e9])
def test_loops_of_schedulers(scheduler, options, cause, compiled, begin):
    sim = Simulator(Cluster((2,)), two_jobs(begin), ideal(), **options)
    with raises(cause):
        run(sim, scheduler(), np.random.default_rng(0), compiled)


@pytest.mark.parametrize(
    "options", [{}, {"rounds_only": True}, {"failures": Failures(2000.0, 500.0, np.inf)}]
)
def test_a_scheduler_that_is_asked_every_round_and_starts_nothing(options):
    sim = Simulator(Cluster((2,)), two_jobs(), ideal(), round_seconds=60.0, **options)
    with raises("2 jobs wait, no job runs and none will arrive; start a waiting job"):
        run(sim, Answering([]), np.random.default_rng(0))


@pytest.mark.slow
def test_a_scheduler_may_wait_for_a_repair_however_long_it_takes():
    sim = Simulator(
        Cluster((1,)), two_jobs(), ideal(), round_seconds=1.0, failures=Failures(5.0, 30_000.0, 1.0)
    )
    run(sim, fifo_backfill(pack()), np.random.default_rng(0), compiled=False)
    assert sim.done
    assert sim.state.clusters["num_decisions"][0] > 5000  # nearly all of them while the server is down


class _TwoJobs:
    num_jobs = 2

    def sample(self, cluster, rng):
        return two_jobs()


def test_steps_of_environments():
    setting = EnvConfig(
        cluster=Cluster((2,)), workload=_TwoJobs(), performance=ideal(), failures=ALWAYS_FAILING
    )
    env, envs = ClusterEnv(setting), ClusterVectorEnv(2, setting)
    for each in (env, envs):
        with raises("server 0 fails and returns"):
            _, info = each.reset(seed=0)
            while True:
                _, _, _, _, info = each.step(info["action_mask"].argmax(axis=-1))


def test_a_loop_that_forgets_to_advance():
    sim = arrived(Cluster((2,)), two_jobs(), ideal())
    sim.apply([Allocation(0, (0,)), Allocation(1, (1,))])
    with raises("job 0 changes again"):
        for gpus in cycle([(), (0,)]):
            sim.apply([Allocation(0, gpus)])
    with pytest.raises(SchedulerError, match="time does not advance"):  # and it is said again
        sim.apply([Allocation(0, (0,))])
    sim.advance()  # a better scheduler could go on
    assert sim.now == 10.0


def test_jobs_too_short_for_the_clock_end():
    """1e9 s + 1e-9 s are 1e9 s: many decisions at one instant, but no more than there are jobs."""
    count = 500
    jobs = JobTable.from_columns(np.full(count, 1e9), np.ones(count, np.int64), np.full(count, 1e-9))
    sim = Simulator(Cluster((1,)), jobs, ideal())
    run(sim, fifo_backfill(pack()), np.random.default_rng(0), compiled=False)
    assert sim.now == 1e9
    assert sim.state.clusters["num_decisions"][0] > count


def test_the_guard_forgets_when_time_moves():
    jobs = replace(two_jobs(), duration_seconds=np.full(2, 1e4))
    sim = arrived(Cluster((2,)), jobs, ideal(), round_seconds=0.5)
    sim.apply([Allocation(0, (0,)), Allocation(1, (1,))])
    for _ in repeat(None, 5000):
        sim.apply([Allocation(0, (0,))])
        sim.advance()
    assert sim.now == 2500.0


@pytest.mark.parametrize("compiled", [True, False])
def test_jobs_that_are_stopped_before_their_restarts_are_over(compiled):
    """Two jobs take turns in rounds as long as a restart: after their first turns neither works."""
    jobs = replace(two_jobs(), duration_seconds=np.full(2, 1e4))

    def simulate(restart_seconds):
        sim = Simulator(Cluster((1,)), jobs, ideal(), restart=constant(restart_seconds), round_seconds=300.0)
        run(sim, by_turns(300.0), np.random.default_rng(0), compiled=compiled)
        return sim

    message = r"no progress at .* s: 10200 preemptions or resizes.*longer than their restarts"
    with pytest.raises(SchedulerError, match=message):
        simulate(300.0)
    assert simulate(290.0).done  # 10 s of each round are worked
