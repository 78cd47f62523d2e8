"""Step time of parameter-server jobs (AITurbo's public form)."""

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError
from ringyard.profiles import ModelProfile

CALIBRATION_CORES = 5  #: cores of each parameter server in the published calibration runs

#: theta0 .. theta5, a, b, d of the server efficiency, and the stream of random numbers of the model
COEFFICIENTS = 10


@kernel
def server_efficiency(cores: float, a: float, b: float, d: float) -> float:
    """f(x) = a exp(-b x) + d: efficiency of a parameter server with x `cores` (AITurbo's offline profile)."""
    return a * np.exp(-b * cores) + d


@kernel
def step_seconds(
    compute_seconds: float,
    workers: int,
    servers: int,
    gpus: int,
    efficiency_ratio: float,
    theta: tuple[float, float, float, float],
) -> float:
    """T = compute + theta2 r w/p + theta3 w + theta4 p + theta5 g, seconds per synchronous step.

    w are workers, p parameter servers, g GPUs, and r the efficiency of a server with `CALIBRATION_CORES` /
    that with its cores. AITurbo's follow-on writes compute = theta0 m + theta1 (m samples per worker) and has
    two terms in w/p, of which only one scales with the servers' cores. Its calibration at one core count
    cannot tell them apart (it has rank 6 of 7). Assumption: both scale.
    """
    update = theta[0] * efficiency_ratio * workers / servers
    return compute_seconds + update + theta[1] * workers + theta[2] * servers + theta[3] * gpus


def coefficient_row(model: ModelProfile) -> NDArray[np.float64]:
    """[COEFFICIENTS] coefficients of a `model`, NaN if its profile has none."""
    if model.step_coefficients is None:
        return np.full(COEFFICIENTS, np.nan)
    theta, efficiency = model.step_coefficients, model.require_value("server_efficiency")
    if not efficiency[0] * np.exp(-efficiency[1]) + efficiency[2] > 0:
        raise ConfigurationError(f"{model.file}: server_efficiency is not above 0 at one core")
    return np.array([*theta, *efficiency, crc32(model.name.encode())])
