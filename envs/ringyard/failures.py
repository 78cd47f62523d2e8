"""Servers that fail and return."""

from dataclasses import dataclass

import numpy as np

from ringyard.errors import ConfigurationError

__all__ = ["Failures", "no_failures"]


@dataclass(frozen=True)
class Failures:
    """Exponential times to failure and repair, independent for each server, the same for every scheduler.

    A failure stops the jobs on the server; each loses what it did since its last checkpoint. A checkpoint
    is taken every `checkpoint_seconds` of isolated run time, and at every stop.

    Attributes:
        mean_up_seconds: of each server between repair and next failure; infinity: never fails.
        mean_repair_seconds: down.
        checkpoint_seconds: between checkpoints.

    Raises:
        ConfigurationError: a time that is not above 0.
    """

    mean_up_seconds: float
    mean_repair_seconds: float
    checkpoint_seconds: float

    def __post_init__(self) -> None:
        for name in ("mean_up_seconds", "mean_repair_seconds", "checkpoint_seconds"):
            value = getattr(self, name)
            if not value > 0 or (name == "mean_repair_seconds" and not np.isfinite(value)):
                raise ConfigurationError(f"failures.{name} is {value}; expected above 0")


def no_failures() -> Failures:
    """Servers that never fail."""
    return Failures(float("inf"), 1.0, float("inf"))
