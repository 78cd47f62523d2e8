"""Does memory stay flat over millions of steps, episodes and resets?

python tests/attacks/memory.py [STEPS]
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import gymnasium
import numpy as np

import ringyard  # noqa: F401 - registers the environments
from ringyard.mdp.experiments import experiment
from ringyard.mdp.registration import environment_arguments
from ringyard_agents.learning.vec_env import RingyardVecEnv

EXPERIMENTS = ("contention", "sharing", "cpu_gpu", "elastic", "full")
#: growth that allocators explain
MOST_BYTES = 8_000_000

_NUM_ENVS = 64
_WORKLOADS = 32  # all of them are cached before memory is first looked at


def resident_bytes() -> int:
    """Of this process."""
    gc.collect()
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def drawn(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[clusters] a valid action each, by an order of all actions that is drawn."""
    return (rng.random(masks.shape[1], np.float32) * masks).argmax(1)


def vector(name: str) -> Callable[[int], None]:
    """Steps of gymnasium's vector environment."""
    setting = replace(experiment(name), num_workloads=_WORKLOADS)
    made = environment_arguments().items()
    ids = {one["experiment"]: name for name, one in made if "form" not in one}
    envs = gymnasium.make_vec(ids[name], num_envs=_NUM_ENVS, config=setting)
    rng = np.random.default_rng(0)
    envs.reset(seed=0)

    def play(steps: int) -> None:
        for _ in range(steps // _NUM_ENVS):
            envs.step(drawn(envs.action_masks(), rng))

    return play


def single() -> Callable[[int], None]:
    """Steps of the single environment, with resets."""
    env = gymnasium.make("ringyard/Full-v1", config=replace(experiment("full"), num_workloads=_WORKLOADS))
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)

    def play(steps: int) -> None:
        nonlocal info
        for _ in range(steps):
            _, _, over, cut, info = env.step(int(drawn(info["action_mask"][None], rng)[0]))
            if over or cut:
                _, info = env.reset()

    return play


def learning() -> Callable[[int], None]:
    """Steps of the environment that agents learn in."""
    env = RingyardVecEnv(replace(experiment("elastic"), num_workloads=_WORKLOADS), _NUM_ENVS)
    rng = np.random.default_rng(0)
    env.reset()

    def play(steps: int) -> None:
        for _ in range(steps // _NUM_ENVS):
            env.step(drawn(env.action_masks(), rng))

    return play


def attack(total_steps: int) -> Iterator[tuple[str, int, int]]:
    """(what, steps, bytes that memory grew over them) for every face, once it has warmed up."""
    faces = [(f"make_vec {name}", vector(name), 0.16) for name in EXPERIMENTS]
    faces += [("RingyardVecEnv elastic", learning(), 0.18), ("make full", single(), 0.02)]
    for name, play, share in faces:
        steps = int(total_steps * share)
        play(steps // 5)
        before = resident_bytes()
        play(steps)
        yield name, steps, resident_bytes() - before


if __name__ == "__main__":
    total, grown = int((sys.argv[1:] or ["10000000"])[0]), 0
    for what, steps, found in attack(total):
        print(f"{what}: {steps:,} steps, memory {found / 1e6:+.1f} MB", flush=True)
        grown += found
    print(f"memory over {total:,} steps: {grown / 1e6:+.1f} MB")
    sys.exit(grown > MOST_BYTES)
