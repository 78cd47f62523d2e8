"""Result of one comparison of predictions with measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tools.measured_sets.readers import published


@dataclass(frozen=True)
class Part:
    """One row of a comparison's table.

    Attributes:
        name: what was predicted.
        errors: [held-out points] |predicted - measured| / measured.
        fitted: how many points the constants were fitted to.
        constants: how many constants were fitted.
        note: their values, or what to know.
    """

    name: str
    errors: NDArray[np.float64]
    fitted: int
    constants: int
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """Predictions against measurements.

    Attributes:
        title: what is compared.
        source: the measurements.
        form: the equation and the function that predicts.
        parts: rows of the table.
        weakness: where the model is weak.
        draw: draws the plot on matplotlib axes.
        aim: the error wanted; None if none was set.
        statistic: "mean" or "median", of the errors of all parts together.
        note: what else was found, for the table of all comparisons.
    """

    title: str
    source: str
    form: str
    parts: Sequence[Part]
    weakness: str
    draw: Callable[[Any], None] = field(repr=False)
    aim: float | None = None
    statistic: str = "mean"
    note: str = ""

    @property
    def errors(self) -> NDArray[np.float64]:
        """Errors of all held-out points."""
        return np.concatenate([part.errors for part in self.parts])

    @property
    def error(self) -> float:
        """Their mean or median."""
        return float(np.median(self.errors) if self.statistic == "median" else self.errors.mean())


def read(data: Path, name: str, text: Sequence[str] = ()) -> pd.DataFrame:
    """A CSV file of the data folder; `text` names columns to keep as strings.

    Raises:
        MissingDataError: it is not there.
    """
    return pd.read_csv(published(data, name), dtype=dict.fromkeys(text, str))


def relative(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """|predicted - measured| / measured."""
    errors: NDArray[np.float64] = np.abs(predicted - measured) / measured
    return errors


def halves(groups: Sequence[Any], seed: int = 0) -> NDArray[np.bool_]:
    """[points] True for the random half of the distinct groups that constants are fitted to."""
    keys = [str(group) for group in groups]
    distinct = sorted(set(keys))
    chosen = np.random.default_rng(seed).permutation(len(distinct))[: (len(distinct) + 1) // 2]
    fitted = {distinct[i] for i in chosen}
    return np.array([key in fitted for key in keys])
