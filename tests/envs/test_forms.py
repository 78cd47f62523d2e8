"""The three forms of each benchmark environment: priority weights, a score for each job, discrete starts."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ringyard import ClusterEnv, experiment
from ringyard.allocator import Allocator
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Scores, Weights
from ringyard.mdp.job_features import JobFeatures
from ringyard.mdp.observations import live_job_summary, live_jobs
from ringyard.mdp.registration import environment_arguments
from ringyard.mdp.rewards import saved_job_completion_time, total_job_completion_time
from ringyard_agents.learning.vec_env import RingyardVecEnv

FEATURES = list(JobFeatures.__annotations__)
JOBS = 60


def test_each_benchmark_and_ids_without_a_version_have_three_forms():
    names = {name.rpartition("/")[2] for name, made in environment_arguments().items() if "form" in made}
    environments = ("Contention", "CpuGpu", "Elastic", "Full", "Plans", "Sharing", "Spot")
    assert names == {f"{one}-{form}-v0" for one in environments for form in ("Jobs", "Queue", "Weights")}


@pytest.mark.parametrize("form", ["Jobs", "Queue", "Weights"])
def test_forms_pass_gymnasiums_checks(form):
    env = gymnasium.make(f"ringyard/Sharing-{form}-v0")
    if form == "Queue":  # the checker draws masked actions
        env = gymnasium.make(f"ringyard/Sharing-{form}-v0", disable_env_checker=True)
    check_env(env.unwrapped, skip_render_check=True)
    kinds = {"Jobs": (256,), "Weights": (6,), "Queue": ()}
    assert env.action_space.shape == kinds[form]


def test_arguments_come_before_the_form():
    env = gymnasium.make("ringyard/Sharing-Weights-v0", action="scores", observation="live_jobs")
    assert isinstance(env.unwrapped.config.actions, Scores)
    with pytest.raises(ConfigurationError, match=r"expected .*jobs.*queue.*weights"):
        ClusterEnv(form="nothing")


def test_a_configuration_replaces_what_an_id_stands_for():
    config = experiment("elastic", form="jobs")
    assert gymnasium.make("ringyard/Sharing-Queue-v0", config=config).unwrapped.config == config
    with pytest.raises(ConfigurationError, match="config is given together with form"):
        ClusterEnv(config, form="weights")


def pair_of_environments(**options):
    """An environment with weights and the one with scores, on the same short job tables."""
    config = experiment("sharing", form="weights", num_workloads=2)
    config = replace(config, workload=replace(config.workload, num_jobs=JOBS))
    allocator = Allocator(gamma=0.0)
    actions = Weights(allocator=allocator, **options)
    one = ClusterEnv(replace(config, actions=actions, observation=live_job_summary()))
    scores = Scores(num_jobs=JOBS, allocator=allocator, running_bonus=actions.running_bonus)
    other = ClusterEnv(replace(config, actions=scores, observation=live_jobs()))
    return one, other


@pytest.mark.parametrize("bonus", [0.0, 0.3])
def test_weights_are_scores_of_weighted_features(bonus):
    """Against `Scores` with sums that NumPy makes of the observed features; the summary is their mean."""
    names = ("time_left", "gpus", "age")
    weighed, scored = pair_of_environments(features=names, scale=0.2, running_bonus=bonus)
    summary, _ = weighed.reset(seed=0)
    observed, info = scored.reset(seed=0)
    rng, steps = np.random.default_rng(0), 0
    columns = [FEATURES.index(name) for name in names]
    while True:
        present = info["action_mask"].astype(bool)
        jobs = observed["jobs"].reshape(JOBS, -1)[present]
        expected = [*observed["cluster"], *jobs.mean(0), *jobs.std(0)] if len(jobs) else summary
        assert summary == pytest.approx(expected, abs=2e-3)  # a standard deviation of nearly equal numbers
        weights = rng.uniform(-1, 1, 3).astype(np.float32)
        sums = 0.2 * jobs[:, columns] @ weights
        scores = np.zeros(JOBS, np.float32)
        scores[present] = sums - sums.mean() if len(sums) else 0.0
        assert weighed.batch.allocations(0, weights) == scored.batch.allocations(0, scores)
        summary, reward, done, _, found = weighed.step(weights)
        observed, other, ended, _, info = scored.step(scores)
        steps += 1
        assert (reward, done) == (other, ended)
        if done:
            break
    assert found["episode_jct"] == info["episode_jct"]
    assert steps > JOBS


def preemptions(bonus):
    env, _ = pair_of_environments(running_bonus=bonus)
    env.reset(seed=0)
    rng, done = np.random.default_rng(1), False
    while not done:
        done = env.step(rng.uniform(-0.3, 0.3, 6).astype(np.float32))[2]
    return env.batch.metrics(0).preemptions


def test_the_bonus_keeps_jobs_running_under_noise():
    assert preemptions(0.3) < 0.5 * preemptions(0.0)


def test_the_summary_is_for_weights_alone():
    config = experiment("sharing", action="scores")
    with pytest.raises(ConfigurationError, match="live_job_summary with action=weights"):
        ClusterEnv(replace(config, observation=live_job_summary()))


@pytest.mark.parametrize("features", [(), ("gpus", "gpus"), ("prettiness",)])
def test_unknown_features_are_refused(features):
    with pytest.raises(ConfigurationError, match=r"action.features is .* expected features of jobs"):
        Weights(features=features)


def test_the_queue_never_waits_while_a_job_can_start():
    env = gymnasium.make("ringyard/Sharing-Queue-v0").unwrapped
    _, info = env.reset(seed=0)
    rng, waits, done = np.random.default_rng(0), 0, False
    while not done:
        mask = info["action_mask"]
        assert not (mask[-1] and mask[:-1].any())
        waits += mask[-1]
        _, _, done, _, info = env.step(rng.choice(np.flatnonzero(mask)))
    assert info["num_finished"] == 240


def test_the_reward_is_minus_the_total_jct_over_the_mean_run_time():
    env = gymnasium.make("ringyard/CpuGpu-Queue-v0").unwrapped
    _, info = env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        _, reward, done, _, info = env.step(int(info["action_mask"].argmax()))
        total += reward
    jobs = env.batch.workload_cache.table(int(info["workload"]))
    isolated = env.batch.state.jobs["isolated_seconds"][0, : len(jobs)].mean()
    assert total == pytest.approx(-float(info["episode_jct"]) * len(jobs) / isolated)


@pytest.mark.parametrize("form", ["Weights", "Jobs"])
def test_the_saved_jct_is_what_the_return_differs_from_that_of_equal_scores(form):
    def play(reward, act):
        config = gymnasium.make(f"ringyard/Sharing-{form}-v0").unwrapped.config
        env = ClusterEnv(replace(config, reward=reward()))
        env.reset(seed=3)
        rewards, done = [], False
        while not done:
            _, reward, done, _, info = env.step(act(env.action_space))
            rewards.append(reward)
        assert env.batch.returns[0] == pytest.approx(sum(rewards))
        return np.array(rewards), float(info["episode_jct"])

    def equal(space):
        return np.zeros(space.shape, np.float32)

    def drawn(space):
        return np.random.default_rng(5).uniform(-1, 1, space.shape).astype(np.float32)

    saved, jct = play(saved_job_completion_time, drawn)
    plain, same_jct = play(total_job_completion_time, drawn)
    with_equal_scores, _ = play(total_job_completion_time, equal)
    assert jct == same_jct
    assert abs(saved.sum()) > 1.0
    assert saved.sum() == pytest.approx(plain.sum() - with_equal_scores.sum())
    assert play(saved_job_completion_time, equal)[0] == pytest.approx(0.0, abs=1e-9)


def test_copies_of_an_episode_save_as_much_as_it():
    config = gymnasium.make("ringyard/Sharing-Weights-v0").unwrapped.config
    env = ClusterEnv(replace(config, reward=saved_job_completion_time()))
    env.reset(seed=3)
    for _ in range(50):
        env.step(env.action_space.sample())
    copy, actions = env.fork(), [env.action_space.sample() for _ in range(20)]
    assert [copy.step(one)[1] for one in actions] == [env.step(one)[1] for one in actions]


def test_the_saved_jct_of_many_clusters_and_of_a_truncated_episode_is_that_of_single_ones():
    config = gymnasium.make("ringyard/Full-Weights-v0").unwrapped.config
    config = replace(config, reward=saved_job_completion_time(), limit_seconds=4000.0, num_workloads=3)
    actions = np.random.default_rng(0).uniform(-1, 1, (300, 4, 6)).astype(np.float32)
    clusters = RingyardVecEnv(config, 4)
    clusters.reset()
    alone, begun = [ClusterEnv(config) for _ in range(4)], [False] * 4
    episodes = 0
    for rows in actions:
        entries = clusters.batch.entries.tolist()
        clusters.step_async(rows)
        _, rewards, ended, infos = clusters.step_wait()
        for b, env in enumerate(alone):
            if not begun[b]:
                env.reset(options={"workload": entries[b]})
            _, reward, done, truncated, _ = env.step(rows[b])
            assert rewards[b] == np.float32(reward)
            assert (done or truncated) == ended[b] == ("episode" in infos[b])
            begun[b] = not ended[b]
            episodes += ended[b]
    assert episodes > 4


def test_the_saved_jct_needs_scores():
    config = gymnasium.make("ringyard/Sharing-Queue-v0").unwrapped.config
    with pytest.raises(ConfigurationError, match=r"equal scores, got Actions; expected .*form=weights"):
        replace(config, reward=saved_job_completion_time())


@pytest.mark.parametrize("make", [gymnasium.make, partial(gymnasium.make_vec, num_envs=2)])
def test_ids_that_forms_replace_name_the_new_ones(make):
    with pytest.warns(
        DeprecationWarning, match=r"CpuGpu-v1 will be removed.* use ringyard/CpuGpu-Weights-v0"
    ):
        make("ringyard/CpuGpu-v1")
    make("ringyard/CpuGpu-Queue-v0")  # warnings are errors here
