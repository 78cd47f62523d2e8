"""State on disk: arrays and plain data in one file. Reading it runs nothing."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ringyard.errors import CheckpointError
from ringyard_agents.runs.atomic_write import atomic_write

_KEY = "ringyard"  # of the JSON in the header; one key, because the order of several is not fixed
_FORMAT = 1


class Checkpoint(NamedTuple):
    """Arrays and plain data, without anything that could run.

    Attributes:
        arrays: {name: array of numbers, of any shape}.
        facts: JSON data.
    """

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]

    def joined(self, other: "Checkpoint") -> "Checkpoint":
        """The contents of both."""
        return Checkpoint({**self.arrays, **other.arrays}, {**self.facts, **other.facts})

    def to_bytes(self) -> bytes:
        """Bytes of a file, equal for equal contents."""
        arrays = {name: np.asarray(array, order="C") for name, array in self.arrays.items()}
        facts = json.dumps(self.facts, sort_keys=True)
        header = json.dumps({"facts": facts, "format": _FORMAT, "sha256": _digest(arrays, facts)})
        return save(arrays, {_KEY: header})

    def write(self, file: Path) -> None:
        """Write a file; an interruption leaves the old file or the new one."""
        with atomic_write(file) as partial:
            partial.write_bytes(self.to_bytes())

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file of `write`.

        Raises:
            CheckpointError: it is missing, damaged, of a later version or something else.
        """
        if not file.is_file():
            raise CheckpointError(f"there is no checkpoint {file}")
        try:
            with safe_open(file, framework="numpy") as stream:
                header = json.loads((stream.metadata() or {})[_KEY])
                arrays = {name: stream.get_tensor(name) for name in stream.keys()}
            version, text, digest = header["format"], header["facts"], header["sha256"]
            facts = json.loads(text)
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, MemoryError) as error:
            said = str(error) or type(error).__name__
            raise CheckpointError(f"{file} is not a usable checkpoint: {said}") from error
        if version != _FORMAT:
            raise CheckpointError(
                f"{file} has format {version}, this Ringyard reads {_FORMAT}; install another"
            )
        if _digest(arrays, text) != digest or not isinstance(facts, dict):
            raise CheckpointError(
                f"{file} is damaged: it is not what was written; copy it again, or train again"
            )
        return cls(arrays, facts)


def _digest(arrays: Mapping[str, NDArray[Any]], facts: str) -> str:
    """Checksum of all contents of a file."""
    found = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()
