"""PPO samples per second on one core, split into environment, policy forward and update."""

import argparse
import time

import numpy as np
import torch
from common import machine
from sb3_contrib import MaskablePPO

from ringyard.mdp.actions.space import Actions
from ringyard.mdp.observations.queue import queue_and_cluster
from ringyard.mdp.setting import Setting
from ringyard_agents.learning.group_relative import GroupRelativePPO
from ringyard_agents.learning.policies import PointerPolicy
from ringyard_agents.learning.reduced_precision import ReducedPrecisionMlpPolicy
from ringyard_agents.learning.vec_env import RingyardVecEnv

FUSED = {"optimizer_kwargs": {"fused": True}}


def environment(flat, group_size=1):
    setting = Setting(
        observation=queue_and_cluster(flat), actions=Actions(on_invalid="raise"), num_workloads=512
    )
    env = RingyardVecEnv(setting, 64, group_size, group_size > 1)
    env.batch.bank.fill(np.arange(512))
    return env


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


def measure(model, decisions):
    """(samples/s, share of the time in environment, forward, update)."""
    model.learn(model.n_steps * 64 if model.n_steps < 300 else 1)
    watch = Stopwatch()
    watch.watch(model.env, "step", "environment")
    watch.watch(model, "train", "update")
    watch.watch(model.policy, "forward", "forward")
    before = model.num_timesteps
    begin = time.perf_counter()
    model.learn(decisions, reset_num_timesteps=False)
    total = time.perf_counter() - begin
    shares = [watch.seconds[label] / total for label in ("environment", "forward", "update")]
    return (model.num_timesteps - before) / total, shares


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=60_000)
    decisions = parser.parse_args().decisions
    torch.set_num_threads(1)
    mlp = {"net_arch": [256, 256]}
    common = {"n_steps": 128, "batch_size": 512, "n_epochs": 4, "device": "cpu", "seed": 0}
    cases = {
        "MaskablePPO, MLP 256x256": lambda: MaskablePPO(
            "MlpPolicy", environment(True), policy_kwargs=mlp, **common
        ),
        "MaskablePPO, MLP 256x256, bf16, fused": lambda: MaskablePPO(
            ReducedPrecisionMlpPolicy, environment(True), policy_kwargs={**mlp, **FUSED}, **common
        ),
        "MaskablePPO, pointer 64": lambda: MaskablePPO(PointerPolicy, environment(False), **common),
        "group-relative, pointer 64": lambda: GroupRelativePPO(PointerPolicy, environment(False, 8), seed=0),
    }
    print(f"{machine()}; 64 clusters of 16 x 4 GPUs, one thread, {decisions:,} decisions")
    print("agent                                   samples/s  environment  forward  update")
    for name, make in cases.items():
        rate, shares = measure(make(), decisions)
        print(f"{name:38s} {rate:10,.0f} {shares[0]:12.0%} {shares[1]:8.0%} {shares[2]:7.0%}")


if __name__ == "__main__":
    main()
