"""Processor time and size of a frame of `render_mode="rgb_array"`, in random episodes."""

import argparse
import time

import gymnasium
import numpy as np
from common import machine

import ringyard  # noqa: F401


def frame_costs(name, steps, every=20):
    """(steps, seconds of each `every`th frame, bytes of a frame) of one episode, at most `steps` long."""
    env = gymnasium.make(name, render_mode="rgb_array")
    _, info = env.reset(seed=0)
    env.render()  # the first picture loads libraries
    rng, costs, played, over = np.random.default_rng(0), [], 0, False
    while not over and played < steps:
        *_, done, truncated, info = env.step(rng.choice(np.flatnonzero(info["action_mask"])))
        over, played = done or truncated, played + 1
        if played % every == 0:
            begin = time.process_time()
            frame = env.render()
            costs.append(time.process_time() - begin)
    return played, costs, frame.nbytes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", nargs="+", default=sorted(i for i in gymnasium.registry if "ringyard/" in i))
    parser.add_argument("--steps", type=int, default=3000, help="longest episode")
    options = parser.parse_args()
    print(machine(), "frames of random episodes, processor time", sep="; ")
    print(f"{'environment':26}{'steps':>6}{'median ms':>11}{'largest ms':>12}{'MB a frame':>12}")
    for name in options.ids:
        steps, costs, size = frame_costs(name, options.steps)
        print(
            f"{name:26}{steps:6}{1e3 * np.median(costs):11.1f}{1e3 * max(costs):12.1f}{size / 1e6:12.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
