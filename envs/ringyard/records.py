"""The arrays that hold a simulation: one record per job, GPU, server and cluster.

Every array has a leading dimension [clusters], so that one kernel call serves one simulator (B = 1)
or a whole vector environment. Records keep a job's fields on neighbouring cache lines; from Python,
`state.jobs["end_seconds"]` is the same data as a column, without a copy. Array types do not depend
on sizes: kernels compile once.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CLUSTER",
    "GPU",
    "INTEGRALS",
    "JOB",
    "JOB_TYPE",
    "PARAMETERS_TYPE",
    "SEGMENT",
    "SERVER",
    "STATE_TYPE",
    "TIMELINE_COLUMNS",
    "Integral",
    "JobStatus",
    "State",
    "copy_state",
    "empty_state",
]


class JobStatus(IntEnum):
    """Where a job is in its life: not yet submitted, queued, holding GPUs, finished."""

    FUTURE = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3


class Integral(IntEnum):
    """Columns of `State.integrals`: time integrals since the start, in seconds times the unit named."""

    JOBS_IN_SYSTEM = 0  # jobs waiting or running; the integral is the total job completion time
    INVERSE_DURATION_IN_SYSTEM = 1  # sum of 1 / isolated seconds; the integral is the total slowdown
    ELAPSED = 2  # 1; at the last completion the integral is the makespan
    BUSY_GPUS = 3
    FRAGMENTED_GPUS = 4  # free GPUs on servers that also hold busy ones
    FREE_GPUS_WITH_QUEUE = 5  # free GPUs while jobs wait
    FAIR_SHARE = 6  # max(1, GPUs demanded by the jobs in the system / GPUs of the cluster)


INTEGRALS = len(Integral)
TIMELINE_COLUMNS = 2  # waiting jobs, busy GPUs (both integrated over the bin)

JOB = np.dtype(
    [
        # given
        ("submit_seconds", "f8"),
        ("isolated_seconds", "f8"),  # run time alone on consolidated GPUs
        ("isolated_iteration_seconds", "f8"),
        ("total_iterations", "f8"),
        ("compute_seconds", "f8"),  # per iteration
        ("gradient_bytes", "f8"),
        ("restart_seconds", "f8"),  # without progress at each start after the first
        ("priority", "f8"),  # order of the waiting list, ascending; ties by row
        ("num_gpus", "i4"),
        ("demand_class", "i4"),  # jobs of one class ask for identical resources
        ("predictable", "i4"),
        # lived
        ("status", "i4"),
        ("remaining_iterations", "f8"),  # at synced_seconds
        ("iteration_seconds", "f8"),  # at the present placement and contention
        ("synced_seconds", "f8"),  # when progress was last brought up to date
        ("progress_from_seconds", "f8"),  # the restart ends here
        ("end_seconds", "f8"),  # expected while running, final when done
        ("first_start_seconds", "f8"),
        ("last_start_seconds", "f8"),
        ("last_stop_seconds", "f8"),
        ("attained_service", "f8"),  # GPU seconds held, at synced_seconds
        ("forgiven_service", "f8"),  # GPU seconds a scheduler disregards (Tiresias' promotion)
        ("fair_share_integral", "f8"),  # Integral.FAIR_SHARE at submission; over the life once done
        ("first_gpu", "i4"),  # head of the job's chain of GPUs, -1 if none
        ("num_servers", "i4"),  # servers spanned
        ("worst_link_jobs", "i4"),  # jobs spanning servers on its most crowded server, itself included
        ("heap_position", "i4"),
        ("num_preemptions", "i4"),
        ("stamp", "i4"),  # scratch mark of one pass over jobs
    ],
    align=True,
)

GPU = np.dtype(
    [
        ("job", "i4"),  # -1 if free
        ("server", "i4"),
        ("next_gpu", "i4"),  # next GPU of the same job, ascending; -1 at the end
        ("next_server_gpu", "i4"),  # on a job's first GPU of a server: its first GPU of the next server
    ],
    align=True,
)

SERVER = np.dtype(
    [
        ("first_gpu", "i4"),
        ("num_gpus", "i4"),
        ("free_gpus", "i4"),
        ("spanning_jobs", "i4"),  # jobs here that also hold GPUs elsewhere
    ],
    align=True,
)

CLUSTER = np.dtype(
    [
        ("now", "f8"),
        ("round_seconds", "f8"),  # inf: no rounds
        ("next_round_seconds", "f8"),
        ("wake_seconds", "f8"),  # the scheduler asked to be called then; inf if not
        ("limit_seconds", "f8"),  # the window ends here
        ("inverse_durations", "f8"),  # of the jobs in the system
        ("finished_jct", "f8"),  # total completion time of the finished jobs
        ("rng", "u8"),
        ("num_jobs", "i4"),
        ("num_gpus", "i4"),
        ("num_servers", "i4"),
        ("num_classes", "i4"),
        ("smallest_demand", "i4"),  # fewest GPUs any job asks for
        ("next_arrival", "i4"),
        ("num_waiting", "i4"),
        ("num_running", "i4"),
        ("num_done", "i4"),
        ("free_gpus", "i4"),
        ("demanded_gpus", "i4"),  # by the jobs in the system
        ("fragmented_gpus", "i4"),
        ("num_preemptions", "i4"),
        ("num_starts", "i4"),
        ("num_decisions", "i4"),
        ("network_coupled", "i4"),  # 0: jobs do not slow one another through links
        ("stamp", "i4"),
        ("num_segments", "i4"),
        ("timeline_bin_log2", "i4"),  # bins are 2**this seconds wide
    ],
    align=True,
)

SEGMENT = np.dtype(
    [
        ("job", "i4"),
        ("server", "i4"),
        ("gpu_bits", "u8"),  # bit i: the server's i-th GPU (the first 64 of a server)
        ("start_seconds", "f8"),
        ("stop_seconds", "f8"),
    ],
    align=True,
)


class State(NamedTuple):
    """All arrays of a batch of simulations.

    Attributes:
        jobs: [clusters, jobs + 1] `JOB`; the last row is scratch for what-if questions.
        gpus: [clusters, gpus] `GPU`.
        servers: [clusters, servers] `SERVER`.
        clusters: [clusters] `CLUSTER`.
        waiting: [clusters, jobs] waiting jobs by (priority, row), the first `num_waiting` valid.
        running: [clusters, gpus] running jobs, a heap on (end, row), the first `num_running` valid.
        class_waiting: [clusters, classes] waiting jobs of each demand class.
        class_stamp: [clusters, classes] scratch marks of one pass over classes.
        integrals: [clusters, Integral].
        timeline: [clusters, bins, 2] waiting jobs and busy GPUs integrated over time bins; 0 bins: off.
        segments: [clusters, rows] `SEGMENT`, who held what, latest kept; 0 rows: off.
        gpu_scratch: [clusters, gpus] GPU ids a placement rule proposes.
        server_scratch: [clusters, servers] work space of placement rules.
    """

    jobs: NDArray[np.void]
    gpus: NDArray[np.void]
    servers: NDArray[np.void]
    clusters: NDArray[np.void]
    waiting: NDArray[np.int32]
    running: NDArray[np.int32]
    class_waiting: NDArray[np.int32]
    class_stamp: NDArray[np.int32]
    integrals: NDArray[np.float64]
    timeline: NDArray[np.float64]
    segments: NDArray[np.void]
    gpu_scratch: NDArray[np.int32]
    server_scratch: NDArray[np.int32]


def empty_state(
    num_clusters: int,
    num_jobs: int,
    num_gpus: int,
    num_servers: int,
    num_classes: int,
    timeline_bins: int = 0,
    segment_rows: int = 0,
) -> State:
    """Zeroed arrays of the given sizes."""
    return State(
        jobs=np.zeros((num_clusters, num_jobs + 1), JOB),
        gpus=np.zeros((num_clusters, num_gpus), GPU),
        servers=np.zeros((num_clusters, num_servers), SERVER),
        clusters=np.zeros(num_clusters, CLUSTER),
        waiting=np.zeros((num_clusters, num_jobs), np.int32),
        running=np.zeros((num_clusters, num_gpus), np.int32),
        class_waiting=np.zeros((num_clusters, num_classes), np.int32),
        class_stamp=np.zeros((num_clusters, num_classes), np.int32),
        integrals=np.zeros((num_clusters, INTEGRALS)),
        timeline=np.zeros((num_clusters, timeline_bins, TIMELINE_COLUMNS)),
        segments=np.zeros((num_clusters, segment_rows), SEGMENT),
        gpu_scratch=np.zeros((num_clusters, num_gpus), np.int32),
        server_scratch=np.zeros((num_clusters, num_servers), np.int32),
    )


def copy_state(state: State) -> State:
    """An independent copy."""
    copies: list[Any] = [array.copy() for array in state]
    return State(*copies)


STATE_TYPE = numba.typeof(empty_state(1, 1, 1, 1, 1))
JOB_TYPE = numba.from_dtype(JOB)
PARAMETERS_TYPE = numba.types.float64[::1]
