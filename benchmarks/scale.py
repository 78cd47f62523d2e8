"""Cost against size: steps with many waiting jobs or servers, schedules of large clusters, a million jobs.

Each curve is measured in a process of its own, its sizes in turns; the best of several rounds counts.
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path

import gymnasium
import numpy as np
from common import machine
from schedulers import workload
from vector_env import random_valid

from ringyard import Cluster, JobTable, Simulator
from ringyard.mdp.actions import Actions
from ringyard.mdp.env_config import EnvConfig, ten_gigabit_rings
from ringyard.placement import consolidate
from ringyard_baselines.classic.preemptive import las, srtf
from ringyard_baselines.classic.start_only import fifo_backfill, sjf
from ringyard_baselines.papers.gittins import GittinsTiresias
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run

WAITING = (100, 1_000, 10_000, 30_000)
SERVERS = (16, 64, 256, 1_024)
GPUS = (64, 1_024, 16_384, 100_000)
CLUSTERS, STEPS = 4, 2_000
ORDERS = {
    "fifo_backfill": fifo_backfill,
    "sjf": sjf,
    "srtf": srtf,
    "tiresias": tiresias,
    "gittins": GittinsTiresias,
    "las": lambda placement: las(placement, 600.0),
}


class Crowd:
    """So many jobs at once, and as many more, one whenever about one job ends."""

    def __init__(self, waiting, num_gpus, more):
        self.num_jobs = waiting + more
        self._first, self._gpus = waiting, num_gpus

    def sample(self, cluster, rng):
        """The published size mix, an hour each on average."""
        jobs = workload(self.num_jobs, self._gpus, 1.0)
        durations = rng.exponential(3600.0, self.num_jobs)
        gap = (jobs.num_gpus * durations).mean() / self._gpus
        submit = np.concatenate([np.zeros(self._first), np.arange(self.num_jobs - self._first) * gap])
        drawn = JobTable.from_columns(submit, jobs.num_gpus, durations)
        return drawn.with_models(jobs.model_ids)


def stepped(setting):
    """Microseconds of a step of one cluster, through `gymnasium.make_vec`."""
    env = gymnasium.make_vec(
        "ringyard/Cluster-v0",
        num_envs=CLUSTERS,
        vectorization_mode="vector_entry_point",
        config=setting,
        num_threads=1,
    )
    actions, generator = np.zeros(CLUSTERS, np.int64), np.ones(1, np.uint64)
    _, info = env.reset(seed=0)
    for _ in range(50):
        random_valid(info["action_mask"], generator, actions)
        *_, info = env.step(actions)
    begin = time.perf_counter()
    for _ in range(STEPS):
        random_valid(info["action_mask"], generator, actions)
        *_, info = env.step(actions)
    taken = time.perf_counter() - begin
    env.close()
    return 1e6 * taken / (STEPS * CLUSTERS)


def waiting_jobs(size, order):
    """A step with so many waiting jobs on 16 x 4 GPUs."""
    return stepped(crowded(size, order))


def crowded(size, order):
    """The setting: so many jobs wait."""
    return EnvConfig(
        workload=Crowd(size + 70, 64, 2 * STEPS), actions=Actions(queue_order=order), num_workloads=1
    )


def servers(size):
    """A step on so many servers of 4 GPUs, at full load."""
    return stepped(wide(size))


def wide(size):
    """The setting: so many servers."""
    workload = Crowd(size, 4 * size, 2 * STEPS)
    return EnvConfig(cluster=Cluster.homogeneous(size, 4), workload=workload, num_workloads=1)


def schedule(size, name, load, num_jobs=None):
    """(microseconds per job of the schedule, set-up, metrics; MB at most) on so many GPUs.

    At infinite load, jobs of one GPU are all submitted at one instant.
    """
    jobs = workload(num_jobs or max(5 * size // 4, 20_000), size, load)
    if load == np.inf:
        jobs = JobTable.from_columns(jobs.submit_seconds, np.ones(len(jobs), int), jobs.duration_seconds)
    cluster = Cluster.homogeneous(size // 4, 4)
    times = [time.perf_counter()]
    sim = Simulator(cluster, jobs, ten_gigabit_rings())
    times.append(time.perf_counter())
    run(sim, ORDERS[name](consolidate()), np.random.default_rng(0))
    times.append(time.perf_counter())
    sim.metrics()
    times.append(time.perf_counter())
    setup, ran, measured = (1e6 * taken / len(jobs) for taken in np.diff(times))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return ran, setup, measured, peak


def measured(function, sizes, arguments, rounds, first=()):
    """[sizes] the least of what a function measures, each size once a round; runs in a process of its own.

    `first`: arguments of the call that compiles, where that of the first size would use its memory before.
    """
    function(*first or (sizes[0], *arguments))  # compiled before it is timed
    best = [np.inf] * len(sizes)
    for _ in range(rounds):
        for i, size in enumerate(sizes):
            found = function(size, *arguments)
            best[i] = np.minimum(best[i], found).tolist()
    return best


def apart(*task):
    """`measured` in a new process: what one curve used is not in the next one's memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, task)


def print_steps(title, sizes, reference, rows):
    """A line per curve: microseconds at each size, and the last size's over those of a reference."""
    heads = "".join(f"{size:>10,}" for size in sizes)
    print(f"\n{title}\n{'':24s}{heads}   x {sizes[reference]:,}")
    for name, values in rows.items():
        cells = "".join(f"{value:10.2f}" for value in values)
        print(f"{name:24s}{cells}{values[-1] / values[reference]:12.2f}")


def print_schedules(sizes, rows):
    """A line per order: jobs per second at each size."""
    title = "jobs/s of whole schedules, set-up and metrics apart; GPUs:"
    print(f"\n{title}\n{'':24s}" + "".join(f"{size:>12,}" for size in sizes))
    for name, values in rows.items():
        print(f"{name:24s}" + "".join(f"{1e6 / value[0]:12,.0f}" for value in values))


def print_beside(sizes, name, values):
    """Microseconds of a job that setting up and metrics take, beside the run."""
    print(f"\nmicroseconds of a job, {name}; GPUs:\n{'':24s}" + "".join(f"{size:>12,}" for size in sizes))
    for part, number in (("set-up", 1), ("run", 0), ("metrics", 2)):
        print(f"{part:24s}" + "".join(f"{value[number]:12.2f}" for value in values))


def draw(path, curves):
    """One panel for each kind of size: steps from 0 on, jobs on logarithmic axes."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(curves), figsize=(5 * len(curves), 4), layout="constrained", squeeze=False
    )
    for axis, (title, (sizes, rows)) in zip(axes[0], curves.items(), strict=True):
        for number, (name, values) in enumerate(rows.items()):
            look = {"color": f"C{number % len(ORDERS)}", "linestyle": "--" if "1.2" in name else "-"}
            axis.plot(sizes, [np.atleast_1d(value)[0] for value in values], marker="o", label=name, **look)
        if title == "GPUs":
            name, values = next(iter(rows.items()))
            for part, number, style in (("set-up", 1, ":"), ("metrics", 2, "-.")):
                label = f"{part}, {name}"
                axis.plot(sizes, [value[number] for value in values], style, color="gray", label=label)
        axis.set(
            xscale="log", xlabel=title, ylabel=f"microseconds per {'job' if title == 'GPUs' else 'step'}"
        )
        if title == "GPUs":
            axis.set(yscale="log")
        else:
            axis.set_ylim(bottom=0)
        axis.grid(visible=True, alpha=0.3)
        if title == "GPUs":
            axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        else:
            axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpus", type=int, nargs="+", default=GPUS)
    parser.add_argument("--jobs", type=int, help="on each number of GPUs (default: 5 for 4 of them)")
    parser.add_argument("--orders", nargs="+", default=list(ORDERS), choices=list(ORDERS))
    parser.add_argument("--only", nargs="+", choices=["waiting", "servers", "gpus", "million"])
    parser.add_argument("--plot", type=Path, help="PNG to write")
    parser.add_argument("--json", type=Path, help="figures to write")
    options = parser.parse_args()
    parts = options.only or ["waiting", "servers", "gpus", "million"]
    curves = {}
    print(f"{machine()}; 10GbE rings, consolidate; best of {options.rounds}; steps of one cached workload")
    if "waiting" in parts:
        rows = {
            f"queue by {order}": apart(waiting_jobs, WAITING, (order,), options.rounds)
            for order in ("submit", "duration")
        }
        print_steps("microseconds of a step; waiting jobs:", WAITING, 0, rows)
        curves["waiting jobs"] = (WAITING, rows)
    if "servers" in parts:
        rows = {"pack, least_contended": apart(servers, SERVERS, (), options.rounds)}
        print_steps("microseconds of a step; servers of 4 GPUs:", SERVERS, 1, rows)
        curves["servers"] = (SERVERS, rows)
    if "gpus" in parts:
        rows = {
            f"{name}, load {load}": apart(schedule, options.gpus, (name, load, options.jobs), options.rounds)
            for load in (0.8, 1.2)
            for name in options.orders
        }
        print_schedules(options.gpus, rows)
        print_beside(options.gpus, *next(iter(rows.items())))
        curves["GPUs"] = (options.gpus, rows)
    if "million" in parts:
        print("\none million jobs, in memory that the process has not used before")
        print("                      GPUs  set-up (s)  run (s)  metrics (s)  most memory (MB)")
        for name, size, load in (
            ("fifo_backfill", 1_024, 0.8),
            ("srtf", 1_024, 0.8),
            ("tiresias", 1_024, 0.8),
            ("fifo_backfill", 100_000, 0.8),
            *(("fifo_backfill", 1_024, np.inf), ("sjf", 1_024, np.inf), ("srtf", 1_024, np.inf)),
        ):
            small = (64, name, load, 2_000)
            ((ran, setup, taken, peak),) = apart(
                schedule, (size,), (name, load, options.jobs or 1_000_000), 1, small
            )
            shown = name if load < np.inf else f"{name}, at once"
            print(f"{shown:23s} {size:7,} {setup:11.2f} {ran:8.2f} {taken:12.2f} {peak:17,.0f}", flush=True)
    if options.plot:
        draw(options.plot, curves)
    if options.json:
        options.json.write_text(json.dumps(curves))


if __name__ == "__main__":
    main()
