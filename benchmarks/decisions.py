"""Seconds per decision of every scheduler, against the jobs that wait or run."""

import argparse
import time

import numpy as np
from common import build, machine

from ringyard.config_folder import config_folder
from ringyard.errors import SchedulerError
from ringyard.sim.simulator import Simulator

#: AITurbo's follow-on (plot data): seconds of one decision with so many jobs
AITURBO = {100: 0.101, 300: 0.382, 1000: 1.419}


def decisions(name, num_jobs, later):
    """(first decision, with profiling; slowest of the later ones) in seconds; all jobs come at once."""
    overrides = ["experiment=elastic", "cluster.num_servers=64", f"workload.base.num_jobs={num_jobs}"]
    parts = build(
        "simulate", [*overrides, f"scheduler={name}"], "cluster", "workload", "performance", "scheduler"
    )
    jobs = parts["workload"].sample(parts["cluster"], np.random.default_rng(0))
    jobs = jobs.shifted(np.zeros(len(jobs)))
    scheduler = parts["scheduler"]
    sim = Simulator(parts["cluster"], jobs, parts["performance"], round_seconds=scheduler.round_seconds)
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    sim.advance()
    taken = []
    while len(taken) <= later and not sim.done:
        begin = time.perf_counter()
        allocations = scheduler.decide(sim.view(scheduler.observability))
        taken.append(time.perf_counter() - begin)
        sim.apply(allocations)
        sim.advance()
    return taken[0], max(taken[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--later", type=int, default=8, help="decisions after the first (%(default)s)")
    parser.add_argument("--schedulers", nargs="+", default=None)
    options = parser.parse_args()
    folder = config_folder() / "scheduler"
    names = options.schedulers or sorted(file.stem for file in folder.glob("*.yaml"))
    print(f"{machine()}; 256 GPUs, elastic jobs, all at once")
    print(f"milliseconds: first decision, with profiling / slowest of the next {options.later}")
    print(
        f"{'scheduler':20s}"
        + "".join(f"{f'{count} jobs':>24s}" for count in options.jobs)
        + "   x fifo_backfill"
    )
    decisions("fifo_backfill", 20, 2)
    fifo_backfill = min(decisions("fifo_backfill", options.jobs[-1], options.later)[1] for _ in range(3))
    for name in names:
        try:
            decisions(name, 20, 2)  # compiled before it is timed
            rows = [decisions(name, count, options.later) for count in options.jobs]
        except SchedulerError:
            continue  # not for such jobs
        cells = "".join(f"{f'{1e3 * first:,.1f} / {1e3 * later:,.1f}':>24s}" for first, later in rows)
        print(f"{name:20s}{cells}{rows[-1][1] / fifo_backfill:9.1f}", flush=True)
    published = ", ".join(f"{1e3 * seconds:,.0f} at {count}" for count, seconds in AITURBO.items())
    print(f"published for AITurbo's follow-on, other hardware: {published} jobs")


if __name__ == "__main__":
    main()
