"""Seconds until a command has done its work: the first time (compiling) and later ones."""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import machine

COMMANDS = {
    "ringyard --help": "from ringyard_agents.cli import main; main(['--help'])",
    "ringyard train --help": "from ringyard_agents.cli import main; main(['train', '--help'])",
    "ringyard train --cfg job": "from ringyard_agents.cli import main; main(['train', '--cfg', 'job'])",
    "gymnasium.make_vec + reset + step": (
        "import ringyard, gymnasium; e = gymnasium.make_vec('ringyard/Cluster-v0', num_envs=4);"
        " _, i = e.reset(seed=0); e.step(i['action_mask'].argmax(axis=1))"
    ),
    "simulate": (
        "from ringyard_agents.cli import main; main(['simulate', 'name=startup', 'scheduler=fifo_backfill'])"
    ),
    "simulate SRTF": (
        "from ringyard_agents.cli import main; main(['simulate', 'name=startup', 'scheduler=srtf'])"
    ),
}


def seconds(code, cache, folder):
    """Of one fresh process with the given numba cache."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"NUMBA_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - begin


def processor_seconds():
    """Of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{machine()}; one cache of compiled code for all commands, in this order")
    print("command                              first (s)  processor time (s)  later (s), best of 3")
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        for name, code in COMMANDS.items():
            before = processor_seconds()
            first = seconds(code, cache, folder)
            used = processor_seconds() - before
            later = min(seconds(code, cache, folder) for _ in range(3))
            print(f"{name:36s} {first:9.2f} {used:19.2f} {later:10.2f}", flush=True)
        shutil.rmtree(cache, ignore_errors=True)


if __name__ == "__main__":
    main()
