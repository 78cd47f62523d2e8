"""The Gymnasium faces: checkers, equality of single and vector, masks, rewards, determinism."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.env_checker import check_env as sb3_check

from conftest import ROOT
from ringyard import Cluster, JobTable
from ringyard.errors import ActionError, ConfigurationError, SchedulerError
from ringyard.mdp import rewards
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations.queue import queue_and_cluster
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.placement import consolidate, least_contended, pack, random_gpus
from ringyard.state.arrays import waiting_rows
from ringyard.state.records import Integral, JobStatus
from ringyard.workloads import (
    Arrivals,
    Extended,
    LogNormalDurations,
    ModelMix,
    Predictability,
    Sizes,
    Synthetic,
)
from small_simulations import nowhere

WORKLOAD = Synthetic(
    num_jobs=15,
    sizes=Sizes({1: 4, 2: 2, 4: 2, 8: 1}),
    durations=LogNormalDurations(5.0, 1.0),
    arrivals=Arrivals(cv=2.0),
    models=ModelMix(),
    load=2.0,
)


def setting(flat=False, **actions):
    options = {"templates": (pack(), least_contended(), consolidate()), "on_invalid": "raise"} | actions
    return EnvConfig(
        cluster=Cluster.homogeneous(4, 4),
        workload=WORKLOAD,
        observation=queue_and_cluster(flat),
        actions=Actions(**options),
        num_workloads=16,
    )


def play(env, seed, choose=None):
    """One episode of valid random actions: (observations, rewards, last info)."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    seen, gained = [observation], []
    while True:
        valid = np.flatnonzero(info["action_mask"])
        action = int(rng.choice(valid)) if choose is None else choose(valid)
        observation, reward, done, truncated, info = env.step(action)
        seen.append(observation)
        gained.append(reward)
        if done or truncated:
            return seen, gained, info


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("preemptive", [False, True])
def test_checkers_find_nothing(flat, preemptive):
    env = gymnasium.make(
        "ringyard/Cluster-v0",
        config=setting(flat, preemptive=preemptive, on_invalid="wait"),
        render_mode="rgb_array",
    )
    gymnasium_check(env.unwrapped, skip_close_check=True)
    sb3_check(ClusterEnv(setting(flat, preemptive=preemptive, on_invalid="wait")))


def test_default_environment_is_made_by_id():
    env = gymnasium.make("ringyard/Cluster-v0")
    observation, info = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert info["action_mask"].shape == (env.action_space.n,)
    vector = gymnasium.make_vec("ringyard/Cluster-v0", num_envs=3)
    observation, info = vector.reset(seed=1)
    assert vector.observation_space.contains(observation)
    assert info["action_mask"].shape == (3, env.action_space.n)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("preemptive", [False, True])
def test_undiscounted_return_is_minus_the_mean_jct(preemptive):
    env = ClusterEnv(setting(preemptive=preemptive))
    for seed in range(5):
        _, gained, info = play(env, seed)
        jobs = env.batch.state.jobs[0, :15]
        mean_jct = (jobs["end_seconds"] - jobs["submit_seconds"]).mean()
        assert info["episode_jct"] == pytest.approx(mean_jct)
        assert sum(gained) == pytest.approx(-mean_jct / jobs["isolated_seconds"].mean(), rel=1e-6)


@pytest.mark.parametrize("name", ["slowdown", "makespan", "utilisation", "fairness", "worst_fairness"])
def test_other_rewards_return_what_they_say(name):
    base = setting()
    reward = getattr(rewards, name)()
    env = ClusterEnv(EnvConfig(**{**base.__dict__, "reward": reward}))
    _, gained, _ = play(env, 7)
    jobs = env.batch.state.jobs[0, :15]
    jct = jobs["end_seconds"] - jobs["submit_seconds"]
    weight = reward.weights([jobs], base.cluster)[0]
    expected = {
        "slowdown": -(jct / jobs["isolated_seconds"]).mean(),
        "makespan": weight[Integral.ELAPSED] * jobs["end_seconds"].max(),
        "utilisation": weight[Integral.FREE_GPUS_WITH_QUEUE]
        * env.batch.state.integrals[0, Integral.FREE_GPUS_WITH_QUEUE],
        "fairness": -env.batch.metrics(0).mean_fairness,
        "worst_fairness": -env.batch.metrics(0).worst_fairness,
    }[name]
    assert sum(gained) == pytest.approx(expected, rel=1e-6)
    assert sum(gained) < 0


def work_left(env):
    """Predicted isolated seconds left of the jobs that wait or run, from their records."""
    state = env.batch.state
    now, left = float(state.clusters["now"][0]), 0.0
    for row in [*waiting_rows(state, 0).tolist(), *env_running(state)]:
        job = state.jobs[0, row]
        done = 0.0
        if job["status"] == JobStatus.RUNNING:
            begin = max(job["updated_seconds"], job["pause_ends_seconds"])
            done = max(now - begin, 0.0) / job["iteration_seconds"]
        iterations = max(job["remaining_iterations"] - done, 0.0)
        left += iterations * job["prediction_factor"] * job["isolated_iteration_seconds"]
    return left


def env_running(state):
    return state.running[0, : state.clusters["num_running"][0]].tolist()


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("name", ["job_completion_time", "total_job_completion_time"])
def test_shaping_adds_the_potential_and_nothing_else(name, discount):
    """The potential is computed here from the records, and the episode is the same otherwise."""
    make, guesses = getattr(rewards, name), Predictability(share=1.0, error=0.5)
    base = replace(setting(preemptive=True), workload=Extended(WORKLOAD, [guesses]))
    plain = ClusterEnv(replace(base, reward=make()))
    shaped = ClusterEnv(replace(base, reward=make(shaping=discount)))
    for seed in range(3):
        (_, info), (_, other) = plain.reset(seed=seed), shaped.reset(seed=seed)
        jobs = plain.batch.state.jobs[0, :15]
        weight = float(make().weights([jobs], base.cluster)[0, Integral.JOBS_IN_SYSTEM])
        first = before = weight * work_left(plain)
        assert before < 0
        rng, sums, over = np.random.default_rng(seed), [0.0, 0.0], False
        while not over:
            action = int(rng.choice(np.flatnonzero(info["action_mask"])))
            seen, gained, over, _, info = plain.step(action)
            same, more, ended, _, other = shaped.step(action)
            after = weight * work_left(plain)
            assert more == pytest.approx(gained + discount * after - before, abs=1e-9)
            assert data_equivalence(seen, same, exact=True)
            assert data_equivalence(info, other, exact=True)
            assert over == ended
            before = after
            sums = [sums[0] + gained, sums[1] + more]
        assert before == 0.0
        if discount == 1.0:
            assert sums[1] == pytest.approx(sums[0] - first, abs=1e-6)
        assert plain.batch.metrics(0) == shaped.batch.metrics(0)


def test_shaping_by_run_times_that_are_hidden_is_an_error():
    with pytest.raises(ConfigurationError, match=r"reward\.shaping is 1\.0; expected null, or reward=jct"):
        replace(setting(), reward=replace(rewards.makespan(), shaping=1.0))
    shape = {"action": "scores_attained", "observation": "live_jobs_attained", "reward": "total_jct"}
    hidden = experiment("sharing", **shape)
    with pytest.raises(ConfigurationError, match="run times in the observation"):
        replace(hidden, reward=rewards.total_job_completion_time(1.0))
    jobs = replace(setting().workload, num_jobs=4)
    extended = Extended(jobs, [Predictability(share=0.5)])
    env = ClusterEnv(replace(setting(), workload=extended, reward=rewards.job_completion_time(1.0)))
    with pytest.raises(ConfigurationError, match="some jobs arrive unpredictable"):
        env.reset(seed=0)
    with pytest.raises(ConfigurationError, match=r"shaping is 1\.5"):
        rewards.job_completion_time(1.5)


def test_values_stay_in_the_space():
    for flat in (False, True):
        env = ClusterEnv(setting(flat, preemptive=True))
        seen, _, _ = play(env, 3)
        for observation in seen:
            assert env.observation_space.contains(observation)


@pytest.mark.parametrize("max_steps", [-1, 45])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_equals_gymnasiums_vector_of_singles(mode, max_steps):
    one = replace(setting(on_invalid="wait", preemptive=True), limit_seconds=1500.0)
    ours = ClusterVectorEnv(4, one, autoreset_mode=mode, max_episode_steps=max_steps)

    def single():
        return gymnasium.make("ringyard/Cluster-v0", config=one, max_episode_steps=max_steps)

    theirs = SyncVectorEnv([single] * 4, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    ended = 0

    def both(method, *given, **named):
        other = getattr(theirs, method)(*given, **copy.deepcopy(named))  # theirs takes options away
        mine = getattr(ours, method)(*given, **named)
        assert data_equivalence(other, mine, exact=True)
        return mine

    both("reset", seed=5)
    for _ in range(250):
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in ours.action_masks()])
        if rng.random() < 0.1:
            actions[1] = rng.integers(one.actions.mask_size)
        _, _, done, truncated, _ = both("step", actions)
        over = done | truncated
        ended += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            both("reset", options={"reset_mask": over})
        elif rng.random() < 0.02:
            some = np.array([True, False, True, False])
            both("reset", seed=[7, 7, None, 7], options={"reset_mask": some, "workload": 3})
    assert ended > 3


def test_next_step_autoreset_ignores_the_action_of_the_reset_step():
    vector = ClusterVectorEnv(2, setting())
    _, info = vector.reset(seed=0)
    ended = np.zeros(2, bool)
    for _ in range(400):
        actions = info["action_mask"].argmax(axis=1)
        actions[ended] = 10**6  # must not be looked at
        _, gained, done, truncated, info = vector.step(actions)
        assert (gained[ended] == 0).all()
        ended = done | truncated
        assert info["action_mask"].any(axis=1).all()


def test_one_cluster_equals_that_cluster_among_64():
    many = ClusterVectorEnv(64, setting(flat=True), autoreset_mode="SameStep")
    one = ClusterVectorEnv(1, setting(flat=True), autoreset_mode="SameStep")
    observations, info = many.reset(seed=0)
    alone, _ = one.reset(seed=40)
    for _ in range(150):
        actions = info["action_mask"].argmax(axis=1)
        assert observations[40].tobytes() == alone[0].tobytes()
        observations, _, _, _, info = many.step(actions)
        alone, *_ = one.step(actions[40:41])


def test_same_seed_same_bytes_in_another_process():
    code = (
        "import hashlib, numpy as np, sys; sys.path[:0] = ['envs', 'tests/envs', 'tests']\n"
        "import ringyard\n"
        "from ringyard.mdp.vector import ClusterVectorEnv\n"
        "env = ClusterVectorEnv(8, autoreset_mode='SameStep')\n"
        "digest = hashlib.sha256()\n"
        "_, info = env.reset(seed=3)\n"
        "for _ in range(200):\n"
        "    obs, reward, *_, info = env.step(info['action_mask'].argmax(axis=1))\n"
        "    digest.update(env.batch.observations.tobytes() + reward.tobytes())\n"
        "print(digest.hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(digests) == 1


def test_masked_and_foreign_actions_are_errors():
    env = ClusterEnv(setting())
    _, info = env.reset(seed=0)
    masked = int(np.flatnonzero(info["action_mask"] == 0)[0])
    with pytest.raises(ActionError, match="masked"):
        env.step(masked)
    with pytest.raises(ActionError, match="outside"):
        env.step(10**6)
    valid = int(np.flatnonzero(info["action_mask"])[0])
    env.step(valid)  # nothing is lost


def test_masked_actions_wait_if_asked_to():
    env = ClusterEnv(setting(on_invalid="wait"))
    _, info = env.reset(seed=0)
    masked = int(np.flatnonzero(info["action_mask"] == 0)[0])
    *_, info = env.step(masked)
    assert info["invalid_action"]


def test_window_truncates():
    base = setting()
    env = ClusterEnv(EnvConfig(**{**base.__dict__, "limit_seconds": 50.0}))
    _, gained, info = play(env, 0, choose=lambda valid: int(valid[-1]))
    assert env.batch.truncated[0]
    assert env.batch.state.clusters["now"][0] == 50.0
    assert info["num_finished"] < 15
    jobs = env.batch.state.integrals[0, Integral.JOBS_IN_SYSTEM]
    assert sum(gained) == pytest.approx(-jobs / env.batch.state.jobs["isolated_seconds"][0, :15].sum())


def test_stopped_jobs_finish_and_are_counted():
    env = ClusterEnv(setting(preemptive=True))
    actions = env.config.actions
    stops = 0
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=2)
    done = False
    while not done:
        valid = np.flatnonzero(info["action_mask"])
        stop = valid[(valid >= actions.num_starts) & (valid < actions.wait)]
        action = int(stop[0]) if len(stop) and rng.random() < 0.1 else int(valid[0])
        stops += actions.num_starts <= action < actions.wait
        *_, done, _, info = env.step(action)
    assert stops > 0
    assert env.batch.state.clusters["num_preemptions"][0] == stops


@pytest.mark.parametrize("order", ["submit", "duration", "work", "gpus"])
def test_queue_order_decides_who_is_visible(order):
    env = ClusterEnv(setting(queue_order=order))
    env.reset(seed=0)
    waits = env.config.actions.wait
    for _ in range(8):
        if env.action_masks()[waits]:
            env.step(waits)
    state = env.batch.state
    rows = waiting_rows(state, 0)
    jobs = state.jobs[0, rows]
    keys = {
        "submit": jobs["submit_seconds"],
        "duration": jobs["isolated_seconds"],
        "work": jobs["isolated_seconds"] * jobs["num_gpus"],
        "gpus": jobs["num_gpus"],
    }[order]
    assert len(rows) > 1
    assert (np.diff(keys) >= 0).all()


def test_templates_that_cannot_place_are_an_error():
    env = ClusterEnv(setting(templates=(nowhere(),)))
    with pytest.raises(SchedulerError, match="pack"):
        env.reset(seed=0)


def test_stopping_everything_is_no_dead_end():
    # one visible slot: once both running jobs are stopped, the only visible job was stopped just now
    class FourJobs:
        num_jobs = 4

        def sample(self, cluster, rng):
            return JobTable.from_columns([0.0] * 4, [1] * 4, [10.0, 100.0, 100.0, 100.0])

    base = setting(num_waiting=1, num_running=3, preemptive=True, templates=(pack(),))
    env = ClusterEnv(EnvConfig(**{**base.__dict__, "workload": FourJobs(), "cluster": Cluster((3,))}))
    _, info = env.reset(seed=0)
    for action in (0, 0, 0):  # start jobs 0, 1, 2; time passes to the end of job 0 by itself
        *_, info = env.step(action)
    assert env.batch.state.clusters["now"][0] == 10.0
    for _ in range(2):
        stops = np.flatnonzero(info["action_mask"][1:4]) + 1
        *_, info = env.step(int(stops[0]))
    assert info["action_mask"].tolist() == [1, 0, 0, 0, 0]
    done = False
    while not done:
        *_, done, _, info = env.step(int(info["action_mask"].argmax()))


def test_random_templates_are_reproducible():
    one, two = (ClusterEnv(setting(flat=True, templates=(random_gpus(),))) for _ in range(2))
    assert play(one, 5)[1] == play(two, 5)[1]


@pytest.mark.parametrize(
    "bad",
    [
        {"num_waiting": 0},
        {"templates": ()},
        {"on_invalid": "ignore"},
        {"queue_order": "alphabet"},
    ],
)
def test_bad_actions_are_refused(bad):
    with pytest.raises(ConfigurationError, match="expected"):
        Actions(**bad)


def test_settings_can_be_pickled_and_copied():
    original = setting(flat=True)
    copies = (pickle.loads(pickle.dumps(original)), copy.deepcopy(original))
    first = play(ClusterEnv(original), 5)[1]
    for one in copies:
        assert play(ClusterEnv(one), 5)[1] == first


def test_choosing_a_workload():
    env = ClusterEnv(setting())
    _, info = env.reset(seed=0, options={"workload": 5})
    assert info["workload"] == 5
    with pytest.raises(ConfigurationError, match="workload"):
        env.reset(options={"workload": 99})


def test_an_environment_imports_no_library_that_it_does_not_use():
    """Nor, once its kernels are on disk, what numba needs to compile."""
    code = (
        "import sys, gymnasium, ringyard; env = gymnasium.make('ringyard/Cluster-v0'); env.reset(seed=0);"
        " names = 'torch', 'pandas', 'matplotlib', 'hydra', 'scipy.linalg', 'numba.np.arraymath';"
        " print([name for name in names if name in sys.modules])"
    )
    for _ in range(2):  # the first time may compile
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_workloads_of_the_resets_to_come_are_made_together_and_the_draws_stay_the_same(monkeypatch):
    made = []
    sample_batch = Synthetic.sample_batch

    def counted(self, cluster, generators):
        made.append(len(generators))
        return sample_batch(self, cluster, generators)

    monkeypatch.setattr(Synthetic, "sample_batch", counted)
    env = ClusterEnv(EnvConfig(num_workloads=1 << 20))
    played = [env.reset(seed=7)[1]["workload"], *(env.reset()[1]["workload"] for _ in range(20))]
    generator = np.random.default_rng(7)
    assert played == [int(generator.integers(1 << 20)) for _ in range(21)]
    assert made == [1, 17, 17]  # after a seed, nobody knows whether its draws are gone on with
    alone = env.batch.workload_cache.table(played[3])
    np.testing.assert_array_equal(
        env.batch.workload_cache.rows.records["submit_seconds"][
            env.batch.workload_cache.rows_of(np.array(played[3:4]))[0]
        ],
        alone.submit_seconds,
    )


def test_large_workloads_are_not_made_ahead():
    env = ClusterEnv(EnvConfig(workload=replace(EnvConfig().workload, num_jobs=3000), num_workloads=1 << 20))
    env.reset(seed=0)
    env.reset()
    assert env.batch.workload_cache.prefetch_size == 0
    assert len(env.batch.workload_cache.utilities) == 2
