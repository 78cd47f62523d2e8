"""SJF-BCO's compiled planner against Algorithms 1 to 3 written down plainly, trial by trial."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator
from ringyard.performance.model import iteration_seconds
from ringyard_baselines.papers.sjf_bco.bisection import bisect_theta
from ringyard_baselines.papers.sjf_bco.gpu_choice import find_candidates
from ringyard_baselines.papers.sjf_bco.plan import (
    SJF_BCO,
    PlannedJobs,
    PlanningProblem,
    empty_gpu_plan,
)
from ringyard_baselines.papers.sjf_bco.planner_state import empty_planner_state
from ringyard_baselines.papers.sjf_bco.scheduler import PlannedScheduler, sjf_bco
from ringyard_baselines.scheduler import run
from small_simulations import arrived, rings


class Ring(NamedTuple):
    """A planned job that spans servers."""

    servers: set
    end: float


class Trial:
    """Every job planned in order; `last` is inf if one finds no place or ends after `limit`."""

    def __init__(self, servers, task, theta, kappa, limit):
        self.servers, self.theta, self.task = servers, theta, task
        self.load, self.free_at = task.busy_seconds.copy(), task.busy_seconds.copy()
        self.time, self.makespan = 0.0, 0.0
        self.rings, self.starts, self.gpus = [], [], []
        for i, demand in enumerate(task.batch.records["num_gpus"].tolist()):
            chosen = self.choose(task.batch.estimates[i], demand, demand > kappa)
            if chosen is None or self.occupy(i, chosen) > limit:
                self.makespan = np.inf
                return

    def choose(self, estimate, demand, is_large):
        """The least loaded GPUs within theta, as soon as there are as many; None: there are not."""
        allowed = self.load + estimate <= self.theta
        if is_large:
            allowed &= np.isin(self.servers, self.least_busy(demand))
        exits = np.sort(self.free_at[allowed])
        if len(exits) < demand:
            return None
        self.time = max(self.time, float(exits[demand - 1]))
        free = np.flatnonzero(allowed & (self.free_at <= self.time))
        used = np.isin(self.servers[free], self.servers[self.free_at > self.time]) & (not is_large)
        return free[np.lexsort((free, ~used, self.load[free]))][:demand]

    def least_busy(self, demand):
        """LBSGF's servers: least mean load first, until they hold enough."""
        ids = range(self.servers[-1] + 1)
        loads = [self.load[self.servers == s].tolist() for s in ids]
        ranked = sorted(ids, key=lambda s: (sum(loads[s]) / len(loads[s]), s))
        held = np.cumsum([len(loads[s]) for s in ranked])
        return ranked[: int((held < self.task.over_provision * demand).sum()) + 1]

    def occupy(self, i, gpus):
        """The job's exit by eq. 8, with the links as planned at its start."""
        batch, servers = self.task.batch, set(self.servers[gpus].tolist())
        here = [sum(s in ring.servers and ring.end > self.time for ring in self.rings) for s in servers]
        record = batch.records[i].copy()
        record["num_servers"] = len(servers)
        record["contenders"] = 1 + max(here) if len(servers) > 1 else 0
        seconds = iteration_seconds(record, int(batch.rows[i]), self.task.physics)
        end = float(self.time + record["remaining_iterations"] * seconds)
        if len(servers) > 1:
            self.rings.append(Ring(servers, end))
        self.load[gpus] += batch.estimates[i]
        self.free_at[gpus] = end
        self.makespan = max(self.makespan, end)
        self.starts.append(self.time)
        self.gpus.append(sorted(gpus.tolist()))
        return self.makespan


def bisection(servers, task):
    """(makespan, theta, kappa) of the best trial, and the trial."""
    left, right = 0.0, task.horizon
    best, chosen = np.inf, None
    theta = right / 2.0
    while True:
        found = np.inf
        for kappa in task.kappas.tolist():
            trial = Trial(servers, task, theta, kappa, min(task.horizon, best))
            if trial.makespan < found:
                found, chosen = trial.makespan, (theta, kappa)
        if found < np.inf:
            best, right = found, theta
        else:
            left = theta
        if right - left <= task.resolution:
            break
        theta = (left + right) / 2.0
    return (best, *chosen, Trial(servers, task, *chosen, np.inf)) if chosen else (np.inf, None, None, None)


def drawn(rng):
    """A planner's task on a few servers, with many equal loads."""
    cluster = Cluster(tuple(rng.integers(1, 5, rng.integers(2, 7)).tolist()))
    count = int(rng.integers(1, 16))
    demands = np.sort(rng.integers(1, rng.integers(1, cluster.num_gpus + 1) + 1, count))
    jobs = JobTable.from_columns([0.0] * count, demands, rng.choice([2.0, 3.0, 5.0, 7.5], count))
    jobs = replace(jobs, gradient_bytes=np.full(count, 1e8))
    sim = arrived(cluster, jobs, rings(xi_2=float(rng.choice([0.0, 0.01]))))
    view, rows = sim.view(), np.arange(count)
    records = view.records(rows)
    estimates = records["remaining_iterations"] * records["isolated_iteration_seconds"]
    estimates = estimates / float(rng.choice([1.0, 1.0, 2.0]))
    busy = np.repeat(rng.choice([0.0, 0.0, 1.5, 4.0], cluster.num_servers), cluster.gpus_per_server)
    busy[rng.random(cluster.num_gpus) < 0.3] = 0.0
    kappas = np.unique(np.append(demands, 1)) if rng.random() < 0.7 else rng.integers(1, demands[-1] + 1, 1)
    horizon = float(rng.choice([0.5, 1.0, 2.0])) * (
        busy.max() + (estimates * demands).sum() / cluster.num_gpus + 5.0
    )
    over = float(rng.choice([1.0, 1.5, 3.0]))
    batch = PlannedJobs(rows, records, estimates, np.zeros((count, 1)))
    task = PlanningProblem(batch, busy, view.physics, SJF_BCO, kappas, over, False, horizon, 1e-3 * horizon)
    return cluster, task, empty_gpu_plan(demands.astype(np.int64))


def test_plans_are_those_of_the_plain_algorithm(rng):
    found = 0
    for _ in range(60):
        cluster, task, plan = drawn(rng)
        planners = (empty_planner_state(cluster) for _ in range(2))
        makespan, theta, kappa = bisect_theta(*planners, plan, task)
        best, best_theta, best_kappa, trial = bisection(cluster.server_of_gpu, task)
        assert makespan == best
        if trial is None:
            continue
        found += 1
        assert (theta, kappa) == (best_theta, best_kappa)
        assert plan.start.tolist() == trial.starts
        planned = [sorted(gpus.tolist()) for gpus in np.split(plan.gpus, plan.begin[1:-1])]
        assert planned == trial.gpus
    assert 20 < found < 60


class Eager(PlannedScheduler):
    """Plans all jobs at once, whether or not GPUs are free for them."""

    def _make_plan(self, view):
        super()._make_plan(view)
        self._plan_the_rest()


@pytest.mark.parametrize("kappa", [None, 2])
def test_schedules_do_not_depend_on_when_the_rest_is_planned(rng, kappa):
    for _ in range(8):
        cluster = Cluster(tuple(rng.integers(1, 5, 4).tolist()))
        demands = np.minimum(rng.choice([1, 1, 2, 3, 6], 40), cluster.num_gpus)
        submits = np.sort(rng.integers(0, 120, 40)).astype(float)
        jobs = JobTable.from_columns(submits - submits[0], demands, rng.uniform(1.0, 30.0, 40))
        jobs = replace(jobs, gradient_bytes=np.full(40, 1e8))
        starts = []
        for scheduler in (sjf_bco(kappa=kappa), Eager("sjf_bco", SJF_BCO, kappa=kappa)):
            sim = Simulator(cluster, jobs, rings())
            run(sim, scheduler, np.random.default_rng(0))
            starts.append(sim.state.jobs[["first_start_seconds", "end_seconds"]].tobytes())
        assert starts[0] == starts[1]


def test_a_gpu_is_a_candidate_up_to_theta():
    planner = empty_planner_state(Cluster.homogeneous(1, 3))
    planner.load[:] = [0.0, 2.0, 3.0]
    assert find_candidates(planner, 5.0, 7.0) == 2
    assert planner.candidates[:2].tolist() == [0, 1]


def test_every_size_of_a_job_splits_the_jobs_and_so_does_one_gpu():
    scheduler = sjf_bco()
    assert scheduler._kappas(np.array([4, 2, 4])).tolist() == [1, 2, 4]
    assert sjf_bco(kappa=3)._kappas(np.array([4, 2, 4])).tolist() == [3]
