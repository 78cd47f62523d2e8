"""A file format for arrays and JSON data: safetensors with a checksum. Reading a file runs no code."""

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

_KEY = "ringyard"  # the only key of the header, because the order of several would not be fixed
_FORMAT = 1
_MAX_CHARACTERS = 1 << 22  # of the JSON data


class Checkpoint(NamedTuple):
    """{name: array of numbers, of any shape} and JSON data of a learner, an agent or a training run."""

    arrays: Mapping[str, NDArray[Any]]
    metadata: Mapping[str, Any]

    def merge(self, other: "Checkpoint") -> "Checkpoint":
        """Return a checkpoint with the contents of both. Entries of `other` win."""
        return Checkpoint({**self.arrays, **other.arrays}, {**self.metadata, **other.metadata})

    def to_bytes(self) -> bytes:
        """Return the bytes of the file. They are equal for equal contents."""
        arrays = {name: np.asarray(array, order="C") for name, array in self.arrays.items()}
        metadata = json.dumps(self.metadata, sort_keys=True)
        header = json.dumps({"facts": metadata, "format": _FORMAT, "sha256": _digest(arrays, metadata)})
        return save(arrays, {_KEY: header})

    def write(self, file: Path) -> None:
        """Write the file. An interruption leaves the old file or the new one, never a part."""
        with atomic_write(file) as partial:
            partial.write_bytes(self.to_bytes())

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file that `write` wrote, or raise a CheckpointError."""
        if not file.is_file():
            raise CheckpointError(f"there is no checkpoint {file}")
        try:
            with safe_open(file, framework="numpy") as stream:
                written = (stream.metadata() or {})[_KEY]
                if len(written) > _MAX_CHARACTERS:
                    raise ValueError(f"its metadata has more than {_MAX_CHARACTERS:,} characters")
                header = json.loads(written)
                arrays = {name: stream.get_tensor(name) for name in stream.keys()}
            version, text, digest = header["format"], header["facts"], header["sha256"]
            metadata = json.loads(text)
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or type(error).__name__
            raise CheckpointError(f"{file} is not a usable checkpoint: {reason}") from error
        if version != _FORMAT:
            raise CheckpointError(
                f"{file} has format {version}, and this version of Ringyard reads format {_FORMAT}"
                "; install the version that wrote it"
            )
        if _digest(arrays, text) != digest or not isinstance(metadata, dict):
            raise CheckpointError(f"{file} is damaged: its checksum differs; copy it again, or train again")
        return cls(arrays, metadata)


def _digest(arrays: Mapping[str, NDArray[Any]], metadata: str) -> str:
    """Return the SHA-256 checksum of all contents, in hexadecimal digits."""
    checksum = hashlib.sha256(metadata.encode())
    for name in sorted(arrays):
        array = arrays[name]
        checksum.update(f"{name} {array.dtype.str} {array.shape}".encode())
        checksum.update(array.tobytes())
    return checksum.hexdigest()
