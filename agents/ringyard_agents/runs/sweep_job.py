"""A job of a sweep: how it runs here, in another process or elsewhere, and the record in its folder."""

import importlib
import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from hydra.core.hydra_config import HydraConfig
from pydantic import TypeAdapter

from ringyard.errors import RingyardError
from ringyard.mdp.user_config import register_user_config_folders
from ringyard_agents.command_line import one_line
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.run_folder import is_sweep_job, job_folder, register_run_folders, remove_if_empty

JOB_FILE = "job.json"

Status = Literal["running", "done", "failed", "stopped", "damaged"]

_NUMBER = re.compile("0|[1-9][0-9]*")

_KILLED_MESSAGE = "it ended without a word: killed, out of memory, or out of time"


@dataclass(frozen=True)
class JobRecord:
    """The record of a job of a sweep.

    Attributes:
        number: of the job and its folder.
        overrides: words that Hydra chose for this job.
        status: `running` after the sweep's end: something killed it; `damaged`: the record cannot be read.
        objective: what the command returned, less is better; None: nothing.
        seconds: run time.
        error: why it failed, one line.
    """

    number: int
    overrides: tuple[str, ...]
    status: Status = "running"
    objective: float | None = None
    seconds: float = 0.0
    error: str | None = None

    def write(self, folder: Path) -> None:
        """Replace the record in a job's folder; raises OSError if it cannot be written."""
        with atomic_write(folder / JOB_FILE) as partial:
            partial.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The record in a job's folder, whose name is the job's number; None if there is none."""
        file, number = folder / JOB_FILE, int(folder.name)
        if not file.is_file():
            return None
        try:
            found = TypeAdapter(cls).validate_json(file.read_bytes(), strict=True)
        except (OSError, ValueError):
            found = None
        if found is None or found.number != number:
            why = f"{file} is damaged; the same sweep runs the job again, or remove its folder"
            return cls(number, (), "damaged", error=why)
        return found

    @property
    def why(self) -> str | None:
        """Why there is no objective, once the sweep has ended; None if nothing went wrong."""
        return _KILLED_MESSAGE if self.status == "running" else self.error


def read_job_records(sweep: Path) -> Sequence[JobRecord]:
    """The records in the folder of a sweep, of all jobs that have begun, by number."""
    folders = [one for one in sweep.iterdir() if _NUMBER.fullmatch(one.name)] if sweep.is_dir() else []
    found = [JobRecord.read(folder) for folder in folders]
    return sorted((one for one in found if one is not None), key=lambda one: one.number)


#: what a job in another process prints
LOG_FILE = "log.txt"


class JobFailedError(RingyardError):
    """A job of a sweep failed in another process; its message survives the way back."""


@dataclass(frozen=True)
class HydraJob:
    """What Hydra calls with the composed config; launchers carry it to where it runs.

    A job of a sweep that has ended well is not run again: the sweep goes on with what it returned.

    Args:
        command: has its settings in conf/<command>.yaml.
        recipe: `module:function`, which is given the config; imported when that is known to be good.
        elsewhere: this process was started to run jobs.

    Attributes:
        failures: why a run that is in no sweep failed: raised, Hydra would print it in its own way.
    """

    command: str
    recipe: str
    elsewhere: bool = False
    failures: list[Exception] = field(default_factory=list)

    def __reduce__(self) -> tuple[Callable[..., "HydraJob"], tuple[str, str, bool]]:
        return HydraJob, (self.command, self.recipe, True)

    def __post_init__(self) -> None:
        register_run_folders()
        register_user_config_folders()

    def __call__(self, config: Any) -> float | None:
        """Run a composed config; the objective, of which less is better. Raises why a job failed."""
        folder = job_folder()
        if not is_sweep_job():
            try:
                return self._run(config)
            except Exception as error:
                self.failures.append(error)
                return None
            finally:
                remove_if_empty(folder)  # made by Hydra, before anything was found wrong
        record = JobRecord(int(folder.name), tuple(_overrides()))
        earlier = JobRecord.read(folder)
        if earlier is not None and earlier.status == "done" and earlier.overrides == record.overrides:
            return earlier.objective
        return self._recorded(config, folder, record)

    def _run(self, config: Any) -> float | None:
        from ringyard_agents.config.schema import check_groups, check_settings, warn_unused_settings

        check_settings(self.command, config)
        check_groups(self.command, config)
        warn_unused_settings(self.command, _overrides())
        module, _, name = self.recipe.partition(":")
        objective: float | None = getattr(importlib.import_module(module), name)(config)
        return objective

    def _recorded(self, config: Any, folder: Path, record: JobRecord) -> float | None:
        """Run it, and say in its folder how that went."""
        record.write(folder)
        sys.argv = [f"ringyard {self.command}", *record.overrides]  # what its run.json says
        began = time.monotonic()

        def ended(**how: Any) -> None:
            replace(record, seconds=round(time.monotonic() - began, 3), **how).write(folder)

        if not self.elsewhere:
            print(f"job {record.number}: {folder}", flush=True)
        try:
            with _redirect_output(folder / LOG_FILE) if self.elsewhere else nullcontext():
                objective = self._run(config)
        except Exception as error:
            ended(status="failed", error=one_line(error))
            if self.elsewhere:  # not every exception survives the way back
                raise JobFailedError(f"job {record.number}: {one_line(error)}") from None
            raise
        except BaseException:
            ended(status="stopped", error="it was stopped")
            raise
        ended(status="done", objective=objective)
        return objective


def _overrides() -> list[str]:
    return list(HydraConfig.get().overrides.task)


@contextmanager
def _redirect_output(file: Path) -> Iterator[None]:
    """What is printed goes to a file, with the traceback of what goes wrong: jobs share one terminal."""
    with file.open("a", buffering=1) as stream, redirect_stdout(stream), redirect_stderr(stream):
        try:
            yield
        except BaseException:
            traceback.print_exc()
            raise
