"""What ONES' own growth rule allows on its artifact's jobs, beside Tiresias; and what its result files show.

python benchmarks/ones_bound.py [--workloads 10] [--artifact CHECKOUT]

The bound: every job alone, no queueing, no pauses; it begins on one GPU and doubles its GPUs after each so
many epochs, up to where it is fastest. With a checkout of the artifact: rank correlations of the execution
times of its four result files with each other and with the work of the first 50 jobs of its trace.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from ringyard import Simulator
from ringyard.mdp.experiments import experiment
from ringyard.placement import consolidate
from ringyard.sim.speeds import BatchRule, speed_table
from ringyard.workloads.papers import ONES_TASKS
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run

RESULTS = ("ONES", "DRL", "OPTIMUS", "TIRESIAS")


def alone_seconds(epochs, iterations_per_epoch, speed, epochs_per_size):
    """Seconds of one job that doubles its GPUs after each `epochs_per_size` epochs; speed is by GPUs."""
    seconds, gpus = 0.0, 1
    while epochs > 0:
        now = min(epochs, epochs_per_size)
        seconds += now * iterations_per_epoch / speed[1 : gpus + 1].max()
        epochs -= now
        gpus = min(2 * gpus, len(speed) - 1)
    return seconds


def bounds(num_workloads):
    """Mean JCT of Tiresias, and of every job alone by the growth rule."""
    setting = experiment("ones")
    found = []
    for seed in range(num_workloads):
        jobs = setting.workload.sample(setting.cluster, np.random.default_rng(seed))
        sim = Simulator(setting.cluster, jobs, setting.performance, setting.restart)
        speed = speed_table(sim.view(), BatchRule.PER_GPU).speed
        run(sim, tiresias(consolidate()), np.random.default_rng(seed))
        per_epoch = jobs.dataset_bytes / jobs.sample_bytes / jobs.batch_size
        row = [sim.metrics().mean_jct]
        for size in (1, 2):
            each = zip(jobs.iterations / per_epoch, per_epoch, speed, strict=True)
            row.append(np.mean([alone_seconds(*one, size) for one in each]))
        found.append(row)
    for label, value in zip(
        ("Tiresias", "1 epoch a size", "2 epochs a size"), np.mean(found, 0), strict=True
    ):
        print(
            f"{label:16s} mean JCT {value:6.0f} s, {value / np.mean(found, 0)[0] - 1:+.1%} against Tiresias"
        )
    print(
        "(by its code the validation before training is an epoch: 1 epoch a size; without it the first is 2)"
    )


def artifact(folder):
    """Rank correlations of what the artifact ships."""
    times = {name: pd.read_csv(folder / "out" / f"{name}_profile.csv").execution_time for name in RESULTS}
    trace = pd.read_csv(folder / "traces" / "trace_1.csv").head(50)
    rates = dict(zip(KINDS, (task.rate for task in ONES_TASKS), strict=True))
    runs = dict(zip(KINDS, (task.runs for task in ONES_TASKS), strict=True))
    rows = [(row.epoch_size, f"{row.model} {row.task}") for row in trace.itertuples()]
    epoch = [size / rates[kind] for size, kind in rows]
    work = [one * np.mean(runs[kind][size]) for one, (size, kind) in zip(epoch, rows, strict=True)]
    print(
        "rank correlation of execution times with", *RESULTS, "the trace's work, seconds an epoch", sep="  "
    )
    for name in RESULTS:
        values = [spearmanr(times[name], times[other])[0] for other in RESULTS]
        values += [spearmanr(times[name], work)[0], spearmanr(times[name], epoch)[0]]
        print(f"{name:10s}", *(f"{value:6.2f}" for value in values))


#: as `ONES_TASKS`
KINDS = (
    "resnet18 cifar",
    "googlenet cifar",
    "vgg16 cifar",
    "alexnet imagenet",
    "resnet50 imagenet",
    "vgg16 imagenet",
    "inception_v3 imagenet",
    "bert cola",
    "bert mrpc",
    "bert sst2",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=10)
    parser.add_argument("--artifact", type=Path)
    arguments = parser.parse_args()
    bounds(arguments.workloads)
    if arguments.artifact is not None:
        artifact(arguments.artifact)


if __name__ == "__main__":
    main()
