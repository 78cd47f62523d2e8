"""Seconds left by a fitted survival model: hazard rates of a tenant's jobs, from the jobs that have ended.

A small network predicts the hazard rate of a job in each bin of time from run times of the tenant's jobs. The
estimate of the seconds left is 1 / G, which is exact if the end is known. G is the job's Gittins index at age
a, its highest rate of completions per second of work over any time b to come (Gittins 1979; Aalto, Ayesta and
Righter 2009),

    G(a) = max over b > a of P(T <= b | T > a) / E[min(T, b) - a | T > a]

docs/research/unknown_durations.md compares it with other estimates.

Times are measured in bins, log(1 + t / 60 s) in equal steps: 24 bins up to 1e7 s. A job's features are
statistics of two groups of jobs of its size: those of its virtual cluster and those of its user. Jobs of a
group that were submitted shortly before or after the job are its neighbours, which have statistics of their
own, because users submit similar jobs together. Features are written when the job arrives, and when a job of
both groups has ended. The choice of features is this project's.

`memory` is [jobs, COLUMNS], or wider with the estimates and scratch for the network. Some columns belong to
the job of the row, some to the tenant with the row's number, and three counts are in the first row. `kind` is
0 for virtual clusters and 1 for users.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ringyard import JobTable, Observability
from ringyard.allocator import Estimate, EstimateSecondsLeft
from ringyard.compiled import FloatMatrix, FloatVector, Int32Vector, implements, kernel, linked_kernel
from ringyard.errors import ConfigurationError
from ringyard.state.arrays import State
from ringyard.state.progress import run_seconds
from ringyard.state.records import JobStatus

BINS = 24
_SCALE = 60.0  # seconds
_LONGEST = 1e7  # seconds
_WIDTH = float(np.log1p(_LONGEST / _SCALE)) / BINS
#: [BINS + 1] seconds; the first is 0
EDGES = _SCALE * np.expm1(_WIDTH * np.arange(BINS + 1))
_FAST, _SLOW = 0.3, 0.05  # weights of the latest job in the two exponential means

_NEIGHBOURS, _NEXT_WEIGHT = 10, 0.8  # jobs on each side, and weight of each against the one before it

# statistics of a group: of its ended jobs in bins, of its live jobs, decision of the last end, last job + 1
_ENDED, _QUICK, _MEAN, _VARIANCE, _LIVE, _AGES, _CHANGED, _LATEST = range(8)
_STATISTICS = 8
_SIZES = 4  # 1, 2-4, 5-8 and more GPUs
_KINDS = 2
_OF_GROUP = (
    *("quick mean", "mean", "spread", "log ended", "log live", "mean age"),
    *("mean of neighbours", "spread of neighbours", "ended neighbours", "live neighbours", "neighbours' age"),
)
_NUM_OF_GROUP = len(_OF_GROUP)
#: names of a job's features
FEATURE_NAMES = (*(f"{name} of {tenant}" for tenant in ("vc", "user") for name in _OF_GROUP), "log2 GPUs")
FEATURES = len(FEATURE_NAMES)

# columns of the memory
_VC, _USER = 0, 1  # job: numbers of its tenants
_WRITTEN = 2  # job: decision at which its features were written, 0: none
_AGE = 3  # job: seconds it had run then
_NUM_LIVE, _NUM_ARRIVED, _NUM_DECISIONS = 4, 5, 6  # counts, in the first row
_LIST = 7  # rows of live jobs, from the first row on
_BEFORE, _AFTER = 8, 10  # job: the job of each group that was submitted before and after it + 1, 0: none
FIRST_FEATURE = 12  # job: features
_TENANTS = FIRST_FEATURE + FEATURES  # tenant: statistics of each size
COLUMNS = _TENANTS + _KINDS * _SIZES * _STATISTICS


@kernel
def bin_of(seconds: float) -> float:
    """Return a time in bins."""
    return min(np.log1p(seconds / _SCALE) / _WIDTH, BINS - 1e-9)


def bins_of(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return times [...] in bins, from 0 and below `BINS`."""
    return np.minimum(np.log1p(seconds / _SCALE) / _WIDTH, BINS - 1e-9)


@kernel
def _size(gpus: int) -> int:
    """Return the size class of a number of GPUs."""
    return (gpus > 1) + (gpus > 4) + (gpus > 8)


@kernel
def _group(kind: int, size: int) -> int:
    """Return the column at which the statistics of a group begin in the row of its tenant."""
    return _TENANTS + (kind * _SIZES + size) * _STATISTICS


@kernel
def _tenant(memory: FloatMatrix, j: int, kind: int) -> int:
    """Return the row with the statistics of a group of job j."""
    return int(memory[j, _VC + kind])


@kernel
def _add_run_time(memory: FloatMatrix, row: int, column: int, x: float) -> None:
    """Add the run time of x bins to a group. Means are plain for the first few jobs, then exponential."""
    ended = memory[row, column + _ENDED] + 1.0
    memory[row, column + _ENDED] = ended
    difference = x - memory[row, column + _MEAN] if ended > 1.0 else 0.0
    slow = max(_SLOW, 1.0 / ended)
    memory[row, column + _QUICK] += max(_FAST, 1.0 / ended) * (x - memory[row, column + _QUICK])
    memory[row, column + _MEAN] += slow * (x - memory[row, column + _MEAN])
    memory[row, column + _VARIANCE] += slow * (difference * difference - memory[row, column + _VARIANCE])


@kernel
def _add_history(
    memory: FloatMatrix, tenants: Int32Vector, kind: int, gpus: Int32Vector, seconds: FloatVector
) -> None:
    """Add historical jobs. Tenant -1 has no job here."""
    for i in range(len(tenants)):
        if tenants[i] >= 0:
            _add_run_time(memory, tenants[i], _group(kind, _size(gpus[i])), bin_of(seconds[i]))


def initial_memory(jobs: JobTable, columns: int = COLUMNS) -> NDArray[np.float64]:
    """Return a memory [jobs, columns] with the tenants of `jobs` and statistics of historical jobs."""
    memory = np.zeros((len(jobs), columns))
    past = jobs.past
    for column, name in ((_VC, "vc"), (_USER, "user")):
        names, memory[:, column] = np.unique(getattr(jobs, name), return_inverse=True)
        before = getattr(past, name)
        numbers = np.minimum(np.searchsorted(names, before), len(names) - 1)
        numbers = np.where(names[numbers] == before, numbers, -1).astype(np.int32)
        seconds = np.ascontiguousarray(past.run_seconds)
        _add_history(memory, numbers, column, past.num_gpus.astype(np.int32), seconds)
    return memory


@kernel
def num_live_jobs(memory: FloatMatrix) -> int:
    """Return the number of live jobs."""
    return int(memory[0, _NUM_LIVE])


@kernel
def live_row(memory: FloatMatrix, i: int) -> int:
    """Return the row of the i-th live job."""
    return int(memory[i, _LIST])


@kernel
def _update_live(state: State, b: int, memory: FloatMatrix) -> None:
    """Count live jobs and add up their ages, by group."""
    now = state.clusters[b].now
    for i in range(num_live_jobs(memory)):
        j = live_row(memory, i)
        size = _size(state.jobs[b, j].asked_gpus)
        for kind in range(_KINDS):
            row, column = _tenant(memory, j, kind), _group(kind, size)
            memory[row, column + _LIVE] = 0.0
            memory[row, column + _AGES] = 0.0
    for i in range(num_live_jobs(memory)):
        j = live_row(memory, i)
        job = state.jobs[b, j]
        size, x = _size(job.asked_gpus), bin_of(run_seconds(job, now))
        for kind in range(_KINDS):
            row, column = _tenant(memory, j, kind), _group(kind, size)
            memory[row, column + _LIVE] += 1.0
            memory[row, column + _AGES] += x


@kernel
def update_statistics(state: State, b: int, memory: FloatMatrix) -> bool:
    """Update `memory` by jobs that ended or arrived since the last call; return whether there were any."""
    memory[0, _NUM_DECISIONS] += 1.0
    count, changed = 0, False
    for i in range(num_live_jobs(memory)):
        j = live_row(memory, i)
        job = state.jobs[b, j]
        if job.status != JobStatus.DONE:
            memory[count, _LIST] = j
            count += 1
        elif job.run_seconds > 0.0:
            changed = True
            x, size = bin_of(job.run_seconds), _size(job.asked_gpus)
            for kind in range(_KINDS):
                row, column = _tenant(memory, j, kind), _group(kind, size)
                _add_run_time(memory, row, column, x)
                memory[row, column + _CHANGED] = memory[0, _NUM_DECISIONS]
    while memory[0, _NUM_ARRIVED] < state.clusters[b].next_arrival:
        j = int(memory[0, _NUM_ARRIVED])
        memory[count, _LIST] = j
        memory[0, _NUM_ARRIVED] += 1.0
        for kind in range(_KINDS):
            row, column = _tenant(memory, j, kind), _group(kind, _size(state.jobs[b, j].asked_gpus))
            memory[j, _BEFORE + kind] = memory[row, column + _LATEST]
            memory[row, column + _LATEST] = j + 1.0
            if memory[j, _BEFORE + kind] > 0.0:
                memory[int(memory[j, _BEFORE + kind]) - 1, _AFTER + kind] = j + 1.0
        count += 1
        changed = True
    memory[0, _NUM_LIVE] = count
    if changed:
        _update_live(state, b, memory)
    return changed


@kernel
def needs_new_features(state: State, b: int, memory: FloatMatrix, j: int) -> bool:
    """Return whether job j is new, or jobs of both of its groups have ended now."""
    size, needs = _size(state.jobs[b, j].asked_gpus), True
    for kind in range(_KINDS):
        ended = memory[_tenant(memory, j, kind), _group(kind, size) + _CHANGED]
        needs = needs and ended == memory[0, _NUM_DECISIONS]
    return needs or memory[j, _WRITTEN] == 0.0


@kernel
def _write_neighbours(state: State, b: int, memory: FloatMatrix, j: int, kind: int, first: int) -> None:
    """Write the last five features of a group of job j from column `first` on: those of neighbours."""
    ended, live, total, squares, ages = 0.0, 0.0, 0.0, 0.0, 0.0
    for side in (_BEFORE, _AFTER):
        i, weight = j, 1.0
        for _ in range(_NEIGHBOURS):
            i = int(memory[i, side + kind]) - 1
            if i < 0:
                break
            job = state.jobs[b, i]
            x = bin_of(run_seconds(job, state.clusters[b].now))
            if job.status == JobStatus.DONE and x > 0.0:
                ended += weight
                total += weight * x
                squares += weight * x * x
            else:
                live += weight
                ages += weight * x
            weight *= _NEXT_WEIGHT
    mean = total / ended if ended > 0.0 else 0.0
    memory[j, first] = mean
    memory[j, first + 1] = np.sqrt(max(squares / ended - mean * mean, 0.0)) if ended > 0.0 else 0.0
    memory[j, first + 2] = ended
    memory[j, first + 3] = live
    memory[j, first + 4] = ages / live if live > 0.0 else 0.0


@kernel
def write_features(state: State, b: int, memory: FloatMatrix, j: int) -> None:
    """Write the features of the live job `j` of cluster `b` of `state` into `memory`."""
    job = state.jobs[b, j]
    memory[j, _WRITTEN] = memory[0, _NUM_DECISIONS]
    memory[j, _AGE] = run_seconds(job, state.clusters[b].now)
    age = bin_of(memory[j, _AGE])
    size = _size(job.asked_gpus)
    for kind in range(_KINDS):
        row, column = _tenant(memory, j, kind), _group(kind, size)
        first = FIRST_FEATURE + kind * _NUM_OF_GROUP
        others = memory[row, column + _LIVE] - 1.0
        memory[j, first] = memory[row, column + _QUICK]
        memory[j, first + 1] = memory[row, column + _MEAN]
        memory[j, first + 2] = np.sqrt(memory[row, column + _VARIANCE])
        memory[j, first + 3] = np.log1p(memory[row, column + _ENDED])
        memory[j, first + 4] = np.log1p(others)
        memory[j, first + 5] = (memory[row, column + _AGES] - age) / others if others > 0.0 else 0.0
        _write_neighbours(state, b, memory, j, kind, first + 6)
    memory[j, FIRST_FEATURE + FEATURES - 1] = np.log2(1.0 + job.asked_gpus)


def latest_features(
    memory: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the features that were written at the last decision of a memory [jobs, COLUMNS].

    These are rows of jobs [n], seconds that they had run [n], and values of `FEATURE_NAMES` [n, FEATURES].
    """
    live = memory[: int(memory[0, _NUM_LIVE]), _LIST].astype(np.int64)
    rows = live[memory[live, _WRITTEN] == memory[0, _NUM_DECISIONS]]
    return rows, memory[rows, _AGE], memory[rows, FIRST_FEATURE:_TENANTS]


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
