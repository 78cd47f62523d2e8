"""Parameter-server steps and restarts of AITurbo's follow-on."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from ringyard.performance.parameter_server import calibration_design, step_seconds
from ringyard.profiles import catalogue
from ringyard_agents.measured.aiturbo import CALIBRATION, POINTS, RESTARTS
from ringyard_agents.validation.network import scatter
from ringyard_agents.validation.result import Comparison, Part, relative

__all__ = ["parameter_server_steps", "refit", "restarts"]


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
            "Up to six constants for seven runs: a form, not a validated model; those that non-negative least"
            " squares leaves above 0 are counted. GoogLeNet's three-worker run (0.034 s) is its"
            " authors' own outlier."
            " Inception-3 is left out: its published coefficients contradict themselves."
        ),
        draw=lambda axes: scatter(axes, points, "seconds per step (left out)"),
    )


def restarts(data: Path) -> Comparison:
    """Restart seconds of the profiles against 1, 2 and 3 GPUs."""
    figures = {model.name: model.restart_seconds for model in catalogue()}
    parts = []
    points = []
    for i, gpus in enumerate((1, 2, 3)):
        names = [name for name in RESTARTS if figures.get(f"aiturbo_{name}") is not None]
        measured = np.array([float(RESTARTS[name][i]) for name in names])
        predicted = np.array([float(figures[f"aiturbo_{name}"] or 0.0) for name in names])
        errors = relative(predicted, measured)
        if gpus > 1:
            parts.append(Part(f"{gpus} GPUs, figure per model", errors, 0, 0, "the run on 1 GPU"))
        constant = relative(np.full(len(measured), 30.0), measured)
        parts.append(Part(f"{gpus} GPUs, 30 s for all", constant, 0, 0, "Pollux' simulator's constant"))
        points.append((f"{gpus} GPUs", measured, predicted))
    return Comparison(
        title="Restart cost",
        source="AITurbo's follow-on: 13 models on 1, 2 and 3 GPUs, tabulated in this project",
        form="one figure per model (`restart.per_model`), or one for all (`restart.constant`)",
        parts=parts,
        weakness=(
            "Restarts grow with the GPUs, by half and more from one to two; the model does not say so."
            " Published simulators use constants (30 s in Pollux', 15-250 s by model in Sia's); no"
            " public table"
            " covers more than 3 GPUs."
        ),
        draw=lambda axes: scatter(axes, points, "seconds (per-model figure)"),
    )
