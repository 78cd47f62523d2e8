"""`ringyard compare` with one worker and with several, by turns: what more cores are worth to a table."""

import argparse
import subprocess
import sys
import tempfile
import time

from common import machine

import ringyard

SCHEDULERS = "[sjf,srsf,ada_srsf,sjf_bco,interference_aware,themis,afs_l,e_tiresias,synergy_tune,gadget]"


def seconds(workers, seeds, folder):
    """Of a fresh comparison on the preset Sharing, tables and plots included."""
    words = ["experiment=sharing", f"schedulers={SCHEDULERS}", f"seeds={seeds}", f"workers={workers}"]
    begin = time.perf_counter()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "ringyard_agents",
            "compare",
            *words,
            "name=workers",
            "rerun=true",
            "overwrite=true",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2, help="the best counts")
    options = parser.parse_args()
    several = ringyard.get_num_threads()
    if several == 1:
        parser.error("there is one core; expected several")
    with tempfile.TemporaryDirectory() as folder:
        seconds(several, 2, folder)  # compiled before it is timed
        best = dict.fromkeys((1, several), float("inf"))
        for _ in range(options.rounds):
            for workers in best:
                best[workers] = min(best[workers], seconds(workers, options.seeds, folder))
    print(f"{machine()}; Sharing, {SCHEDULERS.count(',') + 1} schedulers, {options.seeds} workloads")
    print("workers   seconds  times one")
    for workers, taken in best.items():
        print(f"{workers:7d} {taken:9.1f} {best[1] / taken:10.2f}")


if __name__ == "__main__":
    main()
