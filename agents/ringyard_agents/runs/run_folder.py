"""The folder of a run: its name, lock, files, and the check that it belongs to the same run."""

import errno
import functools
import itertools
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ringyard.checks import require
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.threads import usable_cores
from ringyard_agents.command_line import quoted
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.runs.atomic_write import PARTIAL_PREFIX, atomic_write, write_json

_LOCK = ".lock"
_HYDRA_SWEEP_FILE = "multirun.yaml"  # which Hydra writes before the first job of a sweep

#: errors of file systems without locks
_LOCKS_UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)

#: settings that do not affect results, so that a run with other values is the same run
_NOT_COMPARED = (
    *("name", "overwrite", "rerun", "workers", "trust", "environment_id"),
    *("plots", "tensorboard", "output", "out"),
)

_MAX_NAME_BYTES = 255  # bytes, of a folder on most file systems

#: libraries that affect results, by their names for pip
_LIBRARIES = (
    *("ringyard", "gymnasium", "hydra-core", "numba", "numpy", "pandas", "scipy"),
    *("torch", "stable-baselines3", "sb3-contrib"),
)

#: {field of run.json that is read again: its type}
_RECORD_FIELDS = {
    "command": str,
    "arguments": Sequence[str],
    "commit": str | None,
    "versions": Mapping[str, str] | None,
    "resumed": Sequence[Mapping[str, object]] | None,
}


def register_run_folders() -> None:
    """Register the OmegaConf resolvers `run_folder` and `job_number` of conf/run.yaml and sweeps."""
    OmegaConf.register_new_resolver("run_folder", _make_run_folder, replace=True)
    OmegaConf.register_new_resolver("job_number", _job_number, replace=True)


def _job_number(unfinished: Sequence[int], first: int, job: int) -> int:
    """Return the number of a job: those of unfinished trials, then one after the other from `first`."""
    return unfinished[job] if job < len(unfinished) else first + job - len(unfinished)


def _make_run_folder(name: object, resume: object, *, _root_: DictConfig) -> str:
    """Return the folder of a run. For a name that is a time, make the first free one: T, T-2, T-3, ..."""
    folder = Path(_resolve_run_folder(name, resume))
    if resume is not None or "${now:" not in str(_root_._get_node("name")):
        return str(folder)
    others = _root_.hydra.job.config_name == "train" and os.environ.get("WORLD_SIZE", "1") != "1"
    if others and os.environ.get("RANK", "0") != "0":  # another process of torchrun, which writes nothing
        return "runs"
    for free in itertools.chain([folder], (Path(f"{folder}-{number}") for number in itertools.count(2))):
        with suppress(FileExistsError):
            free.mkdir(parents=True)
            break
    return str(free)


def _resolve_run_folder(name: object, resume: object) -> str:
    """Return the folder of a run: `resume` if it is given, else runs/<name>."""
    if resume is not None:
        folder = Path(str(resume)).expanduser()
        if not str(resume) or not folder.is_dir():
            raise CheckpointError(f"cannot resume: there is no run folder {str(resume)!r}")
        return str(folder)
    segments = str(name).split("/")
    if name is None or any(segment in ("", ".", "..") for segment in segments) or not str(name).isprintable():
        raise ConfigurationError(
            f"name is {name!r}; expected a folder inside runs/, such as mine or mine/first, without . and ..,"
            " in printable characters"
        )
    longest = max(len(os.fsencode(segment)) for segment in segments)
    if longest > _MAX_NAME_BYTES:
        raise ConfigurationError(
            f"name has a part of {longest} bytes; expected at most {_MAX_NAME_BYTES} bytes between two /"
        )
    return str(Path("runs", *segments))


def is_sweep_job() -> bool:
    """Return whether the running job is part of a sweep."""
    return HydraConfig.get().mode is RunMode.MULTIRUN


def job_folder() -> Path:
    """Return the output folder of the running job."""
    return Path(os.path.relpath(HydraConfig.get().runtime.output_dir))


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run of a command, which need not exist yet."""

    path: Path  #: the folder
    command: str  #: name of the command

    @classmethod
    def of_job(cls, command: str) -> Self:
        """Return the output folder of the running job of a command."""
        return cls(job_folder(), command)

    @property
    def cache(self) -> Path:
        """File of the results of finished runs."""
        return self.path / "measured.jsonl"

    @property
    def name_override(self) -> str:
        """Override that makes a command use this folder, quoted for a shell."""
        inside = self.path.parts[:1] == ("runs",)
        name, place = ("name", self.path.relative_to("runs")) if inside else ("hydra.run.dir", self.path)
        return shlex.quote(f"{name}={quoted(str(place))}")

    @contextmanager
    def claim(self, config: DictConfig) -> Iterator[Self]:
        """Check that no other run has this folder, then lock it for the block."""
        settings: Any = OmegaConf.to_container(config, resolve=True)
        self.refuse_another(config.overwrite, settings=settings)
        with locked(self.path):
            try:
                yield self
            except KeyboardInterrupt as stop:
                if self.cache.is_file():
                    stop.add_note(
                        f"finished runs are stored; the same command with {self.name_override} continues"
                    )
                raise

    def refuse_another(
        self, overwrite: bool, *, settings: Mapping[str, Any] | None = None, outputs: Sequence[str] = ()
    ) -> None:
        """Raise a ConfigurationError if another run has this folder, as other `settings` or `outputs` say.

        `overwrite` accepts another run of the same command, never of another one.
        """
        if (settings is not None or outputs) and (self.path / _HYDRA_SWEEP_FILE).is_file():
            raise ConfigurationError(f"{self.path} has the jobs of a sweep; give another name=")
        before = command_of(self.path / "run.json")
        if before not in (None, self.command):
            raise ConfigurationError(
                f"{self.path} has a run of `ringyard {before}`; its config and record would be lost. Give"
                " another name="
            )
        if overwrite:
            return
        if any((self.path / name).exists() for name in outputs):
            raise ConfigurationError(
                f"{self.path} already has a run of `ringyard {self.command}`; continue it with"
                f" resume={self.path}, give another name=, or replace it with overwrite=true"
            )
        if settings is not None:
            self._refuse_other_settings(flatten_config(settings))

    def _refuse_other_settings(self, now: Mapping[str, Any]) -> None:
        try:
            before = flatten_config(read_plain(self.path / "config.yaml"))
        except ConfigurationError:
            return
        for name in (*before, *now):
            if name.partition(".")[0] in _NOT_COMPARED or (name in before) > (name in now):
                continue  # an older version had this setting
            if name not in before and name.partition(".")[0] not in before:
                continue  # an older version did not have this setting
            if before.get(name) != now.get(name):
                raise ConfigurationError(
                    f"{self.path} has a run with {name}={before.get(name)}, but this command has"
                    f" {now.get(name)}; give another name=, or replace the run with"
                    f" {self.name_override} overwrite=true"
                )

    def record(self, config: DictConfig, seeds: Mapping[str, Any], resumed: bool = False) -> None:
        """Write config.yaml and run.json, or with `resumed` add this command to the run.json it continues."""
        file = self.path / "run.json"
        self.refuse_another(overwrite=True)
        record = _new_record(self.command, seeds)
        if resumed and file.is_file():
            first = _read_record(file)
            record = {**first, "resumed": [*(first.get("resumed") or ()), record]}
        with atomic_write(self.path / "config.yaml") as partial:
            OmegaConf.save(config, partial, resolve=True)
        write_json(file, record)


def command_of(file: Path) -> str | None:
    """Return the command that wrote a run.json, or None if the file cannot be read."""
    try:
        return read_plain(file, interpolations=True)["command"]
    except (ConfigurationError, KeyError, TypeError):
        return None


def _read_record(file: Path) -> dict[str, Any]:
    """Read a run.json. Raises CheckpointError if it is damaged."""
    try:
        record: dict[str, Any] = read_plain(file, interpolations=True)
        require("it", record, Mapping[str, object])
        for name, annotation in _RECORD_FIELDS.items():
            require(name, record.get(name), annotation)
    except ConfigurationError as error:
        raise CheckpointError(
            f"cannot resume: {file}, the record of the run's start, is damaged ({error}); remove it to"
            " continue without it"
        ) from error
    return record


def _new_record(command: str, seeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a command that starts now: words, commit, seeds, versions and machine."""
    versions = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "command": command,
        "arguments": sys.argv[1:],
        "commit": checkout_commit(),
        "seeds": dict(seeds),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": usable_cores(),
        "versions": versions,
    }


def checkout_commit() -> str | None:
    """Return the commit of this code, with `-dirty` if files differ, or None outside of its checkout."""
    git = functools.partial(
        subprocess.run, cwd=Path(__file__).resolve().parent, capture_output=True, text=True, check=True
    )
    try:
        git(["git", "ls-files", "--error-unmatch", Path(__file__).name])
        return str(git(["git", "describe", "--always", "--abbrev=40", "--dirty"]).stdout).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu() -> str:
    """The name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a run folder and lock it for the block. A folder that stays empty is removed.

    Another process that writes to it, or links in it, are a ConfigurationError. The lock ends with the
    process. File systems without locks are not locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _refuse_links(folder)
    lock = FileLock(folder / _LOCK, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigurationError(
            f"another process is writing to {folder}; wait until it ends, or give another name="
        ) from None
    except OSError as error:
        if error.errno not in _LOCKS_UNSUPPORTED:
            remove_if_empty(folder)
            raise
    try:
        _remove_partial_files(folder)
        yield
    finally:
        with suppress(OSError):
            (folder / _LOCK).unlink()
        remove_if_empty(folder)
        lock.release()


def _refuse_links(folder: Path) -> None:
    """Raise a ConfigurationError for a link, since a writer could follow it out of the folder."""
    for home, folders, files in os.walk(folder):
        for path in (Path(home, name) for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_dir() or path.is_file() or not path.exists()):
                raise ConfigurationError(
                    f"{path} is a link, pipe or device; expected only files and folders in a run folder:"
                    " remove it, or replace it by what it points to"
                )


def _remove_partial_files(folder: Path) -> None:
    """Remove incomplete files of killed processes, except in folders that another process locked."""
    for home, folders, files in os.walk(folder):
        for name in folders:
            if name.startswith(PARTIAL_PREFIX):
                shutil.rmtree(Path(home, name), ignore_errors=True)
        folders[:] = [name for name in folders if not Path(home, name, _LOCK).exists()]
        for name in files:
            if name.startswith(PARTIAL_PREFIX):
                with suppress(OSError):
                    Path(home, name).unlink()


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that has only Hydra's multirun.yaml, and its parents if that leaves them empty."""
    here = Path.cwd()
    folder = folder.resolve()
    while here in folder.parents:
        try:
            if os.listdir(folder) == [_HYDRA_SWEEP_FILE]:
                (folder / _HYDRA_SWEEP_FILE).unlink()
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def flatten_config(config: Any, path: str = "") -> dict[str, Any]:
    """Return {dotted path: value} of a plain config."""
    if not isinstance(config, dict) or not config:
        return {path: config}
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flatten_config(value, f"{path}.{name}" if path else str(name))
    return found
