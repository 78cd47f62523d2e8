"""Errors on the parameter-server steps and restarts of AITurbo's follow-on paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from ringyard.performance.composite import step_seconds
from ringyard.profiles import profile
from ringyard.restart import pause_seconds
from ringyard_agents.calibration.fits import fit_restart_growth
from ringyard_agents.runs.figures import plot_predictions
from tools.equations.result import Comparison, Part, relative
from tools.measured_sets.aiturbo import CALIBRATION, MORE_RESTARTS, PARAMETERS, POINTS, RESTARTS


def calibration_design(batch: float, points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[points, 6] columns m, 1, w/p, w, p, g of calibration runs (`step_seconds`).

    Args:
        batch: global batch M = m w, samples.
        points: [points, 3] workers, parameter servers, GPUs.
    """
    w, p, g = points.T
    return np.stack([batch / w, np.ones(len(points)), w / p, w, p, g], axis=1)


def refit(name: str, points: np.ndarray[Any, Any] = POINTS, rows: Any = slice(None)) -> Any:
    """[6] coefficients of a model by non-negative least squares on the given calibration rows."""
    batch, seconds = CALIBRATION[name]
    design = calibration_design(batch, points)
    scale = design.max(axis=0)
    return nnls((design / scale)[rows], np.array(seconds)[rows])[0] / scale


def _predict(name: str, theta: Any) -> Any:
    batch, _ = CALIBRATION[name]
    return np.array(
        [
            step_seconds(theta[0] * batch / w + theta[1], int(w), int(p), int(g), 1.0, tuple(theta[2:]))
            for w, p, g in POINTS
        ]
    )


def parameter_server_steps(data: Path) -> Comparison:
    """Each calibration run predicted from the other six of its model."""
    parts, points = [], []
    for name, (_, seconds) in CALIBRATION.items():
        measured = np.array(seconds)
        left_out = []
        for i in range(len(POINTS)):
            theta = refit(name, rows=[k for k in range(len(POINTS)) if k != i])
            left_out.append(_predict(name, theta)[i])
        errors = relative(np.array(left_out), measured)
        inside = relative(_predict(name, refit(name)), measured)
        used = int((refit(name) > 0).sum())
        parts.append(Part(name, errors, 6, used, f"fitted to all seven: mean {inside.mean():.1%}"))
        points.append((name, measured, np.array(left_out)))
    return Comparison(
        title="Parameter-server steps",
        source=(
            "AITurbo's follow-on: seven calibration runs a model, tabulated in this project"
            " (measured for VGG-11"
            " and GoogLeNet, recomputed from its published coefficients for the others)"
        ),
        form=(
            "T = theta0 m + theta1 + theta2 w/p + theta3 w + theta4 p + theta5 g, all >= 0"
            " (`parameter_server.step_seconds`); each run predicted from the six others"
        ),
        parts=parts,
        weakness=(
            "Up to six constants for seven runs. GoogLeNet's three-worker run is its authors' own outlier."
            " Inception-3 is left out: its coefficients contradict themselves."
        ),
        draw=lambda axes: plot_predictions(axes, points, "seconds per step (left out)"),
    )


def restart_table() -> tuple[Any, Any]:
    """[models] millions of parameters, [models, 3] seconds on 1, 2 and 3 GPUs; those of profiles first."""
    seconds = RESTARTS | MORE_RESTARTS
    sizes = np.array([PARAMETERS[name] for name in seconds])
    return sizes, np.array(list(seconds.values()), dtype=np.float64)


def _grown(seconds: Any, growth: Any, gpus: int) -> Any:
    """[models] seconds on so many GPUs, as the simulator counts them."""
    pairs = zip(seconds.tolist(), np.asarray(growth).tolist(), strict=True)
    return np.array([pause_seconds(base, more, 0.0, 1, gpus) for base, more in pairs])


def restart_growths(seconds: Any, gpus: Sequence[int]) -> Any:
    """[models] seconds at each doubling, see `restart_growth`.

    Args:
        seconds: [models, 3] on 1, 2 and 3 GPUs, the first of which is kept.
        gpus: those fitted to, 2 or 3 or both.
    """
    columns = [count - 1 for count in gpus]
    return np.array([fit_restart_growth(gpus, row[columns], row[0]) for row in seconds])


def restart_rule(sizes: Any, seconds: Any) -> Any:
    """[2] growth of a model of no parameters, and more for each million: least squares of relative errors.

    Args:
        sizes: [models] millions of parameters.
        seconds: [models, 3] on 1, 2 and 3 GPUs.
    """
    slope = np.log2([2, 3]) / seconds[:, 1:]
    design = np.stack([slope, slope * sizes[:, None]], axis=-1).reshape(-1, 2)
    return nnls(design, (1.0 - seconds[:, :1] / seconds[:, 1:]).ravel())[0]


def _left_out(sizes: Any, seconds: Any) -> Any:
    """[models] growth of each by the rule of the others."""
    growth = []
    for i, size in enumerate(sizes):
        rest = np.arange(len(sizes)) != i
        base, per_million = restart_rule(sizes[rest], seconds[rest])
        growth.append(base + per_million * size)
    return np.array(growth)


def _of_profiles() -> tuple[Any, Any]:
    """[profiles, 3] restart seconds as shipped, and as measured."""
    models = [profile(f"aiturbo_{name}") for name in RESTARTS]
    base = np.array([model.require_value("restart_seconds") for model in models], dtype=np.float64)
    growth = [model.require_value("restart_seconds_per_doubling") for model in models]
    shipped = np.stack([_grown(base, growth, gpus) for gpus in (1, 2, 3)], axis=1)
    return shipped, np.array(list(RESTARTS.values()), dtype=np.float64)


def restarts(data: Path) -> Comparison:
    """Restart seconds on numbers of GPUs, and of models, that the constants were not fitted to."""
    sizes, seconds = restart_table()
    shipped = relative(*_of_profiles())
    third = _grown(seconds[:, 0], restart_growths(seconds, [2]), 3)
    second = _grown(seconds[:, 0], restart_growths(seconds, [3]), 2)
    by_rule = np.stack([_grown(seconds[:, 0], _left_out(sizes, seconds), gpus) for gpus in (2, 3)], axis=1)
    constant = relative(np.full(seconds.shape, 30.0), seconds).mean()
    models = len(sizes)
    parts = [
        Part(
            "3 GPUs from 1 and 2",
            relative(third, seconds[:, 2]),
            2 * models,
            2 * models,
            f"the profiles, fitted to 1, 2 and 3 GPUs: mean {shipped.mean():.1%}, worst {shipped.max():.1%}",
        ),
        Part("2 GPUs from 1 and 3", relative(second, seconds[:, 1]), 2 * models, 2 * models),
        Part(
            "2 and 3 GPUs of a model left out, 1 GPU given",
            relative(by_rule, seconds[:, 1:]).ravel(),
            2 * (models - 1),
            2,
            f"30 s for all (Pollux' simulator's constant): mean {constant:.1%}",
        ),
    ]
    points = [
        ("3 GPUs from 1 and 2", seconds[:, 2], third),
        ("2 GPUs from 1 and 3", seconds[:, 1], second),
        ("a model left out", seconds[:, 1:].ravel(), by_rule.ravel()),
    ]
    return Comparison(
        title="Restart cost",
        source="AITurbo's follow-on: 15 models on 1, 2 and 3 GPUs, tabulated in this project",
        form=(
            "`seconds + growth log2(GPUs)` (`restart.pause_seconds`); growth of each model, or by its size:"
            " a + b x parameters (`restart.per_model`)"
        ),
        parts=parts,
        weakness=(
            "No public table covers more than 3 GPUs: that growth falls off is a guess, as in ElasticFlow's"
            " simulator. Seconds on one GPU are not predicted."
        ),
        draw=lambda axes: plot_predictions(axes, points, "seconds (held out)"),
        aim=0.15,
    )
