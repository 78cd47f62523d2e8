"""Whether faster code learns the same from as many samples: curves of another checkout and of this one.

python benchmarks/learning_curves.py CHECKOUT

Both train the group-relative agent on Helios-like jobs with the same seeds. A run that ended is kept.
Curves are of evaluation workloads; intervals are of the ratio of means, paired by seed.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from common import machine
from in_turns import tree
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ringyard_agents.evaluation.ranking import ratio_interval

EVERY = 50_000


def curve(checkout, name, seed, decisions):
    """[evaluations] mean JCT (s) while a checkout learns, from before it has learnt on."""
    folder = Path("runs", name)
    if not (folder / "training.json").is_file():
        words = ["experiment=helios_like", "agent=group_relative", f"total_decisions={decisions}"]
        words += [f"evaluate.every={EVERY}", "evaluate.workloads=24", "evaluate.schedulers=[]"]
        words += [f"seed={seed}", f"name={name}", "overwrite=true", "num_threads=1"]
        command = [sys.executable, "-W", "ignore", "-m", "ringyard_agents", "train", *words]
        subprocess.run(command, env={**os.environ, **tree(checkout)}, check=True, stdout=subprocess.DEVNULL)
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [event.value for event in events.Scalars("eval/mean_jct")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", help="of Ringyard, with the code to be held against")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--decisions", type=int, default=5 * EVERY)
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error(f"--seeds is {options.seeds}; expected at least 2, for an interval")
    here = Path(__file__).parents[1]
    found = {
        name: np.array(
            [curve(code, f"{name}_{seed}", seed, options.decisions) for seed in range(options.seeds)]
        )
        for name, code in (("old", options.checkout), ("new", here))
    }
    print(f"{machine()}; {options.seeds} seeds; mean JCT on 24 workloads (s)")
    print("decisions    the other   this one   difference, 95 % interval")
    for at, (old, new) in enumerate(zip(found["old"].T, found["new"].T, strict=True)):
        ratio = ratio_interval(new, old)
        print(
            f"{at * EVERY:9,d} {old.mean():12,.0f} {new.mean():10,.0f}"
            f"   {ratio.value - 1:+.1%} [{100 * (ratio.low - 1):+.1f}, {100 * (ratio.high - 1):+.1f}]"
        )


if __name__ == "__main__":
    main()
