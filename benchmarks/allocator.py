"""Time of a decision of the allocator, against SRTF on the same jobs, by cluster size."""

import argparse
import time

import numpy as np
from common import build, machine

from ringyard.sim.simulator import Simulator
from ringyard_baselines.scheduler import run


def same_servers(count):
    """Override of a cluster of so many servers at 64 GPUs."""
    return lambda scale: f"cluster.num_servers={count * scale}"


def three_types(scale):
    """Override of Full's cluster, so many times."""
    groups = (
        f"{{num_servers: {4 * scale}, gpus_per_server: {gpus}, gpu_type: {gpu_type},"
        f" cores_per_server: {cores}, memory_bandwidth_bytes_per_second: {bandwidth}}}"
        for gpus, gpu_type, cores, bandwidth in (
            (8, "v100", 48, 115.2e9),
            (4, "t4", 32, 76.8e9),
            (4, "p100", 32, 76.8e9),
        )
    )
    return f"cluster.groups=[{', '.join(groups)}]"


#: {environment: (its cluster at a scale, its jobs at 64 GPUs, where they are set)}
EXPERIMENTS = {
    "elastic": (same_servers(16), 160, "workload.base.num_jobs"),
    "cpu_gpu": (same_servers(8), 160, "workload.base.num_jobs"),
    "sharing": (same_servers(16), 480, "workload.num_jobs"),
    "full": (three_types, 160, "workload.base.num_jobs"),
}


def per_decision(environment, scheduler, scale, tries=1):
    """(seconds of a decision point, seconds of profiling before the first, the most jobs alive at once).

    Both are the least of so many tries: on few GPUs profiling takes longer than all decisions.
    """
    cluster, jobs, setting = EXPERIMENTS[environment]
    overrides = [f"experiment={environment}", cluster(scale), f"{setting}={jobs * scale}"]
    parts = build(
        "simulate",
        [*overrides, f"scheduler={scheduler}", "placement=consolidate"],
        *("cluster", "workload", "performance", "restart", "scheduler"),
    )
    table = parts["workload"].sample(parts["cluster"], np.random.default_rng(0))
    taken, profiling = [], []
    for _ in range(tries):
        sim, trial = (
            Simulator(parts["cluster"], table, parts["performance"], parts["restart"]) for _ in range(2)
        )
        decider = parts["scheduler"]
        decider.reset(trial.cluster, table.restricted_to(decider.observability), np.random.default_rng(0))
        begin = time.process_time()
        decider.decide(trial.view(decider.observability))
        profiling.append(time.process_time() - begin)
        begin = time.process_time()
        run(sim, decider, np.random.default_rng(0))
        taken.append(time.process_time() - begin)
    events = np.concatenate([table.submit_seconds, sim.state.jobs["end_seconds"][0, : len(table)]])
    order = np.argsort(events, kind="stable")
    alive = np.cumsum(np.where(order < len(table), 1, -1))
    decisions = int(sim.state.clusters["num_decisions"][0])
    return (min(taken) - min(profiling)) / decisions, min(profiling), int(alive.max())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scales", type=int, nargs="+", default=[1, 4, 16, 64])
    options = parser.parse_args()
    print(f"{machine()}; milliseconds of a decision point, simulation included")
    columns = ("allocator", "srtf", "ratio", "profiling")
    print(f"{'environment':10s}{'GPUs':>6s}{'jobs alive':>12s}" + "".join(f"{name:>12s}" for name in columns))
    for environment in EXPERIMENTS:
        for scheduler in ("allocator", "srtf"):
            per_decision(environment, scheduler, 1)  # compiled before it is timed
        for scale in options.scales:
            tries = 10 if scale < 16 else 1
            mine, profiling, alive = per_decision(environment, "allocator", scale, tries)
            its, _, _ = per_decision(environment, "srtf", scale, tries)
            times = f"{1e3 * mine:12.3f}{1e3 * its:12.3f}{mine / its:12.1f}{1e3 * profiling:12.0f}"
            print(f"{environment:10s}{64 * scale:6d}{alive:12d}{times}", flush=True)


if __name__ == "__main__":
    main()
