"""Cost against size: waiting jobs, servers, clusters in a batch, GPUs, jobs in all; and a million jobs.

Each curve is measured in a process of its own, its sizes in turns; the best of several rounds counts. The
exponent e of a curve is the least-squares slope of log cost on log size: cost grows as size ** e.
"""

import argparse
import multiprocessing
import resource
import time

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
JOBS = (10_000, 100_000, 1_000_000)
BATCH = (16, 64, 256, 1_024, 4_096)
CLUSTERS, STEPS = 4, 2_000
QUEUES = ("submit", "duration")
PARTS = ("waiting", "servers", "clusters", "gpus", "jobs", "million")
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


def stepped(setting, clusters=CLUSTERS, steps=STEPS):
    """Microseconds of a step of one cluster, through `gymnasium.make_vec`."""
    env = gymnasium.make_vec(
        "ringyard/Cluster-v0",
        num_envs=clusters,
        vectorization_mode="vector_entry_point",
        config=setting,
        num_threads=1,
    )
    actions, generator = np.zeros(clusters, np.int64), np.ones(1, np.uint64)
    _, info = env.reset(seed=0)
    for _ in range(50):
        random_valid(info["action_mask"], generator, actions)
        *_, info = env.step(actions)
    begin = time.perf_counter()
    for _ in range(steps):
        random_valid(info["action_mask"], generator, actions)
        *_, info = env.step(actions)
    taken = time.perf_counter() - begin
    env.close()
    return 1e6 * taken / (steps * clusters)


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


def batch(size):
    """A step of one of so many clusters of 16 x 4 GPUs, on one thread."""
    return stepped(EnvConfig(num_workloads=256), size, max(100, 4 * STEPS // size))


def jobs_in_all(size, name):
    """Microseconds per job of a schedule of so many jobs on 1,024 GPUs, at load 0.8."""
    return schedule(1_024, name, 0.8, size)[0]


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


def print_growth(title, sizes, rows):
    """A line per curve: microseconds at each size, and the exponent."""
    print(f"\n{title}\n{'':24s}" + "".join(f"{size:>11,}" for size in sizes) + "   exponent")
    for name, values in rows.items():
        costs = [np.atleast_1d(value)[0] for value in values]
        exponent = np.polyfit(np.log(sizes), np.log(costs), 1)[0]
        print(f"{name:24s}" + "".join(f"{cost:11.2f}" for cost in costs) + f"{exponent:11.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpus", type=int, nargs="+", default=GPUS)
    parser.add_argument("--jobs", type=int, help="on each number of GPUs (default: 5 for 4 of them)")
    parser.add_argument("--orders", nargs="+", default=list(ORDERS), choices=list(ORDERS))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    parts, rounds = options.only, options.rounds
    print(f"{machine()}; 10GbE rings, consolidate; best of {rounds}; steps of cached workloads")
    if "waiting" in parts:
        rows = {f"queue by {order}": apart(waiting_jobs, WAITING, (order,), rounds) for order in QUEUES}
        print_growth("microseconds of a step; jobs waiting:", WAITING, rows)
    if "servers" in parts:
        rows = {"pack, least_contended": apart(servers, SERVERS, (), rounds)}
        print_growth("microseconds of a step; servers of 4 GPUs:", SERVERS, rows)
    if "clusters" in parts:
        print_growth(
            "microseconds of a step; clusters:", BATCH, {"one thread": apart(batch, BATCH, (), rounds)}
        )
    if "gpus" in parts:
        rows = {
            f"{name}, load {load}": apart(schedule, options.gpus, (name, load, options.jobs), rounds)
            for load in (0.8, 1.2)
            for name in options.orders
        }
        first, values = next(iter(rows.items()))
        rows |= {
            f"{first}: {part}": [value[i] for value in values] for i, part in ((1, "set-up"), (2, "metrics"))
        }
        print_growth("microseconds of a job; GPUs:", options.gpus, rows)
    if "jobs" in parts:
        rows = {name: apart(jobs_in_all, JOBS, (name,), 1) for name in options.orders}
        print_growth("microseconds of a job; jobs in all:", JOBS, rows)
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


if __name__ == "__main__":
    main()
