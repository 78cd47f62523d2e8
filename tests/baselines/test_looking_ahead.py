"""Looking ahead: it gains where futures are known, and sees none of what the allocator may not see."""

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml

from conftest import CONF
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError
from ringyard.failures import Failures, no_failures
from ringyard.restart import constant
from ringyard.sim.allocator import Allocator
from ringyard_baselines.families.allocating import AllocatingScheduler, allocator, allocator_attained
from ringyard_baselines.families.looking_ahead import LookingAhead, lookahead
from ringyard_baselines.scheduler import run
from ringyard_baselines.tools.score_search import Search

USUAL = yaml.safe_load((CONF / "scheduler" / "lookahead.yaml").read_text())
USUAL.pop("_target_")
CLUSTER = Cluster.homogeneous(4, 4)
ARRIVED = 100.0  # seconds; nothing ends before


def drawn(seed):
    """40 jobs of which nobody can predict how long they run: 30 come soon, 10 after the test."""
    rng = np.random.default_rng(seed)
    submitted = np.sort(rng.uniform(0.0, ARRIVED, 30))
    submitted[0] = 0.0
    later = ARRIVED + np.sort(rng.uniform(1.0, 50.0, 10))
    jobs = JobTable.from_columns(
        np.concatenate((submitted, later)), rng.integers(1, 9, 40), rng.uniform(500.0, 5000.0, 40)
    )
    return replace(jobs, predictable_from=np.full(40, np.inf))


def looking(allocator=None, candidates=6, margin=0.0):
    return LookingAhead(allocator or Allocator(0.7), Search(candidates, margin, spread=0.3, every=1))


def decided(jobs, failures, seed, performance):
    """All that is decided until the last of the first 30 jobs has come, and how often scores were changed."""
    sim = Simulator(CLUSTER, jobs, performance, constant(5.0), seed=seed, failures=failures)
    scheduler = looking()
    scheduler.reset(CLUSTER, sim.jobs.as_known(scheduler.information), np.random.default_rng(1))
    answers, changed = [], 0
    while sim.now <= ARRIVED:
        allocations = scheduler.decide(sim.view(scheduler.information))
        plan, _ = scheduler._prepared(sim.view(scheduler.information), True)
        changed += int(plan.score.any())
        answers.append((sim.now, list(allocations)))
        sim.apply(allocations)
        sim.advance()
    return answers, changed


@pytest.mark.parametrize("what", ["durations", "arrivals", "cancellations", "failures", "outcomes"])
def test_worlds_that_differ_in_what_nobody_knows_are_decided_alike(what):
    for seed in range(3):
        jobs, rng = drawn(seed), np.random.default_rng(100 + seed)
        failures, other = no_failures(), jobs
        if what == "durations":
            other = replace(jobs, duration_seconds=rng.uniform(200.0, 50_000.0, 40))
        elif what == "arrivals":
            other = jobs.rows(np.arange(40) < 31)
        elif what == "cancellations":
            other = replace(jobs, cancel_seconds=rng.uniform(1.5, 9.0, 40) * ARRIVED)
        elif what == "outcomes":
            other = replace(jobs, outcome=np.ones(40, np.int32))
        else:
            failures = Failures(1e6, 1e3, 100.0)  # of 4 servers in 100 s: none by chance
        first, changed = decided(jobs, no_failures(), 5, ideal())
        second, _ = decided(other, failures, 5, ideal())
        assert changed > 5  # it decides otherwise than the allocator
        assert first == second


def test_what_is_predicted_counts_and_not_what_is_true():
    """All come at once, some 2, 4 or 8 times as long as predicted: the same to whoever decides."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        jobs = JobTable.from_columns(np.zeros(30), rng.integers(1, 9, 30), rng.uniform(500.0, 5000.0, 30))
        times = 2.0 ** rng.integers(0, 4, 30)
        longer = replace(jobs, duration_seconds=times * jobs.duration_seconds, prediction_factor=1.0 / times)
        answers = []
        for table in (jobs, longer):
            sim = Simulator(CLUSTER, table, ideal(), seed=0)
            scheduler = looking()
            scheduler.reset(CLUSTER, sim.jobs.as_known(scheduler.information), np.random.default_rng(1))
            sim.advance()
            answers.append(list(scheduler.decide(sim.view(scheduler.information))))
        assert answers[0] == answers[1]


def test_it_is_the_allocator_without_candidates_and_better_with_them():
    """Everybody is there from the start and all is known: what is better in the head is better."""
    sums = {"plain": 0.0, "none": 0.0, "ahead": 0.0}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        jobs = JobTable.from_columns(np.zeros(40), rng.integers(1, 9, 40), rng.lognormal(6.0, 1.0, 40))
        rules = Allocator(1.0)
        for name, scheduler in (
            ("plain", AllocatingScheduler(rules)),
            ("none", looking(rules, candidates=0)),
            ("ahead", looking(rules, candidates=8)),
        ):
            sim = Simulator(CLUSTER, jobs, ideal(), constant(30.0), seed=0)
            run(sim, scheduler, np.random.default_rng(seed))
            sums[name] += sim.metrics().mean_jct
    assert sums["none"] == sums["plain"]
    assert sums["ahead"] < 0.99 * sums["plain"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spread", 1e300), ("spread", 0.0), ("margin", 1.0), ("every", 0), ("candidates", -1),
        ("gamma", 1e300), ("gamma", float("nan")), ("stay", 1e-300), ("unknown_seconds", 1e300),
    ],
)  # fmt: skip
def test_errors_name_what_a_command_line_calls_it(name, value):
    said, wrong = rf"^scheduler\.{name} is {re.escape(repr(value))}; expected", {name: value}
    with pytest.raises(ConfigurationError, match=said):
        lookahead(**(USUAL | wrong))
    if name in inspect.signature(allocator).parameters:
        with pytest.raises(ConfigurationError, match=said):
            allocator(**wrong)
        with pytest.raises(ConfigurationError, match=said):
            allocator_attained(**wrong)
