"""Two objectives by MO-Gymnasium's wrappers: the best constant weights for mean JCT and the worst rho.

Algorithms of MORL-Baselines take the same environment: they read `reward_space` and vectors of rewards.
"""

import argparse

import mo_gymnasium
import numpy as np
from mo_gymnasium.wrappers import LinearReward, MORecordEpisodeStatistics

NAMES = ("jct", "worst_fairness", "makespan")


def episode(env, action, seed=0):
    """The return of an episode with the same weights of jobs' features throughout, scalar and as a vector."""
    env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        _, reward, done, cut, info = env.step(action)
        total, over = total + reward, done or cut
    return total, info["episode"]["r"]


def main(tries=20, preferences=3, seed=0):
    """Print the objectives of the best weights for each preference; the JCT of the first, over run time."""
    env = mo_gymnasium.make("ringyard:ringyard/Sharing-Weights-v0", reward="vector", flat=True)
    assert env.unwrapped.reward_space.shape == (len(NAMES),)
    linear = LinearReward(MORecordEpisodeStatistics(env))
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1.0, 1.0, (tries, *env.action_space.shape)).astype(np.float32)
    found = []
    for share in np.linspace(0.0, 1.0, preferences):
        linear.set_weight(np.array([1.0 - share, share, 0.0]))
        _, vector = max((episode(linear, action) for action in actions), key=lambda one: one[0])
        found.append(-vector)
        parts = (f"{name} {-value:.3f}" for name, value in zip(NAMES, vector, strict=True))
        print(f"{share:.2f} on the worst rho:", ", ".join(parts))
    return float(found[0][0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=20)
    main(parser.parse_args().tries)
