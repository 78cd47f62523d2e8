"""The record of a run beside its results: command, commit, seeds, versions, machine."""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ringyard.checks import require
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.threads import usable_cores

__all__ = ["command_of", "new_record", "read_record"]


def _git(*arguments: str) -> str:
    folder = Path(__file__).resolve().parent
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _commit() -> str | None:
    """The commit of this code, with `-dirty` if files differ; None outside its own git checkout."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return _git("describe", "--always", "--abbrev=40", "--dirty")
    except (OSError, subprocess.CalledProcessError):
        return None


#: libraries that decide what a run computes, as pip calls them
_LIBRARIES = (
    *("ringyard", "gymnasium", "hydra-core", "numba", "numpy", "pandas", "scipy"),
    *("torch", "stable-baselines3", "sb3-contrib"),
)


def _versions() -> dict[str, str]:
    """{library: version} of those that are installed."""
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _cpu() -> str:
    """What the processor calls itself."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def new_record(command: str, seeds: Mapping[str, Any]) -> dict[str, Any]:
    """What run.json says of a command that begins now.

    Args:
        command: name of the command.
        seeds: {what: seed}.
    """
    return {
        "command": command,
        "arguments": sys.argv[1:],
        "commit": _commit(),
        "seeds": dict(seeds),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": usable_cores(),
        "versions": _versions(),
    }


def command_of(file: Path) -> str | None:
    """The command that wrote a run.json; None if there is no readable one."""
    try:
        command: str = json.loads(file.read_text())["command"]
        return command
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


#: {field of a record: what it may be}, as far as it is read again
_FIELDS = {
    "command": str,
    "arguments": Sequence[str],
    "commit": str | None,
    "versions": Mapping[str, str],
    "resumed": Sequence[Mapping[str, object]],
}

#: what records of older versions have not
_LATER: dict[str, Any] = {"versions": {}, "resumed": []}


def read_record(file: Path) -> dict[str, Any]:
    """The content of a run.json, checked as far as it is read again.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        record = json.loads(file.read_text())
        require("it", record, Mapping[str, object])
        for name, annotation in _FIELDS.items():
            require(name, record.get(name, _LATER.get(name)), annotation)
    except (ValueError, RecursionError, ConfigurationError) as error:
        raise CheckpointError(
            f"cannot resume: {file}, the record of how the run began, is damaged; remove it to go on without"
            f" ({error})"
        ) from error
    return dict(record)
