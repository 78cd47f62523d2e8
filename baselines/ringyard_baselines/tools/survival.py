"""Seconds left by a learnt hazard: how soon a tenant's jobs end that have run so long, from those that ended.

A small network says for a job the rate at which such jobs end in each bin of time; the features are run times
of its tenant's ended jobs and those of its live ones so far (`ringyard_baselines.tools.tenants`). The rates
become the job's Gittins index at every age, the most ends per second of work that a job offers over any time
to come,

    G(a) = max over b > a of P(T <= b | T > a) / E[min(T, b) - a | T > a]

(Gittins 1979; Aalto, Ayesta and Righter 2009), and 1 / G is what it counts as having left: exactly that if
its end is known. The shape of the network is this project's.

Memory of the estimate: [jobs, numbers], that of tenants and what the network makes of it.
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
    live_job,
    needs_new_features,
    num_live_jobs,
    update_statistics,
    write_features,
)

_HIDDEN = 32
CLIPPED = 3.0  # standardised features, in standard deviations
LOG_RATES = (-12.0, 3.0)  # least and most
_LEAST, _MOST = LOG_RATES

# columns of the memory behind those of tenants
_LEFT = COLUMNS  # of the job: seconds left at each edge
_INPUT = _LEFT + BINS + 1  # scratch: layers of the network
_INSIDE = _INPUT + FEATURES
_FURTHER = _INSIDE + _HIDDEN
_ALIVE = _FURTHER + _HIDDEN
_MEMORY = _ALIVE + BINS + 1

#: {name: shape} of the network's parameters; the last row of a layer is its bias
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
    """A linear layer: memory[j, target:] from memory[j, source:]."""
    for h in range(width):
        memory[j, target + h] = weights[count * width + h]
    for f in range(count):
        x = memory[j, source + f]
        for h in range(width):
            memory[j, target + h] += x * weights[f * width + h]


@kernel
def _survive(memory: FloatMatrix, j: int, parameters: FloatVector) -> None:
    """Write the chances to live to each edge, by the network."""
    for f in range(FEATURES):
        off = (memory[j, FIRST_FEATURE + f] - parameters[_MEANS + f]) * parameters[_SCALES + f]
        memory[j, _INPUT + f] = min(max(off, -CLIPPED), CLIPPED)
    _layer(memory, j, _INPUT, FEATURES, _INSIDE, _HIDDEN, parameters[_FIRST:_SECOND])
    for h in range(_INSIDE, _INSIDE + _HIDDEN):
        memory[j, h] = np.tanh(memory[j, h])
    _layer(memory, j, _INSIDE, _HIDDEN, _FURTHER, _HIDDEN, parameters[_SECOND:_OUTPUT])
    for h in range(_FURTHER, _FURTHER + _HIDDEN):
        memory[j, h] = np.tanh(memory[j, h])
    _layer(memory, j, _FURTHER, _HIDDEN, _ALIVE, BINS, parameters[_OUTPUT:_EDGES])
    alive = 1.0
    for k in range(_ALIVE, _ALIVE + BINS):
        rate = np.exp(min(max(memory[j, k], _LEAST), _MOST))
        memory[j, k] = alive
        alive *= np.exp(-rate)
    memory[j, _ALIVE + BINS] = 0.0  # every job has ended by then


@kernel
def _judge(memory: FloatMatrix, j: int, parameters: FloatVector) -> None:
    """Write a job's seconds left at each edge: the inverse of its Gittins index."""
    _survive(memory, j, parameters)
    for a in range(BINS):
        best, spent = 0.0, 0.0
        for k in range(a, BINS):
            here, then = memory[j, _ALIVE + k], memory[j, _ALIVE + k + 1]
            spent += 0.5 * (here + then) * (parameters[_EDGES + k + 1] - parameters[_EDGES + k])
            best = max(best, (memory[j, _ALIVE + a] - then) / spent)
        memory[j, _LEFT + a] = 1.0 / best
    memory[j, _LEFT + BINS] = memory[j, _LEFT + BINS - 1]


@kernel
def _left(memory: FloatMatrix, j: int, age: float) -> float:
    """Seconds left of a job that has run so long, between those at two edges."""
    x = bin_of(age)
    k = int(x)
    return memory[j, _LEFT + k] + (x - k) * (memory[j, _LEFT + k + 1] - memory[j, _LEFT + k])


@linked_kernel
def _learn(state: State, b: int, parameters: FloatVector, memory: FloatMatrix) -> None:
    """Bring the memory up to date: a job is judged when it arrives and when one of its tenant ends."""
    if not update_statistics(state, b, memory):
        return
    for i in range(num_live_jobs(memory)):
        j = live_job(memory, i)
        if needs_new_features(memory, j):
            write_features(state, b, memory, j)
            _judge(memory, j, parameters)


@implements(EstimateSecondsLeft)
def _by_hazard(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    _learn(state, b, parameters, memory)
    now = state.clusters[b].now
    for i in range(num_live_jobs(memory)):
        j = live_job(memory, i)
        job = state.jobs[b, j]
        out[j] = _left(memory, j, run_seconds(job, now))


class SurvivalEstimate(Estimate):
    """Seconds left by learnt hazards: what the module says.

    Args:
        network: {name: array} as in `PARAMETERS`.

    Raises:
        ConfigurationError: parameters of other names or shapes, or that are no numbers.
    """

    def __init__(self, network: Mapping[str, NDArray[np.float64]]) -> None:
        shapes = {name: tuple(np.shape(array)) for name, array in network.items()}
        if shapes != PARAMETERS:
            raise ConfigurationError(f"the hazard network has {shapes}; expected {PARAMETERS}")
        flat = [np.asarray(network[name], dtype=np.float64).ravel() for name in PARAMETERS]
        parameters = np.concatenate([*flat, EDGES])
        if not np.isfinite(parameters).all():
            raise ConfigurationError(
                "the hazard network has parameters that are no finite numbers; fit it anew"
            )
        takes = Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.HISTORY
        super().__init__(_by_hazard, "hazard", takes, parameters, _MEMORY)

    def memory_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs, memory] `first_memory`."""
        return initial_memory(jobs, self.memory)


def constant_rates(log_rates: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """{name: array} of a network that gives all jobs the same log rates [BINS]."""
    network = {name: np.zeros(shape) for name, shape in PARAMETERS.items()}
    network["output"][-1] = log_rates
    return network
