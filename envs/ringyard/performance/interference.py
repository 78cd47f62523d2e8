"""How much jobs on one GPU slow one another."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Positive, checked
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import REFERENCE_GPU
from ringyard.profiles import catalogue, model_id

__all__ = ["Interference", "no_interference", "pair_table", "sensitivity_pressure"]


@checked("interference")
@dataclass(frozen=True)
class Interference:
    """Extra iteration time of each model beside each other.

    A worker's compute time is its own times 1 + the sum over the neighbours on its GPU of
    `excess[own, neighbour]`; the worst GPU sets the job's pace.

    Attributes:
        excess: [models + 1, models + 1], NaN where unknown; the last row and column are for jobs without
            a model. None: jobs do not slow one another.
    """

    excess: NDArray[np.float64] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        wanted = (len(catalogue()) + 1,) * 2
        if self.excess is not None and (self.excess.shape != wanted or (self.excess < 0).any()):
            raise ConfigurationError(
                f"interference.excess has shape {self.excess.shape}; expected {wanted}, each 0 or more, NaN"
                " where unknown"
            )

    def between(self, model_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """`excess`, checked for the models that occur.

        Raises:
            ConfigurationError: two of them have no figure.
        """
        models = catalogue()
        if self.excess is None:
            return np.zeros((len(models) + 1, len(models) + 1))
        present = np.unique(model_ids)
        for own in present.tolist():
            for other in present.tolist():
                if np.isnan(self.excess[own, other]):
                    name, beside = (models[i].name if i >= 0 else "no model" for i in (own, other))
                    missing = models[own].file if own >= 0 else "the job table"
                    raise ConfigurationError(
                        f"nothing says how much {beside} slows {name} on a shared GPU; add"
                        f" gpus.{REFERENCE_GPU}.sharing to {missing} (or the pair to the table), or"
                        " leave the model out"
                    )
        return np.nan_to_num(self.excess)


def no_interference() -> Interference:
    """Jobs on one GPU do not slow one another."""
    return Interference()


def sensitivity_pressure() -> Interference:
    """excess[a, b] = sensitivity_a x pressure_b: the rank-one form of the profiles' measured pairs."""
    models = catalogue()
    nan = float("nan")
    shared = [m.gpus[REFERENCE_GPU].sharing.get(m.batch_size, (nan, nan)) for m in models] + [(0.0, 0.0)]
    sensitivity, pressure = zip(*shared, strict=True)
    return Interference(np.outer(sensitivity, pressure))


@checked("interference")
def pair_table(normalised: Mapping[str, Mapping[str, Positive]]) -> Interference:
    """Measured pairs: excess[a, b] = 1 / normalised[a][b] - 1.

    Args:
        normalised: {model: {neighbour: its speed beside it / its speed alone}}, in (0, inf); pairs that are
            absent stay unknown.

    Raises:
        ConfigurationError: an unknown model, or a speed that is not above 0.
    """
    count = len(catalogue()) + 1
    excess = np.full((count, count), np.nan)
    excess[-1, :] = excess[:, -1] = 0.0
    for own, row in normalised.items():
        for other, speed in row.items():
            excess[model_id(own), model_id(other)] = max(1.0 / speed - 1.0, 0.0)
    return Interference(excess)
