"""Run the benchmarks of docs/benchmarks.md and keep their output, and the command, in benchmarks/results/.

Left out: what needs another checkout (in_turns, learning_curves).
"""

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
    "frames",
    "contention",
    "ppo",
    "learning",
    "startup",
    "comparing",
    "comparing_all",
    "mechanisms",
    "sjf_bco_experiment",
    "coverage",
    "sjf_bco_optimum",
    "loss_curves",
    "aiturbo_servers",
)

TRACES = ("venus", "venus_schedulers")

#: of those that have other arguments than the usual ones
ARGUMENTS = {
    "vector_env": "--clusters 4 16 64 256 1024 4096".split(),
    "decisions": ["--jobs", "100", "300", "1000", "--later", "4"],
    "learning": "--seconds 3 --rounds 2".split(),
    "comparing_all": ["--all-schedulers"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--venus", help="path of the Helios Venus trace, for venus.py and venus_schedulers.py"
    )
    parser.add_argument("--only", nargs="+", choices=[*NAMES, *TRACES], help="some of them")
    options = parser.parse_args()
    if set(options.only or []) & set(TRACES) and not options.venus:
        parser.error(f"{' and '.join(TRACES)} need --venus FILE")
    chosen = options.only or [*NAMES, *TRACES]
    if not options.venus:
        print("venus.py and venus_schedulers.py are left out: give --venus FILE")
        chosen = [name for name in chosen if name not in TRACES]
    failed = [name for name in chosen if not run_and_keep(name, options.venus)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def run_and_keep(name, venus):
    """Run one of them, and keep what it prints if it ends well; whether it does."""
    arguments = [str(Path(venus).resolve())] if name in TRACES else ARGUMENTS.get(name, [])
    shown = ["FILE"] if name in TRACES else arguments
    script = f"{name.removesuffix('_all')}.py"
    command = f"python benchmarks/{script} {' '.join(shown)}".strip()
    done = subprocess.run([sys.executable, script, *arguments], cwd=HERE, stdout=subprocess.PIPE, text=True)
    print(f"== {command}\n{done.stdout}", flush=True)
    if done.returncode == 0:
        (HERE / "results" / f"{name}.txt").write_text(f"{command}\n{done.stdout}")
    return done.returncode == 0


if __name__ == "__main__":
    main()
