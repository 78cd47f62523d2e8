"""Simulated jobs per second on one core: arrivals, decisions, placement, contention, completions, metrics."""

import argparse

import numpy as np
from common import best_seconds, machine

from ringyard import Cluster, JobTable, Simulator
from ringyard.mdp.env_config import ten_gigabit_rings
from ringyard.placement import consolidate
from ringyard.profiles import model_id
from ringyard_baselines.classic.preemptive import srtf
from ringyard_baselines.classic.start_only import fifo_backfill, sjf
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run

#: the best of the published simulators, jobs/s, as measured before this project began
BEST_PUBLISHED = 4200
SIZES = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}  # SJF-BCO's and Ada-SRSF's mix


def workload(num_jobs, num_gpus, load):
    """Poisson arrivals of the published size mix, log-normal durations (Philly's fit, at most 2 days)."""
    rng = np.random.default_rng(0)
    sizes = rng.choice(list(SIZES), num_jobs, p=np.array(list(SIZES.values())) / sum(SIZES.values()))
    durations = rng.lognormal(6.791, 2.156, num_jobs).clip(1.0, 172800.0)
    gap = (sizes * durations).mean() / (load * num_gpus)
    submit = np.cumsum(rng.exponential(gap, num_jobs))
    jobs = JobTable.from_columns(submit - submit[0], sizes, durations)
    four = np.array([model_id(name) for name in ("vgg16", "resnet50", "inception_v3", "lstm")])
    return jobs.with_models(four[rng.integers(0, 4, num_jobs)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--load", type=float, default=0.8)
    options = parser.parse_args()
    print(f"{machine()}; {options.jobs:,} jobs, load {options.load}, rings over 10GbE, consolidate")
    print("GPUs   order         jobs/s  x best published  mean JCT (s)  slowdown  GPU use  decisions  stops")
    for num_gpus in (64, 256, 1024):
        jobs = workload(options.jobs, num_gpus, options.load)
        for make in (fifo_backfill, sjf, srtf, tiresias):
            sims = []

            def whole(make=make, jobs=jobs, num_gpus=num_gpus, sims=sims):
                sim = Simulator(Cluster.homogeneous(num_gpus // 4, 4), jobs, ten_gigabit_rings())
                run(sim, make(consolidate()), np.random.default_rng(0))
                sims.append((sim, sim.metrics()))

            whole()
            rate = options.jobs / best_seconds(whole)
            sim, metrics = sims[-1]
            print(
                f"{num_gpus:4d}   {make.__name__:9s} {rate:10,.0f} {rate / BEST_PUBLISHED:17.0f}"
                f" {metrics.mean_jct:13,.0f} {metrics.mean_slowdown:9.2f} {metrics.utilisation:8.0%}"
                f" {sim.state.clusters['num_decisions'][0]:10,} {metrics.preemptions:6,}"
            )


if __name__ == "__main__":
    main()
