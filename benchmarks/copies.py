"""What a copy of an environment in the middle of an episode costs: fork, pickle, deep copy, beside a step."""

import argparse
import copy
import pickle
import time

import numpy as np
from common import machine

from ringyard import ClusterEnv
from ringyard.mdp.experiments import experiment

SETTINGS = {
    "Contention": ("contention", {}),
    "Sharing": ("sharing", {}),
    "Full": ("full", {}),
    "Sharing, scores": ("sharing", {"action": "scores", "observation": "live_jobs"}),
}


def begun(name, parts):
    """An environment after 40 steps."""
    env = ClusterEnv(experiment(name, **parts))
    env.reset(seed=0)
    for _ in range(40):
        step(env)
    return env


def step(env):
    """The first valid action, or equal scores."""
    choosing = hasattr(env.action_space, "n")
    ended = env.step(env.action_masks().argmax() if choosing else np.zeros(env.action_space.shape))[2]
    if ended:
        env.reset()


def microseconds(function, repeats):
    """Of one call."""
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    return 1e6 * (time.perf_counter() - begin) / repeats


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"{machine()}; microseconds, medians over {options.rounds} interleaved rounds")
    heads = ("step", "fork", "fork and step", "pickle", "deepcopy")
    print(f"{'':18s}" + "".join(f"{head:>15s}" for head in heads))
    for label, (name, parts) in SETTINGS.items():
        env, played = begun(name, parts), begun(name, parts)
        ways = (
            (lambda played=played: step(played), 100),
            (env.fork, 100),
            (lambda env=env: step(env.fork()), 100),
            (lambda env=env: pickle.loads(pickle.dumps(env)), 5),
            (lambda env=env: copy.deepcopy(env), 5),
        )
        rounds = [[microseconds(way, repeats) for way, repeats in ways] for _ in range(options.rounds + 1)]
        medians = np.median(rounds[1:], axis=0)  # the first round warms up
        print(f"{label:18s}" + "".join(f"{one:15,.0f}" for one in medians))


if __name__ == "__main__":
    main()
