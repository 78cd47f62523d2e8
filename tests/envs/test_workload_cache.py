"""Workloads made ready: many at once, in the background, and stepped by several threads."""

import copy
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

import ringyard
from ringyard import Cluster, ClusterVectorEnv, JobTable
from ringyard.errors import ConfigurationError, PluginError, WorkloadError
from ringyard.mdp.actions import Scores
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import experiment
from ringyard.mdp.rewards import Reward
from ringyard.mdp.workload_cache import WorkloadCache
from ringyard.sim.engine.prepare import JobPreparer, prepare_jobs
from ringyard.state.records import Integral, Job
from ringyard.threads import run_in_parts
from ringyard.workloads.workload import draw_tables

EXPERIMENTS = ("contention", "sharing", "cpu_gpu", "elastic", "full")


class SomeElastic:
    """Every second table has a job that runs on one GPU, too."""

    num_jobs = 3

    def sample(self, cluster, rng):
        table = JobTable.from_columns(np.arange(3.0), [2, 2, 2], np.full(3, 50.0))
        table = table.with_models(np.array([2, 5, 2]))
        return replace(table, min_gpus=np.array([1, 2, 2])) if rng.integers(2) else table


class SomeTooLarge:
    """Every third table has a job that no cluster holds, in row 2."""

    num_jobs = 4

    def sample(self, cluster, rng):
        wrong = int(rng.integers(3)) == 0
        return JobTable.from_columns(np.arange(4.0), [1, 1, 99 if wrong else 2, 1], np.full(4, 50.0))


def demand_classes(table, cluster):
    """[jobs] as `Job.demand_class`: the rank of what a job asks for among the different ones of its table."""
    asked = [table.num_gpus, table.kind]
    if cluster.cores_per_server:
        asked += [table.cores_per_worker, table.parameter_servers, table.cores_per_server_task]
    if cluster.ram_bytes_per_server:
        asked.append(table.ram_per_worker)
    elastic = (table.min_gpus < table.max_gpus).any() or (table.min_batch < table.max_batch).any()
    if cluster.gpu_types or cluster.jobs_per_gpu > 1 or elastic:
        asked += [table.model_ids, table.batch_size, table.fixed_memory_bytes, table.sample_memory_bytes]
    if cluster.gpu_types:
        asked.append(table.fixed_fraction)
    if elastic:
        asked += [table.min_gpus, table.max_gpus, table.min_batch, table.max_batch]
    return np.unique(np.stack(asked, axis=1).astype(float), axis=0, return_inverse=True)[1].reshape(-1)


def rng(entry):
    return np.random.default_rng((7, entry))


def rows(blocks):
    """[clusters, size] of what is seen of some clusters."""
    return np.concatenate([block.reshape(len(block), -1) for block in blocks.values()], axis=1)


def play(env, rng, steps):
    """Everything that is seen in some random steps."""
    seen = [rows(env.reset(seed=7)[0])]
    for _ in range(steps):
        if isinstance(env.config.actions, Scores):
            actions = rng.uniform(-1, 1, env.batch.masks.shape).astype(np.float32)
        else:
            actions = (rng.random(env.batch.masks.shape) * env.batch.masks).argmax(axis=1)
        observations, rewards, *_ = env.step(actions)
        seen += [rows(observations), rewards[:, None]]
    return np.concatenate(seen, axis=1)


@pytest.mark.parametrize("name", [*EXPERIMENTS, "helios_like"])
def test_tables_made_ready_together_are_those_made_ready_alone(name):
    setting = experiment(name)
    parts = setting.cluster, setting.performance, setting.restart
    drawn, lengths = draw_tables(setting.workload, setting.cluster, [rng(k) for k in range(5)])
    together = Job.zeros(sum(lengths) + 7)
    begins = [7 + sum(lengths[k + 1 :]) for k in range(5)]
    JobPreparer(*parts).write(drawn, lengths, together, begins)
    tables = [setting.workload.sample(setting.cluster, rng(k)) for k in range(5)]
    assert lengths == [len(table) for table in tables]
    alone = [prepare_jobs(table, *parts).tobytes() for table in tables]
    assert together[7:].tobytes() == b"".join(reversed(alone))
    for column in fields(JobTable):
        if column.name not in ("job_id", "past"):
            whole = np.concatenate([getattr(table, column.name) for table in tables])
            assert np.array_equal(getattr(drawn, column.name), whole, equal_nan=whole.dtype.kind == "f")


@pytest.mark.parametrize("name", [*EXPERIMENTS, "helios_like"])
def test_jobs_of_one_demand_class_ask_for_the_same(name):
    setting = experiment(name)
    parts = setting.cluster, setting.performance, setting.restart
    for k in range(5):
        table = setting.workload.sample(setting.cluster, rng(k))
        classes = prepare_jobs(table, *parts)["demand_class"]
        assert classes.tolist() == demand_classes(table, setting.cluster).tolist()


def test_elastic_jobs_of_other_tables_tell_no_jobs_apart():
    setting = EnvConfig(cluster=Cluster((4,)), workload=SomeElastic(), num_workloads=40)
    cache = WorkloadCache(setting)
    for entry, row in enumerate(cache.rows_of(np.arange(40))):
        classes = demand_classes(cache.table(entry), setting.cluster)
        assert cache.rows.records["demand_class"][row].tolist() == classes.tolist()


@pytest.mark.parametrize("part", ["durations", "models"])
def test_a_part_that_looks_at_the_whole_table_is_asked_for_one_at_a_time(part):
    setting = experiment("helios_like")
    own = getattr(setting.workload, part)
    alone = type(part, (), {"__getattr__": lambda self, name: lent(own, name)})()
    workload = replace(setting.workload, **{part: alone})
    assert workload.sample_batch(setting.cluster, [rng(0)]) is None
    drawn, _ = draw_tables(workload, setting.cluster, [rng(0), rng(1)])
    same, _ = draw_tables(setting.workload, setting.cluster, [rng(0), rng(1)])
    assert np.array_equal(drawn.submit_seconds, same.submit_seconds)
    assert np.array_equal(drawn.model_ids, same.model_ids)


def lent(own, name):
    """What a part has, but for what says that many tables may be drawn as one."""
    if name == "draws_per_job":
        raise AttributeError(name)
    return getattr(own, name)


def test_what_is_wrong_with_one_of_many_tables_is_said_of_its_own_row():
    setting = EnvConfig(cluster=Cluster((4,)), workload=SomeTooLarge(), num_workloads=40)
    cache = WorkloadCache(setting)
    with pytest.raises(WorkloadError, match=r"job 2 \(row 2\) has num_gpus 99"):
        cache.rows_of(np.arange(40))


def test_what_will_be_needed_soon_is_complained_of_when_it_is():
    setting = EnvConfig(cluster=Cluster((4,)), workload=SomeTooLarge(), num_workloads=100)
    cache = WorkloadCache(setting)
    good = [entry for entry in range(100) if cache.table(entry).num_gpus.max() <= 4]
    cache.prefetch(np.arange(100))
    cache.rows_of(np.array(good[:1]))
    cache.prefetch(np.array(good[:1] * 1000))
    assert not cache._prefetched  # cached entries are not listed, or the list of a long training would grow
    assert len(set(cache.rows_of(np.array(good)).tolist())) == len(good)
    bad = next(entry for entry in range(100) if entry not in good)
    with pytest.raises(WorkloadError, match="num_gpus 99"):
        cache.rows_of(np.array([bad]))


class Jealous:
    """Weights by jobs of which it refuses a table with a long one."""

    def __call__(self, jobs, cluster):
        return np.nan if jobs["isolated_seconds"].max() > 50000 else -1.0


def test_rows_of_what_could_not_be_made_are_free_again(monkeypatch):
    monkeypatch.setattr("ringyard.mdp.workload_cache._MIN_ROWS", 4)
    setting = EnvConfig(num_workloads=60, reward=Reward(Integral.ELAPSED, Jealous()))
    cache, made = WorkloadCache(setting), 0
    for entry in range(60):
        try:
            row = int(cache.rows_of(np.array([entry]))[0])
        except PluginError:
            continue
        made += 1
        table = cache.table(entry)
        assert np.array_equal(cache.rows.records["submit_seconds"][row], table.submit_seconds)
        rows = list(cache._row_of.values())
        assert sorted([*rows, *cache._free]) == [0, 1, 2, 3]
    assert 4 < made < 60


def test_what_was_needed_longest_ago_makes_way(monkeypatch):
    monkeypatch.setattr("ringyard.mdp.workload_cache._MIN_ROWS", 3)
    cache = WorkloadCache(
        replace(experiment("elastic", action="scores", observation="live_jobs"), num_workloads=9), 2
    )
    assert cache.num_rows == 4
    first = cache.rows_of(np.array([0, 1, 2, 3]))
    cache.rows_of(np.array([0]))
    cache.prefetch(np.arange(9))
    rows = cache.rows_of(np.array([0, 8]))  # beside those two there is room for two that are needed soon
    assert rows[0] == first[0]
    assert set(cache.utilities) == {0, 8, 4, 5}
    assert len(set(cache.rows_of(np.array([0, 8, 4, 5])).tolist())) == 4
    for kept in (cache, pickle.loads(pickle.dumps(cache)), copy.deepcopy(cache)):
        for entry, row in zip((0, 8, 4, 5), kept.rows_of(np.array([0, 8, 4, 5])), strict=True):
            table = kept.table(entry)
            assert kept.rows.num_jobs[row] == len(table)
            assert np.array_equal(
                kept.rows.records["submit_seconds"][row, : len(table)], table.submit_seconds
            )
            assert len(kept.utilities[entry].utility) == len(table)


def test_an_episode_does_not_depend_on_what_was_made_with_it():
    setting = replace(experiment("full"), num_workloads=50)
    seen = []
    for others in ((), (3, 20, 11)):
        env = ClusterVectorEnv(1, setting, "SameStep")
        env.batch.workload_cache.prefetch(np.array(others, np.int64))
        seen.append(play(env, np.random.default_rng(1), 60))
    assert seen[0].tobytes() == seen[1].tobytes()


@pytest.mark.parametrize("name", ["full", "elastic"])
@pytest.mark.parametrize("scores", [False, True])
def test_any_number_of_threads_gives_equal_bytes(name, scores, monkeypatch):
    monkeypatch.setattr("ringyard.mdp.step_discrete.DiscreteDriver.min_per_thread", 2)
    setting = experiment(name, action="scores", observation="live_jobs") if scores else experiment(name)
    setting = replace(setting, num_workloads=8)
    monkeypatch.setattr("ringyard.mdp.batch.usable_cores", lambda: 3)
    seen = []
    for threads in (1, 2, 3):  # parts of 270, 135 and 90 clusters, of which only the last are not prefetched
        env = ClusterVectorEnv(270, setting, "SameStep", num_threads=threads)
        seen.append(play(env, np.random.default_rng(1), 40))
    assert seen[0].tobytes() == seen[1].tobytes() == seen[2].tobytes()


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_batches_are_stepped_by_the_least_of_cores_and_threads_that_were_asked_for(cores, monkeypatch):
    for module in ("threads", "mdp.batch"):
        monkeypatch.setattr(f"ringyard.{module}.usable_cores", lambda: cores)
    setting = EnvConfig(num_workloads=2)
    try:
        ringyard.set_num_threads(3)
        assert ringyard.get_num_threads() == ClusterBatch(setting, 1).num_threads == min(3, cores)
        assert ClusterBatch(setting, 1, num_threads=2).num_threads == min(2, cores)
        with pytest.raises(ConfigurationError, match="num_threads is 0"):
            ringyard.set_num_threads(0)
        with pytest.raises(ConfigurationError, match="num_threads is 0"):
            ClusterVectorEnv(1, setting, num_threads=0)
    finally:
        ringyard.set_num_threads(None)
    assert ringyard.get_num_threads() == cores


def test_parts_are_the_whole_and_errors_come_back():
    done = []
    run_in_parts(lambda some: done.extend(some.tolist()), np.arange(100), 4, 10)
    assert sorted(done) == list(range(100))

    def fail(some):
        done.extend(some.tolist())
        raise ValueError(int(some[0]))

    done.clear()
    with pytest.raises(ValueError, match="0"):
        run_in_parts(fail, np.arange(100), 4, 10)
    assert sorted(done) == list(range(100))  # nobody is still at work


def test_observations_that_a_caller_holds_are_not_overwritten():
    env = ClusterVectorEnv(3, experiment("helios_like"), "SameStep")
    held = [env.reset(seed=0)[0]]
    wait = np.full(3, env.config.actions.wait)
    for _ in range(6):
        held.append(env.step(np.where(env.batch.masks[:, -1], wait, env.batch.masks.argmax(axis=1)))[0])
    owners = {id(one["cluster"].base) for one in held}
    assert len(owners) == len(held)  # all are held
    window = held.pop()["cluster"][0]  # the last lives on in a part of it
    before = window.copy()
    held.clear()
    for _ in range(20):
        env.step(np.where(env.batch.masks[:, -1], wait, env.batch.masks.argmax(axis=1)))
    assert np.array_equal(window, before)
