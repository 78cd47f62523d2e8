"""Results on disk, appended as runs end, so that an interrupted series of runs goes on."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Collection
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ringyard.bounds import LowerBounds
from ringyard.sim.metrics import JobTimes, Metrics
from ringyard_agents.evaluation.evaluate import RunResult, Task, run_all
from ringyard_agents.evaluation.fingerprint import Fingerprints
from ringyard_baselines.scheduler import Powers

__all__ = [
    "CachedRuns",
    "cache_result",
    "cached_results",
]


class CachedRuns:
    """Runs of one command, in one round or several.

    Args:
        file: has the results of an earlier, equal series, and gets those of this one as they come.
        workers: processes; None: one per core.
        console: shows progress.
    """

    def __init__(self, file: Path, workers: int | None, console: Console) -> None:
        self._file = file
        self._workers = workers
        self._console = console
        self._own: set[str] = set()

    def run(self, tasks: list[Task], doing: str) -> tuple[list[RunResult], dict[str, str]]:
        """(results of the schedulers that finished every workload, {scheduler: why it did not}).

        Args:
            tasks: what to run.
            doing: what the progress bar says.
        """
        failed: dict[str, str] = {}
        fingerprints = Fingerprints(tasks)
        keys = {(task.label, task.workload): fingerprints.of(task) for task in tasks}
        before = cached_results(self._file, set(keys.values()))
        count = sum(key in before and key not in self._own for key in keys.values())
        if count:
            self._console.print(
                f"{count} of {len(tasks)} runs are from before; rerun=true measures them again"
            )

        def note(task: Task, error: Exception) -> None:
            failed.setdefault(task.label, f"workload {task.workload}: {error}")

        def add(result: RunResult) -> None:
            key = keys[result.label, result.workload]
            cache_result(self._file, key, result)
            self._own.add(key)
            bar.advance(job)

        with Progress(
            TextColumn(doing),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
            console=self._console,
        ) as bar:
            missing = [task for task in tasks if keys[task.label, task.workload] not in before]
            job = bar.add_task(doing, total=len(tasks), completed=len(tasks) - len(missing))
            results = {(one.label, one.workload): one for one in run_all(missing, self._workers, add, note)}
        for place, key in keys.items():
            if key in before:
                results[place] = replace(before[key], label=place[0])
        return [results[place] for place in keys if place[0] not in failed], failed


_LINE = re.compile(rb'\{"key": "([^"]*)", "sha256": "([0-9a-f]{64})", "result": (\{.*\})\}\n')


def _digest(key: bytes, text: bytes) -> str:
    return hashlib.sha256(key + b" " + text).hexdigest()


def _written(array: NDArray[Any]) -> dict[str, str]:
    array = array.astype(array.dtype.newbyteorder("<"))
    return {"dtype": array.dtype.str, "zlib": base64.b64encode(zlib.compress(array.tobytes(), 1)).decode()}


def _read(entry: dict[str, str]) -> NDArray[Any]:
    array = np.frombuffer(zlib.decompress(base64.b64decode(entry["zlib"])), entry["dtype"])
    return array.astype(array.dtype.newbyteorder("="))


def cache_result(file: Path, key: str, result: RunResult) -> None:
    """Append a result.

    Args:
        file: of results; made if there is none.
        key: to find it again.
        result: of a run.

    Raises:
        OSError: it cannot be written; what was there before can still be read.
    """
    plain = {field.name: getattr(result, field.name) for field in fields(result)}
    plain["metrics"], plain["bounds"] = asdict(result.metrics), asdict(result.bounds)
    plain["times"] = {field.name: _written(getattr(result.times, field.name)) for field in fields(JobTimes)}
    plain["timeline"] = [_written(array) for array in result.timeline]
    text = json.dumps(plain)
    digest = _digest(key.encode(), text.encode())
    with file.open("ab") as stream:
        stream.write(f'{{"key": "{key}", "sha256": "{digest}", "result": {text}}}\n'.encode())


def cached_results(file: Path, keys: Collection[str]) -> dict[str, RunResult]:
    """{key: result} of those keys that the file has, whole and as they were written.

    The file's last line goes if a killed process left half of one.

    Args:
        file: of results; there may be none.
        keys: wanted.
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
            parts = _LINE.fullmatch(line)
            if parts is None or parts[2].decode() != _digest(parts[1], parts[3]):
                continue  # damaged
            if (key := parts[1].decode()) in keys:
                found[key] = _result(parts[3])
        stream.truncate(whole)
    return found


def _result(text: bytes) -> RunResult:
    plain = json.loads(text)
    first, second, third = (_read(entry) for entry in plain["timeline"])
    return replace(
        RunResult(**plain),
        may=Powers(plain["may"]),
        metrics=Metrics(**plain["metrics"]),
        bounds=LowerBounds(**plain["bounds"]),
        times=JobTimes(**{name: _read(entry) for name, entry in plain["times"].items()}),
        timeline=(first, second, third),
    )
