"""Run times of jobs that are not predictable stay hidden, from every scheduler that goes by predictions."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import leaf, names
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.compiled import FloatVector, implements
from ringyard.errors import PluginError
from ringyard.placement import pack
from ringyard.restart import constant
from ringyard.state.progress import predicted_iterations
from ringyard.state.records import Job
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import JobKey
from ringyard_baselines.scheduler import Observability, run

WATCHED = 2000.0  # seconds; no job ends before
TRUTH = Observability.DURATIONS | Observability.TRAINING_CURVES | Observability.DISTRIBUTION


def hidden(rng, never, durations=(4000.0, 9000.0)):
    """40 jobs, of which some or all are never predictable."""
    submitted = np.sort(rng.uniform(0.0, 0.8 * WATCHED, 40))
    submitted[0] = 0.0
    jobs = JobTable.from_columns(submitted, rng.integers(1, 9, 40), rng.uniform(*durations, 40))
    return replace(jobs, predictable_from=np.where(never, np.inf, 0.0))


def decided(scheduler, jobs):
    """What is decided at each decision point until `WATCHED`."""
    cluster = Cluster.homogeneous(4, 4)
    sim = Simulator(cluster, jobs, ideal(), constant(5.0), scheduler.round_seconds, seed=1)
    scheduler.reset(cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(1))
    decisions = []
    while sim.now <= WATCHED:
        allocations = list(scheduler.decide(sim.view(scheduler.observability)))
        decisions.append((sim.now, allocations))
        sim.apply(allocations)
        sim.advance()
    return decisions


def test_hidden_durations_decide_nothing():
    makers = {name: lambda name=name: leaf("scheduler", name) for name in names("scheduler")}
    makers |= {
        f"fifo_backfill@{name}": lambda name=name: fifo_backfill(leaf("placement", name))
        for name in names("placement")
    }
    watched = 0
    for name, make in makers.items():
        scheduler = make()
        if Observability.PREDICTIONS not in scheduler.observability or scheduler.observability & TRUTH:
            continue
        watched += 1
        for share in (0.5, 1.0):
            rng = np.random.default_rng(0)
            never = rng.random(40) < share
            jobs = hidden(rng, never)
            longer = np.where(never, rng.uniform(4000.0, 90_000.0, 40), jobs.duration_seconds)
            same = decided(scheduler, jobs) == decided(scheduler, replace(jobs, duration_seconds=longer))
            assert same, f"{name} sees how long jobs run that are not predictable"
    assert watched > 1


@implements(JobKey)
def predicted_left(job: Job, now: float, parameters: FloatVector) -> float:
    """Predicted iterations left, wherever an unpredictable job goes."""
    return predicted_iterations(job, now)


@implements(JobKey)
def predicted_first(job: Job, now: float, parameters: FloatVector) -> float:
    """Predicted iterations left; unpredictable jobs come last."""
    if job.predictable == 0:
        return np.inf
    return predicted_iterations(job, now)


def mean_jct(key, jobs, compiled=True):
    scheduler = PreemptiveScheduler("mine", key, np.zeros(1), pack(), Observability.PREDICTIONS)
    sim = Simulator(Cluster.homogeneous(4, 4), jobs, ideal(), constant(5.0), seed=1)
    run(sim, scheduler, np.random.default_rng(0), compiled)
    return sim.metrics().mean_jct


@pytest.mark.parametrize("compiled", [True, False])
def test_a_key_says_where_jobs_go_that_are_not_predictable(compiled):
    rng = np.random.default_rng(0)
    known = hidden(rng, np.zeros(40, bool), (50.0, 3000.0))
    unknown = replace(known, predictable_from=np.full(40, np.inf))
    assert mean_jct(predicted_left, known, compiled) == mean_jct(predicted_first, known, compiled)
    assert mean_jct(predicted_first, unknown, compiled) > mean_jct(predicted_first, known, compiled)
    with pytest.raises(PluginError, match=r"key test_predictions\.predicted_left of job 0 is nan at 0 s"):
        mean_jct(predicted_left, unknown, compiled)
