"""Fields of a profile that are no measurements of speed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Fields", "six_digits_down"]


@dataclass(frozen=True)
class Fields:
    """Values and sources by field, in the order of the recipe; a field without a value has a source only."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]


def six_digits_down(value: float) -> float:
    """Rounded so that the batch which fills a GPU still fits."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(value)) - 5)
    return float(f"{np.floor(value / unit) * unit:.6g}")
