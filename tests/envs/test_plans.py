"""Jobs with execution plans: their table of seconds, and what the engine makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import leaf
from ringyard import Allocation, Cluster, ClusterEnv, JobTable, PlacementPlan, Simulator, experiment, ideal
from ringyard.allocator import Allocator
from ringyard.bounds.lower_bounds import simulation_bounds
from ringyard.errors import ConfigurationError, PlacementError, WorkloadError
from ringyard.mdp.actions import Actions, Scores, Template
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.job_features import JobFeatures
from ringyard.mdp.observations import live_jobs, queue_cluster_and_resources
from ringyard.mdp.rewards import job_completion_time as jct
from ringyard.performance import plans
from ringyard.performance.execution_plans import (
    PLAN_CLASSES,
    fitted_plan,
    named_plan,
    plan_class,
    plan_constants,
    plan_seconds,
    plan_work,
)
from ringyard.placement import consolidate
from ringyard.restart import constant
from ringyard.sim.speeds import BatchRule, isolated_iteration_seconds, speed_table
from ringyard.state.records import JobStatus
from ringyard.workloads import PlanMix
from ringyard_baselines.policies.allocating import AllocatingScheduler
from ringyard_baselines.scheduler import run

MODEL = plans()
TABLE = MODEL.plans
NAMES = [model.name for model in TABLE.models]
CLUSTER = Cluster.homogeneous(8, 8)


def number(model, plan):
    """Numbers of a model and of its plan."""
    position = NAMES.index(model)
    return position, TABLE.models[position].plans.index(plan) + 1 if plan else 0


def jobs_of(*chosen, seconds=1000.0, **columns):
    """A job for each (model, plan, GPUs), all at 0 s."""
    models, numbers = zip(*(number(model, plan) for model, plan, _ in chosen), strict=True)
    gpus = [one[2] for one in chosen]
    jobs = JobTable.from_columns(np.zeros(len(gpus)), gpus, np.full(len(gpus), seconds))
    return replace(jobs, plan_model=np.array(models), plan=np.array(numbers), **columns)


def elastic(jobs, least, most):
    return replace(jobs, min_gpus=np.full(len(jobs), least), max_gpus=np.full(len(jobs), most))


def started(jobs, performance=MODEL, restart=None):
    sim = Simulator(CLUSTER, jobs, performance, restart)
    sim.advance()
    return sim


def row(sim, field):
    return sim.state.jobs[field][0, :-1].tolist()


def predicted(model, plan, split):
    """Seconds of an iteration and of its rings, straight from the analytic model."""
    known = TABLE.models[NAMES.index(model)]
    work = plan_work(known, fitted_plan(known, named_plan(plan, sum(split))), split)
    return plan_seconds(work, plan_constants(model))


@pytest.mark.parametrize(
    ("model", "plan", "split"),
    [
        ("bert", "ga", (1,)),
        ("bert", "zero-dp", (8,)),
        ("vit", "ga", (5, 3)),
        ("gpt2", "t5p2", (5, 5)),
        ("llama7", "t4p2", (8, 8)),
        ("llama30", "t4p3", (8, 8, 8, 8, 8, 8)),
        ("t5", "t2p2", (4, 4, 4, 4)),
    ],
)
def test_a_job_takes_what_the_analytic_model_says_of_its_places(model, plan, split):
    sim = started(jobs_of((model, plan, sum(split))))
    sim.apply([Allocation(0, [8 * s + g for s, count in enumerate(split) for g in range(count)])])
    assert row(sim, "iteration_seconds")[0] == pytest.approx(predicted(model, plan, split).total, rel=1e-12)
    assert row(sim, "fewest_gpus") == [min(split)]


def test_an_unequal_placement_stands_for_one_with_the_same_servers():
    """(7, 6, 5) counts as 18 GPUs on 3 servers with at least 5: as (8, 5, 5)."""
    sim = started(elastic(jobs_of(("llama7", "", 18)), 1, 64))
    sim.apply([Allocation(0, [*range(7), *range(8, 14), *range(16, 21)])])
    position = NAMES.index("llama7")
    seconds = TABLE.seconds[TABLE.row(position, 0), TABLE.column[18, 3, 5]].sum()
    assert row(sim, "iteration_seconds") == [pytest.approx(seconds)]


def test_the_fastest_plan_is_never_slower_on_more_gpus_and_is_one_of_the_plans():
    for position, model in enumerate(TABLE.models):
        first = TABLE.row(position, 0)
        fits = np.flatnonzero(TABLE.fits[first])
        best = [TABLE.seconds[first, TABLE.column[n, -(-n // 8), 0]].sum() for n in fits]
        assert (np.diff(best) <= 1e-12).all(), model.name
        named = TABLE.seconds[first + 1 : first + 1 + len(model.plans)]
        assert (np.diff(fits) == 1).all()  # and runs on all numbers from the fewest on
        here = TABLE.column[8, 1, 8]
        assert TABLE.seconds[first, here].sum() <= named[:, here].sum(axis=1).min()


def test_gpus_that_no_plan_divides_idle():
    sim = started(elastic(jobs_of(("bert", "", 4)), 1, 8))
    sim.apply([Allocation(0, range(5))])
    assert row(sim, "num_gpus") == [5]
    assert row(sim, "iteration_seconds") == [
        pytest.approx(
            min(predicted("bert", plan, (4,)).total for plan in ("ga", "gc", "zero-dp", "zero-offload"))
        )
    ]


def test_measured_seconds_replace_those_of_the_analytic_model():
    seconds = predicted("bert", "ga", (4, 4))
    known = plans(measured={"bert": {"ga": {"4+4": 3 * seconds.total}}})
    sim = started(jobs_of(("bert", "ga", 8), ("bert", "zero-dp", 8)), known)
    sim.apply([Allocation(0, (0, 1, 2, 3, 8, 9, 10, 11))])
    assert row(sim, "iteration_seconds")[0] == pytest.approx(3 * seconds.total)
    assert row(sim, "link_load")[0] == pytest.approx(seconds.ring / seconds.total)
    with pytest.raises(ConfigurationError, match=r"performance\.measured has bert, t2p1"):
        plans(measured={"bert": {"t2p1": {"2": 1.0}}})
    with pytest.raises(ConfigurationError, match=r"has bert, ga, 40; expected"):
        plans(measured={"bert": {"ga": {"40": 1.0}}})


def test_a_plan_that_does_not_fit_is_refused():
    ranges = {"min_gpus": np.array([24, 1]), "max_gpus": np.array([48, 8])}
    sim = started(jobs_of(("llama30", "t4p6", 24), ("bert", "ga", 2), **ranges))
    gpus = list(range(32))
    with pytest.raises(PlacementError, match=r"\(llama30\) is given plan 6 on 32 GPUs; .* 2 \(t4p4\), or 0"):
        sim.apply([Allocation(0, gpus, plan=6)])
    with pytest.raises(PlacementError, match="is given plan 9 on 2 GPUs; expected one that divides them"):
        sim.apply([Allocation(1, (0, 1), plan=9)])
    with pytest.raises(PlacementError, match="plan is -1"):
        sim.apply([Allocation(1, (0, 1), plan=-1)])
    sim.apply([Allocation(0, gpus, plan=2)])
    assert row(sim, "plan") == [2, number("bert", "ga")[1]]


def test_without_a_plan_a_job_keeps_the_one_asked_for_or_has_the_fastest_on_other_gpus():
    sim = started(elastic(jobs_of(("bert", "zero-dp", 2)), 1, 8))
    sim.apply([Allocation(0, (0, 1))])
    assert row(sim, "plan") == [3]
    sim.apply([Allocation(0, range(4))])
    assert row(sim, "plan") == [0]
    sim.apply([Allocation(0)])
    assert row(sim, "plan") == [3]


def test_a_change_of_plan_costs_the_pause_of_a_resize():
    sim = started(jobs_of(("bert", "ga", 2)), restart=constant(30.0, 7.0))
    sim.apply([Allocation(0, (0, 1))])
    sim.apply([Allocation(0, (0, 1), plan=1)])  # as it is
    assert (row(sim, "pause_ends_seconds"), row(sim, "num_resizes")) == ([0.0], [0])
    sim.apply([Allocation(0, (0, 1), plan=3)])
    assert (row(sim, "pause_ends_seconds"), row(sim, "num_resizes")) == ([7.0], [1])


def test_rings_between_servers_share_links_and_others_do_not():
    chosen = [("bert", "ga", 4), ("bert", "ga", 4), ("llama7", "t4p2", 8)]
    sim = started(jobs_of(*chosen))
    sim.apply([Allocation(0, (0, 1, 8, 9))])
    alone = row(sim, "iteration_seconds")[0]
    sim.apply([Allocation(2, (2, 3, 4, 5, 10, 11, 12, 13))])  # a stage on each server: no ring leaves one
    assert row(sim, "link_load")[2] == 0.0
    assert row(sim, "iteration_seconds")[0] == alone
    sim.apply([Allocation(1, (6, 7, 14, 15))])
    seconds = predicted("bert", "ga", (2, 2))
    share = seconds.ring / seconds.total
    assert row(sim, "link_load")[1] == pytest.approx(share)
    assert row(sim, "iteration_seconds")[0] == pytest.approx(seconds.total + share * seconds.ring)
    assert started(jobs_of(*chosen), plans(contention="none")).state.clusters["network"][0] == 0


def test_rings_load_uplinks_if_a_stage_is_in_several_racks():
    racks = Cluster.homogeneous(8, 8, servers_per_rack=2, uplink_oversubscription=8.0)
    jobs = jobs_of(("t5", "t2p2", 32), ("t5", "t2p2", 32))
    sim = Simulator(racks, jobs, MODEL)
    sim.advance()
    seconds = predicted("t5", "t2p2", (8, 8, 8, 8))
    sim.apply([Allocation(0, range(32))])  # a stage in each of two racks
    assert row(sim, "num_racks") == [1, 0]
    assert row(sim, "iteration_seconds")[0] == pytest.approx(seconds.total)
    sim.apply([Allocation(0, ()), Allocation(1, [*range(8, 32), *range(32, 40)])])  # both stages cross
    assert row(sim, "num_racks") == [0, 3]
    assert row(sim, "contenders")[1] == pytest.approx(4.0)  # an uplink carries a fourth of a server's link
    assert row(sim, "iteration_seconds")[1] == pytest.approx(seconds.total + 3 * seconds.ring)


def test_speeds_by_gpus_are_those_of_the_fastest_plan():
    sim = started(elastic(jobs_of(("llama7", "zero-offload", 8)), 1, 64))
    view = sim.view()
    table = speed_table(view, BatchRule.ASKED, plan=0)
    here = [
        TABLE.seconds[TABLE.row(NAMES.index("llama7"), 0), TABLE.column[n, -(-n // 8), 0]].sum()
        for n in (4, 8, 12)
    ]
    assert 1 / table.speed[0, [4, 8, 12]] == pytest.approx(here)
    asked = speed_table(view, BatchRule.ASKED)
    assert 1 / asked.speed[0, 8] == pytest.approx(predicted("llama7", "zero-offload", (8,)).total)
    assert asked.speed[0, 4] == table.speed[0, 4]
    one = isolated_iteration_seconds(view, np.array([0]), num_gpus=8, plan=number("llama7", "t8p1")[1])
    assert one == pytest.approx(predicted("llama7", "t8p1", (8,)).total)


def test_plans_on_a_copy_resize_to_the_fastest():
    sim = started(elastic(jobs_of(("bert", "ga", 4)), 1, 8))
    sim.apply([Allocation(0, range(4))])
    moved = PlacementPlan(sim.view()).migrate(consolidate(), 0, [Allocation(0, (0, 1))])
    assert (len(moved.gpu_ids), moved.plan) == (2, 0)
    sim.apply([moved])


def test_the_allocator_runs_jobs_in_their_fastest_plan():
    sim = started(elastic(jobs_of(("llama7", "zero-offload", 8)), 1, 64))
    scheduler = AllocatingScheduler(Allocator())
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    (allocation,) = scheduler.decide(sim.view(scheduler.observability))
    assert allocation.plan == 0
    sim.apply([allocation])
    assert row(sim, "iteration_seconds")[0] < predicted("llama7", "zero-offload", (8,)).total / 2


def batch_with(jobs, actions, observation):
    """A batch of one cluster in which `jobs` wait."""
    sim = started(jobs)
    setting = replace(
        experiment("plans"), actions=actions, observation=observation, reward=jct(), num_workloads=1
    )
    batch = ClusterBatch(setting, 1, state=sim.state)
    batch.resume()
    return batch


@pytest.mark.parametrize("liked", PLAN_CLASSES)
@pytest.mark.parametrize(("model", "asked"), [("t5", "ga"), ("llama7", "zero-offload"), ("bert", "gc")])
def test_a_job_runs_in_the_class_of_plans_that_its_scores_like(liked, model, asked):
    batch = batch_with(
        jobs_of((model, asked, 8)), Scores(num_jobs=1, type_scores=("v100", *PLAN_CLASSES)), live_jobs()
    )
    scores = np.zeros((1, 5), np.float32)
    (plain,) = batch.allocations(0, scores[0])
    assert plain.plan == 0
    scores[0, 2 + PLAN_CLASSES.index(liked)] = 1.0
    (found,) = batch.allocations(0, scores[0])
    position = NAMES.index(model)
    seconds = {
        name: predicted(model, name, (8,)).total
        for plan, name in enumerate(TABLE.models[position].plans, 1)
        if TABLE.fits[TABLE.row(position, plan), 8]
    }
    least = min(seconds.values())
    own = [name for name in seconds if plan_class(name) == liked and least < seconds[name] < np.e * least]
    best = min(own, key=lambda name: seconds[name], default=None)
    if any(plan_class(name) == liked and seconds[name] == least for name in seconds):
        best = None  # the fastest of all, as without scores
    assert found.plan == number(model, best)[1]
    batch.step(scores)
    assert batch.state.jobs["plan"][0, 0] == found.plan


def test_the_fastest_plans_of_classes_fit_and_are_no_faster_than_the_fastest():
    numbers, speeds = zip(*map(TABLE.fastest_of, PLAN_CLASSES), strict=True)
    assert (np.max(speeds, axis=0) <= 1.0).all()
    for kind, of_models in zip(PLAN_CLASSES, numbers, strict=True):
        for (model, gpus), plan in np.ndenumerate(of_models.astype(int)):
            if plan:
                assert TABLE.fits[TABLE.row(model, plan), gpus]
                assert plan_class(TABLE.models[model].plans[plan - 1]) == kind
    assert (numbers[0] > 0).any()
    assert (numbers[2] > 0).any()
    assert not np.any(TABLE.fastest_of("v100"))


def test_templates_start_jobs_in_their_fastest_plan_or_as_they_ask():
    templates = [Template(consolidate(), plan="fastest"), consolidate()]
    actions = Actions(num_waiting=2, templates=templates)
    jobs = jobs_of(("llama7", "zero-offload", 8), ("bert", "", 2))
    batch = batch_with(jobs, actions, queue_cluster_and_resources())
    assert [one.name for one in actions.starts] == ["consolidate fastest", "consolidate"]
    assert batch.masks[0].tolist()[:4] == [True, True, False, True]  # bert asks for its fastest
    assert [batch.allocations(0, action)[0].plan for action in (0, 1)] == [
        0,
        number("llama7", "zero-offload")[1],
    ]
    batch.step(np.array([0]))
    job = batch.state.jobs[0, 0]
    assert job["plan"] == 0
    assert job["iteration_seconds"] < predicted("llama7", "zero-offload", (8,)).total / 2
    env = ClusterEnv(experiment="plans", form="queue")
    assert [one.plan for one in env.config.actions.starts] == ["fastest", "asked"]


def test_guaranteed_jobs_that_end_late_or_blocked_are_counted():
    jobs = JobTable.from_columns([0.0, 0.0, 0.0, 5.0], [8, 8, 8, 8], [10.0, 10.0, 10.0, 10.0])
    never = np.inf
    jobs = replace(jobs, deadline_seconds=np.array([10.0, 15.0, never, 40.0]))
    assert (
        Simulator(CLUSTER, replace(jobs, deadline_seconds=np.full(4, never)), ideal())
        .metrics()
        .sla_violations
        is None
    )
    for acceptable, late in ((never, 1 / 3), (30.0, 2 / 3)):
        one = replace(jobs, acceptable_jct=np.array([never, never, never, acceptable]))
        sim = Simulator(Cluster.homogeneous(1, 8), one, ideal())
        run(sim, leaf("scheduler", "fifo"), np.random.default_rng(0))
        assert sim.metrics().sla_violations == pytest.approx(late)


def test_agents_see_which_jobs_have_a_deadline():
    env = ClusterEnv(experiment="plans", form="jobs", num_workloads=1)
    seen, info = env.reset(seed=0)
    feature = list(JobFeatures.__annotations__).index("job_class")
    while info["action_mask"].sum() < 4:
        seen, _, _, _, info = env.step(np.zeros(env.action_space.shape, np.float32))
    live = info["action_mask"].astype(bool)
    found = seen["jobs"].reshape(len(live), -1)[live, feature]
    table = env.batch.workload_cache.table(int(info["workload"]))
    records = env.batch.state.jobs[0]
    rows = [j for j in range(len(table)) if records["status"][j] in (JobStatus.WAITING, JobStatus.RUNNING)]
    assert found.tolist() == np.where(table.vc[rows] == "sla", -1.0, 0.0).tolist()
    assert len(set(found.tolist())) == 2


def test_what_does_not_go_together_is_refused():
    jobs = jobs_of(("bert", "ga", 2))
    with pytest.raises(ConfigurationError, match="expected performance=plans"):
        Simulator(CLUSTER, jobs, ideal())
    with pytest.raises(ConfigurationError, match="job 0 has no execution plan"):
        Simulator(CLUSTER, JobTable.from_columns([0.0], [2], [1.0]), MODEL)
    for cluster in (
        Cluster.homogeneous(9, 8),
        Cluster.homogeneous(2, 9),
        Cluster.homogeneous(2, 4),
        Cluster((8, 8), gpu_types=("v100", "v100")),
        Cluster.homogeneous(2, 8, jobs_per_gpu=2),
    ):
        with pytest.raises(ConfigurationError, match="up to 8 servers of 8 GPUs"):
            Simulator(cluster, jobs, MODEL)
    for name, value, said in (
        ("plan_model", 99, "plan_model 99; expected below 7"),
        ("plan", 5, "plan 5; expected one of its model"),
        ("max_batch", 9999.0, "max_batch 9999.0; expected min_batch"),
        (
            "batch_split",
            2,
            r"batch_split 2; expected 1 \(EQUAL\), since performance=plans has GPUs of one type",
        ),
    ):
        with pytest.raises(WorkloadError, match=said):
            Simulator(CLUSTER, replace(jobs, **{name: np.array([value])}), MODEL)
    with pytest.raises(WorkloadError, match="plan 6; expected one that fits on its num_gpus"):
        Simulator(CLUSTER, jobs_of(("llama30", "t4p6", 40)), MODEL)
    with pytest.raises(WorkloadError, match="min_gpus 1; expected a number on which one of its plans fits"):
        Simulator(CLUSTER, elastic(jobs_of(("llama30", "t4p6", 24)), 1, 48), MODEL)
    sim = Simulator(CLUSTER, JobTable.from_columns([0.0], [2], [1.0]), ideal())
    sim.advance()
    with pytest.raises(PlacementError, match="given plan 1; expected none"):
        sim.apply([Allocation(0, (0, 1), plan=1)])


def test_a_mix_draws_models_and_plans_by_weight():
    mix = PlanMix({2: {"bert/ga": 3, "gpt2/zero-dp": 1}, 40: {"llama30/t4p5": 1}})
    jobs = JobTable.from_columns(np.zeros(4000), np.repeat([2, 40], [3000, 1000]), np.ones(4000))
    found = mix.assign(jobs, np.random.default_rng(0))
    found.check(CLUSTER)
    bert, ga = number("bert", "ga")
    assert (found.plan_model[:3000] == bert).mean() == pytest.approx(0.75, abs=0.03)
    assert (found.plan[found.plan_model == bert] == ga).all()
    large = found.plan_model == NAMES.index("llama30")
    assert large.sum() == 1000
    least = np.argmax(TABLE.fits[TABLE.row(NAMES.index("llama30"), 0)])
    assert set(found.min_gpus[large]) == {least}
    assert set(found.max_gpus[large]) == {64}
    rigid = replace(mix, elastic=False).assign(jobs, np.random.default_rng(0))
    assert (rigid.min_gpus == rigid.num_gpus).all()
    with pytest.raises(ConfigurationError, match="expected 4 GPUs, too"):
        mix.assign(JobTable.from_columns([0.0], [4], [1.0]), np.random.default_rng(0))
    for name in ("bert/t2p1", "nope/ga", "llama30/t4p6"):
        with pytest.raises(ConfigurationError, match="which fits on 8 GPUs"):
            PlanMix({8: {name: 1}}).assign(JobTable.from_columns([0.0], [8], [1.0]), np.random.default_rng(0))


@pytest.mark.parametrize(
    "name", ["srtf", "srsf", "tiresias", "morphling", "allocator", "pollux", "afs_l", "optimus"]
)
def test_schedulers_finish_jobs_with_plans_above_the_bound(name):
    workload = leaf("workload", "plans", "workload.base.num_jobs=30")
    jobs = workload.sample(CLUSTER, np.random.default_rng(1))
    sim = Simulator(CLUSTER, jobs, MODEL, constant(30.0), seed=0)
    bound = simulation_bounds(sim).mean_jct
    run(sim, leaf("scheduler", name), np.random.default_rng(0))
    assert sim.done
    assert sim.metrics().mean_jct >= bound * (1 - 1e-9)
    if name in ("srtf", "srsf", "tiresias"):  # with the plan asked for
        assert (sim.state.jobs["num_resizes"] == 0).all()


@pytest.mark.parametrize("form", [None, "jobs", "weights", "queue"])
def test_the_environment_has_all_forms(form):
    chosen = {} if form is None else {"form": form}
    env = ClusterEnv(experiment="plans", num_workloads=2, **chosen)
    _, info = env.reset(seed=0)
    done = False
    while not done:
        numbers = env.action_space.dtype == np.float32
        action = np.zeros(env.action_space.shape, np.float32) if numbers else info["action_mask"].argmax()
        _, _, done, _, info = env.step(action)
    assert info["num_finished"] == 160


def test_the_fastest_plan_may_leave_gpus_idle_and_uses_no_others():
    """On 8 servers of 2 GPUs, no plan runs as if 8 GPUs were on one server."""
    table, model = MODEL.plans, NAMES.index("t5")
    rows = [table.row(model, plan) for plan in range(len(table.models[model].plans) + 1)]
    seconds = table.seconds.sum(axis=2)
    used = [table.column[2 * servers, servers, 2] for servers in range(1, 9)]
    used += [table.column[2 * servers + 1, servers + 1, 1] for servers in range(8)]
    assert seconds[rows[0], table.column[16, 8, 2]] == seconds[rows[1:]][:, used].min()
