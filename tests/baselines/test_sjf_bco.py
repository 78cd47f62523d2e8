"""SJF-BCO's planner: limits, comparators, published experiment, and the optimum of small instances."""

import sys

import numpy as np
import pytest

from conftest import ROOT
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.errors import SchedulerError
from ringyard_baselines.papers.sjf_bco.bisection import bisect_theta
from ringyard_baselines.papers.sjf_bco.plan import (
    FIRST_FIT,
    SJF_BCO,
    PlannedJobs,
    PlanningProblem,
    empty_gpu_plan,
)
from ringyard_baselines.papers.sjf_bco.planner_state import empty_planner_state
from ringyard_baselines.papers.sjf_bco.scheduler import sjf_bco, sjf_bco_comparator
from ringyard_baselines.scheduler import run

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from sjf_bco_experiment import experiment
    from sjf_bco_optimum import COMPARATORS, Instance, Optimum, Replay, drawn, makespan
finally:
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize("rule", [SJF_BCO, FIRST_FIT])
def test_no_plan_ends_after_the_horizon(rule):
    # three jobs of 10 s on one GPU, estimated at a quarter: loads stay below T = 20, the last exit does not
    sim = Simulator(Cluster((1,)), JobTable.from_columns([0.0] * 3, [1] * 3, [10.0] * 3), ideal())
    sim.advance()
    view, rows = sim.view(), np.arange(3)
    batch = PlannedJobs(rows, view.records(rows), np.full(3, 2.5), np.zeros((3, 1)))
    ends = {}
    for horizon in (20.0, 40.0):
        plan = empty_gpu_plan(np.ones(3, dtype=np.int64))
        task = PlanningProblem(
            batch, np.zeros(1), view.physics, rule, np.array([1]), 1.0, False, horizon, 0.01
        )
        planners = (empty_planner_state(sim.cluster) for _ in range(2))
        ends[horizon] = bisect_theta(*planners, plan, task)[0]
    assert ends == {20.0: np.inf, 40.0: 30.0}


def test_who_waits_for_free_gpus_does_not_queue():
    # 3 GPUs; job 0 takes two of them at random for 10 s, job 1 wants one
    starts = {}
    for queues in (False, True):
        starts[queues] = set()
        for seed in range(12):
            sim = Simulator(Cluster((3,)), JobTable.from_columns([0.0, 0.0], [2, 1], [10.0, 4.0]), ideal())
            run(
                sim,
                sjf_bco_comparator("sjf_bco_rand", queue_on_busy_gpus=queues),
                np.random.default_rng(seed),
            )
            starts[queues].add(float(sim.state.jobs["first_start_seconds"][0, 1]))
    assert starts == {False: {0.0}, True: {0.0, 10.0}}


@pytest.mark.parametrize("name", ["sjf_bco_ff", "sjf_bco_ls", "sjf_bco_rand"])
def test_comparators_are_for_offline_batches(name):
    sim = Simulator(Cluster((4,)), JobTable.from_columns([0.0, 1.0], [1, 1], [5.0, 5.0]), ideal())
    with pytest.raises(SchedulerError, match=r"offline batch .* workload=sjf_bco"):
        run(sim, sjf_bco_comparator(name), np.random.default_rng(0))
    run(sim, sjf_bco(), np.random.default_rng(0))
    assert sim.done


def test_published_experiment_with_links_that_matter():
    outcomes = experiment(6, 0.65e9)
    means = {name: one.makespan.mean() for name, one in outcomes.items()}
    assert min(means, key=means.get) == "sjf_bco"
    assert max(means, key=means.get) == "sjf_bco_rand"
    # section 7: contention plus overhead stays within 15 % of execution time
    assert outcomes["sjf_bco"].extra.mean() < 0.15


def test_optimum_by_hand():
    # jobs of 2, 2, 2, 3 and 3 s on two GPUs: 6 s at best; in this order 7 s, whatever theta
    instance = Instance((1, 1), 1e9, (200, 200, 200, 300, 300), (1,) * 5, (0.0095,) * 5, (0.0,) * 5)
    assert Optimum(instance).makespan == pytest.approx(6.0)
    assert makespan(instance, sjf_bco()) == pytest.approx(7.0)
    # Theorem 5 as printed would allow nothing above the optimum here (n_g = phi = 1), which cannot be
    assert instance.bound() == pytest.approx(1.0)


@pytest.mark.parametrize("bandwidth", [0.13e9, 1.3e9])
@pytest.mark.parametrize("servers", [(2, 2), (4, 4), (2, 2, 4)])
def test_sjf_bco_is_nearest_to_the_optimum(servers, bandwidth):
    rng = np.random.default_rng(1)
    ratios = {name: [] for name in ("sjf_bco", "one after the other", *COMPARATORS)}
    for _ in range(12):
        instance = drawn(servers, 5, bandwidth, rng)
        optimum = Optimum(instance)
        assert makespan(instance, Replay(optimum)) == pytest.approx(optimum.makespan)
        found = {"sjf_bco": makespan(instance, sjf_bco())}
        found |= {name: makespan(instance, sjf_bco_comparator(name)) for name in COMPARATORS}
        found["one after the other"] = sum(map(instance.least_seconds, range(5)))
        assert min(found.values()) >= optimum.makespan * (1 - 1e-9)
        assert found["sjf_bco"] <= instance.bound() * optimum.makespan
        for name, seconds in found.items():
            ratios[name].append(seconds / optimum.makespan)
    means = {name: np.mean(values) for name, values in ratios.items()}
    own = means.pop("sjf_bco")
    assert own < 0.97 * min(means.values())
    assert own < 1.2 or (servers, bandwidth) == (
        (2, 2, 4),
        0.13e9,
    )  # there 1.73, and FF, LS and RAND 1.87 to 2.18


@pytest.mark.parametrize("name", ["sjf_bco", "sjf_bco_ff", "sjf_bco_ls"])
def test_plans_do_not_depend_on_the_unit_of_time(name, rng):
    """Jobs of hundredths of a second go to the GPUs that they would go to if these were seconds."""
    for _ in range(5):
        gpus, durations = rng.integers(1, 4, 12), rng.integers(1, 9, 12) / 64.0
        ends = []
        for scale in (1.0, 64.0):
            sim = Simulator(
                Cluster.homogeneous(2, 4),
                JobTable.from_columns(np.zeros(12), gpus, scale * durations),
                ideal(),
            )
            run(sim, sjf_bco() if name == "sjf_bco" else sjf_bco_comparator(name), np.random.default_rng(0))
            ends.append(sim.state.jobs["end_seconds"][0, :12] / scale)
        np.testing.assert_allclose(*ends)
