"""The constants of execution plans, fitted to measured iterations of several models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ringyard.config_folder import config_folder
from ringyard.performance.execution_plans import plan_seconds
from ringyard_agents.calibration.yamls import four_digits

LEAST_ROWS = 20  #: of a table that constants are fitted to; LLaMA-30B has fewer
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


_HEAD = (
    "# Constants of execution plans, fitted to Morphling's tables (AlibabaPAI/reconfigurable-dl-scheduler @"
    " 80e8524). Written by `python -m tools.calibrate`; do not edit.\n"
    "# Meanings and units: conf/plan_priors.yaml. `shared` is for models without constants of their own.\n"
)


def plan_constants_yaml(rows: Any) -> str:
    """The yaml of constants fitted to the `rows` of `plan_tables`, but those of small tables."""
    rows = rows[rows.groupby("model").model.transform("size") >= LEAST_ROWS]
    fits = {
        model: {name: four_digits(value) for name, value in constants.items()}
        for model, constants in fit_plans(rows.model, rows, rows.seconds.to_numpy()).items()
    }
    shared = fits.pop("")
    models = {
        model: {name: value for name, value in constants.items() if value != shared[name]}
        for model, constants in fits.items()
    }
    text: str = yaml.safe_dump({"shared": shared, "models": models}, sort_keys=False, width=200)
    return _HEAD + text
