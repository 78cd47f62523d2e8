"""What is known of a tenant's jobs: how long those ran that have ended, and those so far that have not.

Time is measured in bins, log(1 + t / 60 s) in equal steps: 24 bins up to 1e7 s. A job's features are
statistics of four groups of jobs: of its virtual cluster and of its user, of any size and of its own. There
is news of it when it arrives, and when a job of its virtual cluster and one of its user have ended. The
choice of features is this project's.

Memory, [jobs, COLUMNS] or wider: some columns belong to the job of the row, some to the tenant of that
number, and the first row keeps three counts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import FloatMatrix, FloatVector, Int32Vector, IntVector, kernel
from ringyard.jobs import JobTable
from ringyard.state.arrays import State
from ringyard.state.progress import run_seconds
from ringyard.state.records import JobStatus

BINS = 24
_SCALE = 60.0  # seconds
_LONGEST = 1e7  # seconds
_WIDTH = float(np.log1p(_LONGEST / _SCALE)) / BINS
#: [BINS + 1] seconds; the first is 0
EDGES = _SCALE * np.expm1(_WIDTH * np.arange(BINS + 1))
_FAST, _SLOW = 0.3, 0.05  # shares of the latest job in exponential means

# statistics of the ended jobs of a group, in bins, then of its live ones
_ENDED, _QUICK, _MEAN, _LAST, _SQUARE, _LIVE, _AGES, _CHANGED = range(8)
_STATISTICS = 8
_SIZES = 4  # 1, 2-4, 5-8 and more GPUs
_GROUPS = 4  # of a job: its virtual cluster, its jobs of this size there, its user, likewise
_OF_GROUP = ("quick mean", "mean", "last", "spread", "log ended", "log live", "mean age")
_NUM_OF_GROUP = len(_OF_GROUP)
#: what is known of a job
FEATURE_NAMES = (
    *(f"{what} of {group}" for group in ("vc", "vc and size", "user", "user and size") for what in _OF_GROUP),
    "log2 GPUs",
)
FEATURES = len(FEATURE_NAMES)
#: [FEATURES] those that are run times, in bins
RUN_TIME_FEATURES = np.array([name.startswith(("quick mean", "mean", "last")) for name in FEATURE_NAMES])

# columns of the memory
_VC, _USER = 0, 1  # of the job: numbers of its tenants
_DESCRIBED = 2  # of the job: moment of its last features, 0: none yet
_AGE = 3  # of the job: seconds it had run then
_COUNTS = 4  # of the first row: live jobs, rows seen, moments
_LISTED = 7  # of the list of live jobs: a row
FIRST_FEATURE = 8  # of the job: features
_TENANTS = FIRST_FEATURE + FEATURES  # of the tenant of this number: groups of all sizes and of each
_OF_TENANT = (1 + _SIZES) * _STATISTICS
COLUMNS = _TENANTS + 2 * _OF_TENANT


@kernel
def bin_of(seconds: float) -> float:
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
            x = bin_of(seconds[i])
            _count_end(memory, tenants[i], _group(kind, 0), x)
            _count_end(memory, tenants[i], _group(kind + 1, _size(gpus[i])), x)


def initial_memory(jobs: JobTable, columns: int = COLUMNS) -> NDArray[np.float64]:
    """[jobs, columns] tenants of the jobs, and what is known of them from the past."""
    memory = np.zeros((len(jobs), columns))
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
def num_live_jobs(memory: FloatMatrix) -> int:
    """How many jobs are live."""
    return int(memory[0, _COUNTS])


@kernel
def live_job(memory: FloatMatrix, i: int) -> int:
    """Row of the i-th live job."""
    return int(memory[i, _LISTED])


@kernel
def _count_live(state: State, b: int, memory: FloatMatrix) -> None:
    """Count live jobs and their ages, by group."""
    now = state.clusters[b].now
    for i in range(num_live_jobs(memory)):
        j = live_job(memory, i)
        size = _size(state.jobs[b, j].asked_gpus)
        for kind in range(_GROUPS):
            row, column = _tenant(memory, j, kind), _group(kind, size)
            memory[row, column + _LIVE] = 0.0
            memory[row, column + _AGES] = 0.0
    for i in range(num_live_jobs(memory)):
        j = live_job(memory, i)
        job = state.jobs[b, j]
        size, x = _size(job.asked_gpus), bin_of(run_seconds(job, now))
        for kind in range(_GROUPS):
            row, column = _tenant(memory, j, kind), _group(kind, size)
            memory[row, column + _LIVE] += 1.0
            memory[row, column + _AGES] += x


@kernel
def update_statistics(state: State, b: int, memory: FloatMatrix) -> bool:
    """Count jobs that ended and list those that arrived since the last moment; whether there were any."""
    memory[0, _COUNTS + 2] += 1.0
    count, changed = 0, False
    for i in range(num_live_jobs(memory)):
        j = live_job(memory, i)
        job = state.jobs[b, j]
        if job.status != JobStatus.DONE:
            memory[count, _LISTED] = j
            count += 1
        elif job.run_seconds > 0.0:
            changed = True
            x, size = bin_of(job.run_seconds), _size(job.asked_gpus)
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
    if changed:
        _count_live(state, b, memory)
    return changed


@kernel
def needs_new_features(memory: FloatMatrix, j: int) -> bool:
    """Whether a job is new, or jobs of its virtual cluster and of its user have ended at this moment."""
    moment = memory[0, _COUNTS + 2]
    if memory[j, _DESCRIBED] == 0.0:
        return True
    vc = memory[_tenant(memory, j, 0), _group(0, 0) + _CHANGED]
    return vc == moment and memory[_tenant(memory, j, 2), _group(2, 0) + _CHANGED] == moment


@kernel
def write_features(state: State, b: int, memory: FloatMatrix, j: int) -> None:
    """Write the features of a live job at this moment."""
    job = state.jobs[b, j]
    memory[j, _DESCRIBED] = memory[0, _COUNTS + 2]
    memory[j, _AGE] = run_seconds(job, state.clusters[b].now)
    own = bin_of(memory[j, _AGE])
    size = _size(job.asked_gpus)
    for kind in range(_GROUPS):
        row, column = _tenant(memory, j, kind), _group(kind, size)
        seen = FIRST_FEATURE + kind * _NUM_OF_GROUP
        others = memory[row, column + _LIVE] - 1.0
        memory[j, seen] = memory[row, column + _QUICK]
        memory[j, seen + 1] = memory[row, column + _MEAN]
        memory[j, seen + 2] = memory[row, column + _LAST]
        memory[j, seen + 3] = np.sqrt(memory[row, column + _SQUARE])
        memory[j, seen + 4] = np.log1p(memory[row, column + _ENDED])
        memory[j, seen + 5] = np.log1p(others)
        memory[j, seen + 6] = (memory[row, column + _AGES] - own) / others if others > 0.0 else 0.0
    memory[j, FIRST_FEATURE + FEATURES - 1] = np.log2(1.0 + job.asked_gpus)


@dataclass(frozen=True)
class FeatureRows:
    """Jobs whose features were written at one moment.

    Attributes:
        rows: [described] their rows.
        ages: [described] seconds they had run.
        features: [described, FEATURES] of `FEATURE_NAMES`.
    """

    rows: NDArray[np.int64]
    ages: NDArray[np.float64]
    features: NDArray[np.float64]

    def some(self, chosen: NDArray[np.bool_]) -> "FeatureRows":
        """Those of [described] that are chosen."""
        return FeatureRows(self.rows[chosen], self.ages[chosen], self.features[chosen])


def missing_features(jobs: JobTable) -> NDArray[np.bool_]:
    """[FEATURES] what is said of virtual clusters or of users where the jobs name none."""
    without = [(getattr(jobs, name) == "").all() for name in ("vc", "user")]
    return np.array([*np.repeat(without, FEATURES // 2), False])


def latest_features(memory: NDArray[np.float64]) -> FeatureRows:
    """The jobs described at the last moment of a memory [jobs, COLUMNS]."""
    live = memory[: int(memory[0, _COUNTS]), _LISTED].astype(np.int64)
    rows = live[memory[live, _DESCRIBED] == memory[0, _COUNTS + 2]]
    return FeatureRows(rows, memory[rows, _AGE], memory[rows, FIRST_FEATURE:_TENANTS])
