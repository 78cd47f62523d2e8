"""What a result depends on, as one number: equal fingerprints, equal results."""

import hashlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ringyard.config_folder import config_folder, own_yamls
from ringyard_agents.evaluation.evaluate import Task
from ringyard_agents.shipped_agents import agent_place, zoo_folders

__all__ = ["Fingerprints"]

_OURS = ("ringyard", "ringyard_baselines", "ringyard_agents")
_LIBRARIES = ("numba", "numpy", "pandas", "scipy", "torch")


class Fingerprints:
    """Of tasks whose schedulers and worlds have been built in this process (`evaluate.check`).

    A fingerprint is made of the task's configs, workload, seed and measured jobs; of the bytes of the files
    that the configs name, an agent's among them; of our own code, of the classes and functions from elsewhere
    that the configs name together with what their modules import, and of the versions of Python and the
    libraries.

    Args:
        tasks: any that share their code.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._digests: dict[Path, str] = {}
        worlds = {id(task.world): task.world for task in tasks}
        schedulers = {id(task.scheduler): task.scheduler for task in tasks}
        configs = [*worlds.values(), *schedulers.values()]
        sources = [*_own_files(), *_foreign_files([target for one in configs for target in _targets(one)])]
        self._code = [_versions(), {str(file): self._digest(file) for file in sources}]

    def of(self, task: Task) -> str:
        """The task's fingerprint, 64 hexadecimal digits."""
        parts = [task.scheduler, task.world, task.workload, task.seed, task.measured_jobs, self._code]
        files = sorted({file for config in (task.scheduler, task.world) for file in _inputs(config)})
        content = [parts, [self._digest(file) for file in files]]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()

    def _digest(self, file: Path) -> str:
        if file not in self._digests:
            with file.open("rb") as stream:
                self._digests[file] = hashlib.file_digest(stream, "sha256").hexdigest()
        return self._digests[file]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _own_files() -> list[Path]:
    """Sources, weights and yaml files of our packages."""
    homes = [Path(str(sys.modules[name].__file__)).parent for name in _OURS]
    files = [file for home in (*homes, config_folder()) for file in home.rglob("*")] + own_yamls()
    kept = (file for file in files if file.is_file() and file.parent.name != "__pycache__")
    agents = zoo_folders()  # they count where they are named
    return sorted({file for file in kept if file.parent not in agents})


def _entries(config: Any) -> Iterator[tuple[str, str]]:
    """(key, text) of every text in a config."""
    pairs = config.items() if isinstance(config, Mapping) else [("", item) for item in config]
    for key, value in pairs:
        if isinstance(value, str):
            yield str(key), value
        elif isinstance(value, Mapping | list | tuple):
            yield from _entries(value)


def _targets(config: Any) -> list[str]:
    """What the config makes or names: `_target_`s, and the paths of hydra.utils.get_class and its kin."""
    return [text for key, text in _entries(config) if key in ("_target_", "path")]


def _inputs(config: Any) -> Iterator[Path]:
    """Files that the config names."""
    for key, text in _entries(config):
        text = str(agent_place(text)) if key == "checkpoint" else text
        file = Path(text).expanduser() if "\0" not in text and len(text) < 4096 else Path()
        if key == "checkpoint" and file.suffix != ".safetensors":  # a run folder, or one of the agent's files
            folder, stem = (file, "agent") if file.is_dir() else (file.parent, file.stem)
            yield from (one for one in folder.glob(f"{stem}.*") if one.is_file())
        elif file.is_file():
            yield file


def _foreign_files(targets: Sequence[str]) -> list[Path]:
    """Sources of the modules of targets that are not ours, and of what these import but libraries."""
    names = [target.rpartition(".")[0] for target in targets]
    tops = {name.partition(".")[0] for name in names}
    queue = [sys.modules[name] for name in names if name in sys.modules]
    found: dict[str, Path] = {}
    while queue:
        module = queue.pop()
        file = getattr(module, "__file__", None)
        if file is None or module.__name__ in found or _is_library(module, Path(file), tops):
            continue
        found[module.__name__] = Path(file)
        for value in list(vars(module).values()):
            home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(home, str) and home in sys.modules:
                queue.append(sys.modules[home])
    return sorted(found.values())


def _is_library(module: ModuleType, file: Path, tops: set[str]) -> bool:
    top = module.__name__.partition(".")[0]
    if top in _OURS or top in sys.stdlib_module_names:
        return True
    return top not in tops and not {"site-packages", "dist-packages"}.isdisjoint(file.parts)
