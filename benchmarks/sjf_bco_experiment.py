"""SJF-BCO's published experiment (technical report section 7, Fig. 4): makespans beside the paper's."""

import argparse
from dataclasses import dataclass

import numpy as np
from common import build

from ringyard.sim.simulator import Simulator
from ringyard_baselines.scheduler import run

HORIZON_SLOTS = 1200.0  # T of Figs. 4 and 5; one slot is taken as one second
#: makespans read off the vectors of Fig. 4, in slots
PAPER = {"sjf_bco": 535, "sjf_bco_ls": 595, "sjf_bco_ff": 719, "sjf_bco_rand": 1128}


@dataclass(frozen=True)
class Outcome:
    """[seeds] makespan, mean completion (slots) and execution time over its contention-free value."""

    makespan: np.ndarray
    mean_jct: np.ndarray
    inflation: np.ndarray


def experiment(seeds):
    """{scheduler: Outcome} over clusters and jobs drawn anew for each seed."""
    rows = {name: [] for name in PAPER}
    for seed in range(seeds):
        overrides = ["experiment=sjf_bco", f"seed={seed}"]
        parts = build("simulate", overrides, "cluster", "workload", "performance")
        jobs = parts["workload"].sample(parts["cluster"], np.random.default_rng(seed))
        for name in PAPER:
            extra = [f"scheduler={name}", f"scheduler.horizon_seconds={HORIZON_SLOTS}"]
            scheduler = build("simulate", overrides + extra, "scheduler")["scheduler"]
            sim = Simulator(parts["cluster"], jobs, parts["performance"], seed=seed)
            run(sim, scheduler, np.random.default_rng(seed))
            records = sim.state.jobs[0, :-1]
            held = (records["attained_service"] / records["num_gpus"]).sum()
            free = (records["compute_seconds"] * records["total_iterations"]).sum()
            metrics = sim.metrics()
            rows[name].append((metrics.makespan, metrics.mean_jct, held / free))
    return {name: Outcome(*np.array(values).T) for name, values in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    outcomes = experiment(seeds)
    best = outcomes["sjf_bco"].makespan
    print(f"SJF-BCO's experiment, {seeds} seeds, slots; alpha, xi, bandwidths and sizes are assumptions")
    print("scheduler         makespan  paper   mean JCT  SJF-BCO saves  paper  execution / compute")
    for name, outcome in outcomes.items():
        saving = 1 - best.mean() / outcome.makespan.mean()
        paper = 1 - PAPER["sjf_bco"] / PAPER[name]
        print(
            f"{name:16s} {outcome.makespan.mean():9.0f} {PAPER[name]:6d} {outcome.mean_jct.mean():10.0f}"
            f" {saving:14.1%} {paper:6.1%} {outcome.inflation.mean():20.3f}"
        )


if __name__ == "__main__":
    main()
