"""Training loss and validation metric of a job as functions of its progress.

Progress is the share of the job's base iterations done. A larger batch moves along the curve by its
statistical efficiency. Most jobs follow a hyperbola, the form of Optimus' and AITurbo's loss predictor
l(k) = 1 / (b0 k + b1) + b2. `ringyard.state.records.LossCurve` has the other families. Each job has its own
steepness, and points scatter about the curve by the job's `loss_noise`. The constants of the metrics are
fitted to Pollux' validation runs (profiles).
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatVector, IntVector, kernel, u8
from ringyard.profiles import profile_values
from ringyard.state.random_numbers import normal_at, uniform_at
from ringyard.state.records import LossCurve

#: number of validations of a job, evenly spread over its iterations (assumption)
EPOCHS: Final = 100

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
def _with_drops(done: float, half: float) -> float:
    """Return the way of a loss that falls again when the learning rate drops, at 1/3, 2/3 and 8/9.

    Source of the times: the usual schedule of ResNet-50, epochs 30, 60 and 80 of 90. Assumption: the stages
    bring 60, 25, 10 and 5 % of the way.
    """
    way = 0.0
    for begin, share in ((0.0, 0.6), (1 / 3, 0.25), (2 / 3, 0.1), (8 / 9, 0.05)):
        if done > begin:
            stage = (done - begin) / (1.0 - begin)
            way += share * stage * (1.0 + half) / (stage + half)
    return way


@kernel
def _way(curve: int, done: float, half: float, where: float) -> float:
    """Return how far a loss has come without noise: 0 at first, 1 at its target.

    `half` is the job's steepness. `where`, in (0, 1), says at which level or time its curve changes.
    """
    if curve == LossCurve.POWER:
        return float((1.0 - (1.0 + done / half) ** -0.5) / (1.0 - (1.0 + 1.0 / half) ** -0.5))
    if curve == LossCurve.EXPONENTIAL:
        return float((1.0 - np.exp(-done / half)) / (1.0 - np.exp(-1.0 / half)))
    if curve == LossCurve.DROPS:
        return _with_drops(done, 0.25 * half)
    if curve == LossCurve.PLATEAU:
        return float((0.3 + 0.5 * where) * (1.0 - np.exp(-2.0 * done / half)))
    if curve == LossCurve.FLAT or curve == LossCurve.RANDOM_WALK:
        return 0.0
    turn = 0.2 + 0.6 * where
    before = min(done, turn) if curve == LossCurve.DIVERGENCE else done
    way = before * (1.0 + half) / (before + half) - 2.0 * (done - before)
    if curve == LossCurve.OSCILLATION:
        way += 0.1 * np.sin(10.0 * np.pi * done)
    return float(way)


@kernel
def _write_ways(
    seed: u8, rows: IntVector, curves: IntVector, epochs: IntVector, ways: FloatVector, noise: FloatVector
) -> None:
    """Write to `ways` how far each loss has come at its epoch, with noise after epoch 0.

    `ways` holds the models' steepness at first. `noise` is the standard deviation of a point, or of a random
    walk's step.
    """
    for i in range(len(epochs)):
        stream = CURVE_STREAM + rows[i]
        half = ways[i] * np.exp(HALF_SPREAD * normal_at(seed, stream, 0))
        ways[i] = _way(curves[i], epochs[i] / EPOCHS, half, uniform_at(seed, stream, 4 * EPOCHS))
        first = 1 if curves[i] == LossCurve.RANDOM_WALK else max(epochs[i], 1)
        for epoch in range(first, epochs[i] + 1):
            ways[i] += noise[i] * normal_at(seed, stream, 1 + epoch)


def _come(column: Callable[[str], NDArray[Any]], epochs: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return how far the losses of some jobs have come [jobs] after `epochs` [jobs]."""
    ways = np.nan_to_num(profile_values("metric_half")[column("model")], nan=DEFAULT_HALF)
    rows, curves = (column(name).astype(np.int64) for name in ("row", "loss_curve"))
    _write_ways(np.uint64(seed), rows, curves, epochs, ways, column("loss_noise").astype(np.float64))
    return ways


def validation_metric(
    column: Callable[[str], NDArray[Any]], epochs: NDArray[np.int64], seed: int
) -> NDArray[np.float64]:
    """Return the metric [jobs] at one of `EPOCHS` validations, NaN before the first or without a curve.

    Equal seeds of the simulation give equal curves. Their steepness and noise depend on the row of the job.

    Args:
        column: name of a field of `ringyard.state.records.Job` -> [jobs] its values.
        epochs: [jobs] number of the validation, 0 before the first.
        seed: seed of the simulation.
    """
    models = column("model")
    start, end = profile_values("metric_start")[models], profile_values("final_metric")[models]
    return np.where(epochs > 0, start + (end - start) * _come(column, epochs, seed), np.nan)


def training_loss(
    column: Callable[[str], NDArray[Any]], epochs: NDArray[np.int64], seed: int
) -> NDArray[np.float64]:
    """Return the normalised loss [jobs] after some epochs: 1 before training, about 0 at its target.

    `column`, `epochs` and `seed` are those of `validation_metric`.
    """
    return 1.0 - _come(column, epochs, seed)
