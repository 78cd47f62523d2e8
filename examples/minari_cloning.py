"""Minari: what a scheduler decides, as an offline dataset, read back for behaviour cloning."""

import argparse

import gymnasium
import minari
import numpy as np
import torch
from minari.data_collector import EpisodeBuffer
from torch import nn

import ringyard
from ringyard import pack
from ringyard_baselines import sjf


def choice(env, scheduler, jobs, mask):
    """The action nearest to what a scheduler would do: the same job, on the same GPUs if it is offered."""
    batch, setting, wait = env.batch, env.config, env.config.actions.wait
    observability = scheduler.observability
    view = ringyard.SchedulingView(batch.state, 0, setting.cluster, jobs, setting.performance, observability)
    for allocation in scheduler.decide(view):
        offered = {action: batch.allocations(0, action) for action in mask.nonzero()[0] if action != wait}
        near = [action for action, given in offered.items() if given[0].job == allocation.job]
        same = [action for action in near if offered[action][0].gpu_ids == allocation.gpu_ids]
        if near:
            return int((same or near)[0])
    return wait if mask[wait] else int(mask.argmax())


def episodes(env, scheduler, count):
    """What the scheduler saw and did, a buffer for each episode."""
    for number in range(count):
        observation, info = env.reset(seed=number)
        table, setting = env.batch.workload_cache.table(info["workload"]), env.config
        jobs = ringyard.Simulator(setting.cluster, table, setting.performance).jobs  # with their durations
        scheduler.reset(
            setting.cluster, jobs.restricted_to(scheduler.observability), np.random.default_rng(number)
        )
        seen, actions, rewards, over = [observation], [], [], False
        while not over:
            actions.append(choice(env, scheduler, jobs, info["action_mask"]))
            observation, reward, over, _, info = env.step(actions[-1])
            seen.append(observation)
            rewards.append(reward)
        ends = [False] * (len(actions) - 1) + [True]
        kept = np.array(seen), np.array(actions), rewards, ends, [False] * len(actions)
        names = ("observations", "actions", "rewards", "terminations", "truncations")
        yield EpisodeBuffer(id=number, seed=number, **dict(zip(names, kept, strict=True)))


def main(count=20, batches=2000, name="ringyard/sjf-v0", scheduler=None):
    """Write the dataset, read it, clone it; the share of its actions that the clone's favourite is."""
    env = gymnasium.make("ringyard/Sharing-Queue-v0", flat=True).unwrapped
    if name in minari.list_local_datasets():
        minari.delete_dataset(name)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    buffers = list(episodes(env, sjf(pack()) if scheduler is None else scheduler, count))
    minari.create_dataset_from_buffers(name, buffers, algorithm_name="sjf", **spaces)
    dataset = minari.load_dataset(name)
    seen = torch.as_tensor(np.concatenate([one.observations[:-1] for one in dataset]))
    actions = torch.as_tensor(np.concatenate([one.actions for one in dataset]))
    torch.manual_seed(0)
    clone = nn.Sequential(nn.Linear(seen.shape[1], 128), nn.ReLU(), nn.Linear(128, int(env.action_space.n)))
    optimizer = torch.optim.Adam(clone.parameters(), 1e-3)
    for _ in range(batches):
        rows = torch.randint(len(actions), (256,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(clone(seen[rows]), actions[rows]).backward()
        optimizer.step()
    share = float((clone(seen).argmax(1) == actions).float().mean())
    print(f"{dataset.total_episodes} episodes, {dataset.total_steps:,} steps; cloned: {share:.0%}")
    return share


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    main(parser.parse_args().episodes)
