"""Cache of results on disk, so that an interrupted or repeated command does not repeat finished runs."""

import base64
import functools
import hashlib
import importlib.metadata
import json
import platform
import sys
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ringyard.bounds import LowerBounds
from ringyard.config_folder import config_folder, user_config_files
from ringyard.sim.metrics import JobTimes, Metrics
from ringyard_agents.config.safe_load import config_nodes
from ringyard_agents.evaluation.evaluate import EvaluationTask, RunResult, run_tasks
from ringyard_agents.shipped_agents import agent_path, zoo_folders
from ringyard_baselines.scheduler import Capabilities

_PACKAGES = ("ringyard", "ringyard_baselines", "ringyard_agents")
#: largest size of a result, in multiples of its compressed size. Real ones have under 10
_MAX_RATIO = 50
_LIBRARIES = ("numba", "numpy", "pandas", "scipy", "torch")
_SITES = {"site-packages", "dist-packages"}  # folders of installed libraries


@dataclass(eq=False)
class CachedRuns:
    """Runs tasks in `workers` processes and caches their results, which are not computed again."""

    file: Path
    workers: int | None
    console: Console
    _new: set[str] = field(default_factory=set, init=False)

    def run(self, tasks: list[EvaluationTask], progress_text: str) -> tuple[list[RunResult], dict[str, str]]:
        """Return (results of schedulers that finished every workload, {another scheduler: reason})."""
        failed: dict[str, str] = {}
        places = [(task.label, task.workload) for task in tasks]
        keys = dict(zip(places, fingerprints(tasks), strict=True))
        before = cached_results(self.file, set(keys.values()))
        count = sum(key in before and key not in self._new for key in keys.values())
        if count:
            stored = f"{count} of {len(tasks)} runs were stored by an earlier command"
            self.console.print(f"{stored}; rerun=true repeats them")

        def note(task: EvaluationTask, error: Exception) -> None:
            failed.setdefault(task.label, f"workload {task.workload}: {error}")

        def add(result: RunResult) -> None:
            key = keys[result.label, result.workload]
            cache_result(self.file, key, result)
            self._new.add(key)
            bar.advance(job)

        columns = (TextColumn(progress_text), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
        with Progress(*columns, TimeElapsedColumn(), console=self.console) as bar:
            missing = [task for task in tasks if keys[task.label, task.workload] not in before]
            job = bar.add_task(progress_text, total=len(tasks), completed=len(tasks) - len(missing))
            results = {(one.label, one.workload): one for one in run_tasks(missing, self.workers, add, note)}
        for place, key in keys.items():
            if key in before:
                results[place] = replace(before[key], label=place[0])
        return [results[place] for place in keys if place[0] not in failed], failed


def _encode_array(array: NDArray[Any]) -> dict[str, str]:
    return {"dtype": array.dtype.str, "bytes": base64.b64encode(array.tobytes()).decode()}


def _decode_array(plain: dict[str, Any]) -> Any:
    if "dtype" not in plain:
        return plain
    return np.frombuffer(bytearray(base64.b64decode(plain["bytes"])), plain["dtype"])


def cache_result(file: Path, key: str, result: RunResult) -> None:
    """Append a result to a cache, made if missing. After an OSError, earlier results stay readable."""
    text = json.dumps([key, asdict(result)], default=_encode_array)
    packed = base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    with file.open("a") as stream:
        stream.write(json.dumps({"key": key, "result": packed}) + "\n")


def cached_results(file: Path, keys: Collection[str]) -> dict[str, RunResult]:
    """Return {fingerprint: result} of those in a cache, if there is one, exactly as they were written.

    Damaged results are ignored, and a last line of which a killed process wrote only a part is removed.
    """
    found: dict[str, RunResult] = {}
    if not file.exists():
        return found
    whole = 0
    with file.open("r+b") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                written = json.loads(line)
                if written["key"] in keys:
                    packed = base64.b64decode(written["result"])
                    text = zlib.decompressobj().decompress(packed, _MAX_RATIO * len(packed))
                    key, plain = json.loads(text, object_hook=_decode_array)
                    if key == written["key"]:
                        kinds = {"metrics": Metrics, "bounds": LowerBounds, "times": JobTimes}
                        parts: dict[str, Any] = {name: kind(**plain[name]) for name, kind in kinds.items()}
                        parts["capabilities"] = Capabilities(plain["capabilities"])
                        found[key] = RunResult(**plain | parts | {"timeline": tuple(plain["timeline"])})
            except (ValueError, LookupError, TypeError, zlib.error):
                continue  # damaged
        stream.truncate(whole)
    return found


def fingerprints(tasks: Sequence[EvaluationTask]) -> list[str]:
    """Compute a fingerprint of each task. Tasks with equal fingerprints have equal results.

    A fingerprint covers the configs, workload, seed and measured jobs of the task, the content of the files
    that its configs name, Ringyard's code, the code that its configs name with its imports, and the versions
    of Python and the libraries. `evaluate.check_tasks` must have built the tasks in this process.
    """

    @functools.cache
    def digest(file: Path) -> str:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def of(task: EvaluationTask) -> str:
        parts = [task.scheduler, task.environment, task.workload, task.seed, task.measured_jobs, code]
        named = {*_input_files(task.scheduler), *_input_files(task.environment)}
        content = [parts, [digest(file) for file in sorted(named)]]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()

    configs = {id(one): one for task in tasks for one in (task.environment, task.scheduler)}.values()
    # classes and functions: `_target_`, or `path` of hydra.utils.get_class and similar
    targets = [text for one in configs for key, text in _strings(one) if key in ("_target_", "path")]
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    # sources, weights and yaml files of Ringyard's packages, without pretrained agents
    homes = [Path(str(sys.modules[name].__file__)).parent for name in _PACKAGES]
    files = [file for home in (*homes, config_folder()) for file in home.rglob("*")] + user_config_files()
    skipped = zoo_folders()  # a fingerprint covers those agents that its configs name
    ours = {file for file in files if file.is_file() and file.parent.name != "__pycache__"}
    kept = sorted(file for file in ours if file.parent not in skipped)
    code = [found, {str(file): digest(file) for file in (*kept, *_plugin_files(targets))}]
    return [of(task) for task in tasks]


def _strings(config: Any) -> list[tuple[str, str]]:
    return [(key, text) for key, text in config_nodes(config) if isinstance(text, str)]


def _input_files(config: Any) -> Iterator[Path]:
    """Yield the files that a config names."""
    for key, text in _strings(config):
        text = str(agent_path(text)) if key == "checkpoint" else text
        file = Path(text).expanduser() if "\0" not in text and len(text) < 4096 else Path()
        if key == "checkpoint" and file.suffix != ".safetensors":  # a run folder or a file of an agent
            folder, stem = (file, "agent") if file.is_dir() else (file.parent, file.stem)
            yield from (one for one in folder.glob(f"{stem}.*") if one.is_file())
        elif file.is_file():
            yield file


def _plugin_files(targets: Sequence[str]) -> list[Path]:
    """List the sources of the targets' modules that are not ours, with their imports except libraries."""
    names = [target.rpartition(".")[0] for target in targets]
    tops = {name.partition(".")[0] for name in names}
    queue = [sys.modules[name] for name in names if name in sys.modules]
    found: dict[str, Path] = {}
    while queue:
        module = queue.pop()
        file, top = getattr(module, "__file__", None), module.__name__.partition(".")[0]
        known = module.__name__ in found or top in _PACKAGES or top in sys.stdlib_module_names
        if file is None or known or (top not in tops and _SITES.intersection(Path(file).parts)):
            continue
        found[module.__name__] = Path(file)
        for value in list(vars(module).values()):
            home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(home, str) and home in sys.modules:
                queue.append(sys.modules[home])
    return sorted(found.values())
