"""What it costs to watch plugged-in functions: the same work in turns, as it is and with RINGYARD_CHECK=1."""

import argparse
import os
import subprocess
import sys
import time
from statistics import median

import numpy as np
from common import machine
from schedulers import workload
from vector_env import first_valid

from ringyard import Cluster, Simulator
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.observations.queue import queue_and_cluster
from ringyard.mdp.setting import Setting, ten_gigabit_rings
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.placement import consolidate
from ringyard_baselines.orders.fifo import fifo
from ringyard_baselines.orders.srtf import srtf
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run

SCHEDULERS = {"fifo": fifo, "srtf": srtf, "tiresias": tiresias}


def schedules(make):
    """One turn: 10,000 jobs on 64 GPUs."""
    jobs = workload(10_000, 64, 0.8)

    def turn():
        sim = Simulator(Cluster.homogeneous(16, 4), jobs, ten_gigabit_rings())
        begin = time.process_time()
        run(sim, make(consolidate()), np.random.default_rng(0))
        return time.process_time() - begin

    return turn


def steps():
    """One turn: 200 steps of 64 clusters."""
    setting = Setting(
        observation=queue_and_cluster(True), actions=Actions(on_invalid="raise"), num_workloads=64
    )
    env = ClusterVectorEnv(64, setting, autoreset_mode="SameStep", copy=False)
    env.reset(seed=0)
    env.batch.bank.fill(np.arange(64))
    actions = np.zeros(64, np.int64)

    def turn():
        begin = time.process_time()
        for _ in range(200):
            first_valid(env.batch.masks, actions)
            env.step(actions)
        return time.process_time() - begin

    return turn


def work(name):
    """A child's life: a turn whenever it is asked for one."""
    turn = steps() if name == "steps" else schedules(SCHEDULERS[name])
    turn()
    for _ in sys.stdin:
        print(turn(), flush=True)


def child(name, watched):
    """A process that waits for its turns."""
    environment = {**os.environ, "RINGYARD_CHECK": str(int(watched))}
    command = [sys.executable, __file__, "--work", name]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def measure(name, rounds):
    """[rounds] seconds of processor time, as it is and watched; children have compiled before."""
    seconds = {}
    for first in (True, False):  # machine code from the cache, not of the process that compiled it
        children = {watched: child(name, watched) for watched in (False, True)}
        for turn in range(1 if first else rounds):
            for watched in (False, True) if turn % 2 else (True, False):
                children[watched].stdin.write("\n")
                seconds.setdefault((first, watched), []).append(float(children[watched].stdout.readline()))
        for one in children.values():
            one.stdin.close()
            one.wait()
    return seconds[False, False], seconds[False, True]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--work", help="for children")
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return
    print(f"{machine()}; {options.rounds} rounds in turns, seconds of processor time of a turn")
    print("work        as it is, least   watched, least   ratio   median ratio of a round")
    for name in (*SCHEDULERS, "steps"):
        plain, watched = measure(name, options.rounds)
        ratios = [b / a for a, b in zip(plain, watched, strict=True)]
        least = min(watched) / min(plain)
        print(
            f"{name:10s} {min(plain):16.4f} {min(watched):16.4f} {least:7.3f} {median(ratios):25.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
