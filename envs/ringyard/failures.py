"""Servers that fail and return."""

from dataclasses import dataclass
from typing import Annotated

from ringyard.checks import Positive, checked


@checked("failures")
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

    mean_up_seconds: Annotated[float, "(0, inf]"]
    mean_repair_seconds: Positive
    checkpoint_seconds: Annotated[float, "(0, inf]"]


def no_failures() -> Failures:
    """Servers that never fail."""
    return Failures(float("inf"), 1.0, float("inf"))
