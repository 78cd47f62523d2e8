"""Every attack, two at a time; exit code 1 if one of them found something.

python tests/attacks/run_all.py [--scale 0.1]
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HOME = Path(__file__).resolve().parent


def attacks(scale: float) -> list[list[str]]:
    """Commands, the longest first."""

    def times(count: float) -> str:
        return str(max(int(count * scale), 1))

    here = {file.stem: str(file) for file in HOME.glob("*.py")}
    return [
        [str(HOME.parent / "oracle_comparison.py"), "--simulations", times(10_000), "--workers", "1"],
        [here["memory"], times(10_000_000)],
        [here["interruptions"], times(20), "0", "train"],
        *(
            [here["interruptions"], times(20), "0", kind]
            for kind in ("compare", "joblib", "submitit", "optuna")
        ),
        [here["hostile_agents"], times(2_000)],
        [here["command_lines"], times(1_000)],
        [here["malformed"], times(1_000)],
        [here["misuse"]],
    ]


def run(command: list[str]) -> tuple[list[str], int, str, float]:
    """(command, exit code, what it printed, seconds)."""
    begin = time.monotonic()
    words = [sys.executable, "-W", "ignore", *command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return command, done.returncode, done.stdout.strip(), time.monotonic() - begin


def main() -> int:
    """Run and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of how often each is tried (%(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="attacks at the same time (%(default)s)")
    options = parser.parse_args()
    failed = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        for command, code, printed, seconds in pool.map(run, attacks(options.scale)):
            name = " ".join([Path(command[0]).stem, *command[1:]])
            print(f"-- {name}: {'held' if code == 0 else 'BROKEN'} ({seconds:.0f} s)\n{printed}", flush=True)
            failed += code != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
