"""Commands that are killed and run again: their files equal those of a run that nobody disturbed.

python tests/attacks/interruptions.py [KILLS [SEED [compare|train|joblib|submitit|optuna]]]
"""

import csv
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: a comparison of some seconds: two environments and their folders, plots, a scheduler that cannot serve them
COMPARE = [
    "compare", "schedulers=[fifo_backfill,sjf,tiresias,sjf_bco,themis]",
    "seeds=6", "experiments=[contention,sharing]",
    "name=killed", "workers=2", "tensorboard=false",
]  # fmt: skip

#: columns that hold wall time, and files that hold times or how the command was called
CLOCKS = {
    "seconds",
    "wall_seconds",
    "milliseconds_per_decision",
    "wall time (s)",
    "per decision (ms)",
    "time/fps",
}
NOT_COMPARED = {
    *("run.json", "measured.jsonl", "table.md"),
    *("log.txt", "multirun.yaml", "study.db"),  # of sweeps: what the jobs said, words for Hydra, a database
}
MOST_SECONDS = 900

#: seconds after which no process of a killed command is left
LEFT_SECONDS = 30

#: a training of some seconds, and how it goes on
TRAIN = [
    "train",
    "debug=tiny_training",
    "agent.num_envs=8",
    "cluster.num_servers=2",
    "total_decisions=6000",
    "name=killed",
]
RESUME = ["train", "resume=runs/killed"]

#: sweeps of tiny trainings: {how jobs run: words}
SWEEP = [
    "train", "-m", "debug=tiny_training", "agent.num_envs=8", "cluster.num_servers=2", "total_decisions=600",
    "evaluate.every=200", "num_threads=1", "name=killed",
]  # fmt: skip
SWEEPS = {
    "joblib": [*SWEEP, "seed=0,1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "submitit": [*SWEEP, "seed=0,1", "hydra/launcher=submitit_local"],
    "optuna": [
        *SWEEP, "sweep=ppo_mlp", "agent.model.n_steps=16", "agent.model.batch_size=64",
        "hydra.sweeper.n_trials=4", "hydra.sweeper.sampler.seed=5",
        "hydra.sweeper.sampler.n_startup_trials=2",
    ],
}  # fmt: skip

MARK = "RINGYARD_ATTACK"


def start(words: Sequence[str], folder: Path, mark: str) -> "subprocess.Popen[str]":
    """The command in a folder, in a process group of its own."""
    path = os.pathsep.join(str(ROOT / part) for part in ("envs", "baselines", "agents", "tests"))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "ringyard_agents", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "160", MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def alive(mark: str) -> list[int]:
    """Processes that were started under a mark; empty where there is no /proc."""
    found = []
    for home in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (home / "environ").read_bytes():
                found.append(int(home.name))
        except OSError:
            continue
    return found


def content(file: Path) -> object:
    """What has to be equal of a file."""
    if file.name == "config.yaml":  # what is resumed is part of the command, not of the run
        return [line for line in file.read_text().splitlines() if not line.startswith("resume:")]
    if file.name == "job.json":
        job = json.loads(file.read_text()) | {"seconds": 0.0}
        return job | {"overrides": sorted(job["overrides"])}  # a study changes their order
    if file.suffix != ".csv":
        return file.read_bytes()
    rows = list(csv.DictReader(file.read_text().splitlines()))
    return [{name: value for name, value in row.items() if name not in CLOCKS} for row in rows]


def files_of(folder: Path) -> dict[str, Path]:
    files = (file for file in folder.glob("**/[!.]*") if file.is_file() and "tfevents" not in file.name)
    files = (file for file in files if ".submitit" not in file.parts)
    return {str(file.relative_to(folder)): file for file in files if file.name not in NOT_COMPARED}


def differences(first: Path, second: Path) -> list[str]:
    """Names of files that are not equal, or only in one of two run folders."""
    one, two = files_of(first), files_of(second)
    return sorted(
        name for name in one.keys() | two.keys()
        if name not in one or name not in two or content(one[name]) != content(two[name])
    )  # fmt: skip


def complaint(code: int, error: str, number: int) -> str | None:
    """What is wrong with how a killed command ended."""
    if "Traceback" in error:
        return f"traceback: {error}"
    if number == signal.SIGTERM and (code != 143 or "stopped by SIGTERM" not in error):
        return f"exit code {code} after SIGTERM: {error}"
    return None


def can_go_on(folder: Path) -> bool:
    """Whether a run in the folder has saved what `train resume=` goes on from."""
    return any(folder.glob("runs/*/last.safetensors"))


def disturbed(
    words: Sequence[str], again: Sequence[str], folder: Path, seconds: float, draw: random.Random
) -> str:
    """Kill the command at a random time by a random signal, look how it ends; "" if all is well.

    Args:
        words: of the command.
        again: of the command that goes on, once there is something to go on from.
        folder: where to run it.
        seconds: until which it is killed.
        draw: decides.
    """
    mark = secrets.token_hex(8)
    number = draw.choice([signal.SIGKILL, signal.SIGTERM])
    running = start(again if can_go_on(folder) else words, folder, mark)
    try:
        _, error = running.communicate(timeout=draw.uniform(0.5, seconds))
    except subprocess.TimeoutExpired:
        running.send_signal(number)
        _, error = running.communicate(timeout=MOST_SECONDS)
        ended = time.monotonic()
        while left := alive(mark):
            if time.monotonic() > ended + LEFT_SECONDS:
                return f"{len(left)} processes live on after {number.name}"
            time.sleep(0.1)
        started = "imports" if number == signal.SIGTERM and running.returncode == -number else ""
        return "" if started else complaint(running.returncode, error, number) or ""
    return "" if running.returncode == 0 else f"exit code {running.returncode}: {error}"


def survive(words: Sequence[str], again: Sequence[str], kills: int, seed: int) -> Counter[str]:
    """Kill a command again and again; {"survived": kills, "lost": kills after which something was not right}.

    Args:
        words: of the command.
        again: of the command that goes on.
        kills: how many; after every third the command may finish, and its files are compared.
        seed: of times and signals.
    """
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as home:
        whole = Path(home, "whole")
        whole.mkdir()
        begin = time.monotonic()
        expect_success(words, whole)
        seconds = time.monotonic() - begin
        for first in range(0, kills, 3):
            folder = Path(home, str(first))
            folder.mkdir()
            number = min(3, kills - first)
            found = [disturbed(words, again, folder, seconds, draw) for _ in range(number)]
            expect_success(again if can_go_on(folder) else words, folder)
            found += differences(whole / "runs", folder / "runs")
            print(*(f"seed {seed}, {first}: {one}" for one in found if one), sep="\n", end="")
            counts["lost" if any(found) else "survived"] += number
    return counts


def expect_success(words: Sequence[str], folder: Path) -> None:
    done = start(words, folder, "")
    out, error = done.communicate(timeout=MOST_SECONDS)
    if done.returncode:
        raise AssertionError(f"{words} ended with {done.returncode}: {out}{error}")


def attack(count: int, seed: int, command: str = "compare") -> Counter[str]:
    """Kill comparisons, trainings or sweeps."""
    if command == "train":
        return survive(TRAIN, RESUME, count, seed)
    words = SWEEPS.get(command, COMPARE)
    return survive(words, words, count, seed)


if __name__ == "__main__":
    kills, seed, command = [*sys.argv[1:], *("20", "0", "compare")[len(sys.argv) - 1 :]]
    result = attack(int(kills), int(seed), command)
    print(f"{command}: {result['survived']} of {result.total()} kills survived, files as if undisturbed")
    sys.exit(result["lost"] > 0)
