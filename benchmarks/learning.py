"""Samples per second of a training by threads and processes, and how far that is from what a core can do.

Each row is a process (or several, by torchrun) of its own that learns on fresh workloads; rows take turns.
Several trainings at once, apart from each other, show what the machine's cores give at most.
The update's floating-point operations are counted by torch and held against products of matrices of the
shapes that its layers have.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from common import machine
from torch.utils.flop_counter import FlopCounterMode

from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import experiment
from ringyard.threads import set_num_threads
from ringyard_agents.learning.evolution import EvolutionStrategies
from ringyard_agents.learning.group_relative import GroupRelative
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.policies import PointerPolicy
from ringyard_agents.learning.ppo import add_ppo_gradient
from ringyard_agents.learning.process_group import Hardware, join_process_group, select_device
from ringyard_agents.learning.score_networks import ScoreNetwork


def begun(agent, clusters, hardware):
    """A learner that has learnt for one round."""
    if agent == "group_relative":
        learner = GroupRelative(PointerPolicy, num_envs=clusters)
        setting = EnvConfig(num_workloads=1 << 20)
    else:
        network = partial(ScoreNetwork, width=12)
        learner = EvolutionStrategies(network=network, workloads_per_round=clusters // 16, group_size=16)
        setting = experiment("elastic", action="scores", observation="live_jobs")
        setting = replace(setting, num_workloads=1 << 20)
    learner.hardware = hardware
    learner.setup({"one": adapt_env_config(learner, setting)}, 0)
    learner.learn(1, lambda measured: None)
    return learner


def rate(agent, clusters, seconds, hardware):
    """Decisions per second of all processes."""
    learner = begun(agent, clusters, hardware)
    before, begin = learner.decisions, time.perf_counter()
    while hardware.process_group.broadcast(time.perf_counter() - begin < seconds):
        learner.learn(learner.decisions + 1, lambda measured: None)
    return (learner.decisions - before) / (time.perf_counter() - begin)


def update(clusters):
    """(million operations of an update of one decision, 1e9/s of the update, 1e9/s of its products alone)."""
    learner = begun("group_relative", clusters, Hardware())
    set_num_threads(1)
    choices = learner._collect()[0]
    rows = np.arange(min(4096, len(choices.actions)))
    gradient = partial(add_ppo_gradient, learner._network, choices, rows, len(rows), 0.2, 1e-3)
    network = learner._network.mlp_extractor
    products = []

    def note(layer, given, result):
        left = torch.randn(given[0].reshape(-1, layer.in_features).shape)
        products.append((left, torch.randn(layer.in_features, layer.out_features)))

    hooks = [
        layer.register_forward_hook(note) for layer in network.modules() if isinstance(layer, torch.nn.Linear)
    ]
    with FlopCounterMode(display=False) as counter:
        gradient()
    for hook in hooks:
        hook.remove()

    def multiply():
        for left, right in products:
            torch.matmul(left, right)

    updating, multiplying = ([], [])
    for _ in range(9):
        for function, spent in ((gradient, updating), (multiply, multiplying)):
            begin = time.perf_counter()
            function()
            spent.append(time.perf_counter() - begin)
    total = counter.get_total_flops()
    return (
        total / len(rows) / 1e6,
        total / np.median(updating) / 1e9,
        sum(2 * left.numel() * right.shape[1] for left, right in products) / np.median(multiplying) / 1e9,
    )


def one_case(options):
    hardware = Hardware(select_device(options.device), join_process_group())
    set_num_threads(options.threads)
    torch.set_num_threads(1)
    found = rate(options.agent, options.clusters, options.seconds, hardware)
    if hardware.process_group.rank == 0:
        print(json.dumps(found))


def run(options, agent, clusters, threads, processes, trainings=1):
    """Decisions per second of all trainings, which run at once and know nothing of each other."""
    words = [__file__, "--agent", agent, "--clusters", str(clusters), "--threads", str(threads)]
    words += ["--seconds", str(options.seconds), "--device", options.device]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = [*launcher, *words] if processes > 1 else words
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    total = 0.0
    for one in [subprocess.Popen([sys.executable, *words], **pipes) for _ in range(trainings)]:
        printed, errors = one.communicate()
        if one.returncode:
            raise SystemExit(f"{' '.join(words)}\n{errors}")
        total += float(printed.splitlines()[-1])
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", choices=["group_relative", "evolution"], help="one row, in this process")
    parser.add_argument("--clusters", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="most threads, and processes (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each row (%(default)s)")
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda (%(default)s)")
    options = parser.parse_args()
    if options.agent:
        one_case(options)
        return
    ways = {"1 thread": (1, 1), f"{options.cores} threads": (options.cores, 1)}
    ways[f"{options.cores} processes"] = (1, options.cores)
    ways[f"{options.cores} trainings"] = (1, 1, options.cores)
    cases = [(agent, clusters) for agent in ("group_relative", "evolution") for clusters in (64, 256)]
    found = {(case, way): [] for case in cases for way in ways}
    for _ in range(options.rounds):
        for case, way in found:
            found[case, way].append(run(options, *case, *ways[way]))
    print(
        f"{machine()}; device {options.device}, fresh workloads, median of {options.rounds} x"
        f" {options.seconds:g} s each"
    )
    print(f"agent           clusters  {'':12s}  samples/s  times 1 thread")
    for (case, way), rates in found.items():
        times = np.median(np.array(rates) / found[case, "1 thread"])
        print(f"{case[0]:15s} {case[1]:8d}  {way:12s} {np.median(rates):10,.0f} {times:15.2f}")
    operations, reached, possible = update(64)
    print(
        f"group_relative's update: {operations:.3f} million operations a decision and epoch, at"
        f" {reached:.0f}e9/s; products of its layers' shapes alone: {possible:.0f}e9/s,"
        f" of which that is {reached / possible:.0%}"
    )


if __name__ == "__main__":
    main()
