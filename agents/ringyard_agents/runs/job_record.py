"""What a job of a sweep leaves in its folder: its overrides, how it ended, its objective."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_type_hints

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard_agents.runs.atomic_write import atomic_write

__all__ = ["FILE", "JobRecord", "Status", "job_records"]

FILE = "job.json"

Status = Literal["running", "done", "failed", "stopped", "damaged"]

_NUMBER = re.compile("0|[1-9][0-9]*")

_LOST = "it ended without a word: killed, out of memory, or out of time"


@dataclass(frozen=True)
class JobRecord:
    """A job of a sweep.

    Attributes:
        number: of its folder.
        overrides: of the command line, as Hydra chose them for this job.
        status: `running` of a job that has ended: something killed it; `damaged`: nothing is known but that
            the file is.
        objective: what it returned, less is better; None: nothing.
        seconds: it took.
        error: why it failed, one line.
    """

    number: int
    overrides: tuple[str, ...]
    status: Status = "running"
    objective: Annotated[float, "[-inf, inf]"] | None = None
    seconds: float = 0.0
    error: str | None = None

    def write(self, folder: Path) -> None:
        """Into its folder, in place of an earlier one.

        Args:
            folder: of the job.

        Raises:
            OSError: it cannot be written.
        """
        with atomic_write(folder / FILE) as partial:
            partial.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Of a folder; None if there is none.

        Args:
            folder: of the job; its name is the number.
        """
        file, number = folder / FILE, int(folder.name)
        if not file.is_file():
            return None
        try:
            plain: Any = json.loads(file.read_text())
            found = {field.name: plain[field.name] for field in fields(cls)}
            for name, annotation in get_type_hints(cls, include_extras=True).items():
                if found[name] == found[name]:  # NaN is in no interval
                    require(name, found[name], annotation)
            if found["number"] != number:
                raise ConfigurationError(f"number is {found['number']}; expected {number}, as its folder's")
        except (OSError, ValueError, LookupError, TypeError, RecursionError, ConfigurationError) as error:
            why = f"{file} is damaged ({error}); the same sweep runs the job again, or remove its folder"
            return cls(number, (), "damaged", error=why)
        return cls(**found | {"overrides": tuple(found["overrides"])})

    @property
    def why(self) -> str | None:
        """Why there is no objective, now that the sweep has ended; None: there is no reason to ask."""
        return _LOST if self.status == "running" else self.error


def job_records(sweep: Path) -> Sequence[JobRecord]:
    """Of all jobs that have begun, by number.

    Args:
        sweep: its folder.
    """
    folders = [one for one in sweep.iterdir() if _NUMBER.fullmatch(one.name)] if sweep.is_dir() else []
    found = [JobRecord.read(folder) for folder in folders]
    return sorted((one for one in found if one is not None), key=lambda one: one.number)
