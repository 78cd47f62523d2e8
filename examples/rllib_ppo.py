"""RLlib: PPO with its own module for masked actions, which reads "observations" and "action_mask"."""

import argparse
import math

import gymnasium
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
from ray.tune.registry import register_env

import ringyard


def make(config):
    """One cluster with flat rows and the mask beside them."""
    env = gymnasium.make("ringyard/Sharing-Queue-v0", flat=True)
    return ringyard.ActionMaskObservation(env, "observations")


def main(total_steps=100_000, batch=2000):
    """Train; the mean return of the last episodes: minus (mean JCT / mean run time)."""
    register_env("ringyard", make)
    config = (
        PPOConfig()
        .environment("ringyard")
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=batch, minibatch_size=256, num_epochs=4, gamma=1.0, lr=3e-4)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule))
    )
    algorithm = config.build_algo()
    for _ in range(max(total_steps // batch, 1)):
        told = algorithm.train()["env_runners"]
        steps, reached = told["num_env_steps_sampled_lifetime"], told.get("episode_return_mean", math.nan)
        print(f"{steps:,.0f} steps: mean return {reached:,.1f}")
    algorithm.stop()
    return float(reached)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=100_000)
    main(parser.parse_args().total_steps)
