"""One job of a command or sweep, run by Hydra here or in another process, and its record job.json."""

import importlib
import os
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
from ringyard_agents.command_line import one_line, raise_if_stopped
from ringyard_agents.runs.atomic_write import write_json
from ringyard_agents.runs.run_folder import is_sweep_job, job_folder, register_run_folders, remove_if_empty

JOB_FILE = "job.json"

Status = Literal["running", "done", "failed", "stopped", "damaged"]

_NUMBER = re.compile("0|[1-9][0-9]*")

_KILLED_MESSAGE = "it ended without an error message: killed, out of memory, or out of time"


@dataclass(frozen=True)
class JobRecord:
    """Record of a sweep's job."""

    number: int  #: number of the job, which names its folder
    overrides: tuple[str, ...]  #: overrides that Hydra chose for this job
    #: status of the job. `running` after the end of the sweep means that the job was killed. `damaged`
    #: means that the record cannot be read.
    status: Status = "running"
    objective: float | None = None  #: value that the command returned, less is better. None: no value.
    seconds: float = 0.0  #: run time
    error: str | None = None  #: reason of a failure, one line

    def write(self, folder: Path) -> None:
        """Write the record into a job's folder."""
        write_json(folder / JOB_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the record of a job's folder, which is named by the job's number. None if there is none."""
        file, number = folder / JOB_FILE, int(folder.name)
        if not file.is_file():
            return None
        try:
            found = TypeAdapter(cls).validate_json(file.read_bytes(), strict=True)
        except (OSError, ValueError):
            found = None
        if found is None or found.number != number:
            why = f"{file} is damaged; the same command runs the job again, or remove its folder"
            return cls(number, (), "damaged", error=why)
        return found

    @property
    def failure(self) -> str | None:
        """Reason why a job of an ended sweep has no objective. None if it did not fail."""
        return _KILLED_MESSAGE if self.status == "running" else self.error


def read_job_records(sweep: Path) -> Sequence[JobRecord]:
    """Read the records of all jobs of a sweep that have started, sorted by number."""
    folders = [one for one in sweep.iterdir() if _NUMBER.fullmatch(one.name)] if sweep.is_dir() else []
    found = [JobRecord.read(folder) for folder in folders]
    return sorted((one for one in found if one is not None), key=lambda one: one.number)


LOG_FILE = "log.txt"  #: output of a job in another process


class JobFailedError(RingyardError):
    """A job failed in another process. Carries the message, since not every exception can be pickled."""


@dataclass(frozen=True)
class HydraJob:
    """Callable that Hydra runs with the composed config, alone or as a job of a sweep.

    A job that has finished is not repeated when the sweep is continued. Its stored objective is returned.
    `function_path` is imported once the config is checked. Errors of a run outside of sweeps are in
    `failures`, since Hydra would print them itself.
    """

    command: str
    function_path: str
    in_worker: bool = False
    failures: list[Exception] = field(default_factory=list)

    def __reduce__(self) -> tuple[Callable[..., "HydraJob"], tuple[str, str, bool]]:
        return HydraJob, (self.command, self.function_path, True)

    def __post_init__(self) -> None:
        register_run_folders()
        register_user_config_folders()

    def __call__(self, config: Any) -> float | None:
        """Run the command with a composed config and return its objective, less is better."""
        os.chdir(HydraConfig.get().runtime.cwd)  # in spite of hydra.job.chdir, which breaks relative paths
        folder = job_folder()
        if not is_sweep_job():
            try:
                return self._run(config)
            except Exception as error:
                self.failures.append(error)
                return None
            finally:
                remove_if_empty(folder)  # Hydra makes it before the config is checked
        record = JobRecord(int(folder.name), tuple(HydraConfig.get().overrides.task))
        earlier = JobRecord.read(folder)
        if earlier is not None and earlier.status == "done":
            if sorted(earlier.overrides) == sorted(record.overrides):  # a study changes their order
                return earlier.objective
        return self._recorded(config, folder, record)

    def _run(self, config: Any) -> float | None:
        from ringyard_agents.config.schema import check_groups, check_settings, warn_unused_settings

        check_settings(self.command, config)
        check_groups(self.command, config)
        warn_unused_settings(self.command, HydraConfig.get().overrides.task)
        module, _, name = self.function_path.partition(":")
        return getattr(importlib.import_module(module), name)(config)

    def _recorded(self, config: Any, folder: Path, record: JobRecord) -> float | None:
        """Run the command and write the record of the job."""
        record.write(folder)
        sys.argv = [f"ringyard {self.command}", *record.overrides]  # run.json records these words
        began = time.monotonic()

        def write_end(**fields: Any) -> None:
            replace(record, seconds=round(time.monotonic() - began, 3), **fields).write(folder)

        if not self.in_worker:
            print(f"job {record.number}: {folder}", flush=True)
        try:
            with _redirect_output(folder / LOG_FILE) if self.in_worker else nullcontext():
                try:
                    objective = self._run(config)
                except Exception as error:
                    raise_if_stopped(error)
                    raise
        except Exception as error:
            write_end(status="failed", error=one_line(error))
            if self.in_worker:  # not every exception can be pickled
                raise JobFailedError(f"job {record.number}: {one_line(error)}") from None
            raise
        except BaseException:
            write_end(status="stopped", error="it was interrupted")
            raise
        write_end(status="done", objective=objective)
        return objective


@contextmanager
def _redirect_output(file: Path) -> Iterator[None]:
    """Redirect output and tracebacks to a file, since parallel jobs share one terminal."""
    with file.open("a", buffering=1) as stream, redirect_stdout(stream), redirect_stderr(stream):
        try:
            yield
        except BaseException:
            traceback.print_exc()
            raise
