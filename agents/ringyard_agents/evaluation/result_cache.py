"""Results on disk: one line of JSON each, appended as they come, read back bit for bit."""

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

from ringyard.bounds import LowerBounds
from ringyard.sim.metrics import JobTimes, Metrics
from ringyard_agents.evaluation.evaluate import RunResult
from ringyard_baselines.scheduler import Powers

__all__ = ["cache_result", "cached_results"]

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
