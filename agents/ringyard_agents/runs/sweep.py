"""Sweeps: plan the folder, continue or replace an earlier sweep, run the jobs and report them."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from ringyard.errors import ConfigurationError, RingyardError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.run_folder import RunFolder, locked
from ringyard_agents.runs.study import num_stored_trials
from ringyard_agents.runs.sweep_job import JobRecord, read_job_records
from ringyard_agents.runs.sweep_table import describe_job, swept_settings

_FILE = "sweep.json"

#: files of a sweep besides the folders of its jobs
_OUTPUTS = (
    *(_FILE, "sweep.csv", "sweep.png", "multirun.yaml", "optimization_results.yaml", "study.db"),
    ".submitit",
)

#: prefixes of overrides that do not affect results
_EXECUTION_OVERRIDES = (
    *("overwrite=", "num_threads=", "workers=", "save_minutes="),
    *("hydra/launcher", "hydra.launcher"),
)


@dataclass(frozen=True)
class Sweep:
    """A planned sweep."""

    folder: Path  #: folder of the sweep. Its jobs are in the folders 0, 1, ... inside.
    first: int  #: number of the first job
    continues: bool  #: whether finished jobs are not repeated
    logarithmic: frozenset[str]  #: settings that are searched on a logarithmic scale

    @property
    def folder_overrides(self) -> list[str]:
        """Overrides that make all processes put their jobs into the same folder."""
        text = os.path.abspath(self.folder).replace("\\", "\\\\").replace("'", "\\'")
        numbered = [f"hydra.sweep.subdir='${{job_number:{self.first},${{hydra.job.num}}}}'"]
        return [f"hydra.sweep.dir='{text}'", *(numbered if self.first else [])]

    def remove_replaced(self) -> None:
        """Remove the files of an earlier sweep of this name, unless this one continues it."""
        if self.continues:
            return
        for record in read_job_records(self.folder):
            shutil.rmtree(self.folder / str(record.number))
        for name in _OUTPUTS:
            if (self.folder / name).is_dir():
                shutil.rmtree(self.folder / name)
            else:
                (self.folder / name).unlink(missing_ok=True)


def plan_sweep(command: str, words: Sequence[str], config_dir: str | None = None) -> Sweep:
    """Plan the sweep of a command line.

    Args:
        command: command of the jobs.
        words: overrides.
        config_dir: folder of further configs.

    Raises:
        ConfigurationError: the name is swept, or its folder has a run or another sweep.
    """
    parsed = _parse_overrides(words)
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
    home.refuse_another(overwrite, sweep=True)
    earlier = read_job_records(folder)
    space = _search_space(words, sweeper)
    first = num_stored_trials(sweeper, folder, overwrite, {one.get_key_element() for one in space})
    continues = bool(earlier) and not overwrite
    if continues and first is None:
        _require_same_sweep(
            home, words, len(earlier), repeats=str(sweeper._target_).endswith(".BasicSweeper")
        )
    elif continues and first is not None and first <= earlier[-1].number:
        raise ConfigurationError(
            f"{folder} has jobs up to number {earlier[-1].number}, but its study has {first} trials, so they"
            " belong to another sweep; give another name=, or replace it with overwrite=true"
        )
    logarithmic = {one.key_or_group for one in space if "log" in getattr(one.value(), "tags", ())}
    return Sweep(folder, first or 0, continues, frozenset(logarithmic))


def _parse_overrides(words: Sequence[str]) -> Sequence[Override]:
    return OverridesParser.create().parse_overrides(list(words))


def _search_space(words: Sequence[str], sweeper: DictConfig) -> list[Override]:
    """Return the overrides with several values, of the sweeper's config and of the command line."""
    space = [f"{name}={choices}" for name, choices in (sweeper.get("params") or {}).items()]
    return [one for one in _parse_overrides([*space, *words]) if one.is_sweep_override()]


def _require_same_sweep(home: RunFolder, words: Sequence[str], jobs: int, repeats: bool) -> None:
    """Raise a ConfigurationError if a sweep cannot continue the jobs in its folder."""
    try:
        stored = read_plain(home.path / _FILE, words=True)
        known = stored["command"] == home.command and _result_overrides(
            stored["overrides"]
        ) == _result_overrides(words)
    except (ValueError, KeyError, TypeError):
        known = False
    if not (known and repeats):
        condition = "" if repeats else ", if its study has a storage (hydra.sweeper.storage)"
        raise ConfigurationError(
            f"{home.path} already has a sweep of {jobs} jobs; the same command continues it{condition};"
            f" otherwise give another name=, or replace it with {home.name_override} overwrite=true"
        )


def _result_overrides(words: Sequence[str]) -> list[str]:
    return sorted(word for word in words if not word.startswith(_EXECUTION_OVERRIDES))


class SweepError(RingyardError):
    """Some jobs of a sweep failed. The results of the others are written."""


def run_sweep(
    command: str,
    words: Sequence[str],
    config_dir: str | None,
    start: Callable[[], object],
    report: Callable[[Path, Sequence[JobRecord], Collection[str]], None],
) -> None:
    """Run all jobs of a sweep, then report them.

    Args:
        command: command of the jobs.
        words: overrides of the command line.
        config_dir: folder of further configs.
        start: starts Hydra with the command line.
        report: called with the folder, the records and the settings on a logarithmic scale.

    Raises:
        SweepError: some jobs failed. Names them.
        Exception: Hydra's sweeper or launcher failed.
    """
    sweep = plan_sweep(command, words, config_dir)
    hydra_error: Exception | None = None
    with locked(sweep.folder):
        sweep.remove_replaced()
        with atomic_write(sweep.folder / _FILE) as partial:
            partial.write_text(json.dumps({"command": command, "overrides": words}, indent=2) + "\n")
        sys.argv += sweep.folder_overrides
        try:
            with redirect_stderr(cast(TextIO, _HydraErrorFilter(sys.stderr))):
                start()
        except Exception as error:
            hydra_error = error
        except KeyboardInterrupt as stop:
            stop.add_note("finished jobs are stored, and the same command continues")
            raise
        finally:
            records = read_job_records(sweep.folder)
            if records:
                report(sweep.folder, records, sweep.logarithmic)
    failed = [one for one in records if one.status != "done"]
    if failed:
        which = ", ".join(str(one.number) for one in failed)
        first = f"job {describe_job(failed[0], swept_settings(records))}: {failed[0].failure}"
        raise SweepError(f"{len(failed)} of {len(records)} jobs failed: {which}; {first}") from hydra_error
    if hydra_error is not None:
        raise hydra_error


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
