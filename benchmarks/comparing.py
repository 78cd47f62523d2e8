"""`ringyard compare` with one worker and with several, by turns: what more cores are worth to a table.

With --all-schedulers: every scheduler on five environments, once, from an empty kernel cache, with the
seconds of each.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from common import machine

import ringyard

SCHEDULERS = "[sjf,srsf,ada_srsf,sjf_bco,interference_aware,themis,afs_l,e_tiresias,synergy_tune,gadget]"


def seconds(folder, *words, **variables):
    """Of `ringyard compare` with these words, tables and plots included."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ringyard_agents", "compare", *words],
        cwd=folder,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - begin


def on_sharing(workers, seeds, folder):
    """Seconds of a fresh comparison on the environment Sharing."""
    words = ["experiment=sharing", f"schedulers={SCHEDULERS}", f"seeds={seeds}", f"workers={workers}"]
    return seconds(folder, *words, "name=workers", "rerun=true", "overwrite=true")


def print_all_schedulers(folder, seeds):
    """The whole tables' time, and the runs' by scheduler."""
    cache = str(Path(folder) / "cache")
    taken = seconds(
        folder, "schedulers=all", "name=environments", "rerun=true", f"seeds={seeds}", NUMBA_CACHE_DIR=cache
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    files = sorted(Path(folder, "runs").glob("**/runs.csv"))
    runs = pd.concat([pd.read_csv(file) for file in files])
    runs["name"] = runs["scheduler"].str.partition("@")[0]
    spent = runs.groupby("name")["wall_seconds"].sum().sort_values(ascending=False)
    print(
        f"{machine()}; all schedulers, {len(files)} environments, {seeds} workloads each, nothing"
        " compiled before"
    )
    print(f"{taken / 60:.1f} minutes, {(used.ru_utime + used.ru_stime) / 60:.1f} of processor time")
    print(f"{spent.sum() / 60:.1f} minutes of runs, those of the slowest ten:")
    for name, total in spent.head(10).items():
        print(f"{name:20s} {total / 60:6.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2, help="the best counts")
    parser.add_argument(
        "--all-schedulers", action="store_true", help="all schedulers on five environments, once"
    )
    options = parser.parse_args()
    if options.all_schedulers:
        with tempfile.TemporaryDirectory() as folder:
            print_all_schedulers(folder, options.seeds)
        return
    several = ringyard.get_num_threads()
    if several == 1:
        print("left out: there is one core, and nothing to compare")
        return
    with tempfile.TemporaryDirectory() as folder:
        on_sharing(several, 2, folder)  # compiled before it is timed
        best = dict.fromkeys((1, several), float("inf"))
        for _ in range(options.rounds):
            for workers in best:
                best[workers] = min(best[workers], on_sharing(workers, options.seeds, folder))
    print(
        f"{machine()}; Sharing, {SCHEDULERS.count(',') + 1} schedulers, {options.seeds} workloads,"
        " compiled before"
    )
    print("workers   seconds  times one")
    for workers, taken in best.items():
        print(f"{workers:7d} {taken:9.1f} {best[1] / taken:10.2f}")


if __name__ == "__main__":
    main()
