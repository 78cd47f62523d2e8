"""Training loss and validation metric of a job as functions of its progress.

Progress is the share of the job's base iterations done. A larger batch moves along the curve by its
statistical efficiency. Both curves are hyperbolas, the form of Optimus' and AITurbo's loss predictor
l(k) = 1 / (b0 k + b1) + b2. Each job has its own steepness, and points scatter about the curve. The constants
of the metrics are fitted to Pollux' validation runs (profiles).
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatVector, IntVector, kernel, u8
from ringyard.profiles import profile_values
from ringyard.state.random_numbers import normal_at

#: number of validations of a job, evenly spread over its iterations (assumption)
EPOCHS: Final = 100

#: standard deviation of a point about its curve, as a share of the difference between start and end
#: (assumption: the middle of the scatter of four Pollux runs about their fits, 1.4, 3.0, 3.1 and 7.6 %)
SCATTER: Final = 0.03

#: log-normal spread of metric_half among jobs of a model, so that no curve is known in advance (assumption)
HALF_SPREAD: Final = 0.5

#: first random stream of the curves, apart from those of jobs and servers
CURVE_STREAM: Final = 1 << 41

#: metric_half for profiles without one (assumption: that of ResNet-50 on ImageNet, rounded)
DEFAULT_HALF: Final = 0.2


def hyperbola(
    done: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64], half: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return start + (end - start) x done (1 + half) / (done + half): `start` at 0, `end` at 1.

    Arrays are [...]. A smaller `half`, above 0, makes the beginning steeper.
    """
    return start + (end - start) * done * (1.0 + half) / (done + half)


@kernel
def _scatter(seed: u8, rows: IntVector, epochs: FloatVector, halves: FloatVector, noise: FloatVector) -> None:
    """Multiply `halves` by each job's steepness and write the scatter of its epoch into `noise`."""
    for i in range(len(epochs)):
        halves[i] *= np.exp(HALF_SPREAD * normal_at(seed, CURVE_STREAM + rows[i], 0))
        noise[i] = SCATTER * normal_at(seed, CURVE_STREAM + rows[i], 1 + int(epochs[i]))


def _curves(
    models: NDArray[np.int32], done: NDArray[np.float64], seed: int, rows: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (curve from 0 to 1 at the last full epoch [jobs], that epoch [jobs])."""
    epochs = np.floor(done * EPOCHS)
    halves = np.nan_to_num(profile_values("metric_half")[models], nan=DEFAULT_HALF)
    noise = np.zeros(len(done))
    _scatter(np.uint64(seed), rows.astype(np.int64), epochs, halves, noise)
    way = hyperbola(epochs / EPOCHS, np.zeros(len(done)), np.ones(len(done)), halves)
    return way + np.where(epochs > 0, noise, 0.0), epochs


def validation_metric(
    models: NDArray[np.int32], done: NDArray[np.float64], seed: int, rows: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return the metric [jobs] at the last of `EPOCHS` validations, NaN before the first or without a curve.

    `models` are positions in the catalogue (its length: none), `done` shares of training. Equal seeds of the
    simulation give equal curves. Their steepness and scatter depend on `rows` of the job table.
    """
    way, epochs = _curves(models, done, seed, rows)
    start, end = profile_values("metric_start")[models], profile_values("final_metric")[models]
    return np.where(epochs > 0, start + (end - start) * way, np.nan)


def training_loss(
    models: NDArray[np.int32], done: NDArray[np.float64], seed: int, rows: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return the normalised loss [jobs] at the last full epoch: 1 before training, about 0 at its end.

    `models`, `done`, `seed` and `rows` are those of `validation_metric`.
    """
    return 1.0 - _curves(models, done, seed, rows)[0]


def loss_history(model: int, job: int, epochs: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return the normalised loss [epochs] of one job at given epochs, as `training_loss` returned it then."""
    rows, count = np.full(len(epochs), job), epochs.astype(np.float64)
    halves = np.full(len(epochs), np.nan_to_num(profile_values("metric_half")[model], nan=DEFAULT_HALF))
    noise = np.zeros(len(epochs))
    _scatter(np.uint64(seed), rows, count, halves, noise)
    ones = np.ones(len(epochs))
    return 1.0 - hyperbola(count / EPOCHS, 0.0 * ones, ones, halves) - noise
