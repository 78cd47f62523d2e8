"""Scores as actions: one for each live job, carried out by the allocator, the same in every face."""

import copy
import pickle
from contextlib import nullcontext
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import SyncVectorEnv
from stable_baselines3.common.env_checker import check_env as sb3_check

from ringyard import Cluster, ClusterEnv, ClusterVectorEnv, Simulator
from ringyard.allocator import Allocator
from ringyard.errors import ActionError, ConfigurationError, EpisodeError
from ringyard.jobs import JobTable
from ringyard.mdp.actions import Actions, Scores
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations import live_jobs, queue_and_cluster
from ringyard.observability import Observability
from ringyard.performance import ideal
from ringyard.profiles import model_id
from ringyard.state.random_numbers import derive_seed
from ringyard.state.records import JobStatus
from ringyard_agents.learning.vec_env import RingyardVecEnv
from ringyard_baselines.policies.allocating import AllocatingScheduler
from ringyard_baselines.scheduler import run

EXPERIMENTS = ("contention", "sharing", "cpu_gpu", "elastic", "full")
LEFT, RANK, RUNNING, PREDICTABLE, HELD, RESTART = 0, 1, 4, 10, 11, 13


def scored(name, flat=False, **options):
    """An environment whose jobs are scored."""
    whole = experiment(name, action="scores", observation="live_jobs")
    actions, observation = replace(whole.actions, **options), replace(whole.observation, flat=flat)
    return replace(whole, actions=actions, observation=observation, num_workloads=4)


def batch_of(setting, entries=(0,)):
    batch = ClusterBatch(setting, len(entries))
    batch.reset(np.arange(len(entries)), np.array(entries))
    return batch


def live_rows(state, b=0):
    status = state.jobs["status"][b, :-1]
    return np.flatnonzero((status == JobStatus.WAITING) | (status == JobStatus.RUNNING))


def play(batch, choose):
    """All episodes; the end of every job."""
    active = np.flatnonzero(~batch.done)
    while len(active):
        scores = choose(batch).astype(np.float32)
        batch.replace_invalid(scores, active)
        batch.step(scores, active)
        active = np.flatnonzero(~batch.done)
    return batch.state.jobs["end_seconds"][:, :-1].copy()


def constant(value):
    return lambda batch: np.full_like(batch.masks, value, np.float32)


def noise(seed):
    rng = np.random.default_rng(seed)
    return lambda batch: rng.uniform(-1, 1, batch.masks.shape)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_scores_of_zero_are_the_allocator(name):
    setting = scored(name)
    ours = play(batch_of(setting, (0, 2)), constant(0.0))
    for b, entry in enumerate((0, 2)):
        table = ClusterBatch(setting, 1).workload_cache.table(entry)
        sim = Simulator(
            setting.cluster,
            table,
            setting.performance,
            setting.restart,
            seed=derive_seed(setting.workload_seed, entry),
            failures=setting.failures,
        )
        run(sim, AllocatingScheduler(Allocator()), np.random.default_rng(0))
        assert np.array_equal(ours[b, : len(table)], sim.state.jobs["end_seconds"][0, :-1])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_live_job_has_its_score_and_features(name):
    batch, rng = batch_of(scored(name, num_jobs=20)), np.random.default_rng(1)
    blocks, hidden = batch.split(batch.observations), 0
    while not batch.done[0]:
        live = live_rows(batch.state)
        shown = min(len(live), 20)
        hidden += len(live) > 20
        assert batch.episode.num_live[0] == len(live)
        assert batch.episode.live[0, : len(live)].tolist() == live.tolist()
        assert batch.masks[0].tolist() == [True] * shown + [False] * (20 - shown)
        assert blocks["jobs_mask"][0].tolist() == batch.masks[0].tolist()
        features = blocks["jobs"][0].reshape(20, -1)
        assert np.abs(features).max() <= 10
        assert not features[shown:].any()
        runs = batch.state.jobs["status"][0, live[:shown]] == JobStatus.RUNNING
        assert np.array_equal(features[:shown, RUNNING], runs)
        asks = batch.state.jobs["asked_gpus"][0, live[:shown]] > 0
        assert np.array_equal(features[:shown, HELD] > 0, runs & asks)
        assert sorted(features[:shown, RANK]) == pytest.approx(np.arange(shown) / shown)
        scores = rng.uniform(-1, 1, (1, 20)).astype(np.float32)
        batch.step(scores)
        assert np.array_equal(batch.episode.plan.score[0, live[:shown]], scores[0, :shown])
        assert not batch.episode.plan.score[0, live[shown:]].any()
    assert hidden > 0


def four_jobs(predictions=True, **columns):
    """A cluster of one GPU; four jobs of one GPU at once, of 40, 30, 20 and 10 s."""
    jobs = JobTable.from_columns([0.0] * 4, [1] * 4, [40.0, 30.0, 20.0, 10.0])
    sim = Simulator(Cluster.homogeneous(1, 1), replace(jobs, **columns), ideal())
    setting = replace(
        experiment("contention"),
        cluster=sim.cluster,
        performance=sim.performance,
        actions=Scores(num_jobs=4),
        observation=live_jobs(predictions=predictions),
        num_workloads=1,
    )
    batch = ClusterBatch(setting, 1, state=sim.state)
    batch.resume()
    return batch


@pytest.mark.parametrize(
    ("scores", "order"), [((0, 0, 0, 0), (3, 2, 1, 0)), ((1, 0.5, -0.5, -1), (0, 1, 2, 3))]
)
def test_who_scores_more_runs_first(scores, order):
    batch = four_jobs()
    seen = batch.split(batch.observations)["jobs"][0].reshape(4, -1)
    assert seen[:, RANK].tolist() == [0.75, 0.5, 0.25, 0.0]
    assert seen[:, LEFT] == pytest.approx((np.log1p([40, 30, 20, 10]) - 6) / 2.5)
    row_of = np.arange(4)
    while not batch.done[0]:
        batch.step(np.array([scores])[:, [*row_of, *range(4 - len(row_of))]].astype(np.float32))
        row_of = live_rows(batch.state)
    assert np.argsort(batch.state.jobs["end_seconds"][0, :-1]).tolist() == list(order)


def test_the_time_left_of_jobs_is_what_the_allocator_estimates():
    """Of the environment with tenants: those that are not predictable too, and at the present."""
    world = replace(experiment("tenants"), num_workloads=1)
    batch, rng = ClusterBatch(world, 1), np.random.default_rng(1)
    batch.reset(np.array([0]), np.array([0]))
    estimate, memory, seen = world.actions.allocator.estimate, batch.workload_cache.estimate_memory(0), set()
    for _ in range(150):
        live = live_rows(batch.state)
        out = np.zeros(world.workload.num_jobs)
        estimate.seconds(batch.state, 0, estimate.parameters, memory, out)
        features = batch.split(batch.observations)["jobs"][0].reshape(400, -1)[: len(live)]
        assert features[:, LEFT] == pytest.approx((np.log1p(out[live]) - 6) / 2.5, rel=1e-5)
        ranks = np.argsort(np.argsort(out[live], kind="stable"))
        assert features[:, RANK] == pytest.approx(ranks / len(live))
        seen |= set(live.tolist())
        batch.step(rng.uniform(-0.2, 0.2, (1, 400)).astype(np.float32))
    assert len(seen) > 50
    assert not batch.state.jobs["predictable"][0, sorted(seen)].any()


@pytest.mark.parametrize("liked", [0, 1])
def test_a_job_goes_to_the_gpu_type_that_its_scores_like(liked):
    cluster = Cluster.of_groups(
        [{"num_servers": 1, "gpus_per_server": 1, "gpu_type": kind} for kind in ("p100", "v100")]
    )
    jobs = JobTable.from_columns([0.0], [1], [40.0]).with_models(np.array([model_id("resnet50_imagenet")]))
    sim = Simulator(cluster, jobs, ideal())
    actions = Scores(num_jobs=3, type_scores=("v100", "a100", "p100"))
    setting = replace(
        experiment("contention"),
        cluster=cluster,
        performance=sim.performance,
        actions=actions,
        observation=live_jobs(),
        num_workloads=1,
    )
    batch = ClusterBatch(setting, 1, state=sim.state)
    batch.resume()
    scores = np.zeros((1, 4, 3), np.float32)
    scores[0, [1, 2, 3], 0] = [2 * liked - 1, 1, 1 - 2 * liked]  # a100: there is none
    assert actions.space.shape == (12,)
    found = batch.allocations(0, scores.reshape(12))
    assert [one.gpu_ids for one in found] == [(liked,)]


def test_scores_for_gpu_types_that_are_0_or_of_others_change_nothing():
    plain = play(batch_of(scored("full")), constant(0.0))
    for kinds, scores in ((["p100", "t4", "v100"], 0.0), (["a100", "k80"], 1.0)):
        setting = scored("full", type_scores=kinds)

        def action(batch, scores=scores, setting=setting):
            jobs = batch.masks.shape[1]
            found = np.full((1, (1 + len(setting.actions.type_scores)) * jobs), scores)
            found[:, :jobs] = 0.0
            return found

        assert np.array_equal(play(batch_of(setting), action), plain)
    gymnasium_check(ClusterEnv(setting), skip_render_check=True)


@pytest.mark.parametrize("kinds", [("v100", "v100"), ("mine",), (3,), 2, "v100"])
def test_only_gpu_types_get_scores(kinds):
    with pytest.raises(ConfigurationError, match="type_scores"):
        Scores(type_scores=kinds)


def test_what_cannot_be_predicted_is_not_shown():
    batch = four_jobs(predictable_from=np.array([0.0, np.inf, 0.5, 0.0]))
    seen = batch.split(batch.observations)["jobs"][0].reshape(4, -1)
    assert (seen[:, LEFT] != 0).tolist() == [True, False, False, True]
    assert seen[:, RANK].tolist() == [0.25, 0.5, 0.75, 0.0]  # a minute stands for what is not known


def test_agents_without_predictions_see_the_rest():
    seen = []
    for predictions in (True, False):
        batch = four_jobs(predictions)
        batch.step(np.zeros((1, 4), np.float32))  # the job of 10 s has run
        seen.append(batch.split(batch.observations)["jobs"][0].reshape(4, -1))
    known, unknown = seen
    durations = [LEFT, RANK, PREDICTABLE, RESTART]
    assert np.array_equal(np.delete(known, durations, 1), np.delete(unknown, durations, 1))
    assert known[:3, PREDICTABLE].all()
    assert not unknown[:, [LEFT, PREDICTABLE]].any()
    assert unknown[:3, RANK] == pytest.approx([0, 1 / 3, 2 / 3])  # nobody of them has run
    assert not live_jobs(predictions=False).observability & Observability.PREDICTIONS


def test_rounds_are_the_only_decisions():
    batch = batch_of(scored("elastic", round_seconds=60.0))
    times = []

    def choose(batch):
        times.append(float(batch.state.clusters["now"][0]))
        return constant(0.0)(batch)

    play(batch, choose)
    assert len(times) > 20
    assert all(time % 60.0 == 0 for time in times)
    assert len(times) == len(set(times))


def test_what_is_known_of_speeds_is_kept_and_grows():
    setting = scored("helios_like")
    tables = ClusterBatch(setting, 1).workload_cache.utilities_of  # sizes differ from table to table
    alone = [play(batch_of(setting, (entry,)), constant(0.0))[0] for entry in range(4)]
    batch = batch_of(setting, (0, 0))
    widths = []
    for entry in range(4):
        batch.reset(np.array([0, 1]), np.array([entry, 3 - entry]))
        widths.append(batch.workload_cache.utilities[entry].utility.shape[1])
        longest = max(utilities.utility.shape[1] for utilities in batch.workload_cache.utilities.values())
        assert batch.episode.plan.utility.shape[2] == longest
        ends = play(batch, constant(0.0))
        assert np.array_equal(ends, [alone[entry], alone[3 - entry]])
    assert len(set(widths)) > 1
    records = batch.workload_cache.rows.records[0, : batch.workload_cache.rows.num_jobs[0]]
    assert np.array_equal(tables(records).utility, batch.workload_cache.utilities[0].utility)


@pytest.mark.parametrize("flat", [False, True])
def test_checkers(flat):
    setting = scored("sharing", flat)
    sb3_check(ClusterEnv(setting))
    gymnasium_check(ClusterEnv(setting), skip_render_check=True)


def test_experiments_offer_scores_by_gymnasium():
    env = gymnasium.make("ringyard/Sharing-v1", config=scored("sharing"))
    _, info = env.reset(seed=0)
    done = False
    while not done:
        observation, _, done, _, info = env.step(np.zeros(128, np.float32))
        assert env.observation_space.contains(observation)
    assert info["episode_jct"] > 0
    assert not info["action_mask"].any()


def test_many_clusters_are_as_many_single_ones():
    setting = scored("full", num_jobs=12)
    ours, theirs = ClusterVectorEnv(3, setting), SyncVectorEnv([lambda: ClusterEnv(setting)] * 3)
    assert data_equivalence(theirs.reset(seed=3), ours.reset(seed=3), exact=True)
    ours.action_space.seed(0)
    for _ in range(300):
        actions = ours.action_space.sample()
        assert data_equivalence(theirs.step(actions), ours.step(actions), exact=True)


def test_copies_go_on_as_they_would():
    batch, choose = batch_of(scored("full"), (0, 1)), noise(2)
    for _ in range(150):
        batch.step(choose(batch).astype(np.float32))
    before = batch.state.jobs.tobytes()
    copies = copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))
    ends = [play(one, noise(3)) for one in copies]
    assert batch.state.jobs.tobytes() == before
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], play(batch, noise(3)))


def test_agents_environments_go_on_where_they_were_saved():
    setting = scored("sharing", True, num_jobs=8)
    env = RingyardVecEnv(setting, 4, seed=5)
    env.reset()
    rng = np.random.default_rng(0)
    scores = [rng.uniform(-1, 1, (4, 8)).astype(np.float32) for _ in range(700)]
    ends = sum(env.step(one)[2].sum() for one in scores[:600])
    assert ends > 0
    other = RingyardVecEnv(setting, 4, seed=5)
    other.restore(env.episode_state())
    for one in scores[600:]:
        assert np.array_equal(env.step(one)[0], other.step(one)[0])


WRONG = {
    "NaN": np.full(8, np.nan),
    "beyond": np.full(8, 1.01),
    "infinite": np.full(8, -np.inf),
    "short": np.zeros(7),
    "long": np.zeros((1, 8)),
    "text": ["a"] * 8,
    "ragged": [[0.0], *[0.0] * 7],
    "complex": np.zeros(8, complex),
    "booleans": np.zeros(8, bool),
    "a number": 0.5,
    "none": None,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_scores_that_are_none_are_refused(wrong):
    setting = scored("sharing", num_jobs=8)
    single, vector, agents = ClusterEnv(setting), ClusterVectorEnv(1, setting), RingyardVecEnv(setting, 1)
    for env in (single, vector, agents):
        with pytest.raises(EpisodeError):
            env.step(np.zeros(8) if env is single else np.zeros((1, 8)))
        env.reset()
        before = env.batch.state.jobs.tobytes()
        with pytest.raises(ActionError, match="expected"):
            env.step(WRONG[wrong] if env is single else [WRONG[wrong]])
        assert env.batch.state.jobs.tobytes() == before


def test_observations_and_actions_must_fit():
    base = experiment("sharing")
    for setting in (
        replace(base, actions=Scores(), observation=queue_and_cluster()),
        replace(base, actions=Actions(), observation=live_jobs()),
    ):
        for make in (ClusterEnv, lambda one: ClusterVectorEnv(2, one), lambda one: RingyardVecEnv(one, 2)):
            with pytest.raises(ConfigurationError, match="expected observation=live_jobs with action=scores"):
                make(setting)
    with pytest.raises(ConfigurationError, match="num_jobs"):
        Scores(num_jobs=0)
    with pytest.raises(ConfigurationError, match="round_seconds"):
        Scores(round_seconds=-1.0)


def test_experiments_take_parts_that_there_are():
    for parts in ({"action": "scroes"}, {"agent": "ppo_mlp"}, {"actions": "scores"}):
        with pytest.raises(ConfigurationError, match=r"[;?] expected "):
            experiment("sharing", **parts)


def test_the_memory_of_speeds_is_known_before_it_is_taken(monkeypatch):
    batch = batch_of(scored("elastic"), range(4))
    arrays = [one for utilities in batch.workload_cache.utilities.values() for one in utilities]
    for holder in (batch.state, batch.episode, batch.episode.plan, batch._out, batch.workload_cache.rows):
        arrays += [one for one in vars(holder).values() if isinstance(one, np.ndarray)]
    taken = sum(array.nbytes for array in arrays)
    for share, fits in ((0.98, False), (1.02, True)):
        monkeypatch.setattr("ringyard.checks._machine_memory_bytes", lambda share=share: share * taken)
        with nullcontext() if fits else pytest.raises(ConfigurationError, match="bytes for each"):
            ClusterBatch(scored("elastic"), 4)
