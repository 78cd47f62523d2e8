"""Steps per second of the compiled vector environment on one core, observations and masks included."""

import argparse

import numpy as np
from common import best_seconds, machine

from ringyard.compiled import kernel
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.observations.queue import queue_and_cluster
from ringyard.mdp.setting import Setting
from ringyard.mdp.vector import ClusterVectorEnv


@kernel
def first_valid(masks, actions):
    """The first valid action of each cluster: costs next to nothing."""
    for b in range(masks.shape[0]):
        for a in range(masks.shape[1]):
            if masks[b, a]:
                actions[b] = a
                break


def measure(num_envs, steps, flat, copy):
    """Steps per second."""
    setting = Setting(
        observation=queue_and_cluster(flat), actions=Actions(on_invalid="raise"), num_workloads=256
    )
    env = ClusterVectorEnv(num_envs, setting, autoreset_mode="SameStep", copy=copy)
    env.reset(seed=0)
    env.batch.bank.fill(np.arange(256))
    actions = np.zeros(num_envs, np.int64)

    def play():
        for _ in range(steps):
            first_valid(env.batch.masks, actions)
            env.step(actions)

    play()
    return num_envs * steps / best_seconds(play)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps
    print(f"{machine()}; 16 x 4 GPUs, 16 visible and 16 running jobs, 2 templates, episodes of 100 jobs")
    print("clusters  observation  fresh arrays   steps/s")
    for num_envs, flat, copy in ((64, True, False), (64, True, True), (64, False, True), (1, True, False)):
        rate = measure(num_envs, steps if num_envs > 1 else 4 * steps, flat, copy)
        kind = "flat" if flat else "dict"
        print(f"{num_envs:8d}  {kind:11s}  {'yes' if copy else 'no':12s} {rate:10,.0f}")


if __name__ == "__main__":
    main()
