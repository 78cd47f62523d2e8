"""Lines by least squares: seconds of computing by samples, seconds of a restart by GPUs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ringyard.errors import ConfigurationError

__all__ = ["LEAST_FIXED_SECONDS", "Line", "fit_line", "restart_growth"]

#: a profile's fixed seconds are never 0, so that a factor lies between any two GPU types
LEAST_FIXED_SECONDS = 1e-5


class Line(NamedTuple):
    """Seconds of one iteration's forward and backward pass on one GPU: `fixed + sample x samples`."""

    fixed: float
    sample: float

    def seconds(self, batch: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] for so many samples per GPU."""
        return self.fixed + self.sample * batch


def fit_line(batch: NDArray[np.float64], seconds: NDArray[np.float64]) -> Line:
    """The line with the least squared *relative* errors whose two figures are 0 or more.

    With one batch only, fixed and per-sample seconds cannot be told apart: all of it is counted per sample.

    Args:
        batch: [rows] samples per GPU, above 0.
        seconds: [rows] of an iteration on one GPU, above 0.

    Raises:
        ConfigurationError: no rows.
    """
    if len(batch) == 0:
        raise ConfigurationError("a line needs one measurement at least; got none")
    if len(np.unique(batch)) == 1:
        mean = float(np.exp(np.log(seconds).mean()))
        return Line(LEAST_FIXED_SECONDS, max(mean - LEAST_FIXED_SECONDS, 0.0) / float(batch[0]))
    fixed, sample = nnls(np.stack([1.0 / seconds, batch / seconds], axis=1), np.ones(len(seconds)))[0]
    return Line(max(float(fixed), LEAST_FIXED_SECONDS), float(sample))


def restart_growth(gpus: Sequence[float], seconds: Sequence[float], first: float) -> float:
    """Seconds more at each doubling of the GPUs, least squares of relative errors.

    Args:
        gpus: [rows] GPUs, above 1.
        seconds: [rows] of a restart.
        first: of a restart on one GPU.
    """
    measured, doublings = np.array(seconds, dtype=np.float64), np.log2(np.array(gpus, dtype=np.float64))
    return float(((measured - first) * doublings / measured**2).sum() / (doublings**2 / measured**2).sum())
