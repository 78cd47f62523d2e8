"""Masks where libraries look for them: in `info`, ready for `sample`, and in the observation."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from ringyard import ActionMaskObservation, ClusterEnv
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import experiment


def test_actions_are_sampled_by_the_mask_of_info():
    env = gymnasium.make("ringyard/Sharing-v1")
    env.action_space.seed(0)
    _, info = env.reset(seed=0)
    drawn = set()
    for _ in range(300):
        mask = info["action_mask"]
        assert mask.dtype == np.int8
        assert np.array_equal(mask.astype(bool), env.get_wrapper_attr("action_masks")())
        action = env.action_space.sample(mask)
        assert mask[action] == 1
        drawn.add(int(action))
        _, _, done, _, info = env.step(action)
        if done:
            _, info = env.reset()
    assert len(drawn) > 5


@pytest.mark.parametrize("copy", [True, False])
def test_a_batch_of_actions_is_sampled_by_the_masks_of_info(copy):
    envs = gymnasium.make_vec("ringyard/Cluster-v0", num_envs=3, copy=copy)
    envs.action_space.seed(0)
    _, info = envs.reset(seed=0)
    for _ in range(100):
        mask = info["action_mask"]
        actions = envs.action_space.sample(tuple(mask))
        assert mask.dtype == np.int8
        assert (mask[np.arange(3), actions] == 1).all()
        info = envs.step(actions)[-1]


@pytest.mark.parametrize("parts", [{}, {"action": "scores", "observation": "live_jobs"}])
def test_the_mask_can_be_a_part_of_the_observation(parts):
    setting = experiment("sharing", **parts)
    env = ActionMaskObservation(ClusterEnv(setting))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different from the unwrapped version")
        check_env(env, skip_render_check=True)
    plain = ClusterEnv(setting)
    observation, _ = env.reset(seed=0)
    seen, info = plain.reset(seed=0)
    for _ in range(50):
        assert env.observation_space.contains(observation)
        assert np.array_equal(observation["action_mask"], info["action_mask"])
        assert all(np.array_equal(observation["observation"][name], seen[name]) for name in seen)
        action = np.zeros(128, np.float32) if parts else int(observation["action_mask"].argmax())
        observation, *_ = env.step(action)
        seen, _, _, _, info = plain.step(action)


def test_the_mask_has_the_names_and_the_type_that_a_library_wants():
    env = ActionMaskObservation(ClusterEnv(), "obs", "mask")
    assert set(env.reset(seed=0)[0]) == {"obs", "mask"} == set(env.observation_space)
    with pytest.raises(ConfigurationError, match="both 'mask'; expected different keys"):
        ActionMaskObservation(ClusterEnv(), "mask", "mask")
    for dtype in ("bool", bool, np.bool_, np.int8, "uint8", "int64", "float32"):
        env = ActionMaskObservation(gymnasium.make("ringyard/Cluster-v0"), dtype=dtype)
        observation, info = env.reset(seed=0)
        assert (
            observation["action_mask"].dtype == np.dtype(dtype) == env.observation_space["action_mask"].dtype
        )
        assert np.array_equal(observation["action_mask"], info["action_mask"])
        assert env.observation_space.contains(observation)
        assert EnvSpec.from_json(env.spec.to_json()).make().observation_space == env.observation_space
    for dtype in (None, "boolean", "U8", object, "m8", 3):
        with pytest.raises(ConfigurationError, match=r"dtype is .*; expected 'int8'"):
            ActionMaskObservation(ClusterEnv(), dtype=dtype)
