"""Every yaml of every group composes and builds; every scheduler keeps the rules."""

import copy
import itertools
import pickle
from dataclasses import replace
from functools import reduce
from operator import or_

import numpy as np
import pytest
from hydra.utils import instantiate

from conftest import CONF, WITH, composed, leaf, names, seeds
from random_simulations import draw_simulation
from ringyard import Cluster, ClusterEnv, Simulator, ideal
from ringyard.bounds import simulation_bounds
from ringyard.errors import SchedulerError
from ringyard.failures import Failures, no_failures
from ringyard.mdp.experiments import build_env_config, experiment
from ringyard.placement import PlacementRule, pack
from ringyard.restart import constant
from ringyard.sim.metrics import job_times
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.state.records import JobKind
from ringyard.workloads.readers import trace_configs
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.config.schema import check_groups
from ringyard_agents.evaluation.evaluate import make_simulator
from ringyard_baselines.papers.pac_ml import PartitioningHeuristic
from ringyard_baselines.papers.sjf_bco.scheduler import PlannedScheduler
from ringyard_baselines.scheduler import (
    Capabilities,
    CompiledScheduler,
    Observability,
    run,
    used_capabilities,
)
from small_simulations import everything, random_jobs, rings

SCHEDULERS = names("scheduler")
# jobs of a model that has every figure, so that they run on any cluster
MODELLED = ("workload=elastic", "workload.base.num_jobs=40", "workload.base.load=0.3")
# models with figures of the CPUs of a cluster
ON_CPUS = (
    "workload=aiturbo_traces",
    "workload.extensions.0.models={aiturbo_vgg11: 0, aiturbo_vgg16: 0, aiturbo_inception4: 0,"
    " aiturbo_resnet101: 0, aiturbo_resnet152: 0}",
)
#: {a part of a world: jobs that it is made for}
JOBS_FOR = {
    "aiturbo_cpu_workers": ON_CPUS,
    "plans": ("workload=plans", "cluster=a800", "workload.base.num_jobs=40"),
}
FILES = trace_configs()


def whole(group):
    """The leaves of a group that name no file."""
    return [name for name in names(group) if "???" not in (CONF / group / f"{name}.yaml").read_text()]


@pytest.mark.parametrize("group", ["cluster", "performance", "placement", "restart", "failures"])
def test_world_leaves_build(group):
    for name in whole(group):
        part = leaf(group, name)
        assert repr(pickle.loads(pickle.dumps(part))) == repr(part), name


@pytest.mark.parametrize("group", ["observation", "action", "reward", "cost", "agent"])
def test_learning_leaves_build(group):
    for name in names(group):
        config = composed("train", f"{group}={name}")
        part = instantiate(config[group], _convert_="all")
        assert repr(pickle.loads(pickle.dumps(part))) == repr(part), name


@pytest.mark.parametrize("name", [name for name in names("workload") if name not in FILES])
def test_generated_workloads_sample(name):
    workload = leaf("workload", name)
    cluster = Cluster.homogeneous(16, 4, cores_per_server=48)
    first = workload.sample(cluster, np.random.default_rng(3))
    again = workload.sample(cluster, np.random.default_rng(3))
    assert 0 < len(first) <= workload.num_jobs
    first.check(cluster)
    assert first.submit_seconds[0] == 0
    for column in ("submit_seconds", "num_gpus", "iterations", "duration_seconds", "gradient_bytes"):
        assert np.array_equal(getattr(first, column), getattr(again, column), equal_nan=True)
    other = workload.sample(cluster, np.random.default_rng(4))
    columns = [np.concatenate([one.gradient_bytes, one.submit_seconds]) for one in (first, other)]
    assert not np.array_equal(*columns)


@pytest.mark.parametrize("name", names("experiment"))
def test_experiments_compose(name):
    commands = {"quickstart_comparison": ["compare"]}.get(name, ["simulate", "compare", "train"])
    if name.endswith("_stream"):  # what counts is a matter of measuring, not of learning
        commands.remove("train")
    for command in commands:
        assert composed(command, f"experiment={name}").workload


@pytest.mark.parametrize("name", names("debug"))
def test_debug_configs_compose(name):
    command = "train" if name == "tiny_training" else "simulate"
    assert composed(command, f"debug={name}").workload.num_jobs == 12


@pytest.mark.parametrize(
    "choice", [f"{group}={name}" for group in ("agent", "sweep") for name in names(group) if name != "optuna"]
)
def test_every_agent_has_the_settings_of_a_quick_check(choice):
    check_groups("train", composed("train", "debug=tiny_training", choice))


def small_run(scheduler, seed, compiled=True, placement_cluster=None, warm=0):
    rng = np.random.default_rng(seed)
    jobs = random_jobs(rng, 60, 8, spread=300.0)
    if isinstance(scheduler, PartitioningHeuristic):
        jobs = replace(jobs, acceptable_jct=rng.uniform(1.0, 6.0, 60) * jobs.duration_seconds)
    jobs = served(scheduler, jobs)
    cluster = placement_cluster or Cluster.homogeneous(4, 4)
    if warm:
        ran = np.arange(60) < warm
        jobs = jobs.shifted(np.where(ran, 0.0, jobs.submit_seconds))
        jobs = replace(jobs, elapsed_seconds=np.where(ran, 0.4 * jobs.duration_seconds, 0.0))
    sim = Simulator(cluster, jobs, rings(), constant(3.0), scheduler.round_seconds, seed=seed)
    run(sim, scheduler, np.random.default_rng(seed), compiled)
    return sim


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_finishes_every_job_and_respects_bounds(name):
    scheduler = leaf("scheduler", name)
    assert isinstance(scheduler.observability, Observability)
    sim = small_run(scheduler, 1)
    assert sim.done
    metrics = sim.metrics()
    assert (0 < metrics.blocking_rate < 1) == isinstance(scheduler, PartitioningHeuristic)
    bounds = simulation_bounds(sim)
    assert metrics.mean_jct >= bounds.mean_jct * (1 - 1e-12)
    assert metrics.makespan >= bounds.makespan * (1 - 1e-12)
    assert 0 < metrics.utilisation <= 1


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_is_deterministic(name):
    runs = [small_run(leaf("scheduler", name), 2) for _ in range(2)]
    assert runs[0].state.jobs.tobytes() == runs[1].state.jobs.tobytes()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_driving_equals_deciding(name):
    scheduler = leaf("scheduler", name)
    if not isinstance(scheduler, CompiledScheduler):
        pytest.skip("has no compiled loop of its own")
    driven = job_times(small_run(scheduler, 3).state, 0, small_run(scheduler, 3).jobs)
    decided_sim = small_run(scheduler, 3, compiled=False)
    decided = job_times(decided_sim.state, 0, decided_sim.jobs)
    assert driven.end_seconds.tolist() == decided.end_seconds.tolist()
    assert driven.start_seconds.tolist() == decided.start_seconds.tolist()
    assert driven.num_preemptions.tolist() == decided.num_preemptions.tolist()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_begin_with_jobs_that_run(name):
    scheduler = leaf("scheduler", name)
    sims = [small_run(scheduler, 4, compiled, warm=6) for compiled in (True, False)]
    for sim in sims:
        assert sim.done
        assert sim.metrics().num_finished == 54
        assert sim.metrics().mean_jct >= simulation_bounds(sim).mean_jct * (1 - 1e-12)
        assert sim.metrics().makespan >= simulation_bounds(sim).makespan * (1 - 1e-12)
    assert sims[0].state.jobs["end_seconds"][0, :-1].tolist() == (
        sims[1].state.jobs["end_seconds"][0, :-1].tolist()
    )


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_survive_everything_at_once(name):
    setting = experiment("full")
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(3))
    ends = []
    scheduler = leaf("scheduler", name)
    for compiled in (True, False) if isinstance(scheduler, CompiledScheduler) else (False,):
        scheduler = leaf("scheduler", name)
        sim = Simulator(
            setting.cluster,
            jobs,
            setting.performance,
            setting.restart,
            scheduler.round_seconds,
            seed=3,
            failures=setting.failures,
        )
        if isinstance(
            scheduler, PlannedScheduler | PartitioningHeuristic
        ):  # not for such workloads, and says so at once
            with pytest.raises(SchedulerError, match=r"CPU-only|acceptable|offline"):
                run(sim, scheduler, np.random.default_rng(0), compiled)
            return
        run(sim, scheduler, np.random.default_rng(0), compiled)
        assert sim.done
        ends.append(sim.state.jobs["end_seconds"][0, :-1].tolist())
    assert ends[0] == ends[-1]


def served(scheduler, jobs):
    """The jobs that the scheduler is for."""
    if isinstance(scheduler, PlannedScheduler):
        jobs = jobs.rows(jobs.kind != JobKind.CPU_ONLY)  # it refuses them, see above
        return jobs.shifted(np.zeros(len(jobs))) if scheduler.offline else jobs
    if isinstance(scheduler, PartitioningHeuristic) and np.isinf(jobs.acceptable_jct).all():
        return replace(jobs, acceptable_jct=2.0 * jobs.duration_seconds)
    return jobs


#: so that what takes longer than the jobs of a small world is seen there
QUICK = {
    "themis": ("scheduler.lease_seconds=20",),
    "tiresias": ("scheduler.thresholds_gpu_seconds=[20]",),
    "gittins": ("scheduler.delta_gpu_seconds=20",),
}


@pytest.mark.parametrize("worlds", seeds(2, 8), ids=["few", "many"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_serve_random_worlds(name, worlds):
    """No illegal allocation, nobody starves, no bound is broken, whatever the cluster, jobs and failures.

    No scheduler does more than it declares. In many worlds, each does all that it declares: it is not
    compared with schedulers that do more than it ever does.
    """
    used = Capabilities.START
    for seed in worlds:
        scheduler = leaf("scheduler", name, *QUICK.get(name, ()))
        cluster, jobs, performance, _ = everything(np.random.default_rng(seed), 25)
        failures = Failures(200.0, 15.0, 8.0) if seed % 2 else no_failures()
        sim = Simulator(
            cluster,
            served(scheduler, jobs),
            performance,
            constant(2.0),
            scheduler.round_seconds,
            seed=seed,
            failures=failures,
        )
        scheduler.reset(
            sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0)
        )
        sim.advance()
        while not sim.done:
            allocations = scheduler.decide(sim.view(scheduler.observability))
            sim.apply(allocations)
            sim.advance()
            used = reduce(or_, (used_capabilities(sim, allocation) for allocation in allocations), used)
            assert sim.now < 1e5, "a job starves"
        used |= Capabilities.PREEMPT if sim.metrics().preemptions else Capabilities.START
        metrics, bounds = sim.metrics(), simulation_bounds(sim)
        assert metrics.mean_jct >= bounds.mean_jct * (1 - 1e-9)
        assert metrics.makespan >= bounds.makespan * (1 - 1e-9)
    assert used & ~scheduler.capabilities == Capabilities.START
    assert len(worlds) < 8 or used.group == scheduler.capabilities.group


@pytest.mark.parametrize(("name", "compiled"), [("srtf", True), ("srtf", False), ("gandiva", False)])
def test_who_stops_jobs_without_having_said_so_is_named(name, compiled):
    scheduler = leaf("scheduler", name)
    scheduler.capabilities = Capabilities.START
    with pytest.raises(
        SchedulerError, match=r"capabilities start, but .* PREEMPT; expected .* Capabilities.PREEMPT"
    ):
        small_run(scheduler, 1, compiled=compiled)


def test_who_resizes_jobs_without_having_said_so_is_named():
    scheduler = leaf("scheduler", "afs_l")
    scheduler.capabilities = Capabilities.PREEMPT
    cluster, jobs, performance, _ = everything(np.random.default_rng(0), 25)
    sim = Simulator(cluster, jobs, performance, constant(2.0), seed=0)
    with pytest.raises(SchedulerError, match=r"capabilities start, preempt, but .* Capabilities.RESIZE"):
        run(sim, scheduler, np.random.default_rng(0))


def ends_in(world, scheduler, compiled):
    """When each job of a twins' world ended, whose failures leave time to end in."""
    jobs, failures = served(scheduler, world.jobs), no_failures()
    if np.isfinite(world.failures.mean_up_seconds):
        failures = Failures(200.0, 15.0, 8.0)
    jobs = jobs.shifted(jobs.submit_seconds - jobs.submit_seconds[0])
    sim = Simulator(
        *(world.cluster, jobs, world.performance, world.restart, scheduler.round_seconds),
        seed=world.seed,
        failures=failures,
    )
    run(sim, scheduler, np.random.default_rng(0), compiled)
    assert sim.now < 1e5, "a job starves"
    return sim.state.jobs["end_seconds"][0, :-1].tolist()


@pytest.mark.parametrize("worlds", seeds(5, 20), ids=["few", "many"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_serve_the_worlds_of_the_twins(name, worlds):
    """Deadlines and withdrawals of jobs that wait or run, all at one instant: nobody plans with who has left.

    SJF-BCO once started jobs that were blocked while they were planned (0), and where cores lacked (4).
    """
    made = leaf("scheduler", name)
    for seed in worlds:
        ways = (True, False) if isinstance(made, CompiledScheduler) else (False,)
        ends = [ends_in(draw_simulation(seed), copy.deepcopy(made), compiled) for compiled in ways]
        assert ends[0] == ends[-1]


def decided_everywhere(scheduler):
    """Run it, deciding on views, in a plain world and in worlds with everything."""
    small_run(scheduler, 0, compiled=False)
    for seed in range(6):
        cluster, jobs, performance, _ = everything(np.random.default_rng(seed), 25)
        sim = Simulator(cluster, jobs, performance, constant(2.0), scheduler.round_seconds, seed=seed)
        run(sim, scheduler, np.random.default_rng(0), compiled=False)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_use_all_that_they_declare(name):
    for flag in leaf("scheduler", name).observability:
        scheduler = leaf("scheduler", name)
        scheduler.observability &= ~flag
        with pytest.raises(SchedulerError, match=rf"is hidden: .* expected .*Observability\.{flag.name}"):
            decided_everywhere(scheduler)


def decisions_before(scheduler, cluster, jobs, end):
    """(time, allocations) of every decision before `end`."""
    sim = Simulator(cluster, jobs, rings(), constant(3.0), scheduler.round_seconds)
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    sim.advance()
    decisions = []
    while sim.now < end:
        decisions.append((sim.now, scheduler.decide(sim.view(scheduler.observability))))
        sim.apply(decisions[-1][1])
        sim.advance()
    return decisions


@pytest.mark.parametrize("name", SCHEDULERS)
def test_nobody_decides_by_jobs_that_have_not_come(name):
    """Rows of the future are in the table, but other futures lead to the same decisions today."""
    if getattr(leaf("scheduler", name), "offline", False):
        pytest.skip("all its jobs are there from the start")
    rng, come = np.random.default_rng(6), np.arange(60) < 30
    jobs = random_jobs(rng, 60, 8, spread=300.0)
    shapes = ("num_gpus", "min_gpus", "max_gpus", "batch_size", "min_batch", "max_batch")
    jobs = replace(jobs, **{shape: np.where(come, jobs.num_gpus // 2 + 1, jobs.num_gpus) for shape in shapes})
    if isinstance(leaf("scheduler", name), PartitioningHeuristic):
        jobs = replace(jobs, acceptable_jct=rng.uniform(1.0, 6.0, 60) * jobs.duration_seconds)
    other = replace(jobs, submit_seconds=jobs.submit_seconds + np.maximum(np.arange(60) - 30, 0.0))
    if Observability.DISTRIBUTION not in leaf("scheduler", name).observability:  # else it knows all durations
        other = replace(
            other,
            **{shape: np.where(come, getattr(jobs, shape), 1) for shape in shapes},
            duration_seconds=np.where(come, 1.0, 3.0) * jobs.duration_seconds,
            gradient_bytes=np.where(come, 1.0, 3.0) * jobs.gradient_bytes,
        )
    cluster, end = Cluster.homogeneous(4, 4), float(jobs.submit_seconds[30])
    today, again = (decisions_before(leaf("scheduler", name), cluster, table, end) for table in (jobs, other))
    assert today == again
    assert sum(len(allocations) for _, allocations in today) >= 5


#: who waits although there is room, as published: strictly in order, or by a plan made in advance
HOLDS_BACK = {"fifo", "elastic_dp", "sjf_bco", "sjf_bco_ff", "sjf_bco_ls", "sjf_bco_rand"}


@pytest.mark.parametrize("name", sorted(set(SCHEDULERS) - HOLDS_BACK))
def test_jobs_do_not_wait_beside_room_for_long(name):
    scheduler = leaf("scheduler", name)
    if isinstance(scheduler, PartitioningHeuristic):
        pytest.skip("refuses jobs without an acceptable completion time, see above")
    config = composed("compare", "experiment=elastic", "workload.base.num_jobs=60")
    sim = make_simulator(
        {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}, 0, 0, scheduler.round_seconds
    )
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    sim.advance()
    beside_room = 0.0
    while not sim.done:
        begin = sim.now
        sim.apply(scheduler.decide(sim.view(scheduler.observability)))
        draft = PlacementPlan(sim.view())
        startable = [job for job in sim.view().waiting.tolist() if draft.place(pack(), job) is not None]
        sim.advance()
        beside_room += len(startable) * (sim.now - begin)
    assert beside_room / len(sim.jobs) < 1000.0  # seconds a job; the longest slot is 600


RULES = names("placement")
PLACED = [name for name in SCHEDULERS if "placement:" in (CONF / f"scheduler/{name}.yaml").read_text()]
#: each scheduler with one rule and each rule with a scheduler
SOME_PAIRS = {(PLACED[i % len(PLACED)], RULES[i % len(RULES)]) for i in range(max(len(PLACED), len(RULES)))}


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param(*pair, marks=() if pair in SOME_PAIRS else pytest.mark.slow)
        for pair in itertools.product(PLACED, RULES)
    ],
)
def test_every_order_runs_with_every_rule(name, rule):
    scheduler = leaf("scheduler", name, f"placement={rule}")
    assert isinstance(scheduler.placement, PlacementRule)
    assert small_run(scheduler, 4).done


@pytest.mark.parametrize("rule", ["consolidate", "share_together", "fastest_together"])
def test_no_job_waits_for_ever_for_one_server(rule):
    """Unequal servers, cores, RAM, GPU memory, failures; the seeds named are of jobs that once did."""
    for name in ("fifo_backfill", "las"):
        for seed in (10, 15, 47, *range(4)):
            scheduler = leaf("scheduler", name, f"placement={rule}")
            cluster, jobs, performance, _ = everything(np.random.default_rng(seed), 25)
            failures = Failures(200.0, 15.0, 8.0) if seed % 2 else no_failures()
            rounds = scheduler.round_seconds
            sim = Simulator(cluster, jobs, performance, constant(2.0), rounds, seed=seed, failures=failures)
            run(sim, scheduler, np.random.default_rng(0))
            assert sim.now < 1e5
        for seed in (50, 55, 118):
            world = draw_simulation(seed)
            assert ends_in(world, leaf("scheduler", name, f"placement={rule}"), True)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_heterogeneous_servers(name):
    cluster = Cluster((2, 8, 4, 1, 3))
    assert small_run(leaf("scheduler", name), 5, placement_cluster=cluster).done


def test_ideal_performance_needs_no_placement():
    ends = set()
    for rule in ("pack", "spread", "random", "first_fit"):
        rng = np.random.default_rng(0)
        sim = Simulator(Cluster.homogeneous(4, 4), random_jobs(rng, 50, 8), ideal())
        run(sim, leaf("scheduler", "fifo_backfill", f"placement={rule}"), rng)
        ends.add(sim.state.jobs["end_seconds"][0, :-1].tobytes())
    assert len(ends) == 1


@pytest.mark.parametrize("group", ["performance", "restart", "cluster", "failures"])
def test_every_world_runs(group):
    for name in whole(group):
        jobs = JOBS_FOR.get(name, MODELLED)
        parts = composed("simulate", f"{group}={name}", *jobs, "seed=3")
        built = {g: instantiate(parts[g], _convert_="all") for g in ENVIRONMENT_GROUPS}
        jobs = built["workload"].sample(built["cluster"], np.random.default_rng(0))
        scheduler = instantiate(parts.scheduler)
        sim = Simulator(
            built["cluster"], jobs, built["performance"], built["restart"], failures=built["failures"]
        )
        run(sim, scheduler, np.random.default_rng(0))
        assert sim.done


@pytest.mark.filterwarnings("ignore:cost=deadline_misses:")  # these jobs have no deadline
@pytest.mark.parametrize("group", ["observation", "action", "reward", "cost"])
def test_every_decision_process_runs(group):
    for name in names(group):
        parts = {group: name} | WITH.get(name, {})
        chosen = [f"{key}={value}" for key, value in parts.items()]
        config = composed("train", *chosen, "workload=poisson", "workload.num_jobs=12")
        env = ClusterEnv(build_env_config(config, 4, 0))
        observation, info = env.reset(seed=0)
        done = False
        while not done:
            assert env.observation_space.contains(observation)
            mask = info["action_mask"]
            observation, reward, done, _, info = env.step(
                mask.astype(float) if name in WITH else mask.argmax()
            )
            assert np.all(reward <= 1e-9)  # saved_jct with equal scores is 0 but for rounding
