"""Seconds left by a fitted survival model: hazard rates of a tenant's jobs, from the jobs that have ended.

A small network predicts the hazard rate of a job in each bin of time from run times of the tenant's jobs
(`ringyard_baselines.tools.tenants`). The estimate of the seconds left is 1 / G, which is exact if the end is
known. G is the job's Gittins index at age a, its highest rate of completions per second of work over any time
b to come (Gittins 1979; Aalto, Ayesta and Righter 2009),

    G(a) = max over b > a of P(T <= b | T > a) / E[min(T, b) - a | T > a]

docs/research/unknown_durations.md compares it with other estimates. `memory` is [jobs, numbers]: the columns
of `tenants`, then the estimates and scratch for the network.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ringyard import JobTable, Observability
from ringyard.allocator import Estimate, EstimateSecondsLeft
from ringyard.compiled import FloatMatrix, FloatVector, implements, kernel, linked_kernel
from ringyard.errors import ConfigurationError
from ringyard.state.arrays import State
from ringyard.state.progress import run_seconds
from ringyard_baselines.tools.tenants import (
    BINS,
    COLUMNS,
    EDGES,
    FEATURES,
    FIRST_FEATURE,
    bin_of,
    initial_memory,
    live_row,
    needs_new_features,
    num_live_jobs,
    update_statistics,
    write_features,
)

_HIDDEN = 32
CLIP = 3.0  # standardised features are clipped to +-CLIP
LOG_RATES = (-12.0, 3.0)  # range of log hazard rates
_MIN_LOG_RATE, _MAX_LOG_RATE = LOG_RATES

# columns of the memory behind those of `tenants`
_LEFT = COLUMNS  # seconds left at each edge of a bin
_INPUT = _LEFT + BINS + 1  # scratch: layers of the network
_HIDDEN_1 = _INPUT + FEATURES
_HIDDEN_2 = _HIDDEN_1 + _HIDDEN
_SURVIVAL = _HIDDEN_2 + _HIDDEN
_MEMORY = _SURVIVAL + BINS + 1

#: {name: shape} of the network's parameters. The last row of a layer is its bias
PARAMETERS = {
    "mean": (FEATURES,),
    "scale": (FEATURES,),
    "first": (FEATURES + 1, _HIDDEN),
    "second": (_HIDDEN + 1, _HIDDEN),
    "output": (_HIDDEN + 1, BINS),
}
_MEANS = 0
_SCALES = _MEANS + FEATURES
_FIRST = _SCALES + FEATURES
_SECOND = _FIRST + (FEATURES + 1) * _HIDDEN
_OUTPUT = _SECOND + (_HIDDEN + 1) * _HIDDEN
_EDGES = _OUTPUT + (_HIDDEN + 1) * BINS


@kernel
def _layer(
    memory: FloatMatrix, j: int, source: int, count: int, target: int, width: int, weights: FloatVector
) -> None:
    """Apply a linear layer: memory[j, target : target + width] from memory[j, source : source + count]."""
    for h in range(width):
        memory[j, target + h] = weights[count * width + h]
    for f in range(count):
        x = memory[j, source + f]
        for h in range(width):
            memory[j, target + h] += x * weights[f * width + h]


@kernel
def _write_survival(memory: FloatMatrix, j: int, parameters: FloatVector) -> None:
    """Write the probabilities that job j runs until each edge, by the network."""
    for f in range(FEATURES):
        value = (memory[j, FIRST_FEATURE + f] - parameters[_MEANS + f]) * parameters[_SCALES + f]
        memory[j, _INPUT + f] = min(max(value, -CLIP), CLIP)
    _layer(memory, j, _INPUT, FEATURES, _HIDDEN_1, _HIDDEN, parameters[_FIRST:_SECOND])
    for h in range(_HIDDEN_1, _HIDDEN_1 + _HIDDEN):
        memory[j, h] = np.tanh(memory[j, h])
    _layer(memory, j, _HIDDEN_1, _HIDDEN, _HIDDEN_2, _HIDDEN, parameters[_SECOND:_OUTPUT])
    for h in range(_HIDDEN_2, _HIDDEN_2 + _HIDDEN):
        memory[j, h] = np.tanh(memory[j, h])
    _layer(memory, j, _HIDDEN_2, _HIDDEN, _SURVIVAL, BINS, parameters[_OUTPUT:_EDGES])
    survival = 1.0
    for k in range(_SURVIVAL, _SURVIVAL + BINS):
        rate = np.exp(min(max(memory[j, k], _MIN_LOG_RATE), _MAX_LOG_RATE))
        memory[j, k] = survival
        survival *= np.exp(-rate)
    memory[j, _SURVIVAL + BINS] = 0.0  # every job has ended by then


@kernel
def _write_seconds_left(memory: FloatMatrix, j: int, parameters: FloatVector) -> None:
    """Write the seconds that job j has left at each edge, the inverse of its Gittins index."""
    _write_survival(memory, j, parameters)
    for a in range(BINS):
        best, work = 0.0, 0.0
        for k in range(a, BINS):
            here, later = memory[j, _SURVIVAL + k], memory[j, _SURVIVAL + k + 1]
            work += 0.5 * (here + later) * (parameters[_EDGES + k + 1] - parameters[_EDGES + k])
            best = max(best, (memory[j, _SURVIVAL + a] - later) / work)
        memory[j, _LEFT + a] = 1.0 / best
    memory[j, _LEFT + BINS] = memory[j, _LEFT + BINS - 1]


@kernel
def _seconds_left(memory: FloatMatrix, j: int, age: float) -> float:
    """Interpolate the seconds left of job j, which has run for `age` seconds, between two edges."""
    x = bin_of(age)
    k = int(x)
    return memory[j, _LEFT + k] + (x - k) * (memory[j, _LEFT + k + 1] - memory[j, _LEFT + k])


@linked_kernel
def _update(state: State, b: int, parameters: FloatVector, memory: FloatMatrix) -> None:
    """Update the memory: a job gets an estimate when it arrives, and again when jobs of its tenants end."""
    if not update_statistics(state, b, memory):
        return
    for i in range(num_live_jobs(memory)):
        j = live_row(memory, i)
        if needs_new_features(state, b, memory, j):
            write_features(state, b, memory, j)
            _write_seconds_left(memory, j, parameters)


@implements(EstimateSecondsLeft)
def _estimate(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    _update(state, b, parameters, memory)
    now = state.clusters[b].now
    for i in range(num_live_jobs(memory)):
        j = live_row(memory, i)
        job = state.jobs[b, j]
        out[j] = _seconds_left(memory, j, run_seconds(job, now))


class SurvivalEstimate(Estimate):
    """Estimate of the seconds left by a survival model, as the module describes.

    The network is {name: array} with the shapes of `PARAMETERS`, all finite.
    """

    def __init__(self, network: Mapping[str, NDArray[np.float64]]) -> None:
        shapes = {name: tuple(np.shape(array)) for name, array in network.items()}
        if shapes != PARAMETERS:
            raise ConfigurationError(f"the hazard network has {shapes}; expected {PARAMETERS}")
        flat = [np.asarray(network[name], dtype=np.float64).ravel() for name in PARAMETERS]
        parameters = np.concatenate([*flat, EDGES])
        if not np.isfinite(parameters).all():
            raise ConfigurationError("the hazard network has parameters that are not finite; fit it again")
        takes = Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.HISTORY
        super().__init__(_estimate, "hazard", takes, parameters, _MEMORY)

    def memory_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return `initial_memory` of `jobs` [jobs, numbers]."""
        return initial_memory(jobs, self.memory)
