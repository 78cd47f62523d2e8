"""Stable-Baselines3: MaskablePPO on Ringyard's own VecEnv, one compiled call per step of all clusters."""

import argparse

from sb3_contrib import MaskablePPO

import ringyard_agents
from ringyard import experiment
from ringyard_agents import PointerPolicy, RingyardVecEnv


def main(total_steps=100_000, num_envs=32, seeds=10):
    """Train a pointer policy, compare it with two schedulers; its mean JCT in seconds."""
    model = MaskablePPO(
        PointerPolicy,
        RingyardVecEnv(experiment("contention"), num_envs),
        n_steps=64,
        batch_size=512,
        gamma=1.0,
        device="cpu",
        verbose=1,
    )
    model.learn(total_steps)
    table = ringyard_agents.compare(
        [{"mine": model}, "fifo_backfill", "sjf@consolidate"], experiment="contention", seeds=seeds
    )
    print(table[["scheduler", "mean_jct", "mean_jct_low", "mean_jct_high"]].to_string(index=False))
    return float(table.set_index("scheduler")["mean_jct"]["mine"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=100_000)
    main(parser.parse_args().total_steps)
