"""The arrays that hold a batch of simulations.

Every array has a leading dimension [clusters], so that one kernel call serves one simulator (B = 1)
or a whole vector environment; `records` has what they hold. Array types do not depend on sizes:
kernels compile once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.bundles import by_reference
from ringyard.state.records import (
    CLUSTER,
    GPU,
    INTEGRALS,
    JOB,
    LINK,
    SEGMENT,
    SERVER,
    SLOT,
    TIMELINE_COLUMNS,
)

__all__ = ["STATE_TYPE", "Sizes", "State", "copy_state", "empty_state"]


def _records(dtype: np.dtype[Any]) -> Any:
    return numba.from_dtype(dtype)[:, ::1]


_INTEGERS = numba.types.int32[:, ::1]
_FLOATS = numba.types.float64[:, ::1]


@by_reference(
    _records(JOB),
    _records(GPU),
    _records(SLOT),
    _records(SERVER),
    _records(LINK),
    numba.from_dtype(CLUSTER)[::1],
    _FLOATS,
    _FLOATS,
    _INTEGERS,
    _INTEGERS,
    _INTEGERS,
    _INTEGERS,
    _FLOATS,
    numba.types.float64[:, :, ::1],
    _records(SEGMENT),
    _INTEGERS,
    _INTEGERS,
    _INTEGERS,
    _INTEGERS,
)
@dataclass(frozen=True, eq=False)
class State:
    """All arrays of a batch of simulations; K jobs may share a GPU.

    Attributes:
        jobs: [clusters, jobs + 1] `JOB`; the last row is scratch for what-if questions.
        gpus: [clusters, gpus] `GPU`.
        slots: [clusters, gpus x K] `SLOT`.
        servers: [clusters, servers] `SERVER`.
        links: [clusters, servers + racks] `LINK`: every server's own, then every rack's uplink.
        clusters: [clusters] `CLUSTER`.
        speeds: [models + 1, GPU types] relative to the reference GPU; the last row is for no model.
        excess: [models + 1, models + 1] extra iteration time of the first model, as a share of its own,
            for each neighbour of the second on the same GPU.
        waiting: [clusters, jobs] waiting jobs by (priority, row), the first `num_waiting` valid.
        running: [clusters, jobs] running jobs, a heap on (due, row), the first `num_running` valid.
        class_waiting: [clusters, classes] waiting jobs of each demand class.
        class_stamp: [clusters, classes] scratch marks of one pass over classes.
        integrals: [clusters, Integral].
        timeline: [clusters, bins, 2] waiting jobs and busy GPUs integrated over time bins; 0 bins: off.
        segments: [clusters, rows] `SEGMENT`, who held what, latest kept; 0 rows: off.
        gpu_scratch: [clusters, gpus] GPU ids a placement rule proposes.
        held_scratch: [clusters, gpus] GPU ids put aside while a what-if question is answered.
        server_scratch: [clusters, servers] work space of placement rules.
        link_scratch: [clusters, servers + racks] links of one job.
    """

    jobs: NDArray[np.void]
    gpus: NDArray[np.void]
    slots: NDArray[np.void]
    servers: NDArray[np.void]
    links: NDArray[np.void]
    clusters: NDArray[np.void]
    speeds: NDArray[np.float64]
    excess: NDArray[np.float64]
    waiting: NDArray[np.int32]
    running: NDArray[np.int32]
    class_waiting: NDArray[np.int32]
    class_stamp: NDArray[np.int32]
    integrals: NDArray[np.float64]
    timeline: NDArray[np.float64]
    segments: NDArray[np.void]
    gpu_scratch: NDArray[np.int32]
    held_scratch: NDArray[np.int32]
    server_scratch: NDArray[np.int32]
    link_scratch: NDArray[np.int32]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """The arrays, in order."""
        return (getattr(self, field.name) for field in fields(self))


class Sizes(NamedTuple):
    """What the lengths of the state's arrays follow from."""

    jobs: int
    gpus: int
    servers: int
    racks: int
    jobs_per_gpu: int
    classes: int
    models: int
    gpu_types: int


def empty_state(num_clusters: int, sizes: Sizes, timeline_bins: int = 0, segment_rows: int = 0) -> State:
    """Zeroed arrays of the given sizes; speeds are 1."""
    b, jobs, gpus = num_clusters, sizes.jobs, sizes.gpus
    return State(
        jobs=np.zeros((b, jobs + 1), JOB),
        gpus=np.zeros((b, gpus), GPU),
        slots=np.zeros((b, gpus * sizes.jobs_per_gpu), SLOT),
        servers=np.zeros((b, sizes.servers), SERVER),
        links=np.zeros((b, sizes.servers + sizes.racks), LINK),
        clusters=np.zeros(b, CLUSTER),
        speeds=np.ones((sizes.models + 1, sizes.gpu_types)),
        excess=np.zeros((sizes.models + 1, sizes.models + 1)),
        waiting=np.zeros((b, jobs), np.int32),
        running=np.zeros((b, jobs), np.int32),
        class_waiting=np.zeros((b, sizes.classes), np.int32),
        class_stamp=np.zeros((b, sizes.classes), np.int32),
        integrals=np.zeros((b, INTEGRALS)),
        timeline=np.zeros((b, timeline_bins, TIMELINE_COLUMNS)),
        segments=np.zeros((b, segment_rows), SEGMENT),
        gpu_scratch=np.zeros((b, gpus), np.int32),
        held_scratch=np.zeros((b, gpus), np.int32),
        server_scratch=np.zeros((b, sizes.servers), np.int32),
        link_scratch=np.zeros((b, sizes.servers + sizes.racks), np.int32),
    )


def copy_state(state: State) -> State:
    """An independent copy."""
    copies: list[Any] = [array.copy() for array in state]
    return State(*copies)


STATE_TYPE = State.numba_type  # type: ignore[attr-defined]
