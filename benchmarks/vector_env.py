"""Steps per second through the public API: random valid actions, dict observations, masks, resets."""

import argparse
import time
from pathlib import Path

import gymnasium
import numpy as np
from common import machine

import ringyard
from ringyard.compiled import kernel
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations import queue_and_cluster
from ringyard.mdp.workload_cache import WorkloadCache
from ringyard.state.random_numbers import next_uniform

#: job tables to draw from: so many that few are drawn twice, or few that are all made before the clock starts
FRESH, CACHED = 1 << 20, 256


@kernel
def random_valid(masks, generator, actions):
    """A valid action of each cluster."""
    for b in range(masks.shape[0]):
        count = 0
        for a in range(masks.shape[1]):
            count += masks[b, a]
        left = int(next_uniform(generator) * count)
        for a in range(masks.shape[1]):
            if masks[b, a]:
                if left == 0:
                    actions[b] = a
                    break
                left -= 1


def vector_rate(num_envs, num_threads, steps, fresh, flat, copy, clock=time.perf_counter):
    """Steps per second of `gymnasium.make_vec`, its first reset included."""
    setting = EnvConfig(observation=queue_and_cluster(flat), num_workloads=FRESH if fresh else CACHED)
    env = gymnasium.make_vec(
        "ringyard/Cluster-v0",
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        config=setting,
        autoreset_mode="SameStep",
        copy=copy,
        num_threads=num_threads,
    )
    if not fresh:
        env.unwrapped.batch.workload_cache.rows_of(np.arange(CACHED))
    actions, generator = np.zeros(num_envs, np.int64), np.ones(1, np.uint64)
    begin = clock()
    _, info = env.reset(seed=0)
    for _ in range(steps):
        random_valid(info["action_mask"], generator, actions)
        *_, info = env.step(actions)
    taken = clock() - begin
    env.close()
    return num_envs * steps / taken


def single_rate(steps, fresh, clock=time.perf_counter):
    """Steps per second of one `ClusterEnv`; of 4 cached workloads, or of fresh ones."""
    env = ringyard.ClusterEnv(EnvConfig(num_workloads=FRESH if fresh else 4))
    if not fresh:
        env.batch.workload_cache.rows_of(np.arange(4))
    _, info = env.reset(seed=0)
    actions, generator = np.zeros(1, np.int64), np.ones(1, np.uint64)
    begin = clock()
    for _ in range(steps):
        random_valid(info["action_mask"][None], generator, actions)
        *_, ended, truncated, info = env.step(int(actions[0]))
        if ended or truncated:
            _, info = env.reset()
    return steps / (clock() - begin)


def table_milliseconds(together):
    """Of one job table of 100 jobs, drawn and made ready with others at a time, in memory used before."""
    cache = WorkloadCache(EnvConfig(num_workloads=FRESH), 64)
    parts = [np.arange(first, first + together) for first in range(0, cache.num_rows + 1024, together)]
    warm = cache.num_rows // together
    for part in parts[:warm]:
        cache.rows_of(part)
    begin = time.perf_counter()
    for part in parts[warm:]:
        cache.rows_of(part)
    return 1e3 * (time.perf_counter() - begin) / (together * len(parts[warm:]))


def draw(path, rates):
    """A line for each number of threads and kind of workload, of rows with dict observations."""
    from matplotlib import pyplot as plt

    lines = {}
    for (num_envs, count, fresh, flat, _), rate in rates.items():
        if not flat:
            label = f"{'fresh' if fresh else 'cached'}, {count} thread{'s' * (count > 1)}"
            lines.setdefault(label, []).append((num_envs, rate))
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for label, points in lines.items():
        axis.plot(*zip(*points, strict=True), "--" if "fresh" in label else "-", marker="o", label=label)
    axis.set(xscale="log", xlabel="clusters", ylabel="environment steps per second")
    sizes = sorted({num_envs for num_envs, *_ in rates})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.grid(visible=True, alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000_000, help="of all clusters of a row together")
    parser.add_argument("--rounds", type=int, default=3, help="in which all rows take turns; the best counts")
    parser.add_argument("--clusters", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--plot", type=Path, help="PNG to write: steps per second against clusters")
    parser.add_argument("--cpu", action="store_true", help="per second of CPU time, where others are at work")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    threads = sorted({1, ringyard.get_num_threads()})
    rows = [
        (num_envs, count, fresh, False, True)
        for num_envs in options.clusters
        for count in threads
        if count == 1 or num_envs >= 128 * count  # smaller parts are not worth a hand-over
        for fresh in (False, True)
    ]
    rows.append((64, 1, False, True, False))
    vector_rate(64, 1, 100, False, True, True)  # compiled before it is timed
    best = dict.fromkeys(rows, 0.0)
    single = {False: 0.0, True: 0.0}
    for _ in range(options.rounds):
        for row in rows:
            num_envs, count, fresh, flat, copy = row
            rate = vector_rate(num_envs, count, options.steps // num_envs, fresh, flat, copy, clock)
            best[row] = max(best[row], rate)
        for fresh in single:
            single[fresh] = max(single[fresh], single_rate(options.steps // 40, fresh, clock))
    print(f"{machine()}; 16 x 4 GPUs, 16 visible and 16 running jobs, 2 templates, episodes of 100 jobs")
    second = "CPU second" if options.cpu else "second"
    print(f"clusters  threads  workloads  observation  fresh arrays   steps per {second}, share of cached")
    for (num_envs, count, fresh, flat, copy), rate in best.items():
        words = ("fresh" if fresh else "cached", "flat" if flat else "dict", "yes" if copy else "no")
        share = f" {rate / best[num_envs, count, False, flat, copy]:8.0%}" if fresh else ""
        row = f"{num_envs:8d}  {count:7d}  {words[0]:9s}  {words[1]:11s}  {words[2]:12s} {rate:10,.0f}"
        print(row + share)
    if options.plot:
        draw(options.plot, best)
    print(f"ClusterEnv, cached{single[False]:54,.0f}")
    print(f"ClusterEnv, fresh {single[True]:54,.0f} {single[True] / single[False]:8.0%}")
    alone, many = (min(table_milliseconds(count) for _ in range(options.rounds)) for count in (1, 64))
    print(
        f"a job table drawn and made ready, in memory used before: {alone:.2f} ms alone,"
        f" {many:.3f} ms each with 63 others"
    )


if __name__ == "__main__":
    main()
