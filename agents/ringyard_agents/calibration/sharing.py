"""How much jobs on one GPU slow one another: sensitivity and pressure, by GPU type, model and batch."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

__all__ = ["Sharing", "fit_sharing", "shared_speeds"]

#: {(model, samples per GPU): (sensitivity, pressure)} on one GPU type
Sharing = Mapping[tuple[str, float], tuple[float, float]]

_PRIOR = 0.02  # weight that holds a job type of few pairs near the others
_BEGIN = -0.3  # log of the sensitivity and the pressure of a job type without pairs


def fit_sharing(pairs: pd.DataFrame) -> Sharing:
    """Rank-one form: speed beside another / speed alone = 1 / (1 + sensitivity x pressure of the other).

    Least squares of log(predicted / measured speed), outliers softened, with a weak pull of every log towards
    a common start (which also says how a factor is shared between sensitivity and pressure).

    Args:
        pairs: [pairs] `model`, `batch`, `neighbour`, `neighbour_batch`, and `speed` (beside it / alone), all
            on one GPU type.
    """
    own = list(zip(pairs.model, pairs.batch, strict=True))
    other = list(zip(pairs.neighbour, pairs.neighbour_batch, strict=True))
    kinds = sorted({*own, *other})
    number = {kind: position for position, kind in enumerate(kinds)}
    own_id, other_id = np.array([number[kind] for kind in own]), np.array([number[kind] for kind in other])
    log_speed, count = np.log(pairs.speed.to_numpy(dtype=np.float64)), len(kinds)

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        excess = np.exp(logs[:count][own_id] + logs[count:][other_id])
        return np.concatenate([-np.log1p(excess) - log_speed, _PRIOR * (logs - _BEGIN)])

    found = np.exp(
        least_squares(
            residuals, np.full(2 * count, _BEGIN), loss="soft_l1", f_scale=0.1, xtol=1e-10, ftol=1e-10
        ).x
    )
    return {
        kind: (float(found[position]), float(found[count + position])) for kind, position in number.items()
    }


def shared_speeds(pairs: pd.DataFrame, sharing: Sharing) -> NDArray[np.float64]:
    """[pairs] speed beside the neighbour / speed alone, by constants of exactly these batches."""
    sensitivity = np.array([sharing[key][0] for key in zip(pairs.model, pairs.batch, strict=True)])
    pressure = np.array([sharing[key][1] for key in zip(pairs.neighbour, pairs.neighbour_batch, strict=True)])
    return np.asarray(1.0 / (1.0 + sensitivity * pressure))
