"""Every id takes what Gymnasium's `make` and `make_vec` pass on, and every `spec` is JSON."""

import copy
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from conftest import WITH, experiment_ids, leaf, names, random_action
from ringyard import ActionMaskObservation, EnvConfig, experiment
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import choose_config

IDS = ["ringyard/Cluster-v0", *experiment_ids()]
#: arguments of ours that JSON has
PLAIN = {
    "action": "scores",
    "observation": "live_jobs",
    "reward": "makespan",
    "flat": True,
    "num_workloads": 2,
    "workload_seed": 3,
    "limit_seconds": 1e6,
    "num_threads": 1,
}


def through_json(spec):
    return EnvSpec.from_json(spec.to_json())


def trajectory(env, steps=7):
    """What an environment returns in an episode and after it, with one action throughout."""
    env.action_space.seed(0)
    found = [env.reset(seed=1)]
    while len(found) <= steps:
        found.append(env.step(np.zeros(env.action_space.shape, env.action_space.dtype)))
        if np.ndim(found[-1][2]) == 0 and (found[-1][2] or found[-1][3]):
            found.append(env.reset())
    return found


@pytest.mark.parametrize("name", IDS)
def test_every_id_takes_what_make_passes_on_and_its_spec_is_json(name):
    env = gymnasium.make(
        name, max_episode_steps=4, disable_env_checker=True, render_mode="rgb_array", **PLAIN
    )
    wrapped = ActionMaskObservation(gymnasium.wrappers.ClipReward(env, -9.0, 0.0), dtype=bool)
    again = gymnasium.make(through_json(wrapped.spec))
    assert again.spec == wrapped.spec
    assert again.spec.max_episode_steps == 4
    assert again.observation_space == wrapped.observation_space
    expected = trajectory(wrapped)
    assert data_equivalence(expected, trajectory(again), exact=True)
    assert expected[4][3]  # truncated by Gymnasium's TimeLimit
    config = again.unwrapped.config
    assert (config.num_workloads, config.workload_seed, config.limit_seconds) == (2, 3, 1e6)
    assert config.reward.metric == "makespan"
    assert gymnasium.make(through_json(gymnasium.make(name).spec)).spec.kwargs == gymnasium.spec(name).kwargs


@pytest.mark.parametrize("name", IDS)
def test_every_id_takes_what_make_vec_passes_on_in_every_mode(name):
    expected = None
    for mode in ("vector_entry_point", "sync", "async"):
        env = gymnasium.make_vec(name, num_envs=2, vectorization_mode=mode, max_episode_steps=4, **PLAIN)
        spec = through_json(env.spec)
        assert spec == env.spec
        seen = copy.deepcopy(trajectory(env))
        env.close()
        assert expected is None or data_equivalence(expected, seen, exact=True)
        expected = seen
        assert seen[4][3].all()
        assert all(values.dtype != object for *_, info in seen for values in info.values())
    again = gymnasium.make_vec(through_json(env.spec))
    assert data_equivalence(trajectory(again), seen, exact=True)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_spec_with_an_autoreset_mode_is_json(mode):
    for given in (mode, mode.value):
        env = gymnasium.make_vec("ringyard/Contention-v1", num_envs=2, autoreset_mode=given)
        assert env.spec.kwargs["autoreset_mode"] == mode.value
        again = gymnasium.make_vec(through_json(env.spec))
        assert (again.autoreset_mode, again.num_envs, again.spec) == (mode, 2, env.spec)


@pytest.mark.parametrize("group", ["action", "observation", "reward", "cost"])
def test_every_choice_of_conf_is_a_plain_argument(group):
    part = {"action": "actions"}.get(group, group)
    for name in names(group):
        config = choose_config(None, None, {group: name, **WITH.get(name, {}), "workload_seed": 3})
        assert repr(getattr(config, part)) == repr(leaf(group, name))
        assert (config.cluster, config.workload_seed) == (EnvConfig().cluster, 3)


def test_arguments_that_are_none_say_what_to_type():
    for make in (gymnasium.make, gymnasium.make_vec, lambda _, **given: experiment("sharing", **given)):
        for given, said in {
            (
                "actions",
                "scores",
            ): "unexpected keyword argument 'actions'; did you mean action[?] expected",
            ("action", "score"): "action is 'score'; expected scores",
            ("observation", "queue"): "observation=queue is called observation=queue_and_cluster now",
            ("flat", 1): "flat is 1; expected true or false",
            ("num_workloads", 0): "num_workloads is 0; expected a whole number",
        }.items():
            with pytest.raises(ConfigurationError, match=said):
                make("ringyard/Sharing-v1", **dict([given]))
    for make in (gymnasium.make, gymnasium.make_vec):  # TorchRL reads this message, and leaves it out
        with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
            make("ringyard/Sharing-v1", frameskip=1)
    with pytest.raises(ConfigurationError, match="config is given together with flat; expected one of them"):
        gymnasium.make("ringyard/Sharing-v1", config=EnvConfig(), flat=True)
    with pytest.raises(ConfigurationError, match="unknown experiment 'Sharing'; expected sharing"):
        gymnasium.make("ringyard/Cluster-v0", experiment="Sharing")
    same = gymnasium.make("ringyard/Cluster-v0", experiment="sharing").unwrapped.config
    assert same.cluster == experiment("sharing").cluster


@pytest.mark.parametrize("name", IDS)
def test_info_has_the_same_keys_and_kinds_after_every_reset_and_step(name):
    partitioning = name == "ringyard/Partitioning-v0"  # short episodes, some jobs blocked
    env = gymnasium.make(name, num_workloads=3, limit_seconds=None if partitioning else 200.0)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)

    def kinds(info):
        return {key: (type(value), np.shape(value)) for key, value in info.items()}

    expected, played = kinds(info), 0
    counts = {"episode_jct", "episode_slowdown", "episode_preemptions", "num_finished"}
    assert set(expected) - {"cost"} == {"action_mask", "invalid_action", "workload"} | counts
    assert all(np.asarray(value).dtype.kind in "bif" for value in info.values())
    assert (info["num_finished"], info["episode_jct"], info["invalid_action"]) == (0, 0.0, False)
    for _ in range(300):
        *_, done, truncated, info = env.step(random_action(env.action_space, info["action_mask"], rng))
        assert kinds(info) == expected
        if done or truncated:
            jobs = env.unwrapped.batch.metrics(0)
            assert info["num_finished"] == jobs.num_finished
            assert info["episode_jct"] == pytest.approx(jobs.mean_jct, nan_ok=True)
            assert info["episode_slowdown"] == pytest.approx(jobs.mean_slowdown, nan_ok=True)
            assert info["episode_preemptions"] == jobs.preemptions
            _, info = env.reset()
            assert kinds(info) == expected
            played += 1
    assert played > 0


def test_a_process_that_does_not_import_ringyard_makes_environments():
    spec = gymnasium.make("ringyard/Contention-v1", flat=True).spec.to_json()
    code = (
        "import sys, gymnasium; from gymnasium.envs.registration import EnvSpec\n"
        "name = 'ringyard:ringyard/Contention-v1'\n"
        "for made in (gymnasium.make(EnvSpec.from_json(sys.argv[1])), gymnasium.make(name, flat=True),"
        " gymnasium.make_vec(name, flat=True)):\n"
        "    print(made.unwrapped.config.cluster.num_gpus, made.observation_space.shape[-1])"
    )
    done = subprocess.run([sys.executable, "-c", code, spec], capture_output=True, text=True, check=True)
    assert len(set(done.stdout.splitlines())) == 1
    assert len(done.stdout.splitlines()) == 3


def test_every_mode_of_make_vec_renders_the_same_pictures():
    frames = []
    for mode in ("vector_entry_point", "sync"):
        env = gymnasium.make_vec(
            "ringyard/Contention-v1", num_envs=2, vectorization_mode=mode, render_mode="rgb_array"
        )
        env.reset(seed=0)
        frames.append(env.render())
    assert len(frames[0]) == len(frames[1]) == 2
    assert np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[0][0], frames[0][1])
