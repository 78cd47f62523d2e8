"""Training of the pretrained agents: several runs in parallel, which resume after an interruption."""

import csv
import json
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import hydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from ringyard.errors import CheckpointError, ConfigurationError, RingyardError, SchedulerError
from ringyard.threads import usable_cores
from ringyard_agents.config.compose import to_plain
from ringyard_agents.config.schema import check_settings
from ringyard_agents.learning.agent_file import AGENT_FILE, LAST_FILE
from ringyard_agents.learning.evaluation import agent_sort_key
from ringyard_agents.learning.resume import add_inherited_parts, check_agreement, read_run_config
from ringyard_agents.learning.training_run import read_last
from ringyard_agents.runs.atomic_write import atomic_write
from tools.zoo.recipes import Recipe


def hardware(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor of this machine, and how many of its cores this process may use.

    Args:
        cpuinfo: Linux' file of processors; elsewhere Python says what it knows.
    """
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{name}, {usable_cores()} cores"


def require_training(recipe: Recipe) -> None:
    """Find what a recipe cannot be trained by, before others are; Hydra must be initialised.

    Raises:
        ConfigurationError: words that `ringyard train` does not take.
    """
    for seed in recipe.seeds:
        try:
            _config(recipe, seed)
        except (RingyardError, HydraException, OmegaConfBaseException) as error:
            raise ConfigurationError(
                f"tools/conf/zoo: {recipe.name}: train: {' '.join(str(error).split())}"
            ) from error


def _config(recipe: Recipe, seed: int) -> dict[str, Any]:
    """Of a training run, as `ringyard train` composes it."""
    config = hydra.compose("train", add_inherited_parts(recipe.words(seed)))
    check_settings("train", config)
    composed: dict[str, Any] = to_plain(config)
    return composed


def is_trained(recipe: Recipe, seed: int) -> bool:
    """Whether a training run has ended; Hydra must be initialised.

    Raises:
        ConfigurationError: the run's settings are others than the recipe's.
        CheckpointError: the run is damaged.
    """
    folder = recipe.folder(seed)
    if not (folder / LAST_FILE).is_file():
        return False
    file = folder / "config.yaml"
    saved = read_run_config(file, ())
    asked = _config(recipe, seed)
    check_agreement(recipe.words(seed), asked, {**saved, "name": asked["name"]}, file)
    learner, evaluation = read_last(folder)
    patience = saved["evaluate"]["patience"]
    enough = patience is not None and evaluation["in_vain"] >= patience
    return enough or learner.metadata["decisions"] >= asked["total_decisions"]


def train_all(recipes: Sequence[Recipe], workers: int, say: Callable[[str], None]) -> None:
    """Train every seed of every recipe that is not trained yet; Hydra must be initialised.

    Whatever ends this, runs that have begun save what they have, and go on at the next call.

    Args:
        recipes: of the agents.
        workers: runs at a time.
        say: called with a line when a run begins.

    Raises:
        RingyardError: a run of other settings is in the way; SchedulerError: a run failed.
    """
    waiting = [(one, seed) for one in recipes for seed in one.seeds if not is_trained(one, seed)]
    running: list[_Run] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                run = _Run(*waiting.pop(0), num_threads=max(1, usable_cores() // workers))
                say(run.command)
                running.append(run)
            time.sleep(0.5)
            running = [run for run in running if run.goes_on()]
    finally:
        for run in running:
            run.process.terminate()
        for run in running:
            run.process.wait()


class _Run:
    """A training run in a process of its own, new or going on, with its share of the cores."""

    def __init__(self, recipe: Recipe, seed: int, num_threads: int) -> None:
        folder = recipe.folder(seed)
        begun = (folder / LAST_FILE).is_file()
        words = [f"resume={folder}"] if begun else recipe.words(seed)
        words += [word for word in recipe.train if begun and word.startswith("total_decisions=")]
        self.command = shlex.join(["ringyard", "train", *words])
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ringyard_agents", "train", *words, f"num_threads={num_threads}"],
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    def goes_on(self) -> bool:
        """Whether it has not ended yet; SchedulerError if it ended in an error."""
        code = self.process.poll()
        if code:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            raise SchedulerError(f"{self.command} failed: {said[-1000:]}")
        return code is None


def training_record(recipe: Recipe) -> dict[str, Any]:
    """What is to be known of an agent's training, as plain data; the best seed ships.

    Raises:
        CheckpointError: a seed is not trained.
    """
    runs = [_run_record(recipe, seed) for seed in recipe.seeds]
    summary = _summary(recipe, recipe.seeds[0])
    return {
        "command": shlex.join(["ringyard", "train", *recipe.train, "seed=SEED"]),
        "metric": summary["metric"],
        "baselines": summary["baselines"],
        "hardware": hardware(),
        "constraint": summary.get("constraint", {}).get("metric"),
        "shipped_seed": min(runs, key=lambda run: agent_sort_key(run["used"], run["best"]))["seed"],
        "runs": runs,
    }


def _summary(recipe: Recipe, seed: int) -> Mapping[str, Any]:
    file = recipe.folder(seed) / "training.json"
    if not file.is_file():
        raise CheckpointError(f"there is no {file}: seed {seed} of {recipe.name} is not trained yet")
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def _run_record(recipe: Recipe, seed: int) -> dict[str, Any]:
    summary, folder = _summary(recipe, seed), recipe.folder(seed) / "tensorboard"
    column = f"eval/{summary['metric']}"
    with (folder / "progress.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row.get(column)]
    return {
        "seed": seed,
        "decisions": summary["decisions"],
        "minutes": round(_minutes(folder), 1),
        "best": summary["best"],
        "used": summary.get("constraint", {}).get("best_ratio_to_bound"),
        "curve": [[int(row["decisions"]), float(row[column])] for row in rows],
    }


def _minutes(folder: Path) -> float:
    """Between the first and the last event of every session of a run."""
    total = 0.0
    for file in folder.glob("events.out.tfevents.*"):
        times = [Event.FromString(one).wall_time for one in RawEventFileLoader(str(file)).Load()]
        total += max(times, default=0.0) - min(times, default=0.0)
    return total / 60


def ship(recipe: Recipe, seed: int) -> None:
    """Put the agent of a training seed where agents ship from."""
    with atomic_write(recipe.weights) as partial:
        shutil.copyfile(recipe.folder(seed) / AGENT_FILE, partial)
