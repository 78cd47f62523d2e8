"""Decisions that read few keys are those that read all, ties and all."""

from dataclasses import replace

import numpy as np
import pytest

from oracle.preemptive import run_plainly
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.failures import Failures
from ringyard.mdp.env_config import ten_gigabit_rings
from ringyard.placement import consolidate, first_fit, least_contended, pack
from ringyard.restart import constant
from ringyard_baselines.classic.preemptive import las, smallest_first, srsf, srtf
from ringyard_baselines.papers.gittins import GittinsTiresias
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run

SCHEDULERS = {
    "srtf": srtf,
    "srsf": srsf,
    "las": lambda rule: las(rule, 10.0),
    "smallest_first": smallest_first,
    "tiresias": lambda rule: tiresias(rule, (20.0, 60.0)),
    "tiresias by submission": lambda rule: tiresias(rule, (20.0, 60.0, 100.0), within_queue="submission"),
    "tiresias of the public simulator": lambda rule: tiresias(
        rule, (20.0, 60.0), demotion="public_simulator"
    ),
    "tiresias that promotes": lambda rule: tiresias(rule, (20.0, 60.0), 50.0),
    "gittins": lambda rule: GittinsTiresias(rule, 30.0),
}
COLUMNS = ("first_start_seconds", "end_seconds", "num_preemptions", "attained_service", "run_seconds")


def random_arguments(rng, meets):
    """Arguments of a simulator: mostly whole multiples of 5 s, so that many keys are equal.

    Args:
        rng: draws it.
        meets: arrivals may have the very key of a job that runs.
    """
    cluster = Cluster.homogeneous(int(rng.integers(1, 9)), int(rng.choice([1, 2, 4, 8])))
    count = int(rng.integers(5, 120))
    sizes = rng.choice([size for size in (1, 2, 3, 4, 8, 16, 32) if size <= cluster.num_gpus], count)
    durations = rng.exponential(40.0, count) + 1.0
    gap = (sizes * durations).mean() / (cluster.num_gpus * rng.uniform(0.5, 2.5))
    submit = rng.exponential(gap, count).cumsum()
    if rng.random() < 0.6:
        durations = np.maximum(np.round(durations / 5), 1) * 5
        submit = np.floor(submit / 5) * 5 if meets else submit
    submit -= submit[0]
    jobs = JobTable.from_columns(submit, sizes, durations)
    if rng.random() < 0.3:
        gives_up = submit + 5.0 * rng.integers(1, 60, count)
        jobs = replace(jobs, cancel_seconds=np.where(rng.random(count) < 0.3, gives_up, np.inf))
    performance = ideal() if rng.random() < 0.6 else ten_gigabit_rings()
    if performance.network.value:
        jobs = jobs.with_models(rng.integers(0, 8, count))
    restart = constant(float(rng.choice([0.0, 0.0, 5.0, 3.7])))
    failures = Failures(200.0, 20.0, 15.0) if rng.random() < 0.2 else None
    return cluster, jobs, performance, restart, failures


def schedule(scheduler, arguments, seed, plainly=False):
    """[columns, jobs] when each job started, ended and so on."""
    cluster, jobs, performance, restart, failures = arguments
    sim = Simulator(
        cluster, jobs, performance, restart, scheduler.round_seconds, seed=seed, failures=failures
    )
    if plainly:
        run_plainly(sim, scheduler)
    else:
        run(sim, scheduler, np.random.default_rng(0))
    return np.array([sim.state.jobs[name][0, :-1] for name in COLUMNS])


@pytest.mark.parametrize("name", SCHEDULERS)
def test_few_keys_are_read_and_nothing_else_is_decided(name):
    for seed in range(120):
        arguments = random_arguments(np.random.default_rng(seed), meets=name not in ("srtf", "srsf"))
        rule = (consolidate, pack, first_fit, least_contended)[seed % 4]()
        scheduler = SCHEDULERS[name](rule)
        expected = schedule(scheduler, arguments, seed, plainly=True)
        found = schedule(scheduler, arguments, seed)
        np.testing.assert_array_equal(found, expected, f"seed {seed}")
