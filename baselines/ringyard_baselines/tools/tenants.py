"""Features of jobs from their tenants: run times of ended jobs, and run times so far of live ones.

Times are measured in bins, log(1 + t / 60 s) in equal steps: 24 bins up to 1e7 s. A job's features are
statistics of four groups of jobs: its virtual cluster's and its user's, each of all sizes and of the job's
own size. They are written when the job arrives, and when a job of its virtual cluster and a job of its user
have ended. The choice of features is this project's.

`memory` is [jobs, COLUMNS] or wider. Some columns belong to the job of the row, some to the tenant with the
row's number, and three counts are in the first row. `kind` is the number of a group: virtual cluster, virtual
cluster and size, user, user and size.
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
_FAST, _SLOW = 0.3, 0.05  # weights of the latest job in the two exponential means

# statistics of a group: of its ended jobs in bins, then of its live jobs
_ENDED, _QUICK, _MEAN, _LAST, _VARIANCE, _LIVE, _AGES, _CHANGED = range(8)
_STATISTICS = 8
_SIZES = 4  # 1, 2-4, 5-8 and more GPUs
_GROUPS = 4
_OF_GROUP = ("quick mean", "mean", "last", "spread", "log ended", "log live", "mean age")
_NUM_OF_GROUP = len(_OF_GROUP)
#: names of a job's features
FEATURE_NAMES = (
    *(f"{name} of {group}" for group in ("vc", "vc and size", "user", "user and size") for name in _OF_GROUP),
    "log2 GPUs",
)
FEATURES = len(FEATURE_NAMES)
#: [FEATURES] whether the feature is a run time in bins
RUN_TIME_FEATURES = np.array([name.startswith(("quick mean", "mean", "last")) for name in FEATURE_NAMES])

# columns of the memory
_VC, _USER = 0, 1  # job: numbers of its tenants
_WRITTEN = 2  # job: decision at which its features were written, 0: none
_AGE = 3  # job: seconds it had run then
_NUM_LIVE, _NUM_ARRIVED, _NUM_DECISIONS = 4, 5, 6  # counts, in the first row
_LIST = 7  # rows of live jobs, from the first row on
FIRST_FEATURE = 8  # job: features
_TENANTS = FIRST_FEATURE + FEATURES  # tenant: statistics of all sizes and of each size
_OF_TENANT = (1 + _SIZES) * _STATISTICS
COLUMNS = _TENANTS + 2 * _OF_TENANT


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
    return _TENANTS + (kind // 2) * _OF_TENANT + (kind % 2) * (1 + size) * _STATISTICS


@kernel
def _tenant(memory: FloatMatrix, j: int, kind: int) -> int:
    """Return the row with the statistics of a group of job j."""
    return int(memory[j, _VC + kind // 2])


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
    memory[row, column + _LAST] = x


@kernel
def _add_history(
    memory: FloatMatrix, tenants: Int32Vector, kind: int, gpus: IntVector, seconds: FloatVector
) -> None:
    """Add historical jobs. `kind` is 0 for virtual clusters, 2 for users. Tenant -1 has no job here."""
    for i in range(len(tenants)):
        if tenants[i] >= 0:
            x = bin_of(seconds[i])
            _add_run_time(memory, tenants[i], _group(kind, 0), x)
            _add_run_time(memory, tenants[i], _group(kind + 1, _size(gpus[i])), x)


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
        _add_history(memory, numbers, 2 * column, np.ascontiguousarray(past.num_gpus), seconds)
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
        for kind in range(_GROUPS):
            row, column = _tenant(memory, j, kind), _group(kind, size)
            memory[row, column + _LIVE] = 0.0
            memory[row, column + _AGES] = 0.0
    for i in range(num_live_jobs(memory)):
        j = live_row(memory, i)
        job = state.jobs[b, j]
        size, x = _size(job.asked_gpus), bin_of(run_seconds(job, now))
        for kind in range(_GROUPS):
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
            for kind in range(_GROUPS):
                row, column = _tenant(memory, j, kind), _group(kind, size)
                _add_run_time(memory, row, column, x)
                memory[row, column + _CHANGED] = memory[0, _NUM_DECISIONS]
    while memory[0, _NUM_ARRIVED] < state.clusters[b].next_arrival:
        memory[count, _LIST] = memory[0, _NUM_ARRIVED]
        memory[0, _NUM_ARRIVED] += 1.0
        count += 1
        changed = True
    memory[0, _NUM_LIVE] = count
    if changed:
        _update_live(state, b, memory)
    return changed


@kernel
def needs_new_features(memory: FloatMatrix, j: int) -> bool:
    """Return whether job j is new, or jobs of its virtual cluster and of its user have ended now."""
    decision = memory[0, _NUM_DECISIONS]
    if memory[j, _WRITTEN] == 0.0:
        return True
    vc = memory[_tenant(memory, j, 0), _group(0, 0) + _CHANGED]
    return vc == decision and memory[_tenant(memory, j, 2), _group(2, 0) + _CHANGED] == decision


@kernel
def write_features(state: State, b: int, memory: FloatMatrix, j: int) -> None:
    """Write the features of the live job `j` of cluster `b` of `state` into `memory`."""
    job = state.jobs[b, j]
    memory[j, _WRITTEN] = memory[0, _NUM_DECISIONS]
    memory[j, _AGE] = run_seconds(job, state.clusters[b].now)
    age = bin_of(memory[j, _AGE])
    size = _size(job.asked_gpus)
    for kind in range(_GROUPS):
        row, column = _tenant(memory, j, kind), _group(kind, size)
        first = FIRST_FEATURE + kind * _NUM_OF_GROUP
        others = memory[row, column + _LIVE] - 1.0
        memory[j, first] = memory[row, column + _QUICK]
        memory[j, first + 1] = memory[row, column + _MEAN]
        memory[j, first + 2] = memory[row, column + _LAST]
        memory[j, first + 3] = np.sqrt(memory[row, column + _VARIANCE])
        memory[j, first + 4] = np.log1p(memory[row, column + _ENDED])
        memory[j, first + 5] = np.log1p(others)
        memory[j, first + 6] = (memory[row, column + _AGES] - age) / others if others > 0.0 else 0.0
    memory[j, FIRST_FEATURE + FEATURES - 1] = np.log2(1.0 + job.asked_gpus)


@dataclass(frozen=True)
class FeatureRows:
    """Jobs with features that were written at one decision."""

    rows: NDArray[np.int64]  #: [n] rows of the jobs
    ages: NDArray[np.float64]  #: [n] seconds that they had run
    features: NDArray[np.float64]  #: [n, FEATURES] values of `FEATURE_NAMES`

    def some(self, chosen: NDArray[np.bool_]) -> "FeatureRows":
        """Return the jobs for which `chosen` [n] is true."""
        return FeatureRows(self.rows[chosen], self.ages[chosen], self.features[chosen])


def missing_features(jobs: JobTable) -> NDArray[np.bool_]:
    """Return which features [FEATURES] are of virtual clusters or users although the jobs name none."""
    without = [(getattr(jobs, name) == "").all() for name in ("vc", "user")]
    return np.array([*np.repeat(without, FEATURES // 2), False])


def latest_features(memory: NDArray[np.float64]) -> FeatureRows:
    """Return the jobs with features that were written at the last decision of a memory [jobs, COLUMNS]."""
    live = memory[: int(memory[0, _NUM_LIVE]), _LIST].astype(np.int64)
    rows = live[memory[live, _WRITTEN] == memory[0, _NUM_DECISIONS]]
    return FeatureRows(rows, memory[rows, _AGE], memory[rows, FIRST_FEATURE:_TENANTS])
