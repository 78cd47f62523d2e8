"""Fits the constants of execution plans to measured iterations of several models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ringyard.config_folder import config_folder
from ringyard.performance.plans import plan_seconds

_ERROR = 0.1  # relative, of a measured iteration


def plan_priors() -> Mapping[str, Sequence[float]]:
    """Return {constant: (initial value, deviation of its log over models, and of a model)} of the config."""
    priors: Mapping[str, Sequence[float]] = yaml.safe_load((config_folder() / "plan_priors.yaml").read_text())
    return priors


def fit_plans(
    models: Sequence[str], work: Mapping[str, Any], seconds: NDArray[np.float64]
) -> dict[str, dict[str, float]]:
    """Fit {model: constants} to the `seconds` of `models` and their `plan_work` [rows]; "": what they share.

    Squares of relative errors are minimised with softened outliers, from conf/plan_priors.yaml.
    """
    priors = plan_priors()
    initial, shared, spread = np.array(list(priors.values())).T
    names = ["", *sorted(set(models))]
    own = [names.index(model) for model in models]

    def constants(normal: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return [constants, 1 + models] from standard normal deviates."""
        first, *others = normal.reshape(len(names), -1)
        return (initial * np.exp(shared * first + [0.0 * first, *(spread * one for one in others)])).T

    def residuals(normal: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = dict(zip(priors, constants(normal)[:, own], strict=True))
        wrong = np.concatenate([normal, np.log(plan_seconds(work, rows).total / seconds) / _ERROR])
        return np.asarray(wrong * np.sqrt(2 / (1 + np.hypot(1, wrong))))  # their squares are softened

    start = np.zeros(len(names) * len(initial))
    found = constants(least_squares(residuals, start, method="lm", ftol=1e-10, xtol=1e-10).x)
    return {
        name: dict(zip(priors, row.tolist(), strict=True)) for name, row in zip(names, found.T, strict=True)
    }
