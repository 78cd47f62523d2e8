"""PPO samples per second on one core, split into environment, policy forward and update."""

import argparse
import time
from functools import partial

import numpy as np
from common import machine
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

from ringyard.mdp.env_config import EnvConfig
from ringyard.threads import set_num_threads
from ringyard_agents.learning.group_relative import GroupRelative
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.policies import PointerPolicy
from ringyard_agents.learning.ppo import PPO, ClippedLearner
from ringyard_agents.learning.stable_baselines import StableBaselines


def stable_baselines(policy, flat, **policy_kwargs):
    options = {"n_steps": 128, "batch_size": 512, "n_epochs": 4, "policy_kwargs": policy_kwargs}
    model = partial(MaskablePPO, policy, **options)
    return StableBaselines(model, flat)


class Stopwatch:
    """Seconds spent inside functions."""

    def __init__(self):
        self.seconds = {}

    def watch(self, owner, name, label):
        function = getattr(owner, name)

        def timed(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[label] = self.seconds.get(label, 0.0) + time.perf_counter() - begin

        setattr(owner, name, timed)


def watched(learner):
    """Who steps, who chooses actions and who updates: three (owner, method)."""
    if isinstance(learner, ClippedLearner):
        env = learner._env if isinstance(learner, PPO) else learner._runner.batch
        return (env, "step"), (learner, "_collect"), (learner, "_update")
    model = learner._model
    return (model.env, "step"), (model.policy, "forward"), (model, "train")


def measure(learner, decisions):
    """(samples/s, share of the time in environment, forward, update)."""
    env_config = adapt_env_config(learner, EnvConfig(num_workloads=512))
    learner.setup({"one": env_config}, 0)
    batch = learner._runner.batch if isinstance(learner, GroupRelative) else learner._env.batch
    batch.workload_cache.rows_of(np.arange(512))
    learner.learn(1, lambda measured: None)
    watch = Stopwatch()
    labels = ("environment", "forward", "update")
    for label, (owner, name) in zip(labels, watched(learner), strict=True):
        watch.watch(owner, name, label)
    before = learner.decisions
    begin = time.perf_counter()
    learner.learn(before + decisions, lambda measured: None)
    total = time.perf_counter() - begin
    environment, forward, update = (watch.seconds[label] / total for label in labels)
    if isinstance(learner, ClippedLearner):  # a rollout without the steps in it
        forward -= environment
    return (learner.decisions - before) / total, [environment, forward, update]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=60_000)
    decisions = parser.parse_args().decisions
    set_num_threads(1)
    cases = {
        "MaskablePPO, MLP 256x256": stable_baselines("MlpPolicy", True, net_arch=[256, 256]),
        "MaskablePPO, pointer 64": stable_baselines(PointerPolicy, False),
        "PPO in one file, MLP 256x256": PPO(partial(MaskableActorCriticPolicy, net_arch=[256, 256])),
        "group-relative, pointer 64": GroupRelative(PointerPolicy),
    }
    print(
        f"{machine()}; 64 clusters of 16 x 4 GPUs, 512 cached workloads, one thread, {decisions:,} decisions"
    )
    print("agent                                   samples/s  environment  forward  update")
    for name, learner in cases.items():
        rate, shares = measure(learner, decisions)
        print(f"{name:38s} {rate:10,.0f} {shares[0]:12.0%} {shares[1]:8.0%} {shares[2]:7.0%}")


if __name__ == "__main__":
    main()
