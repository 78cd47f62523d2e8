"""Run every benchmark and keep its output in benchmarks/results/; the Venus trace's path is optional."""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = (
    "vector_env",
    "schedulers",
    "scale",
    "allocator",
    "decisions",
    "features",
    "copies",
    "contention",
    "ppo",
    "learning",
    "startup",
    "comparing",
    "mechanisms",
    "sjf_bco_experiment",
    "coverage",
    "sjf_bco_optimum",
)

#: sizes of a batch in the plot of the environment
CLUSTERS = (4, 16, 64, 256, 1024, 4096)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venus", help="path of the Helios Venus trace; without it venus.py is skipped")
    venus = parser.parse_args().venus
    commands = {name: [] for name in NAMES} | {
        "scale": ["--plot", "../docs/images/scale.png"],
        "vector_env": ["--plot", "../docs/images/vector_env.png", "--clusters", *map(str, CLUSTERS)],
    }
    if venus:
        commands["venus"] = commands["venus_schedulers"] = [str(Path(venus).resolve())]
    else:
        print("venus.py and venus_schedulers.py skipped: give --venus FILE")
    for name, arguments in commands.items():
        done = subprocess.run(
            [sys.executable, f"{name}.py", *arguments], cwd=HERE, capture_output=True, text=True, check=True
        )
        print(f"== {name}\n{done.stdout}", flush=True)
        (HERE / "results" / f"{name}.txt").write_text(done.stdout)


if __name__ == "__main__":
    main()
