"""`Failures`: the model of servers that fail and are repaired."""

from dataclasses import dataclass
from typing import Annotated

from ringyard.checks import Positive, checked


@checked("failures")
@dataclass(frozen=True)
class Failures:
    """Exponential times to failure and repair, independent for each server and equal for all schedulers.

    A failure stops the jobs on the server. Each loses its work since its last checkpoint. A job writes a
    checkpoint every `checkpoint_seconds` of isolated run time, and whenever it stops.

    Raises:
        ConfigurationError: a time that is not above 0.
    """

    #: mean time between a repair and the next failure of a server. Infinity: no failures.
    mean_up_seconds: Annotated[float, "(0, inf]"]
    mean_repair_seconds: Positive  #: mean time for which a failed server is down
    checkpoint_seconds: Annotated[float, "(0, inf]"]  #: isolated run time between two checkpoints


def no_failures() -> Failures:
    """Return the model without failures."""
    return Failures(float("inf"), 1.0, float("inf"))
