"""Who may see what: every column says what it takes, views and job tables refuse the rest."""

import re
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from conftest import ROOT
from ringyard import Cluster, JobTable, Simulator, ideal, ring_contention
from ringyard.compiled import FloatVector, Int32Vector, implements, kernel
from ringyard.errors import ObservabilityError
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations import queue_cluster_and_resources
from ringyard.mdp.workload_cache import queue_priority
from ringyard.observability import COLUMNS, Observability, check_reads
from ringyard.performance import composite
from ringyard.placement import FindGpus, PlacementRule, lwf, pack
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.prepare import prepare_jobs
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard.sim.view import DerivedColumns, SchedulingView
from ringyard.state import progress
from ringyard.state.arrays import State
from ringyard.state.progress import attained_service, remaining_iterations
from ringyard.state.records import Job, JobStatus, Server
from ringyard.workloads import ModelMix
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import JobKey

SINGLE = list(Observability.EVERYTHING)


def running_sim():
    jobs = JobTable.from_columns([0.0, 0.0], [1, 2], [100.0, 50.0])
    sim = Simulator(Cluster((4,)), jobs, ideal())
    sim.advance()
    sim.apply([Allocation(0, (0,))])
    return sim


def test_every_column_says_what_it_takes():
    assert set(Job.dtype.names) | {field.name for field in fields(JobTable)} <= set(COLUMNS)


def test_texts():
    assert str(Observability.NOTHING) == "nothing"
    assert str(Observability.EVERYTHING) == "everything"
    assert str(Observability.SPEEDS | Observability.PREDICTIONS) == "predicted durations, speeds"
    assert f"{Observability.ATTAINED_SERVICE}" == "attained service"


@pytest.mark.parametrize("name", Job.dtype.names)
def test_columns_of_views_are_seen_with_any_of_their_flags_and_else_refused(name):
    sim = running_sim()
    for flag in SINGLE:
        if not COLUMNS[name] or flag in COLUMNS[name]:
            column = sim.view(flag).column(name)
            assert len(column) == 2
            assert not column.flags.writeable
        else:
            with pytest.raises(ObservabilityError, match=f"{name} is hidden: .* {flag}; expected"):
                sim.view(flag).column(name)
    assert len(sim.view().column(name)) == 2


@pytest.mark.parametrize("name", [field.name for field in fields(JobTable)])
def test_columns_of_job_tables_are_refused_the_same_way(name):
    jobs = running_sim().jobs
    for flag in SINGLE:
        known = jobs.restricted_to(flag)
        assert len(known) == 2
        if not COLUMNS[name] or flag in COLUMNS[name]:
            assert getattr(known, name) is getattr(jobs, name)
        else:
            with pytest.raises(ObservabilityError, match=f"{name} is hidden.*Observability"):
                getattr(known, name)


QUESTIONS = {
    "num_gpus": (lambda view: view.num_gpus, Observability.SIZES),
    "attained_service": (lambda view: view.attained_service, Observability.ATTAINED_SERVICE),
    "predicted_seconds": (lambda view: view.predicted_seconds, Observability.PREDICTIONS),
    "predicted_iterations": (lambda view: view.predicted_iterations, Observability.PREDICTIONS),
    "completed_iterations": (lambda view: view.completed_iterations, Observability.TRAINING_CURVES),
    "training_loss": (lambda view: view.training_loss, Observability.TRAINING_CURVES),
    "validation_metric": (lambda view: view.validation_metric, Observability.TRAINING_CURVES),
    "loss_log": (lambda view: view.loss_log(0), Observability.TRAINING_CURVES),
    "interference": (
        lambda view: view.interference(view.workers(0), view.workers([0, 1]), 0),
        Observability.SPEEDS,
    ),
    "physics": (lambda view: view.physics, Observability.SPEEDS),
    "what_if": (lambda view: view.iteration_seconds(Allocation(1, (1, 2))), Observability.SPEEDS),
    "isolated_speeds": (
        lambda view: isolated_iteration_seconds(view, np.array([1])),
        Observability.SPEEDS,
    ),
}


OF_JOBS = [
    name for name, value in vars(DerivedColumns).items() if isinstance(value, property) and name in COLUMNS
]


def test_columns_of_some_jobs_are_those_rows_of_the_whole_table():
    sim = running_sim_in_all_states()
    view = sim.view()
    assert sorted(np.unique(view.column("status")).tolist()) == [0, 1, 2, 3]
    rows = np.array([5, 0, 3, 2])
    for name in OF_JOBS:
        whole = getattr(view, name)
        assert whole.shape == (6,)
        np.testing.assert_array_equal(getattr(view.select(rows), name), whole[rows], err_msg=name)
    assert view.select(1).column("num_gpus").tolist() == [2]
    assert view.select(rows).epochs_logged.tolist() == [len(view.loss_log(int(job))[1]) for job in rows]
    live = np.isin(view.column("status"), (JobStatus.WAITING, JobStatus.RUNNING))
    np.testing.assert_array_equal(np.isnan(view.predicted_seconds), ~live)
    np.testing.assert_array_equal(np.isnan(view.predicted_iterations), ~live)


def running_sim_in_all_states():
    jobs = JobTable.from_columns([0.0] * 5 + [900.0], [2] * 6, [10.0, 200.0, 400.0, 50.0, 60.0, 70.0])
    jobs = ModelMix().assign(jobs, np.random.default_rng(0))
    sim = Simulator(Cluster((4,)), jobs, ideal())
    sim.advance()
    sim.apply([Allocation(0, (0, 1)), Allocation(2, (2, 3))])
    sim.advance()
    sim.apply([Allocation(3, (0, 1))])
    sim.advance()
    return sim


@pytest.mark.parametrize("name", OF_JOBS)
def test_columns_of_some_jobs_take_what_the_whole_ones_take(name):
    sim = running_sim()
    with pytest.raises(ObservabilityError, match=rf"{name} is hidden") if COLUMNS[name] else nullcontext():
        getattr(sim.view(Observability.NOTHING).select([0]), name)
    with pytest.raises(ObservabilityError, match="loss_log is hidden"):
        sim.view(Observability.NOTHING).select([0]).epochs_logged  # noqa: B018
    with pytest.raises(ObservabilityError, match="remaining_iterations is hidden"):
        sim.view(Observability.NOTHING).select([0]).column("remaining_iterations")


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_take_what_their_answers_show(name):
    ask, takes = QUESTIONS[name]
    sim = running_sim()
    ask(sim.view(takes))
    with pytest.raises(ObservabilityError, match=rf"{name} is hidden.*Observability\.{takes.name}"):
        ask(sim.view(Observability.EVERYTHING & ~COLUMNS[name]))


def test_the_present_is_for_anybody():
    view = running_sim().view(Observability.NOTHING)
    public = [name for name in dir(SchedulingView) if isinstance(getattr(SchedulingView, name), property)]
    hidden = {"num_gpus", "attained_service", "predicted_seconds", "predicted_iterations", "physics"}
    hidden |= {"completed_iterations", "validation_metric", "training_loss", "epochs_logged"}
    shown = [name for name in public if not name.startswith("_") and name not in hidden]
    assert {"now", "waiting", "running", "gpu_activity", "jobs_of_gpu", "servers_up"} <= set(shown)
    for name in shown:
        getattr(view, name)
    assert view.gpu_activity.tolist() == [1.0, 0.0]
    assert view.gpus_of(0) == (0,)
    with pytest.raises(ObservabilityError, match="batch_size"):
        view.allocation_of(0)


def test_an_unknown_column_is_named():
    with pytest.raises(ObservabilityError, match=r"no column 'duration'; expected one of .*submit_seconds"):
        running_sim().view().column("duration")


def test_planners_get_records_with_hidden_fields_blank():
    records = running_sim().view(Observability.SIZES).records(np.array([1]))
    assert records["num_gpus"].tolist() == [2]
    assert np.isnan(records["remaining_iterations"]).all()
    assert records["outcome"].tolist() == [-1]


def test_the_distribution_does_not_say_whose_durations_are_whose():
    known = running_sim().jobs.restricted_to(Observability.DISTRIBUTION)
    assert known.gpu_seconds_distribution.tolist() == [100.0, 100.0]
    with pytest.raises(ObservabilityError, match="duration_seconds"):
        known.duration_seconds  # noqa: B018


@kernel
def _of_the_future(job: Job) -> float:
    return job.cancel_seconds


@implements(JobKey)
def _peeks(job: Job, now: float, parameters: FloatVector) -> float:
    return _of_the_future(job)


@implements(JobKey)
def _peeks_by_text(job: Job, now: float, parameters: FloatVector) -> float:
    return job["cancel_seconds"]


@implements(JobKey)
def _peeks_elsewhere(job: Job, now: float, parameters: FloatVector) -> float:
    return progress.remaining_iterations(job, now)


@implements(JobKey)
def _peeks_inside(job: Job, now: float, parameters: FloatVector) -> float:
    return (lambda one: one.cancel_seconds)(job)


_PEEKS = (_of_the_future,)


@implements(JobKey)
def _peeks_through_a_table(job: Job, now: float, parameters: FloatVector) -> float:
    return _PEEKS[0](job)


@implements(FindGpus)
def _find_by_truth(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    return int(state.jobs[b, j].remaining_iterations)


@implements(JobKey)
def _asks(job: Job, now: float, parameters: FloatVector) -> float:
    return attained_service(job, now) + remaining_iterations(job, now)


def test_compiled_keys_are_checked_before_they_run():
    with pytest.raises(ObservabilityError, match=r"mine's key: cancel_seconds .*Observability\.FUTURE"):
        PreemptiveScheduler("mine", _peeks, np.zeros(1), pack(), Observability.DURATIONS)
    for peeks in (_peeks_by_text, _peeks_inside, _peeks_through_a_table):
        with pytest.raises(ObservabilityError, match=r"mine's key: cancel_seconds"):
            PreemptiveScheduler("mine", peeks, np.zeros(1), pack(), Observability.DURATIONS)
    with pytest.raises(ObservabilityError, match=r"mine's key: remaining_iterations"):
        PreemptiveScheduler("mine", _peeks_elsewhere, np.zeros(1), pack(), Observability.SIZES)
    with pytest.raises(ObservabilityError, match=r"key: remaining_iterations .*Observability\.DURATIONS"):
        PreemptiveScheduler("mine", _asks, np.zeros(1), pack(), Observability.ATTAINED_SERVICE)
    both = Observability.ATTAINED_SERVICE | Observability.DURATIONS
    assert PreemptiveScheduler("mine", _asks, np.zeros(1), pack(), both).observability == both


@kernel
def _size_of_server(server: Server) -> int:
    return server.num_gpus


@implements(FindGpus)
def _find_by_servers(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    server = state.servers[b, 0]
    largest = server.num_gpus
    for s in range(state.clusters[b].num_servers):
        largest = max(largest, _size_of_server(state.servers[b, s]))
    return largest - state.clusters[b].num_gpus


@implements(FindGpus)
def _find_by_size(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    job = state.jobs[b, j]
    return state.servers[b, 0].num_gpus - job.num_gpus


@implements(FindGpus)
def _find_by_one_name_for_both(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    server = state.servers[b, 0]
    server = state.jobs[b, j]
    return server.num_gpus


@implements(FindGpus)
def _find_by_a_function_inside(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    server = state.servers[b, 0]
    return (lambda server: server.num_gpus)(state.jobs[b, j]) + server.num_gpus


@implements(FindGpus)
def _find_by_a_wrong_annotation(
    state: Server, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    return state.num_gpus


@kernel
def _size_of_anything(server: Server, anything: Any) -> int:
    return server.num_gpus


@implements(FindGpus)
def _find_by_a_helper(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    return _size_of_anything(state.jobs[b, j], 0)


def test_a_field_counts_where_it_may_be_a_jobs():
    check_reads(_find_by_servers, Observability.NOTHING, "mine")
    for peeks in (
        _find_by_size,
        _find_by_one_name_for_both,
        _find_by_a_function_inside,
        _find_by_a_wrong_annotation,
        _find_by_a_helper,
    ):
        with pytest.raises(ObservabilityError, match=r"mine: num_gpus is hidden.*Observability\.SIZES"):
            check_reads(peeks, Observability.NOTHING, "mine")


def test_observations_are_checked_before_they_run():
    with pytest.raises(ObservabilityError, match=r"the observation: attained_service .*ATTAINED_SERVICE"):
        replace(queue_cluster_and_resources(), observability=Observability.SIZES | Observability.SPEEDS)


def test_placement_rules_say_what_they_take():
    with pytest.raises(ObservabilityError, match=r"placement rule true: remaining_iterations"):
        PlacementRule(_find_by_truth, "true")
    assert fifo_backfill(pack()).total_observability == Observability.NOTHING
    assert fifo_backfill(lwf(1)).total_observability == Observability.PREDICTIONS
    assert Actions(templates=(pack(), lwf(1))).observability == Observability.PREDICTIONS


def test_only_families_and_the_loop_reach_behind_the_view():
    folder = ROOT / "baselines" / "ringyard_baselines"
    reaching = {
        file.name
        for file in folder.rglob("*.py")
        if re.search(r"import [^.]*?\blive\b|(view|sim|draft)\._?state\b", file.read_text())
    }
    policies = {"allocating.py", "ordered.py", "preemptive.py"}
    assert reaching == {*policies, "scheduler.py"}  # the loop looks at powers


class OneTable:
    """A workload that is always the same jobs."""

    def __init__(self, jobs):
        self.jobs, self.num_jobs = jobs, len(jobs)

    def sample(self, cluster, rng):
        return self.jobs


def observed(jobs):
    """The first observation of an episode, and those after the starts of three jobs."""
    setting = EnvConfig(
        cluster=Cluster.homogeneous(1, 8),
        workload=OneTable(jobs),
        observation=queue_cluster_and_resources(flat=True),
        num_workloads=1,
    )
    batch = ClusterBatch(setting, 1)
    batch.reset(np.array([0]), np.array([0]))
    rows = [batch.observations.copy()]
    for _ in range(3):
        batch.step(batch.masks.argmax(axis=1))
        rows.append(batch.observations.copy())
    assert batch.state.clusters["num_running"][0] == 3
    return np.concatenate(rows)


def test_observations_do_not_show_the_durations_of_unpredictable_jobs():
    count = 8
    rng = np.random.default_rng(0)
    jobs = JobTable.from_columns(np.zeros(count), np.full(count, 2), rng.uniform(50, 500, count))
    jobs = replace(
        jobs,
        predictable_from=np.where(np.arange(count) % 2, np.inf, 0.0),
        prediction_factor=rng.uniform(0.5, 2.0, count),
        acceptable_jct=np.full(count, 1e5),
    )
    unknown = np.isinf(jobs.predictable_from)
    other = replace(jobs, duration_seconds=np.where(unknown, 7.0, 1.0) * jobs.duration_seconds)
    assert np.array_equal(observed(jobs), observed(other))
    exact = np.where(unknown, 1.0, jobs.prediction_factor) * jobs.duration_seconds
    predicted = replace(other, duration_seconds=exact, prediction_factor=np.ones(count))
    assert np.allclose(observed(jobs), observed(predicted), atol=1e-6)
    longer = replace(jobs, duration_seconds=3.0 * jobs.duration_seconds)
    assert not np.array_equal(observed(jobs), observed(longer))


@pytest.mark.parametrize("order", ["duration", "work"])
def test_unpredictable_jobs_queue_behind_the_predictable_by_submission(order):
    jobs = JobTable.from_columns(np.arange(4.0), [1, 1, 1, 1], [9.0, 1.0, 5.0, 7.0])
    jobs = replace(jobs, predictable_from=np.array([0.0, np.inf, 0.3, 0.0]))
    records = prepare_jobs(jobs, Cluster((4,)), ideal(), EnvConfig().restart)
    priority = queue_priority(order, records)
    assert np.lexsort((np.arange(4), priority)).tolist() == [3, 0, 1, 2]


def test_whoever_knows_speeds_can_ask_every_performance_model():
    """A planner's copy of a record (`view.records`) hides nothing that a performance model reads."""
    observability = Observability.SIZES | Observability.SPEEDS
    for function in (
        composite(1e9, 4e10).iteration_seconds,
        ring_contention(1e9, 4e10, 1e11, 0.0, 1.0, 0.0).iteration_seconds,
    ):
        check_reads(function, observability, "a performance model")
