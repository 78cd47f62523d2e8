"""Sweeps and their Optuna studies: plan the folder, continue or replace an earlier sweep, run the jobs."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from ringyard.checks import shown
from ringyard.errors import ConfigurationError, RingyardError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.runs.atomic_write import atomic_write, remove_path
from ringyard_agents.runs.run_folder import RunFolder, locked
from ringyard_agents.runs.sweep_job import JobRecord, read_job_records
from ringyard_agents.runs.sweep_table import describe_job, swept_settings

_SQLITE = "sqlite:///"


def load_study(sweeper: DictConfig, space: Collection[str]) -> Any:
    """Return the stored study of a sweep, which another person may have made. None: there is none yet.

    A waiting trial may set only settings in `space`, since the sweeper makes overrides of them.
    """
    if sweeper.get("study_name") is None:
        raise ConfigurationError(
            "hydra.sweeper.storage needs the name of a stored study, hydra.sweeper.study_name=mine"
        )
    storage = str(sweeper.storage)
    if storage.startswith(_SQLITE) and not Path(storage.removeprefix(_SQLITE)).exists():
        return None
    if storage.startswith("redis"):
        raise ConfigurationError(
            f"hydra.sweeper.storage is {storage}; expected a database such as sqlite:///study.db, because"
            " reading pickles from Redis may run any code"
        )
    import optuna

    try:
        study = optuna.load_study(study_name=str(sweeper.study_name), storage=storage)
        trials = study.get_trials(deepcopy=False)
    except KeyError:  # no study of that name
        return None
    except Exception as error:  # its type depends on the database
        first = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"hydra.sweeper.storage is {storage}, which cannot be opened: {first}"
        ) from error
    unfinished = [one for one in trials if not one.state.is_finished()]
    for name in sorted({name for one in unfinished for name in one.params} - {*space}):
        raise ConfigurationError(
            f"hydra.sweeper.storage is {storage}: a waiting trial sets {shown(name)}, which this sweep does"
            " not search; expected a study that this sweep began, or another hydra.sweeper.study_name"
        )
    return study


def queue_trials_again(study: Any, numbers: Collection[int]) -> None:
    """Make a study ask for its unfinished trials again, with the parameters that they have."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False):
        if trial.number in numbers:
            study._storage.set_trial_state(trial._trial_id, TrialState.WAITING)


def tpe_sampler(seed: int | None = None, **options: Any) -> Any:
    """Return a `TPESampler` with `options` that draws the same after an interruption.

    The draws of a trial depend on its number and the `seed`. None: random.
    """
    from optuna.samplers import TPESampler

    if seed is None:
        return TPESampler(**options)

    class NumberedTPESampler(TPESampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            own = int(np.random.SeedSequence([seed, trial.number]).generate_state(1)[0])
            super().__init__(seed=own, **options)
            return super().infer_relative_search_space(study, trial)

    return NumberedTPESampler(seed=seed, **options)


_FILE = "sweep.json"

#: files of a sweep besides the folders of its jobs
_OUTPUTS = (
    *(_FILE, "sweep.csv", "multirun.yaml", "optimization_results.yaml"),
    *("study.db", "study.db-journal", ".submitit"),
)

#: prefixes of overrides that do not affect results
_EXECUTION_OVERRIDES = (
    *("overwrite=", "num_threads=", "workers=", "save_minutes="),
    *("hydra/launcher", "hydra.launcher", "hydra.sweeper.n_trials=", "hydra.sweeper.n_jobs="),
)

#: launchers that run jobs as processes of this machine, which end with the process of the sweep
_LOCAL_LAUNCHERS = ("JoblibLauncher", "LocalLauncher")

_MARK = "RINGYARD_SWEEP"

#: program that ends the processes with a mark in their environment when its standard input is closed.
#: Resource trackers remove what these leave and end by themselves.
_GUARD = """
import os, pathlib, signal, sys, time
sys.stdin.read()
for again in range(5):  # a process that has just started has no environment yet
    for home in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            marked = sys.argv[1].encode() in (home / "environ").read_bytes().split(b"\\0")
            if marked and b"resource_tracker" not in (home / "cmdline").read_bytes():
                os.kill(int(home.name), signal.SIGKILL)
        except OSError:
            pass
    time.sleep(0.2)
"""


@dataclass(frozen=True)
class Sweep:
    """A planned sweep."""

    folder: Path  #: folder of the sweep. Its jobs are in the folders 0, 1, ... inside.
    continues: bool  #: whether finished jobs are not repeated
    runs_here: bool  #: whether jobs run in other processes of this machine
    study: Any = None  #: its Optuna study, if there is one already
    unfinished: Sequence[int] = ()  #: numbers of the trials that were interrupted
    next_number: int = 0  #: number of the next trial of the study
    num_trials: int = 0  #: number of trials that are left of those of the study

    @property
    def overrides(self) -> list[str]:
        """Overrides that make all processes put their jobs into the same folder, and run what is left."""
        text = os.path.abspath(self.folder).replace("\\", "\\\\").replace("'", "\\'")
        words = [f"hydra.sweep.dir='{text}'"]
        if self.study is not None:
            numbers = f"{[*self.unfinished]},{self.next_number}"
            words.append(f"hydra.sweep.subdir='${{job_number:{numbers},${{hydra.job.num}}}}'")
            words.append(f"hydra.sweeper.n_trials={self.num_trials}")
        return words


def plan_sweep(command: str, words: Sequence[str], config_dir: str | None = None) -> Sweep:
    """Plan the sweep of a command line. Its folder must have no run or other sweep."""
    parsed = OverridesParser.create().parse_overrides(list(words))
    if any(one.key_or_group == "name" and one.is_sweep_override() for one in parsed):
        raise ConfigurationError(
            "name has several values; expected one, since the jobs of a sweep are in folders inside of it"
        )
    same = [str(one.input_line) for one in parsed if not one.is_sweep_override()]
    more = [] if config_dir is None else [f"hydra.searchpath=['file://{os.path.abspath(config_dir)}']"]
    with hydra_initialized():
        config = compose(command, [*same, *more, "hydra.mode=MULTIRUN"], return_hydra_config=True)
    folder, sweeper = Path(os.path.relpath(config.hydra.sweep.dir)), config.hydra.sweeper
    overwrite = bool(config.get("overwrite"))
    home = RunFolder(folder, command)
    if (folder / "run.json").is_file():
        raise ConfigurationError(f"{folder} has a single run; give this sweep another name=")
    home.refuse_another(overwrite)
    earlier = [] if overwrite else read_job_records(folder)
    stored = sweeper.get("storage") is not None
    repeats = stored or str(sweeper._target_).endswith(".BasicSweeper")
    continues = not overwrite and repeats and _is_same_sweep(home, words)
    if earlier and not continues:
        condition = "" if repeats else ", if its study has a storage (hydra.sweeper.storage)"
        raise ConfigurationError(
            f"{folder} already has a sweep of {len(earlier)} jobs; the same command continues it{condition};"
            f" otherwise give another name=, or replace it with {home.name_override} overwrite=true"
        )
    local = str(config.hydra.launcher._target_).endswith(_LOCAL_LAUNCHERS)
    planned = Sweep(folder, continues, local)
    file = Path(str(sweeper.get("storage")).removeprefix(_SQLITE)).resolve()
    own = stored and file.parent == folder.resolve()  # the study is a file of this sweep
    searched = {one.get_key_element() for one in _search_space(words, sweeper)}
    study = load_study(sweeper, searched) if stored and (continues or not own) else None
    if study is None:
        return planned
    trials = study.get_trials(deepcopy=False)
    if earlier and len(trials) <= earlier[-1].number:
        raise ConfigurationError(
            f"{folder} has jobs up to number {earlier[-1].number}, but its study has {len(trials)} trials, so"
            " they belong to another sweep; give another name=, or replace it with overwrite=true"
        )
    open_trials = [one.number for one in trials if not one.state.is_finished()]
    ours = open_trials if own else [one.number for one in earlier]  # a database may have those of others
    unfinished = [number for number in open_trials if number in ours]
    left = max(0, sweeper.n_trials - len(trials) + len(unfinished))
    return replace(planned, study=study, unfinished=unfinished, next_number=len(trials), num_trials=left)


def _search_space(words: Sequence[str], sweeper: DictConfig) -> list[Override]:
    """Return the overrides with several values, of the sweeper's config and of the command line."""
    space = [f"{name}={choices}" for name, choices in (sweeper.get("params") or {}).items()]
    parsed = OverridesParser.create().parse_overrides([*space, *words])
    return [one for one in parsed if one.is_sweep_override()]


def _is_same_sweep(home: RunFolder, words: Sequence[str]) -> bool:
    """Return whether a folder has a sweep by the same command line."""

    def results(overrides: Sequence[str]) -> list[str]:
        return sorted(word for word in overrides if not word.startswith(_EXECUTION_OVERRIDES))

    try:
        stored = read_plain(home.path / _FILE, interpolations=True)
        return bool(stored["command"] == home.command and results(stored["overrides"]) == results(words))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


class SweepError(RingyardError):
    """Some jobs of a sweep failed. The results of the others are written."""


def run_sweep(
    command: str,
    words: Sequence[str],
    config_dir: str | None,
    start: Callable[[], object],
    report: Callable[[Path, Sequence[JobRecord]], None],
) -> None:
    """Run all jobs of a sweep by `start`, then report them. A SweepError names failed jobs.

    `report` gets the folder and the records.
    """
    sweep = plan_sweep(command, words, config_dir)
    hydra_error: Exception | None = None
    with locked(sweep.folder):
        if not sweep.continues:
            replaced = [str(one.number) for one in read_job_records(sweep.folder)]
            for name in (*replaced, *_OUTPUTS):
                remove_path(sweep.folder / name)
        with atomic_write(sweep.folder / _FILE) as partial:
            partial.write_text(json.dumps({"command": command, "overrides": words}, indent=2) + "\n")
        if sweep.study is not None:
            queue_trials_again(sweep.study, sweep.unfinished)
        sys.argv += sweep.overrides
        try:
            with _jobs_end_with_this_process() if sweep.runs_here else nullcontext():
                try:
                    with redirect_stderr(cast(TextIO, _HydraErrorFilter(sys.stderr))):
                        start()
                except Exception as error:
                    hydra_error = error
        except KeyboardInterrupt as stop:
            name = RunFolder(sweep.folder, command).name_override
            stop.add_note(f"finished jobs are stored; the same command with {name} continues")
            raise
        finally:
            records = read_job_records(sweep.folder)
            if records:
                report(sweep.folder, records)
    failed = [one for one in records if one.status != "done"]
    if failed:
        which = ", ".join(str(one.number) for one in failed)
        first = f"job {describe_job(failed[0], swept_settings(records))}: {failed[0].failure}"
        raise SweepError(f"{len(failed)} of {len(records)} jobs failed: {which}; {first}") from hydra_error
    if hydra_error is not None:
        raise hydra_error


@contextmanager
def _jobs_end_with_this_process() -> Iterator[None]:
    """End processes that the block starts here with this one, even if it is killed."""
    mark = secrets.token_hex(8)
    words = [sys.executable, "-I", "-S", "-c", _GUARD, f"{_MARK}={mark}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as guard:
        os.environ[_MARK] = mark
        yield
        guard.kill()  # not after Ctrl-C


class _HydraErrorFilter:
    """A stream without Hydra's message about a failed job, which gives no reason."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        if text.startswith("Error executing job with overrides: "):
            return len(text)
        return self.stream.write(text)
