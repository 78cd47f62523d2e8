"""Rows of observations, whether flat or in blocks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["stacked", "take"]


def take(observations: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows, by number, of [clusters, size] or of {block: [clusters, ...]}."""
    if isinstance(observations, dict):
        return {name: block.take(rows, axis=0) for name, block in observations.items()}
    return observations.take(rows, axis=0)


def stacked(parts: Sequence[Any]) -> Any:
    """All rows of several observations in one."""
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)
