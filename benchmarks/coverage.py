"""How often 95 % intervals hold the truth: comparisons of few workloads, out of a pool taken as truth.

Two numbers are asked about, which differ: the ratio of mean JCTs, which tables print, and the mean ratio of a
workload (geometric), which counts easy workloads as much as hard ones.
"""

import argparse
import warnings

import hydra
import numpy as np
from common import machine
from scipy.stats import bootstrap, t

from ringyard.errors import WorkloadWarning
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import EvaluationTask, run_task
from ringyard_agents.evaluation.ranking import holm, mean_interval, p_value, ratio_interval
from ringyard_agents.evaluation.selection import workload_environment

EXPERIMENTS = ("sharing", "contention")
PAIRS = (("srtf", "fifo_backfill"), ("sjf", "fifo_backfill"), ("las", "srtf"))
SCHEDULERS = ("fifo_backfill", "sjf", "srtf", "las")
COUNTS = (10, 20, 40)
RESAMPLES = 2_000


def pool(experiment, size):
    """{scheduler: [size] mean JCTs} on an experiment's own workloads, placed by `pack`."""
    config = hydra.compose("compare", [f"experiment={experiment}"])
    configs = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    values = {}
    for label in SCHEDULERS:
        scheduler = to_plain(scheduler_config(SchedulerEntry.read(f"{label}@pack")))
        runs = (
            run_task(EvaluationTask(label, scheduler, workload_environment(configs, 0, number), number, 0))
            for number in range(size)
        )
        values[label] = np.array([run.metrics.mean_jct for run in runs])
    return values


def resampled(count):
    """[RESAMPLES, count] how often each workload is drawn."""
    return np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), RESAMPLES) / count


def percentile(x, y):
    """[2, comparisons] percentile bootstrap of the ratio of means; x, y: [comparisons, workloads]."""
    weights = resampled(x.shape[1])
    return np.quantile((weights @ x.T) / (weights @ y.T), [0.025, 0.975], axis=0)


def accelerated(x, y):
    """BCa bootstrap of the same."""
    parts = []
    for begin in range(0, len(x), 100):  # memory
        part = slice(begin, begin + 100)
        found = bootstrap(
            (x[part], y[part]),
            lambda x, y, axis: x.mean(axis) / y.mean(axis),
            paired=True,
            axis=1,
            n_resamples=RESAMPLES,
            rng=np.random.default_rng(0),
        ).confidence_interval
        parts.append(np.stack([found.low, found.high]))
    return np.concatenate(parts, axis=1)


def studentised(x, y):
    """Bootstrap-t of the same, on logarithms."""
    weights = resampled(x.shape[1])
    own, other = weights @ x.T, weights @ y.T
    variance = (
        (weights @ (x * x).T) / own**2
        + (weights @ (y * y).T) / other**2
        - 2 * (weights @ (x * y).T) / (own * other)
    )
    centre = np.log(x.mean(1) / y.mean(1))
    moved = x / x.mean(1, keepdims=True) - y / y.mean(1, keepdims=True)
    distances = (np.log(own / other) - centre) / np.sqrt(np.maximum(variance, 1e-300))
    low, high = np.quantile(distances, [0.025, 0.975], axis=0) * moved.std(1)
    return np.exp(np.stack([centre - high, centre - low]))


def shipped(x, y):
    """`ratio_interval`: what tables print."""
    return np.array([(one.low, one.high) for one in map(ratio_interval, x, y)]).T


def shipped_mean(x, y):
    """`mean_interval`; there is nothing to be compared with."""
    return np.array([(one.low, one.high) for one in map(mean_interval, x)]).T


def geometric(x, y):
    """Student's t of the workloads' logarithms of ratios."""
    logs = np.log(x / y)
    half = t.ppf(0.975, x.shape[1] - 1) * logs.std(1, ddof=1) / np.sqrt(x.shape[1])
    return np.exp(np.stack([logs.mean(1) - half, logs.mean(1) + half]))


def geometric_accelerated(x, y):
    """BCa bootstrap of the same."""
    logs = np.log(x / y)
    return np.exp(accelerated(logs, np.ones_like(logs)))


MEANS = {
    "percentile": percentile,
    "BCa": accelerated,
    "bootstrap-t": studentised,
    "log t (printed)": shipped_mean,
}
RATIOS = {**MEANS, "log t (printed)": shipped}
GEOMETRIC = {"BCa of log ratios": geometric_accelerated, "t of log ratios": geometric}


def coverage(values, ways, pairs, truth, draws):
    """Print of each interval how often it holds the truth, and how wide it is."""
    for name, interval in ways.items():
        cells = []
        for count in COUNTS:
            held, widths = [], []
            for own, other in pairs:
                rows = np.random.default_rng((count, 1)).integers(len(values[own]), size=(draws, count))
                low, high = interval(values[own][rows], values[other][rows])
                wanted = truth(values[own], values[other])
                held.append(np.mean((low <= wanted) & (wanted <= high)))
                widths.append(np.median(high - low) / wanted)
            cells.append(f"{np.mean(held):8.1%} ({np.mean(widths):4.0%})")
        print(f"  {name:22s}" + "".join(cells), flush=True)


def wrong_tables(values, draws):
    """Print the share of tables of equal schedulers with a difference in any row, before and after Holm."""
    cells = []
    labels = list(values)
    for count in COUNTS:
        rng = np.random.default_rng((count, 2))
        wrong = np.zeros(2)
        for _ in range(draws):
            rows = rng.integers(len(values[labels[0]]), size=count)
            # each row's mean becomes the reference's: every difference that is found is none
            table = [values[label][rows] / values[label].mean() for label in labels]
            found = np.array([p_value(one, table[0]) for one in table[1:]])
            wrong += (found <= 0.05).any(), (holm(found) <= 0.05).any()
        cells.append("{:8.1%} {:6.1%}".format(*(wrong / draws)))
    print(f"  {'any wrong row, Holm':22s}" + "".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pool", type=int, default=400, help="workloads taken as truth")
    parser.add_argument("--draws", type=int, default=1000, help="comparisons of each number of workloads")
    parser.add_argument("--only", nargs="*", default=EXPERIMENTS, metavar="EXPERIMENT")
    options = parser.parse_args()
    warnings.simplefilter("ignore", WorkloadWarning)
    print(machine())
    print(f"pool of {options.pool}, {options.draws} comparisons; share that hold the truth (median width)")
    print("experiment                " + "".join(f"{count:>6d} workloads" for count in COUNTS))
    with hydra_initialized():
        for experiment in options.only:
            values = pool(experiment, options.pool)
            ones = {f"{label} alone": np.ones(options.pool) for label in SCHEDULERS}
            alone = [(label, f"{label} alone") for label in SCHEDULERS]
            print(f"{experiment}: mean JCT")
            coverage(values | ones, MEANS, alone, lambda x, y: x.mean(), options.draws)
            print(f"{experiment}: ratio of means")
            coverage(values, RATIOS, PAIRS, lambda x, y: x.mean() / y.mean(), options.draws)
            print(f"{experiment}: mean ratio")
            coverage(values, GEOMETRIC, PAIRS, lambda x, y: np.exp(np.log(x / y).mean()), options.draws)
            wrong_tables(values, options.draws)


if __name__ == "__main__":
    main()
