"""Results on disk: one line of JSON each, appended as they come, read back bit for bit."""

import base64
import json
import zlib
from collections.abc import Collection
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.bounds import LowerBounds
from ringyard.sim.metrics import JobTimes, Metrics
from ringyard_agents.measuring.evaluate import RunResult

__all__ = ["keep", "kept"]

_HEAD = '{"key": "'


def _written(array: NDArray[Any]) -> dict[str, str]:
    array = array.astype(array.dtype.newbyteorder("<"))
    return {"dtype": array.dtype.str, "zlib": base64.b64encode(zlib.compress(array.tobytes(), 1)).decode()}


def _read(entry: dict[str, str]) -> NDArray[Any]:
    array = np.frombuffer(zlib.decompress(base64.b64decode(entry["zlib"])), entry["dtype"])
    return array.astype(array.dtype.newbyteorder("="))


def keep(file: Path, key: str, result: RunResult) -> None:
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
    with file.open("ab") as stream:
        stream.write(json.dumps({"key": key} | plain).encode() + b"\n")


def kept(file: Path, keys: Collection[str]) -> dict[str, RunResult]:
    """{key: result} of those keys that the file has; its last line goes if a killed process left half of one.

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
            key = line[len(_HEAD) :].partition(b'"')[0].decode(errors="replace")
            if key in keys and (result := _result(line)) is not None:
                found[key] = result
        stream.truncate(whole)
    return found


def _result(line: bytes) -> RunResult | None:
    """The result of a line; None if the line is damaged."""
    try:
        plain = json.loads(line)
        del plain["key"]
        first, second, third = (_read(entry) for entry in plain["timeline"])
        return replace(
            RunResult(**plain),
            metrics=Metrics(**plain["metrics"]),
            bounds=LowerBounds(**plain["bounds"]),
            times=JobTimes(**{name: _read(entry) for name, entry in plain["times"].items()}),
            timeline=(first, second, third),
        )
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
