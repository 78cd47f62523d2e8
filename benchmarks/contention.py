"""What it costs to count what neighbours send (live_transfers, the default) and not only who they are."""

import argparse
import time
from statistics import median

import numpy as np
from common import machine
from schedulers import workload

from ringyard import Cluster, Simulator
from ringyard.fabric import interconnect, network
from ringyard.performance import composite
from ringyard.performance.ring import ADA_SRSF_ALPHA_10GBE
from ringyard.placement import pack
from ringyard_baselines.classic.preemptive import srtf
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run

WAYS = ("worst_link", "live_transfers")


def schedule(make, num_gpus, jobs, contention):
    """Seconds of processor time of one schedule, and its mean JCT."""
    performance = composite(
        network("ethernet_10g"),
        interconnect("nvlink_v100"),
        alpha=ADA_SRSF_ALPHA_10GBE,
        contention=contention,
    )
    sim = Simulator(Cluster.homogeneous(num_gpus // 4, 4), jobs, performance)
    begin = time.process_time()
    run(sim, make(pack()), np.random.default_rng(0))
    return time.process_time() - begin, sim.metrics().mean_jct


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{machine()}; {options.jobs:,} jobs, load {options.load}, 10GbE, pack; {options.rounds} rounds")
    print("GPUs   order      worst_link (s)  live_transfers (s)  median ratio  mean JCT, either way (s)")
    for num_gpus in (64, 256, 1024):
        jobs = workload(options.jobs, num_gpus, options.load)
        for make in (fifo_backfill, srtf, tiresias):
            rounds = [
                [schedule(make, num_gpus, jobs, contention) for contention in WAYS]
                for _ in range(options.rounds + 1)
            ][1:]
            worst, live = (min(one[way][0] for one in rounds) for way in (0, 1))
            ratio = median(one[1][0] / one[0][0] for one in rounds)
            jct = " and ".join(f"{rounds[0][way][1]:,.0f}" for way in (0, 1))
            print(f"{num_gpus:4d}   {make.__name__:9s} {worst:15.4f} {live:19.4f} {ratio:13.2f} {jct:>25s}")


if __name__ == "__main__":
    main()
