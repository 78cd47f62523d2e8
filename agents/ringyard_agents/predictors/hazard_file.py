"""Hazard networks on disk: `archive` files that `ringyard fit-hazard` writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard_agents.learning.archive import read_archive, write_archive
from ringyard_agents.learning.learner import Saved
from ringyard_baselines.tools.hazards import Hazards

__all__ = ["SHIPPED", "read_hazards", "write_hazards"]

#: fitted to the public cut of Microsoft's Philly trace; its header says how
SHIPPED = Path(__file__).parent / "weights" / "hazard_philly.safetensors"
_KIND = "hazard network"


def write_hazards(file: Path, network: Mapping[str, NDArray[np.float64]], facts: Mapping[str, Any]) -> None:
    """Write a network and what it was fitted to."""
    arrays = {name: np.asarray(array, dtype=np.float32) for name, array in network.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_archive(file, Saved(arrays, {"kind": _KIND, **facts}))


def read_hazards(file: str | Path | None = None, stay: float = 0.5) -> Hazards:
    """The estimate of a network.

    Args:
        file: of `write_hazards`; None: the network that ships.
        stay: a running job counts as having so much of it left, in (0, 1].

    Raises:
        CheckpointError: it is missing or damaged.
        ConfigurationError: it holds something else, or stay is out of its range.
    """
    path = SHIPPED if file is None else Path(file).expanduser()
    saved = read_archive(path)
    if saved.facts.get("kind") != _KIND:
        raise ConfigurationError(f"{path} is no hazard network; expected a file of `ringyard fit-hazard`")
    return Hazards({name: array.astype(np.float64) for name, array in saved.arrays.items()}, stay)
