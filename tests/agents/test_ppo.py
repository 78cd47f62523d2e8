"""PPO in one file: its parts in closed form, and the same steps and results as Stable-Baselines3's."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import IdentityEnv, IdentityEnvBox
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.policies import ActorCriticPolicy

from ringyard.errors import ConfigurationError
from ringyard_agents.learning.job_policy import JobAttentionPolicy
from ringyard_agents.learning.ppo import (
    PPO,
    TAGS,
    Categorical,
    DecisionBatch,
    NormalizedObservations,
    add_ppo_gradient,
    draw_lasting_noise,
    evaluate_network,
    generalized_advantages,
    sample_actions,
)


class PPOElsewhere(PPO):
    """PPO in another Gymnasium environment than Ringyard's."""

    make_other = None

    def _make_env(self, config, local):
        return make_vec_env(self.make_other, self.num_envs, seed=self._seed)


def learner_in(make, seed=0, **options):
    learner = PPOElsewhere(ActorCriticPolicy, **{"num_envs": 4, "n_steps": 32, "batch_size": 64} | options)
    learner.make_other = make
    learner.setup({"there": None}, seed)
    return learner


def test_advantages_in_closed_form():
    """An episode that ends after the second step, and one that goes on, with gamma = lambda = 1/2."""
    rewards = np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]], np.float32)
    values = np.array([[8.0, 8.0], [4.0, 4.0], [2.0, 2.0]], np.float32)
    ended = np.array([[False, False], [True, False], [False, False]])
    found = generalized_advantages(rewards, values, ended, np.array([6.0, 6.0], np.float32), 0.5, 0.5)
    last = 4 + 3 - 2  # reward + gamma x value of what follows - value
    assert found[:, 0] == pytest.approx([(1 + 2 - 8) + 0.25 * (2 - 4), 2 - 4, last])
    middle = (2 + 1 - 4) + 0.25 * last
    assert found[:, 1] == pytest.approx([(1 + 2 - 8) + 0.25 * middle, middle, last])


def test_without_discount_and_lambda_an_advantage_is_the_return_less_the_value():
    rng = np.random.default_rng(0)
    rewards, values = rng.standard_normal((2, 7, 3)).astype(np.float32)
    ended = np.zeros((7, 3), bool)
    found = generalized_advantages(rewards, values, ended, np.zeros(3, np.float32), 1.0, 1.0)
    assert np.allclose(found, rewards[::-1].cumsum(axis=0)[::-1] - values, atol=1e-5)


class OneStep(gymnasium.Env):
    """Pays 3 for its only step, after which it is cut off."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), 3.0, False, True, {}


def test_what_comes_after_a_truncated_episode_counts_as_the_critic_says():
    learner = learner_in(OneStep, gamma=0.5, n_steps=4)
    learner.learn(1, lambda measured: None)
    batch, _, _ = learner._collect()
    one = np.ones((1, 2), np.float32)
    later = evaluate_network(learner._network, one, np.ones((1, 1), bool))[1].item()
    assert batch.returns == pytest.approx(np.full(16, 3.0 + 0.5 * later), rel=1e-5)


def test_the_first_step_has_ratio_one_and_clips_nothing():
    """Also with standardised observations, which change after a round's steps only."""
    for options in ({}, {"normalize_observations": True}):
        learner = learner_in("CartPole-v1", n_epochs=1, batch_size=128, **options)
        learner.learn(1, lambda measured: None)
        for _ in range(3):
            measured = learner._update(*learner._collect()[:2])
            assert measured["train/approx_kl"] == pytest.approx(0.0, abs=1e-6)
            assert measured["train/clip_fraction"] == 0.0


def test_ratios_beyond_the_range_are_counted_and_have_no_gradient():
    """Four decisions between two actions of a network that has moved away from what it did at first."""
    network = ActorCriticPolicy(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), lambda progress: 1e-3)
    seen, masks, actions = np.eye(4, 3, dtype=np.float32), np.ones((4, 2), bool), np.array([0, 1, 0, 1])
    with torch.no_grad():
        now = evaluate_network(network, seen, masks)[0].log_prob(torch.as_tensor(actions)).numpy()
    old = now - np.log([1.0, 1.1, 1.5, 0.5]).astype(np.float32)
    advantages, zero = np.array([0.0, 0.0, 1.0, -1.0], np.float32), np.zeros(4, np.float32)
    batch = DecisionBatch(seen, masks, actions, old, advantages, zero)
    measured = dict(zip(TAGS, add_ppo_gradient(network, batch, np.arange(4), 4, 0.2, 0.0), strict=True))
    assert measured["train/clip_fraction"] == 0.5
    assert measured["train/policy_gradient_loss"] == pytest.approx(-(1.2 - 0.8) / 4)
    assert all(one.grad is None or not one.grad.any() for one in network.parameters())


@pytest.mark.parametrize("make", ["CartPole-v1", "Pendulum-v1"])
def test_gradient_steps_are_those_of_stable_baselines(make):
    """From the same decisions, one minibatch an epoch; also with an entropy bonus."""
    options = {"n_steps": 64, "n_epochs": 3, "ent_coef": 0.01, "gamma": 0.9, "learning_rate": 1e-3}
    stable = stable_baselines3.PPO(
        "MlpPolicy", make_vec_env(make, 4, seed=3), batch_size=256, seed=3, device="cpu", **options
    )
    learner = learner_in(make, 3, batch_size=256, **options)
    learner._network.load_state_dict(stable.policy.state_dict())
    stable._setup_learn(256)
    callback = stable._init_callback(None)
    stable.collect_rollouts(stable.env, callback, stable.rollout_buffer, 64)
    buffer = stable.rollout_buffer
    rows, log_probs, values = (
        np.swapaxes(one, 0, 1).reshape(256, -1)
        for one in (buffer.observations, buffer.log_probs, buffer.values)
    )
    own_values = evaluate_network(learner._network, rows, np.ones((256, 1), bool))[1].detach().numpy()
    assert np.allclose(own_values, values[:, 0], atol=1e-5)
    columns = buffer.actions, buffer.advantages, buffer.returns
    actions, advantages, returns = (np.swapaxes(one, 0, 1).reshape(256, -1) for one in columns)
    discrete = isinstance(stable.action_space, spaces.Discrete)
    actions = actions[:, 0].astype(np.int64) if discrete else actions
    masks = np.ones((256, 1), bool)
    batch = DecisionBatch(rows, masks, actions, log_probs[:, 0], advantages[:, 0], returns[:, 0])
    stable.train()
    learner._update(batch, np.arange(256))
    for name, wanted in stable.policy.state_dict().items():
        assert torch.allclose(learner._network.state_dict()[name], wanted, atol=2e-5), name


@pytest.mark.parametrize("make", [partial(IdentityEnv, 2), partial(IdentityEnvBox, eps=0.5)])
def test_the_identity_is_learnt(make):
    learner = learner_in(make, n_epochs=8, learning_rate=3e-3, gamma=0.5, ent_coef=0.0)
    learner.learn(6_000, lambda measured: None)
    mean, _ = evaluate_policy(learner._network, make_vec_env(make, 1, seed=9), n_eval_episodes=20, warn=False)
    assert mean > 90  # of 100 steps


@pytest.mark.slow
def test_cartpole_is_learnt_as_fast_as_by_stable_baselines():
    """Of three seeds, both solve it (500) in 40,000 steps with the settings of RL Zoo."""
    options = {"n_steps": 32, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8, "learning_rate": 1e-3}
    returns = []
    for seed in range(3):
        learner = learner_in("CartPole-v1", seed, num_envs=8, batch_size=256, **options)
        learner.learn(40_000, lambda measured: None)
        stable = stable_baselines3.PPO(
            "MlpPolicy",
            make_vec_env("CartPole-v1", 8, seed=seed),
            batch_size=256,
            seed=seed,
            device="cpu",
            **options,
        )
        stable.learn(40_000)
        unseen = make_vec_env("CartPole-v1", 1, seed=99)
        returns.append([evaluate_policy(one, unseen, 20)[0] for one in (learner._network, stable.policy)])
    own, theirs = np.mean(returns, axis=0)
    assert own > 450
    assert abs(own - theirs) < 50


def test_observations_are_standardised_by_all_rounds():
    extractor, rng = NormalizedObservations(spaces.Box(-np.inf, np.inf, (2,))), np.random.default_rng(0)
    rows = rng.normal([5.0, -3.0], [2.0, 0.1], (4000, 2)) + np.repeat(np.arange(4.0), 1000)[:, None]
    rows = rows.astype(np.float32)  # parts with other means
    for part in np.split(rows, 4):
        extractor.update(part)
    standard = extractor(torch.as_tensor(rows))
    assert torch.allclose(standard.mean(0), torch.zeros(2), atol=0.01)
    assert torch.allclose(standard.std(0), torch.ones(2), atol=0.02)
    assert extractor(torch.full((1, 2), 1e9)).abs().max() == 10.0


def test_what_ppo_cannot_learn_with_is_refused():
    with pytest.raises(ConfigurationError, match=r"agent\.normalize_observations is true and agent\.flat"):
        PPO(JobAttentionPolicy, flat=False, normalize_observations=True)
    for bad in ({"n_steps": 0}, {"gamma": 1.5}, {"vf_coef": -1.0}, {"learning_rate": 0.0}):
        (name,) = bad
        with pytest.raises(ConfigurationError, match=rf"agent\.{name} is .*; expected "):
            PPO(ActorCriticPolicy, **bad)


def test_random_actions_of_invalid_probability_are_never_drawn():
    only = np.tile([False, False, True, False], (3, 1))
    for logits in (torch.full((3, 4), torch.nan), torch.zeros(3, 4)):
        assert sample_actions(Categorical(logits, only), np.ones((3, 4), np.float32)).tolist() == [2, 2, 2]


def test_jobs_that_are_not_there_get_no_score():
    blocks = {
        "jobs": spaces.Box(-10, 10, (12,)),
        "jobs_mask": spaces.Box(0, 1, (4,)),
        "cluster": spaces.Box(-10, 10, (2,)),
    }
    network = JobAttentionPolicy(spaces.Dict(blocks), spaces.Box(-1, 1, (4,)), lambda progress: 1e-3)
    seen = {name: np.ones((1, *box.shape), np.float32) for name, box in blocks.items()}
    seen["jobs_mask"][0, 2:] = 0.0
    with torch.no_grad():
        distribution, _ = evaluate_network(network, seen, np.ones((1, 4), bool))
    drawn = sample_actions(distribution, np.ones((1, 4), np.float32))[0]
    assert drawn[:2].all()
    assert not drawn[2:].any()


def test_lasting_noise_is_linear_in_features_and_the_same_for_a_rollout():
    rng, jobs = np.random.default_rng(0), 6
    blocks = {
        "jobs": spaces.Box(-10, 10, (8 * 3,)),
        "jobs_mask": spaces.Box(0, 1, (8,)),
        "cluster": spaces.Box(-10, 10, (2,)),
    }
    action = spaces.Box(-1, 1, (8,))
    network = JobAttentionPolicy(spaces.Dict(blocks), action, lambda progress: 1e-3, use_sde=True)
    features = np.zeros((2, 8, 3), np.float32)
    features[:, :jobs] = rng.normal(size=(2, jobs, 3))
    mask = (np.arange(8) < jobs).astype(np.float32)
    seen = {"jobs": features.reshape(2, -1), "jobs_mask": np.stack((mask, mask)), "cluster": np.ones((2, 2))}
    seen = {name: torch.as_tensor(rows, dtype=torch.float32) for name, rows in seen.items()}
    network.reset_noise(2)
    with torch.no_grad():
        first, _, density = network(seen)
        again, _, _ = network(seen)
        _, evaluated, _ = network.evaluate_actions(seen, first)
        mean = network(seen, deterministic=True)[0]
    weights = np.exp(-3.0) * network.action_dist.noise.numpy()
    centred = features[:, :jobs] - features[:, :jobs].mean(axis=1, keepdims=True)
    noise = (first - mean).numpy()
    assert noise[:, :jobs] == pytest.approx(np.einsum("bjf,bf->bj", centred, weights), abs=1e-6)
    assert not first[:, jobs:].any()
    assert torch.equal(first, again)
    assert torch.equal(density, evaluated)
    network.reset_noise(2)
    with torch.no_grad():
        assert not torch.equal(first, network(seen)[0])
        moved = network.evaluate_actions(seen, mean)[1]
    assert (moved > density).all()  # no noise is the most likely
    one = {name: rows[:1].numpy() for name, rows in seen.items()}
    assert network.predict(one)[0].shape == (1, 8)  # with noise of its own, as no rollout has one cluster


def test_lasting_noise_of_a_process_is_its_part_and_densities_are_those_of_stable_baselines():
    spaces_of_it = spaces.Box(-1, 1, (5,)), spaces.Box(-1, 1, (2,))
    network = ActorCriticPolicy(*spaces_of_it, lambda progress: 1e-3, use_sde=True, log_std_init=-1.0)
    seen, masks = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32), np.ones((4, 1), bool)
    drawn, parts = [], (slice(0, 4), slice(2, 4))
    for local in parts:
        torch.manual_seed(3)
        draw_lasting_noise(network, 4, local)
        with torch.no_grad():
            for _ in range(2):  # decisions of a round
                distribution, _ = evaluate_network(network, seen[local], masks[local])
                drawn.append(sample_actions(distribution, None))
        assert np.array_equal(drawn[-1], drawn[-2])
    assert np.allclose(drawn[0][2:], drawn[2])
    assert not np.allclose(drawn[0], distribution.mode().numpy()[[0, 0, 1, 1]])
    with torch.no_grad():
        own, _ = evaluate_network(network, seen, masks)
        _, theirs, entropy = network.evaluate_actions(torch.as_tensor(seen), torch.as_tensor(drawn[0]))
    assert torch.allclose(own.log_prob(torch.as_tensor(drawn[0])), theirs)
    assert torch.allclose(own.entropy(), entropy)


def test_rewards_are_divided_by_the_deviation_of_discounted_returns():
    """Returns of one cluster, gamma 1/2: 2, 3 and, after the end of an episode, 2."""
    learner = learner_in("CartPole-v1", num_envs=1, gamma=0.5, normalize_rewards=True)
    rewards, ended = np.full((3, 1), 2.0, np.float32), np.array([[False], [True], [False]])
    found = learner._normalized(rewards, ended)
    assert found == pytest.approx(2.0 / np.std([2.0, 3.0, 2.0]), rel=1e-2)  # the first count is 1e-4
    assert learner._discounted == pytest.approx([2.0])
