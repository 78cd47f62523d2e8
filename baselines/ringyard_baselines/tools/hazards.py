"""Seconds left by a learnt hazard: how soon a tenant's jobs end that have run so long, from those that ended.

Time is measured in bins, log(1 + t / 60 s) in equal steps: 24 bins up to 1e7 s. A small network says for a
job the rate at which such jobs end in each bin; the features are run times of its tenant's ended jobs and
those of its live ones so far. The rates become the job's Gittins index at every age, the most ends per second
of work that a job offers over any time to come,

    G(a) = max over b > a of P(T <= b | T > a) / E[min(T, b) - a | T > a]

(Gittins 1979; Aalto, Ayesta and Righter 2009), and 1 / G is what it counts as having left: exactly that if
its end is known. Shapes of network and features are this project's.

Memory of the estimate, [jobs, COLUMNS]: some columns belong to the job of the row, some to the tenant of that
number, and the first row keeps three counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatMatrix, FloatVector, Int32Vector, IntVector, fills, kernel, linked_kernel
from ringyard.errors import ConfigurationError
from ringyard.information import Information
from ringyard.jobs import JobTable
from ringyard.sim.allocator import Estimate, EstimateLeft
from ringyard.state.arrays import State
from ringyard.state.progress import run_seconds
from ringyard.state.records import Job, JobStatus

__all__ = [
    "BINS",
    "CLIPPED",
    "EDGES",
    "FEATURES",
    "FEATURE_NAMES",
    "LOG_RATES",
    "PARAMETERS",
    "TIMES",
    "Hazards",
    "Judged",
    "bins_of",
    "constant_rates",
    "first_memory",
    "judged_now",
    "unnamed",
]

_RUNNING, _DONE = int(JobStatus.RUNNING), int(JobStatus.DONE)

BINS = 24
_HIDDEN = 32
_SCALE = 60.0  # seconds
_LONGEST = 1e7  # seconds
_WIDTH = float(np.log1p(_LONGEST / _SCALE)) / BINS
#: [BINS + 1] seconds; the first is 0
EDGES = _SCALE * np.expm1(_WIDTH * np.arange(BINS + 1))
_FAST, _SLOW = 0.3, 0.05  # shares of the latest job in exponential means
CLIPPED = 3.0  # standardised features, in standard deviations
LOG_RATES = (-12.0, 3.0)  # least and most
_LEAST, _MOST = LOG_RATES

# statistics of the ended jobs of a group, in bins, then of its live ones
_ENDED, _QUICK, _MEAN, _LAST, _SQUARE, _LIVE, _AGES, _CHANGED = range(8)
_STATISTICS = 8
_SIZES = 4  # 1, 2-4, 5-8 and more GPUs
_GROUPS = 4  # of a job: its virtual cluster, its jobs of this size there, its user, likewise
_OF_GROUP = ("quick mean", "mean", "last", "spread", "log ended", "log live", "mean age")
_NUM_OF_GROUP = len(_OF_GROUP)
#: what the network sees of a job
FEATURE_NAMES = (
    *(f"{what} of {group}" for group in ("vc", "vc and size", "user", "user and size") for what in _OF_GROUP),
    "log2 GPUs",
)
FEATURES = len(FEATURE_NAMES)
#: [FEATURES] those that are run times, in bins
TIMES = np.array([name.startswith(("quick mean", "mean", "last")) for name in FEATURE_NAMES])

# columns of the memory
_VC, _USER = 0, 1  # of the job: numbers of its tenants
_JUDGED = 2  # of the job: moment of its last judgement, 0: none yet
_AGE = 3  # of the job: seconds it had run then
_COUNTS = 4  # of the first row: live jobs, rows seen, moments
_LISTED = 7  # of the list of live jobs: a row
_LEFT = 8  # of the job: seconds left at each edge
_SEEN = _LEFT + BINS + 1  # of the job: features
_TENANTS = _SEEN + FEATURES  # of the tenant of this number: groups of all sizes and of each
_OF_TENANT = (1 + _SIZES) * _STATISTICS
_INPUT = _TENANTS + 2 * _OF_TENANT  # scratch: layers of the network
_INSIDE = _INPUT + FEATURES
_FURTHER = _INSIDE + _HIDDEN
_ALIVE = _FURTHER + _HIDDEN
COLUMNS = _ALIVE + BINS + 1

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
def _bins(seconds: float) -> float:
    """Where a time lies, in bins."""
    return min(np.log1p(seconds / _SCALE) / _WIDTH, BINS - 1e-9)


def bins_of(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """[...] where times lie, in bins: from 0, below `BINS`."""
    return np.minimum(np.log1p(seconds / _SCALE) / _WIDTH, BINS - 1e-9)


@kernel
def _size(gpus: int) -> int:
    """Bucket of a job's GPUs."""
    return (gpus > 1) + (gpus > 4) + (gpus > 8)


@kernel
def _group(kind: int, size: int) -> int:
    """Column where the statistics of a job's group begin, in the row of its tenant."""
    return _TENANTS + (kind // 2) * _OF_TENANT + (kind % 2) * (1 + size) * _STATISTICS


@kernel
def _tenant(memory: FloatMatrix, j: int, kind: int) -> int:
    """Row where the statistics of a job's group are."""
    return int(memory[j, _VC + kind // 2])


@kernel
def _count_end(memory: FloatMatrix, row: int, column: int, x: float) -> None:
    """A job of a group has ended after x bins: plain means of the first few, exponential ones then."""
    ended = memory[row, column + _ENDED] + 1.0
    memory[row, column + _ENDED] = ended
    off = x - memory[row, column + _MEAN] if ended > 1.0 else 0.0
    slow = max(_SLOW, 1.0 / ended)
    memory[row, column + _QUICK] += max(_FAST, 1.0 / ended) * (x - memory[row, column + _QUICK])
    memory[row, column + _MEAN] += slow * (x - memory[row, column + _MEAN])
    memory[row, column + _SQUARE] += slow * (off * off - memory[row, column + _SQUARE])
    memory[row, column + _LAST] = x


@kernel
def _count_past(
    memory: FloatMatrix, tenants: Int32Vector, kind: int, gpus: IntVector, seconds: FloatVector
) -> None:
    """Jobs that ended before, of a kind of tenants (0: virtual clusters, 2: users); -1: of no one here."""
    for i in range(len(tenants)):
        if tenants[i] >= 0:
            x = _bins(seconds[i])
            _count_end(memory, tenants[i], _group(kind, 0), x)
            _count_end(memory, tenants[i], _group(kind + 1, _size(gpus[i])), x)


def first_memory(jobs: JobTable) -> NDArray[np.float64]:
    """[jobs, COLUMNS] tenants of the jobs, and what is known of them from the past."""
    memory = np.zeros((len(jobs), COLUMNS))
    past = jobs.past
    for column, name in ((_VC, "vc"), (_USER, "user")):
        names, memory[:, column] = np.unique(getattr(jobs, name), return_inverse=True)
        before = getattr(past, name)
        numbers = np.minimum(np.searchsorted(names, before), len(names) - 1)
        numbers = np.where(names[numbers] == before, numbers, -1).astype(np.int32)
        seconds = np.ascontiguousarray(past.run_seconds)
        _count_past(memory, numbers, 2 * column, np.ascontiguousarray(past.num_gpus), seconds)
    return memory


@kernel
def _describe(memory: FloatMatrix, j: int, job: Job) -> None:
    """Write the features of a job; its tenants' live jobs are counted."""
    own = _bins(memory[j, _AGE])
    size = _size(job.asked_gpus)
    for kind in range(_GROUPS):
        row, column = _tenant(memory, j, kind), _group(kind, size)
        seen = _SEEN + kind * _NUM_OF_GROUP
        others = memory[row, column + _LIVE] - 1.0
        memory[j, seen] = memory[row, column + _QUICK]
        memory[j, seen + 1] = memory[row, column + _MEAN]
        memory[j, seen + 2] = memory[row, column + _LAST]
        memory[j, seen + 3] = np.sqrt(memory[row, column + _SQUARE])
        memory[j, seen + 4] = np.log1p(memory[row, column + _ENDED])
        memory[j, seen + 5] = np.log1p(others)
        memory[j, seen + 6] = (memory[row, column + _AGES] - own) / others if others > 0.0 else 0.0
    memory[j, _SEEN + FEATURES - 1] = np.log2(1.0 + job.asked_gpus)


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
        off = (memory[j, _SEEN + f] - parameters[_MEANS + f]) * parameters[_SCALES + f]
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
    memory[j, _ALIVE + BINS] = 0.0  # nobody lives on


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
    x = _bins(age)
    k = int(x)
    return memory[j, _LEFT + k] + (x - k) * (memory[j, _LEFT + k + 1] - memory[j, _LEFT + k])


@kernel
def _take_note(state: State, b: int, memory: FloatMatrix) -> bool:
    """Count jobs that ended and list those that arrived since the last moment; whether there were any."""
    memory[0, _COUNTS + 2] += 1.0
    count, changed = 0, False
    for i in range(int(memory[0, _COUNTS])):
        j = int(memory[i, _LISTED])
        job = state.jobs[b, j]
        if job.status != _DONE:
            memory[count, _LISTED] = j
            count += 1
        elif job.run_seconds > 0.0:
            changed = True
            x, size = _bins(job.run_seconds), _size(job.asked_gpus)
            for kind in range(_GROUPS):
                row, column = _tenant(memory, j, kind), _group(kind, size)
                _count_end(memory, row, column, x)
                memory[row, column + _CHANGED] = memory[0, _COUNTS + 2]
    while memory[0, _COUNTS + 1] < state.clusters[b].next_arrival:
        memory[count, _LISTED] = memory[0, _COUNTS + 1]
        memory[0, _COUNTS + 1] += 1.0
        count += 1
        changed = True
    memory[0, _COUNTS] = count
    return changed


@kernel
def _count_live(state: State, b: int, memory: FloatMatrix) -> None:
    """Count live jobs and their ages, by group."""
    now = state.clusters[b].now
    for i in range(int(memory[0, _COUNTS])):
        j = int(memory[i, _LISTED])
        size = _size(state.jobs[b, j].asked_gpus)
        for kind in range(_GROUPS):
            row, column = _tenant(memory, j, kind), _group(kind, size)
            memory[row, column + _LIVE] = 0.0
            memory[row, column + _AGES] = 0.0
    for i in range(int(memory[0, _COUNTS])):
        j = int(memory[i, _LISTED])
        job = state.jobs[b, j]
        size, x = _size(job.asked_gpus), _bins(run_seconds(job, now))
        for kind in range(_GROUPS):
            row, column = _tenant(memory, j, kind), _group(kind, size)
            memory[row, column + _LIVE] += 1.0
            memory[row, column + _AGES] += x


@kernel
def _has_news(memory: FloatMatrix, j: int) -> bool:
    """Whether a job is new, or jobs of its virtual cluster and of its user have ended at this moment."""
    moment = memory[0, _COUNTS + 2]
    if memory[j, _JUDGED] == 0.0:
        return True
    vc = memory[_tenant(memory, j, 0), _group(0, 0) + _CHANGED]
    return vc == moment and memory[_tenant(memory, j, 2), _group(2, 0) + _CHANGED] == moment


@linked_kernel
def _learn(state: State, b: int, parameters: FloatVector, memory: FloatMatrix) -> None:
    """Bring the memory up to date: a job is judged when it arrives and when one of its tenant ends."""
    if not _take_note(state, b, memory):
        return
    _count_live(state, b, memory)
    now = state.clusters[b].now
    for i in range(int(memory[0, _COUNTS])):
        j = int(memory[i, _LISTED])
        if _has_news(memory, j):
            job = state.jobs[b, j]
            memory[j, _JUDGED] = memory[0, _COUNTS + 2]
            memory[j, _AGE] = run_seconds(job, now)
            _describe(memory, j, job)
            _judge(memory, j, parameters)


@fills(EstimateLeft)
def _by_hazard(state: State, b: int, parameters: FloatVector, memory: FloatMatrix, out: FloatVector) -> None:
    _learn(state, b, parameters, memory)
    now = state.clusters[b].now
    for i in range(int(memory[0, _COUNTS])):
        j = int(memory[i, _LISTED])
        job = state.jobs[b, j]
        out[j] = _left(memory, j, run_seconds(job, now))


class Hazards(Estimate):
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
        takes = Information.SIZES | Information.ATTAINED_SERVICE | Information.HISTORY
        super().__init__(_by_hazard, "hazard", takes, parameters, COLUMNS)

    def memory_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs, memory] `first_memory`."""
        return first_memory(jobs)


def constant_rates(log_rates: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """{name: array} of a network that gives all jobs the same log rates [BINS]."""
    network = {name: np.zeros(shape) for name, shape in PARAMETERS.items()}
    network["output"][-1] = log_rates
    return network


@dataclass(frozen=True)
class Judged:
    """Jobs that were judged at one moment.

    Attributes:
        rows: [judged] their rows.
        ages: [judged] seconds they had run.
        features: [judged, FEATURES] what the network saw.
    """

    rows: NDArray[np.int64]
    ages: NDArray[np.float64]
    features: NDArray[np.float64]

    def some(self, chosen: NDArray[np.bool_]) -> "Judged":
        """Those of [judged] that are chosen."""
        return Judged(self.rows[chosen], self.ages[chosen], self.features[chosen])


def unnamed(jobs: JobTable) -> NDArray[np.bool_]:
    """[FEATURES] what is said of virtual clusters or of users where the jobs name none."""
    without = [(getattr(jobs, name) == "").all() for name in ("vc", "user")]
    return np.array([*np.repeat(without, FEATURES // 2), False])


def judged_now(memory: NDArray[np.float64]) -> Judged:
    """The jobs judged at the last moment of an estimate's memory [jobs, COLUMNS]."""
    listed = memory[: int(memory[0, _COUNTS]), _LISTED].astype(np.int64)
    rows = listed[memory[listed, _JUDGED] == memory[0, _COUNTS + 2]]
    return Judged(rows, memory[rows, _AGE], memory[rows, _SEEN:_TENANTS])
