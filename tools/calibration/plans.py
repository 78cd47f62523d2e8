"""The shipped constants of execution plans."""

from pathlib import Path
from typing import Any

import yaml

from ringyard_agents.calibration.plans import fit_plans
from ringyard_agents.calibration.yamls import four_digits
from tools.equations.execution_plans import LEAST_ROWS, plan_tables

_HEAD = (
    "# Constants of execution plans, fitted to Morphling's tables (AlibabaPAI/reconfigurable-dl-scheduler @"
    " 80e8524). Written by `python -m tools.calibrate`; do not edit.\n"
    "# Meanings and units: conf/plan_priors.yaml. `shared` is for models without constants of their own.\n"
)


def plan_constants_yaml(data: Path) -> str:
    """The yaml of constants fitted to all tables but small ones.

    Args:
        data: folder of published files.

    Raises:
        MissingDataError: it has no tables of plans.
    """
    rows: Any = plan_tables(data)
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
