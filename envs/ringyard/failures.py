"""`Failures`: the model of servers that fail and are repaired, or that come and go as recorded."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError


@checked("failures")
@dataclass(frozen=True)
class Failures:
    """Exponential times to failure and repair, independent for each server and equal for all schedulers.

    A failure stops the jobs on the server. Each loses its work since its last checkpoint. A job writes a
    checkpoint every `checkpoint_seconds` of isolated run time, and whenever a scheduler stops it.

    Raises:
        ConfigurationError: a time that is not above 0, or outages that do not follow each other within a
            period.
    """

    #: mean time between a repair and the next failure of a server. Infinity: no failures.
    mean_up_seconds: Annotated[float, "(0, inf]"]
    mean_repair_seconds: Positive  #: mean time for which a failed server is down
    checkpoint_seconds: Annotated[float, "(0, inf]"]  #: isolated run time between two checkpoints
    #: whether a job also writes a checkpoint when a scheduler stops it. False: an evicted job loses its work
    #: since its last checkpoint, as in a failure.
    checkpoint_on_preemption: bool = True
    #: [servers] when each server leaves and returns, in turns, in place of the random times. Seconds of a
    #: period that repeats and begins at a random point of it. The last return may be in the next period.
    outages: tuple[tuple[float, ...], ...] = ()
    period_seconds: Annotated[float, "(0, inf]"] = float("inf")  #: length of that period

    def __post_init__(self) -> None:
        for s, times in enumerate(self.outages):
            period = self.period_seconds
            fits = not times or (0.0 <= times[0] < period < np.inf and times[-1] < times[0] + period)
            if len(times) % 2 or not fits or any(a >= b for a, b in pairwise(times)):
                raise ConfigurationError(
                    f"failures.outages[{s}] is {times!r}; expected an even number of ascending seconds, the"
                    f" first within the period, and less than {period} s to the last"
                )


def no_failures() -> Failures:
    """Return the model without failures."""
    return Failures(float("inf"), 1.0, float("inf"))


@checked("failures")
def recorded_capacity(
    path: str,
    trace: str,
    num_servers: PositiveInt,
    checkpoint_seconds: Annotated[float, "(0, inf]"],
    checkpoint_on_preemption: bool = True,
) -> Failures:
    """Create servers that come and go by a recorded series of how many there are, such as of spot instances.

    Server s is there while the series is above s. Each episode begins at a random point of it.

    Args:
        path: CSV with columns `trace`, `second` and `nodes`: so many from then on. `end` closes a trace.
        trace: name of the series.
        num_servers: number of servers of the cluster.
        checkpoint_seconds: isolated run time between two checkpoints of a job.
        checkpoint_on_preemption: see `Failures`.

    Raises:
        ConfigurationError: no such file, columns or series, or one that never has so many servers.
    """
    import pandas as pd  # environments without such servers do not wait for it

    try:
        rows = pd.read_csv(path, usecols=["trace", "second", "nodes"], dtype={"nodes": str})
    except (OSError, ValueError) as error:
        expected = "a CSV with columns trace, second, nodes"
        raise ConfigurationError(f"failures.path is {path!r}: {error}; expected {expected}") from error
    of_trace = rows[rows.trace == trace].sort_values("second")
    if len(of_trace) < 2 or of_trace.nodes.iloc[-1] != "end":
        known = ", ".join(rows.trace.unique()[:5])
        raise ConfigurationError(
            f"failures.trace is {trace!r}; expected a series of the file that `end` closes, such as {known}"
        )
    seconds = of_trace.second.to_numpy(np.float64) - of_trace.second.min()
    nodes = of_trace.nodes.iloc[:-1].to_numpy(np.float64)
    outages = tuple(_outages(seconds, nodes > s) for s in range(num_servers))
    if nodes.max() < num_servers:
        raise ConfigurationError(
            f"failures.num_servers is {num_servers}; expected at most {nodes.max():.0f} for {trace}"
        )
    return Failures(
        float("inf"), 1.0, checkpoint_seconds, checkpoint_on_preemption, outages, float(seconds[-1])
    )


def _outages(seconds: NDArray[np.float64], there: NDArray[np.bool_]) -> tuple[float, ...]:
    """Return when a server leaves and returns, which is `there` [n] or not from `seconds` [n + 1] on."""
    changes = np.flatnonzero(there != np.roll(there, 1))
    times = seconds[changes]
    if len(changes) and there[changes[0]]:  # the series begins within an outage
        times = np.append(times[1:], times[0] + seconds[-1])
    return tuple(times.tolist())
