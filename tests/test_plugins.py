"""A mistake in a plugged-in function is an error with its name, and the process lives on."""

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import broken_plugins
from broken_plugins import RULES, misobserving, misplacing, mistiming
from conftest import ROOT, WITH, leaf, names
from ringyard import Allocation, Cluster, EnvConfig, JobTable, Simulator, ideal
from ringyard.bounds import simulation_bounds
from ringyard.compiled import FloatVector, implements
from ringyard.errors import PlacementError, PluginError, RingyardError
from ringyard.failures import Failures
from ringyard.mdp.actions import Actions, Adjustment, Scores
from ringyard.mdp.experiments import experiment
from ringyard.mdp.rewards import Reward
from ringyard.observability import Observability
from ringyard.placement import first_fit, pack, share_any
from ringyard.restart import RestartCost
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard.state.records import Integral
from ringyard_agents.learning.agent import AgentScheduler
from ringyard_baselines.classic.preemptive import srtf
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.policies.ordered import OrderedScheduler
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import JobKey
from ringyard_baselines.scheduler import run
from small_simulations import everything

EIGHT = Cluster.homogeneous(2, 4)


class Table:
    """A workload that is one table."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.num_jobs = len(jobs)

    def sample(self, cluster, rng):
        return self.jobs


def five_jobs():
    return JobTable.from_columns([0.0, 1.0, 2.0, 3.0, 4.0], [2, 3, 4, 2, 4], [60.0, 50.0, 40.0, 30.0, 20.0])


def setting(**parts):
    return EnvConfig(**{"cluster": EIGHT, "workload": Table(five_jobs()), "performance": ideal(), **parts})


def simulate(scheduler, performance=None, compiled=True):
    sim = Simulator(EIGHT, five_jobs(), performance or ideal())
    run(sim, scheduler, np.random.default_rng(0), compiled)
    return sim.metrics().mean_jct


def draft(rule):
    sim = Simulator(EIGHT, five_jobs(), ideal())
    sim.advance()
    planned = PlacementPlan(sim.view())
    for job in range(2):
        planned.place(rule, job)


def play(part):
    """One cluster behind Gymnasium, always the first valid action."""
    env = gymnasium.make("ringyard/Cluster-v0", config=part, disable_env_checker=True)
    _, info = env.reset(seed=0)
    ended = False
    while not ended:
        _, _, done, truncated, info = env.step(int(info["action_mask"].argmax()))
        ended = done or truncated
    return info["episode_jct"]


def play_many(part):
    env = gymnasium.make_vec("ringyard/Cluster-v0", num_envs=3, config=part)
    _, info = env.reset(seed=0)
    for _ in range(30):
        mask = info["action_mask"]
        actions = mask.astype(float) if isinstance(part.actions, Scores) else mask.argmax(axis=1)
        _, _, _, _, info = env.step(actions)


class FirstValid:
    """The policy that takes the first valid action."""

    flat = False

    def act(self, observations, masks):
        return masks.argmax(axis=1)


def agent(rule):
    return AgentScheduler(FirstValid(), setting().observation, Actions(templates=(rule,)))


WAYS_OF_RULES = {
    "drive": lambda rule: simulate(fifo_backfill(rule)),
    "decide": lambda rule: simulate(fifo_backfill(rule), compiled=False),
    "preemptive": lambda rule: simulate(srtf(rule)),
    "draft": draft,
    "agent": lambda rule: simulate(agent(rule)),
    "agent decides": lambda rule: simulate(agent(rule), compiled=False),
    "make": lambda rule: play(setting(actions=Actions(templates=(rule,)))),
    "make_vec": lambda rule: play_many(setting(actions=Actions(templates=(rule,)))),
}


@pytest.mark.parametrize("way", WAYS_OF_RULES.values(), ids=WAYS_OF_RULES)
@pytest.mark.parametrize("mistake", RULES)
def test_rules_are_held_to_what_they_promise(mistake, way):
    with pytest.raises(PluginError, match=rf"broken_plugins\.misplace {RULES[mistake]}"):
        way(misplacing(mistake))
    assert simulate(fifo_backfill(first_fit())) == simulate(
        fifo_backfill(misplacing(100))
    )  # the process lives on


def test_a_rule_that_finds_no_place_when_it_counts_is_named():
    with pytest.raises(PluginError, match=r"broken_plugins\.misplace found GPUs for job 0"):
        play(setting(actions=Actions(templates=(misplacing(broken_plugins.MOODY),))))


def test_a_moving_rule_is_watched_as_well():
    actions = Actions(templates=(first_fit(),), adjustments=(Adjustment(misplacing(broken_plugins.TWICE)),))
    with pytest.raises(PluginError, match=r"broken_plugins\.misplace gave job \d GPU 2 twice"):
        play(setting(actions=actions))


def test_rules_give_what_the_cluster_can_hold():
    cluster = Cluster.homogeneous(2, 4, cores_per_server=6)
    jobs = replace(JobTable.from_columns([0.0], [2], [60.0]), cores_per_worker=np.array([4]))
    sim = Simulator(cluster, jobs, ideal())
    with pytest.raises(PluginError, match=r"gave job 0 8 cores on server 0, which has 6 free"):
        run(sim, fifo_backfill(misplacing(broken_plugins.BUSY)), np.random.default_rng(0))
    shared = Cluster.homogeneous(1, 8, jobs_per_gpu=2)
    sim = Simulator(shared, five_jobs(), ideal())
    with pytest.raises(PluginError, match=r"gave job 2 GPU 0, which holds 2 jobs; expected 1 at most"):
        run(sim, fifo_backfill(misplacing(broken_plugins.BUSY, shares=True)), np.random.default_rng(0))
    sim = Simulator(shared, five_jobs(), ideal())
    with pytest.raises(PluginError, match=r"gave job 1 GPU 0, which holds 1 jobs; expected 0 at most"):
        run(sim, fifo_backfill(misplacing(broken_plugins.BUSY)), np.random.default_rng(0))


def test_servers_that_are_down_are_no_place():
    one = JobTable.from_columns([0.0], [2], [60.0])
    sim = Simulator(EIGHT, one, ideal(), failures=Failures(20.0, 1e6, 1.0), seed=0)
    with pytest.raises(PluginError, match=r"gave job \d GPU \d of server \d, which is down"):
        run(sim, fifo_backfill(misplacing(broken_plugins.BUSY)), np.random.default_rng(0))


SPEEDS = {"nan": float("nan"), "infinite": float("inf"), "zero": 0.0, "negative": -1.0}


@pytest.mark.parametrize("value", SPEEDS.values(), ids=SPEEDS)
@pytest.mark.parametrize("compiled", [True, False])
def test_models_that_give_no_time_are_blamed_themselves(value, compiled):
    told = r"performance model broken_plugins\.mistime gave job \d+, with \d GPUs on \d servers, \S+ seconds"
    with pytest.raises(PluginError, match=told):
        Simulator(EIGHT, five_jobs(), mistiming(value))
    with pytest.raises(PluginError, match=told):  # only where a job spans servers, which nobody does at first
        simulate(fifo_backfill(first_fit()), mistiming(value, 2), compiled)
    with pytest.raises(PluginError, match=told):
        play(setting(performance=mistiming(value, 2), actions=Actions(templates=(first_fit(),))))
    with pytest.raises(PluginError, match=told):
        play_many(setting(performance=mistiming(value)))


def test_models_are_asked_by_profiling_and_bounds_too():
    sim = Simulator(EIGHT, five_jobs(), mistiming(float("nan"), 2))
    sim.advance()
    with pytest.raises(PluginError, match="mistime gave job 0"):
        sim.view().iteration_seconds(Allocation(0, (0, 4)))
    sim = Simulator(EIGHT, five_jobs(), mistiming(float("nan"), 2))
    sim.advance()
    with pytest.raises(PluginError, match="mistime gave job 2"):
        isolated_iteration_seconds(sim.view(), np.array([0, 2]), num_servers=np.array([1, 2]))
    elastic = replace(five_jobs(), max_gpus=np.full(5, 8))
    with pytest.raises(PluginError, match="mistime gave job 0"):
        simulation_bounds(Simulator(EIGHT, elastic, mistiming(float("nan"), 2)))


def test_a_model_that_reads_past_its_parameters_is_named():
    with pytest.raises(PluginError, match=r"broken_plugins\.mistime raised IndexError"):
        Simulator(EIGHT, five_jobs(), mistiming(None))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10.5, -11.0])
def test_observations_stay_in_their_space(value):
    told = r"observation broken_plugins\.misobserve wrote \S+ at position 7"
    with pytest.raises(PluginError, match=told):
        play(setting(observation=misobserving(7, value)))
    with pytest.raises(PluginError, match=told):
        play_many(setting(observation=misobserving(7, value)))


def test_observations_stay_in_their_row():
    with pytest.raises(PluginError, match=r"broken_plugins\.misobserve raised IndexError"):
        play_many(setting(observation=misobserving(1_000_000, 0.0)))
    assert play(setting(observation=misobserving(0, 10.0))) == play(setting())


def keyed_scheduler(key, wake, value):
    where = 1000.0 if value is None else 1.0
    parameters = np.array([where, value or 0.0])
    return PreemptiveScheduler("mine", key, parameters, pack(), Observability.NOTHING, wake)


@pytest.mark.parametrize("compiled", [True, False])
def test_keys_are_numbers(compiled):
    with pytest.raises(PluginError, match=r"key broken_plugins\.misjudge of job 0 is nan at 0 s"):
        simulate(
            keyed_scheduler(broken_plugins.misjudge, broken_plugins.fair, float("nan")), compiled=compiled
        )
    with pytest.raises(PluginError, match=r"wake broken_plugins\.misjudge of job 0 is nan at 0 s"):
        simulate(
            keyed_scheduler(broken_plugins.fair, broken_plugins.misjudge, float("nan")), compiled=compiled
        )
    with pytest.raises(PluginError, match=r"broken_plugins\.misjudge raised IndexError"):
        simulate(keyed_scheduler(broken_plugins.misjudge, broken_plugins.fair, None), compiled=compiled)


@implements(JobKey)
def mistyped(job, now, parameters: FloatVector):
    return job.no_such_field


def test_what_cannot_be_compiled_is_named():
    with pytest.raises(PluginError, match=r"test_plugins\.mistyped cannot be compiled as JobKey"):
        simulate(keyed_scheduler(mistyped, broken_plugins.fair, 0.0))


def test_errors_travel_between_processes():
    with pytest.raises(PluginError) as caught:
        simulate(fifo_backfill(misplacing(broken_plugins.TWICE)))
    for other in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert isinstance(other, RingyardError)
        assert str(other) == str(caught.value)


@pytest.mark.slow
def test_functions_of_the_house_keep_their_promises():
    """With RINGYARD_CHECK=1 they are validated as those of others are, which random worlds do not notice."""
    code = (
        "import test_plugins as t\n"
        "from ringyard.placement import pack\n"
        "assert pack().find.validated\n"
        "t.play_the_house()\n"
    )
    environment = {**os.environ, "RINGYARD_CHECK": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not pack().find.validated


def play_the_house():
    """Every placement rule, key, performance model and observation of `conf` in worlds with everything."""
    for name in names("scheduler"):
        scheduler = leaf("scheduler", name)
        if isinstance(scheduler, PreemptiveScheduler):
            simulate(scheduler)
    for name in names("placement"):
        for seed in range(3):
            cluster, jobs, performance, _ = everything(np.random.default_rng(seed), 20)
            sim = Simulator(cluster, jobs, performance, seed=seed)
            run(sim, fifo_backfill(leaf("placement", name)), np.random.default_rng(0))
    for name in names("performance"):
        simulate(fifo_backfill(pack()), leaf("performance", name))
    for name in names("observation"):
        whole = experiment("full", observation=name, **WITH.get(name, {}))
        play_many(replace(whole, num_workloads=4))


def test_shared_gpus_of_the_house(rng):
    """`share_any` in a cluster that shares: nobody complains."""
    sim = Simulator(Cluster.homogeneous(1, 8, jobs_per_gpu=2), five_jobs(), ideal())
    run(sim, fifo_backfill(share_any()), rng)
    assert sim.done


ORDERS = {
    "too few": lambda jobs, rng: np.zeros(3),
    "text": lambda jobs, rng: ["a"] * len(jobs),
    "nothing": lambda jobs, rng: None,
    "nan": lambda jobs, rng: np.full(len(jobs), np.nan),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("compiled", [True, False])
def test_orders_are_one_number_for_each_job(order, compiled):
    with pytest.raises(PluginError, match=r"test_plugins\.<lambda> returned .* as priority"):
        simulate(OrderedScheduler("mine", order, pack(), False, Observability.NOTHING), compiled=compiled)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), None, "much"])
def test_rewards_weigh_by_finite_numbers(weight):
    reward = Reward(Integral.ELAPSED, lambda jobs, cluster: weight)
    with pytest.raises(PluginError, match=r"test_plugins\..* returned .* as weight"):
        play(setting(reward=reward))


class Slow(RestartCost):
    """A restart cost of somebody's."""

    def restart_seconds(self, jobs):
        return np.full(len(jobs), self.seconds - 2.0)


def test_restarts_take_some_time():
    with pytest.raises(PluginError, match=r"Slow\.restart_seconds returned -1\.0 as restart seconds"):
        Simulator(EIGHT, five_jobs(), ideal(), Slow(1.0))


@pytest.mark.parametrize("decided", [None, 7, [None], [(0, (0, 1))], {0: (0, 1)}])
def test_decisions_are_allocations(decided):
    class Confused(OrderedScheduler):
        def decide(self, view):
            return decided

    scheduler = Confused("mine", lambda jobs, rng: jobs.submit_seconds, pack(), False, Observability.NOTHING)
    with pytest.raises(PlacementError, match="expected a"):
        simulate(scheduler, compiled=False)
