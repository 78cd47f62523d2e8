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

Numbers = NDArray[np.float64]

EPOCHS: Final = 100  #: number of validations of a job, evenly spread over its iterations (assumption)

#: log-normal spread of metric_half among jobs of a model, so that no curve is known in advance (assumption)
HALF_SPREAD: Final = 0.5

CURVE_STREAM: Final = 1 << 41  #: first random stream of the curves, apart from those of jobs and servers

#: metric_half for profiles without one (assumption: that of ResNet-50 on ImageNet, rounded)
DEFAULT_HALF: Final = 0.2


def hyperbola(done: Numbers, start: Numbers, end: Numbers, half: Numbers) -> Numbers:
    """Return start + (end - start) x done (1 + half) / (done + half): `start` at 0, `end` at 1.

    Arrays are [...]. A smaller `half`, above 0, makes the beginning steeper.
    """
    return start + (end - start) * done * (1.0 + half) / (done + half)


@kernel
def _hyperbola(done: float, half: float) -> float:
    """Return `hyperbola` from 0 to 1."""
    return done * (1.0 + half) / (done + half)


@kernel
def _fall_by_drops(done: float, half: float) -> float:
    """Return `_fall` of a loss that falls again when the learning rate drops, at 1/3, 2/3 and 8/9.

    Source of the times: the usual schedule of ResNet-50, epochs 30, 60 and 80 of 90. Assumption: the stages
    bring 60, 25, 10 and 5 % of the fall.
    """
    fall = 0.0
    for begin, share in ((0.0, 0.6), (1 / 3, 0.25), (2 / 3, 0.1), (8 / 9, 0.05)):
        if done > begin:
            stage = (done - begin) / (1.0 - begin)
            fall += share * _hyperbola(stage, half)
    return fall


@kernel
def _fall(curve: int, done: float, half: float, where: float) -> float:
    """Return the share of its fall that a loss has made, without noise: 0 at first, 1 at its target.

    `half` is the job's steepness. `where`, in (0, 1), says at which level or time its curve changes.
    """
    if curve == LossCurve.POWER:
        return float((1.0 - (1.0 + done / half) ** -0.5) / (1.0 - (1.0 + 1.0 / half) ** -0.5))
    if curve == LossCurve.EXPONENTIAL:
        return float((1.0 - np.exp(-done / half)) / (1.0 - np.exp(-1.0 / half)))
    if curve == LossCurve.DROPS:
        return _fall_by_drops(done, 0.25 * half)
    if curve == LossCurve.PLATEAU:
        return float((0.3 + 0.5 * where) * (1.0 - np.exp(-2.0 * done / half)))
    if curve == LossCurve.FLAT or curve == LossCurve.RANDOM_WALK:
        return 0.0
    turn = 0.2 + 0.6 * where
    before = min(done, turn) if curve == LossCurve.DIVERGENCE else done
    fall = _hyperbola(before, half) - 2.0 * (done - before)
    if curve == LossCurve.OSCILLATION:
        fall += 0.1 * np.sin(10.0 * np.pi * done)
    return float(fall)


@kernel
def _write_falls(
    seed: u8, rows: IntVector, curves: IntVector, epochs: IntVector, falls: FloatVector, noise: FloatVector
) -> None:
    """Write to `falls` the share of its fall that each loss has made at its epoch, with noise after epoch 0.

    `falls` holds the models' steepness at first. `noise` is the standard deviation of a point, or of a random
    walk's step.
    """
    for i in range(len(epochs)):
        stream = CURVE_STREAM + rows[i]
        half = falls[i] * np.exp(HALF_SPREAD * normal_at(seed, stream, 0))
        falls[i] = _fall(curves[i], epochs[i] / EPOCHS, half, uniform_at(seed, stream, 4 * EPOCHS))
        first = 1 if curves[i] == LossCurve.RANDOM_WALK else max(epochs[i], 1)
        for epoch in range(first, epochs[i] + 1):
            falls[i] += noise[i] * normal_at(seed, stream, 1 + epoch)


def _falls(column: Callable[[str], NDArray[Any]], epochs: NDArray[np.int64], seed: int) -> Numbers:
    """Return the shares of their fall that losses have made [jobs] after `epochs` [jobs]."""
    known = profile_values("metric_half")[column("model")]
    falls = np.where(np.isnan(known), DEFAULT_HALF, known)
    rows, curves = (column(name).astype(np.int64) for name in ("row", "loss_curve"))
    _write_falls(np.uint64(seed), rows, curves, epochs, falls, column("loss_noise").astype(np.float64))
    return falls


def validation_metric(column: Callable[[str], NDArray[Any]], epochs: NDArray[np.int64], seed: int) -> Numbers:
    """Return the metric [jobs] at one of `EPOCHS` validations, NaN before the first or without a curve.

    Equal seeds of the simulation give equal curves. Their steepness and noise depend on the row of the job.

    Args:
        column: name of a field of `ringyard.state.records.Job` -> [jobs] its values.
        epochs: [jobs] number of the validation, 0 before the first.
        seed: seed of the simulation.
    """
    models = column("model")
    start, end = profile_values("metric_start")[models], profile_values("final_metric")[models]
    return np.where(epochs > 0, start + (end - start) * _falls(column, epochs, seed), np.nan)


def training_loss(column: Callable[[str], NDArray[Any]], epochs: NDArray[np.int64], seed: int) -> Numbers:
    """Return the normalised loss [jobs] after some epochs: 1 before training, about 0 at its target.

    `column`, `epochs` and `seed` are those of `validation_metric`.
    """
    return 1.0 - _falls(column, epochs, seed)
