"""SJF-BCO's rule for its constants (technical report section 7): contention within 15 % of execution time.

Makespans beside the paper's are `ringyard reproduce sjf_bco`.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from common import build

from ringyard.sim.simulator import Simulator
from ringyard_baselines.scheduler import run

HORIZON_SLOTS = 1200.0  # T of Figs. 4 and 5; one slot is taken as one second
SCHEDULERS = ("sjf_bco", "sjf_bco_ls", "sjf_bco_ff", "sjf_bco_rand")
BANDWIDTHS = (2.6e9, 1.3e9, 0.65e9, 0.325e9)  # b_e, bytes per second; the second ships


@dataclass(frozen=True)
class Outcome:
    """[seeds] makespan (slots), and communication with overhead as a share of execution time."""

    makespan: np.ndarray
    extra: np.ndarray


def experiment(seeds, bandwidth):
    """{scheduler: Outcome} over clusters and jobs drawn anew for each seed."""
    horizon = f"scheduler.horizon_seconds={HORIZON_SLOTS}"
    schedulers = {
        name: build("simulate", [f"scheduler={name}", horizon], "scheduler")["scheduler"]
        for name in SCHEDULERS
    }
    rows = {name: [] for name in SCHEDULERS}
    for seed in range(seeds):
        physics = f"performance.inter_server_bytes_per_second={bandwidth}"
        overrides = ["experiment=sjf_bco", f"cluster.seed={seed}", physics]
        parts = build("simulate", overrides, "cluster", "workload", "performance")
        jobs = parts["workload"].sample(parts["cluster"], np.random.default_rng(seed))
        for name, scheduler in schedulers.items():
            sim = Simulator(parts["cluster"], jobs, parts["performance"], seed=seed)
            run(sim, scheduler, np.random.default_rng(seed))
            records = sim.state.jobs[0, :-1]
            held = (records["attained_service"] / records["num_gpus"]).sum()
            compute = (records["compute_seconds"] * records["total_iterations"]).sum()
            rows[name].append((sim.metrics().makespan, 1 - compute / held))
    return {name: Outcome(*np.array(values).T) for name, values in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    print(f"SJF-BCO's experiment, {seeds} seeds: mean makespan, and communication and overhead / execution")
    print("b_e (GB/s) " + "".join(f"{name:>22s}" for name in SCHEDULERS))
    for bandwidth in BANDWIDTHS:
        outcomes = experiment(seeds, bandwidth)
        cells = [f"{one.makespan.mean():14.0f} {one.extra.mean():7.1%}" for one in outcomes.values()]
        print(f"{bandwidth / 1e9:10.3f} " + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
