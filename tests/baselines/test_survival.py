"""Seconds left by hazards: what is known of tenants, as slow Python counts it, and what follows from it."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.allocator import Allocator
from ringyard.compiled import FloatMatrix, kernel
from ringyard.errors import ConfigurationError
from ringyard.jobs import HistoricalJobs
from ringyard.observability import Observability, check_reads
from ringyard.placement import consolidate
from ringyard.restart import constant
from ringyard_baselines.policies.allocating import AllocatingScheduler
from ringyard_baselines.policies.least_estimated import LeastEstimated
from ringyard_baselines.scheduler import run
from ringyard_baselines.tools import survival
from ringyard_baselines.tools.survival import (
    BINS,
    EDGES,
    FEATURE_NAMES,
    FEATURES,
    PARAMETERS,
    SurvivalEstimate,
    bins_of,
    latest_features,
)
from tools.calibration.hazard import constant_rates, missing_features


def drawn_network(seed):
    rng = np.random.default_rng(seed)
    network = {name: rng.normal(0.0, 0.3, shape) for name, shape in PARAMETERS.items()}
    return {**network, "scale": np.full(FEATURES, 0.2)}


def drawn_jobs(rng, count=80):
    """Jobs of tenants, with a past; times are irrational enough never to coincide."""

    def tenants(n):
        return np.array(["", "x", "y"])[rng.integers(0, 3, n)], np.array(list("abc"))[rng.integers(0, 3, n)]

    jobs = JobTable.from_columns(
        np.sort(rng.uniform(0, 3000.0, count)) * (np.arange(count) > 0),
        rng.choice([1, 2, 4, 6, 8, 12], count),
        rng.lognormal(5.0, 1.5, count),
        None,
        *tenants(count),
    )
    return replace(
        jobs, past=HistoricalJobs(rng.choice([1, 3, 5, 16], 40), rng.lognormal(5.0, 1.0, 40), *tenants(40))
    )


def seconds_of(job, now):
    """How long a job's record has held GPUs."""
    held = now - job["updated_seconds"] if job["status"] == 2 else 0.0
    return job["run_seconds"] + held


def bucket(gpus):
    return sum(gpus > limit for limit in (1, 4, 8))


def slow_neighbours(facts, over, alike, row):
    """Statistics of the ten jobs before and after `row` among those `alike`, in order of submission."""
    at = alike.index(row)
    sides = alike[:at][::-1][:10], alike[at + 1 :][:10]
    weighed = [
        (0.8**k, float(bins_of(np.array(facts[j][3]))), j in over) for one in sides for k, j in enumerate(one)
    ]
    ended, live = ([(w, x) for w, x, is_over in weighed if is_over == wanted] for wanted in (True, False))
    found = [0.0, 0.0, sum(w for w, _ in ended), sum(w for w, _ in live), 0.0]
    if ended:
        weights, times = np.array(ended).T
        found[0] = np.average(times, weights=weights)
        found[1] = np.sqrt(np.average((times - found[0]) ** 2, weights=weights))
    if live:
        weights, ages = np.array(live).T
        found[4] = np.average(ages, weights=weights)
    return found


def slow_features(ended, facts, over, live, row):
    """As the module says it.

    Args:
        ended: [(vc, user, GPUs, seconds)] in the order of their ends.
        facts: {job: the same} of all jobs.
        over: jobs that have ended.
        live: jobs that live.
        row: the job whose features these are.
    """
    own, found = facts[row], []
    for column in (0, 1):

        def same(other, column=column):
            return other[column] == own[column] and bucket(other[2]) == bucket(own[2])

        quick = mean = square = count = 0.0
        for last in bins_of(np.array([one[3] for one in ended if same(one)])).tolist():
            count += 1
            square += max(0.05, 1 / count) * (((last - mean) if count > 1 else 0.0) ** 2 - square)
            quick += max(0.3, 1 / count) * (last - quick)
            mean += max(0.05, 1 / count) * (last - mean)
        others = [bins_of(np.array(facts[j][3])) for j in live if j != row and same(facts[j])]
        found += [quick, mean, np.sqrt(square), np.log1p(count), np.log1p(len(others))]
        found.append(np.mean(others) if others else 0.0)
        found += slow_neighbours(facts, over, sorted(j for j in live | over if same(facts[j])), row)
    return [*found, np.log2(1 + own[2])]


def watched(jobs, network, cluster=None):
    """(simulation, scheduler) before its first decision."""
    sim = Simulator(cluster or Cluster.homogeneous(4, 4), jobs, ideal(), constant(3.0))
    scheduler = LeastEstimated(consolidate(), SurvivalEstimate(network))
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    return sim, scheduler


def test_features_are_what_slow_python_counts_and_jobs_are_judged_when_something_is_new(rng):
    jobs = drawn_jobs(rng)
    sim, scheduler = watched(jobs, drawn_network(0))
    past = jobs.past
    ended = list(zip(past.vc, past.user, past.num_gpus, past.run_seconds, strict=True))
    over, judged, checked = set(), set(), 0
    while not sim.done:
        now, records = sim.now, sim.state.jobs[0].copy()
        facts = {
            j: (jobs.vc[j], jobs.user[j], jobs.num_gpus[j], seconds_of(records[j], now)) for j in range(80)
        }
        new = [j for j in range(80) if records["status"][j] == 3 and j not in over]
        ended += [facts[j] for j in sorted(new, key=lambda j: records["end_seconds"][j])]
        over |= set(new)
        live = {j for j in range(80) if records["status"][j] in (1, 2)}
        scheduler.step(sim)
        rows, ages, written = latest_features(scheduler.estimate_memory)
        groups = [{(facts[j][c], bucket(facts[j][2])) for j in new} for c in (0, 1)]
        news = {j for j in live if all((facts[j][c], bucket(facts[j][2])) in groups[c] for c in (0, 1))}
        assert set(rows.tolist()) == news | (live - judged)
        judged |= live
        for row, age, features in zip(rows.tolist(), ages, written, strict=True):
            assert age == facts[row][3]
            expected = slow_features(ended, facts, over, live, row)
            assert features == pytest.approx(expected, abs=1e-7), dict(
                zip(FEATURE_NAMES, expected, strict=True)
            )
            checked += 1
    assert checked > 120


def slow_left(features, network, a):
    """Seconds left at edge a: over any time to come, the fewest seconds of work per end."""
    x = np.clip((features - network["mean"]) * network["scale"], -3, 3)
    for layer in ("first", "second"):
        x = np.tanh(np.append(x, 1.0) @ network[layer])
    rates = np.exp(np.clip(np.append(x, 1.0) @ network["output"], -12, 3))
    alive = np.append(np.exp(-np.concatenate([[0.0], np.cumsum(rates[:-1])])), 0.0)
    steps = (alive[1:] + alive[:-1]) / 2 * np.diff(EDGES)
    return min(steps[a:k].sum() / (alive[a] - alive[k]) for k in range(a + 1, BINS + 1))


def test_seconds_left_are_the_inverse_of_the_gittins_index(rng):
    network = drawn_network(3)
    sim, scheduler = watched(drawn_jobs(rng), network)
    while sim.now < 800.0:
        scheduler.step(sim)
    rows, _, written = latest_features(scheduler.estimate_memory)
    for row, features in zip(rows, written, strict=True):
        for a in (0, 5, 11, 23):
            assert _left(scheduler.estimate_memory, row, EDGES[a]) == pytest.approx(
                slow_left(features, network, a)
            )
    middle = _left(
        scheduler.estimate_memory, 0, 60.0 * np.expm1((np.log1p(EDGES[5] / 60) + np.log1p(EDGES[6] / 60)) / 2)
    )
    ends = [_left(scheduler.estimate_memory, 0, EDGES[k]) for k in (5, 6)]
    assert middle == pytest.approx(np.mean(ends))


@kernel
def _left(memory: FloatMatrix, j: int, age: float) -> float:
    return survival._seconds_left(memory, j, age)


def test_a_known_end_leaves_the_time_until_then():
    rates = np.full(BINS, -12.0)
    rates[14] = 3.0
    sim, scheduler = watched(JobTable.from_columns([0.0], [1], [50.0]), constant_rates(rates))
    for _ in range(2):  # it arrives, it is judged
        scheduler.step(sim)
    for a in (0, 4, 12):
        assert EDGES[14] - EDGES[a] < _left(scheduler.estimate_memory, 0, EDGES[a]) < EDGES[15] - EDGES[a]


def test_nothing_of_the_future_is_known(rng):
    """What jobs do later, those that run on and those to come, changes neither memory nor decisions."""
    jobs = drawn_jobs(rng)
    first, scheduler = watched(jobs, drawn_network(1))
    while first.now < 1500.0:
        scheduler.step(first)
    until = first.now
    over = first.state.jobs["end_seconds"][0, :-1] <= until
    come = jobs.submit_seconds <= until
    assert 10 < over.sum() < come.sum() < 75
    longer = np.where(over, 1.0, rng.uniform(3.0, 9.0, len(jobs)))
    names = np.where(come, jobs.user, "other")
    changed = replace(jobs, duration_seconds=jobs.duration_seconds * longer, user=names)
    second, again = watched(changed, drawn_network(1))
    while second.now < until:
        again.step(second)
    assert second.now == until
    times = ("first_start_seconds", "run_seconds", "num_preemptions")
    for name in times:
        assert np.array_equal(first.state.jobs[name][0, :-1], second.state.jobs[name][0, :-1], equal_nan=True)
    assert np.array_equal(
        latest_features(scheduler.estimate_memory)[2], latest_features(again.estimate_memory)[2]
    )
    observability = SurvivalEstimate(drawn_network(1)).observability
    assert observability == Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.HISTORY
    check_reads(survival._estimate, observability, "the estimate")


def test_the_past_counts_as_if_it_had_just_ended(rng):
    """A tenant whose jobs of this size were short is served first, from the first decision on."""
    past = HistoricalJobs(
        np.full(20, 4), np.tile([50.0, 5e5], 10), np.full(20, ""), np.tile(["quick", "slow"], 10)
    )
    jobs = JobTable.from_columns([0.0, 0.0], [4, 4], [100.0, 100.0], user=["slow", "quick"])
    network = constant_rates(np.full(BINS, -2.0))
    mean = FEATURE_NAMES.index("mean of user")
    network["scale"][mean], network["mean"][mean] = 1.0, 12.0
    network["first"][mean, 0] = network["second"][0, 0] = 1.0
    network["output"][0] = -2.0  # longer before: fewer ends
    for scheduler in (
        LeastEstimated(consolidate(), SurvivalEstimate(network)),
        AllocatingScheduler(Allocator(estimate=SurvivalEstimate(network))),
    ):
        starts = []
        for table in (jobs, replace(jobs, past=past)):
            sim = Simulator(Cluster((4,)), table, ideal())
            run(sim, scheduler, rng)
            starts.append(sim.state.jobs["first_start_seconds"][0, :2].tolist())
        assert starts == [[0.0, 100.0], [100.0, 0.0]]


def test_tenants_that_nobody_names_are_not_learnt_of():
    jobs = JobTable.from_columns([0.0], [1], [1.0], vc=["x"])
    left_out = [name for name, out in zip(FEATURE_NAMES, missing_features(jobs), strict=True) if out]
    assert left_out == [name for name in FEATURE_NAMES if "user" in name]


def test_networks_of_other_shapes_are_refused():
    network = drawn_network(0)
    with pytest.raises(ConfigurationError, match=r"the hazard network has .*'mean': \(3,\).*; expected"):
        SurvivalEstimate({**network, "mean": np.zeros(3)})
    with pytest.raises(ConfigurationError, match=r"running_factor is 0.*; expected"):
        LeastEstimated(consolidate(), SurvivalEstimate(network), running_factor=0)
    with pytest.raises(ConfigurationError, match="not finite"):
        SurvivalEstimate({**network, "mean": np.full(FEATURES, np.nan)})


def test_the_memory_is_one_row_a_job_and_kernels_stay_inside(rng):
    """The smallest table: tenants, lists and scratch have room in as many rows as there are jobs."""
    one = drawn_jobs(rng, 1)
    memory = SurvivalEstimate(drawn_network(0)).memory_of(one)
    guarded = np.full((3, *memory.shape), 7.0)
    guarded[1] = memory
    sim, scheduler = watched(one, drawn_network(0))
    scheduler._priority = replace(scheduler._priority, estimate_memory=guarded[1])
    scheduler.run_compiled(sim)
    assert (guarded[[0, 2]] == 7.0).all()
