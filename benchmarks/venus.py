"""The whole Helios Venus trace on 1,200 GPUs under Tiresias and others, seconds on one core."""

import argparse

import numpy as np
from common import best_seconds, machine

from ringyard import Cluster, Simulator, ideal
from ringyard.mdp.env_config import ten_gigabit_rings
from ringyard.placement import consolidate, pack
from ringyard.restart import constant
from ringyard.workloads import ModelMix, read_helios
from ringyard_baselines.classic.preemptive import srtf
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="venus_gpu_jobs.csv.gz or HeliosData's cluster_log.csv")
    trace = read_helios(parser.parse_args().trace)
    jobs = ModelMix().assign(trace, np.random.default_rng(0))
    cluster = Cluster.homogeneous(150, 8)
    print(f"{machine()}; {len(jobs):,} jobs, {cluster.num_gpus:,} GPUs, restart 30 s")
    print("performance  scheduler             seconds     jobs/s  mean JCT (s)  GPU use    stops")
    for label, performance in (("ideal", ideal()), ("10GbE rings", ten_gigabit_rings())):
        for scheduler in (
            fifo_backfill(pack()),
            fifo_backfill(consolidate()),
            srtf(pack()),
            tiresias(pack()),
        ):
            metrics = []

            def whole(performance=performance, scheduler=scheduler, metrics=metrics):
                sim = Simulator(cluster, jobs, performance, constant(30.0))
                run(sim, scheduler, np.random.default_rng(0))
                metrics.append(sim.metrics())

            seconds = best_seconds(whole, repeats=2)
            found = metrics[-1]
            name = f"{scheduler.name} {scheduler.placement.name}"
            print(
                f"{label:11s}  {name:20s} {seconds:8.2f} {len(jobs) / seconds:10,.0f}"
                f" {found.mean_jct:13,.0f} {found.utilisation:8.0%} {found.preemptions:8,}"
            )


if __name__ == "__main__":
    main()
