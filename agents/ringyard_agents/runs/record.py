"""Where a run's files go, and its record beside the results: config, commit, seeds, versions, machine."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ringyard.checks import require
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.threads import usable_cores
from ringyard_agents.command_line import quoted
from ringyard_agents.runs.files import atomic_write

__all__ = ["again", "in_sweep", "register_run_folders", "require_command", "run_folder", "write_record"]

_LONGEST_NAME = 255  # bytes, of a folder on most file systems


def register_run_folders() -> None:
    """Let configs say `${run_folder:...}`: names are checked before Hydra makes a folder."""
    OmegaConf.register_new_resolver("run_folder", _folder, replace=True)
    OmegaConf.register_new_resolver("job_number", lambda first, number: first + number, replace=True)


def _folder(name: object, resume: object) -> str:
    """Where a run writes: `resume`, if it goes on, else runs/<name>, which stays inside runs/.

    Raises:
        ConfigurationError: no name of a folder inside runs/.
        CheckpointError: no folder to go on in.
    """
    if resume is not None:
        folder = Path(str(resume)).expanduser()
        if not str(resume) or not folder.is_dir():
            raise CheckpointError(f"cannot resume: there is no run folder {str(resume)!r}")
        return str(folder)
    segments = str(name).split("/")
    if name is None or any(segment in ("", ".", "..") for segment in segments) or not str(name).isprintable():
        raise ConfigurationError(
            f"name is {name!r}; expected a folder inside runs/, such as mine or mine/first: not absolute,"
            " without . and .., of printable characters"
        )
    longest = max(len(os.fsencode(segment)) for segment in segments)
    if longest > _LONGEST_NAME:
        raise ConfigurationError(f"name has a part of {longest} bytes; expected at most {_LONGEST_NAME}")
    return str(Path("runs", *segments))


def _git(*arguments: str) -> str:
    folder = Path(__file__).resolve().parent
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _commit() -> str | None:
    """The commit of this code, with `-dirty` if files differ; None outside its own git checkout."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # not just anybody's checkout
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


def _surroundings() -> dict[str, Any]:
    """When and on what a command runs."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": usable_cores(),
        "versions": _versions(),
    }


def in_sweep() -> bool:
    """Whether the running job is one of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return HydraConfig.get().mode is RunMode.MULTIRUN


def run_folder() -> Path:
    """The running job's output folder."""
    from hydra.core.hydra_config import HydraConfig

    return Path(os.path.relpath(HydraConfig.get().runtime.output_dir))


def write_record(
    folder: Path, command: str, config: DictConfig, seeds: dict[str, Any], goes_on: bool = False
) -> None:
    """Write config.yaml and run.json; a run that goes on keeps its run.json and adds this command to it.

    Raises:
        CheckpointError: the run.json to add to is damaged.
        ConfigurationError: the folder has a run of another command.
    """
    file = folder / "run.json"
    require_command(folder, command)
    record: Any = {"command": command, "arguments": sys.argv[1:], "commit": _commit(), "seeds": seeds}
    record |= _surroundings()
    if goes_on and file.is_file():
        first = _read(file)
        record = {**first, "resumed": [*first.get("resumed", []), record]}
    with atomic_write(folder / "config.yaml") as partial:
        OmegaConf.save(config, partial, resolve=True)
    with atomic_write(file) as partial:
        partial.write_text(json.dumps(record, indent=2) + "\n")


def require_command(folder: Path, command: str) -> None:
    """Raise a ConfigurationError if a folder has a run of another command.

    Args:
        folder: of the run; there may be none.
        command: that is to write there.
    """
    try:
        found = json.loads((folder / "run.json").read_text())["command"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if found != command:
        raise ConfigurationError(
            f"{folder} has a run of `ringyard {found}`, whose config and record would be lost; give"
            " another name="
        )


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


def _read(file: Path) -> dict[str, Any]:
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


def again(folder: Path) -> str:
    """What the same command needs to write into the same folder again, as a shell reads it."""
    inside = folder.parts[:1] == ("runs",)
    name, place = ("name", folder.relative_to("runs")) if inside else ("hydra.run.dir", folder)
    return shlex.quote(f"{name}={quoted(str(place))}")
