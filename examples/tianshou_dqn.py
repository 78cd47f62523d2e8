"""Tianshou: DQN with masked actions; its policies look for `obs` and `mask` in the observation."""

import argparse

import gymnasium
import torch
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import ringyard


def make():
    """One cluster with flat rows and the mask beside them."""
    env = gymnasium.make("ringyard/Sharing-Queue-v0", flat=True)
    return ringyard.ActionMaskObservation(env, "obs", "mask")


def main(total_steps=100_000, num_envs=4):
    """Train; the mean return of a test episode: minus (mean JCT / mean run time)."""
    torch.manual_seed(0)
    one = make()
    seen, actions = one.observation_space, one.action_space
    net = Net(state_shape=seen["obs"].shape, action_shape=actions.n, hidden_sizes=[128, 128])
    policy = DiscreteQLearningPolicy(
        model=net, action_space=actions, observation_space=seen, eps_training=0.1
    )
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.999,
        n_step_return_horizon=3,
        target_update_freq=500,
    )
    envs, tests = (DummyVectorEnv([make for _ in range(count)]) for count in (num_envs, 1))
    training = Collector(algorithm, envs, VectorReplayBuffer(50_000, num_envs), exploration_noise=True)
    training.reset()
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=training,
            test_collector=Collector(algorithm, tests),
            max_epochs=max(total_steps // 10_000, 1),
            epoch_num_steps=min(total_steps, 10_000),
            collection_step_num_env_steps=40,
            update_step_num_gradient_steps_per_sample=0.1,
            batch_size=64,
        )
    )
    print(f"best mean return of a test episode: {result.best_reward:,.1f}")
    return float(result.best_reward)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=100_000)
    main(parser.parse_args().total_steps)
