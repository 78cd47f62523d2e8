"""The arrays that hold a batch of simulations.

Arrays have a leading dimension [clusters], so that one kernel call serves one simulator (a batch of 1) or a
vector environment. Their types do not depend on sizes, so that kernels compile once.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import (
    FloatCube,
    FloatMatrix,
    FloatVector,
    Int32Matrix,
    Int32Vector,
    IntMatrix,
    Records1,
    Records2,
    bundle,
    kernel,
    linked_kernel,
)
from ringyard.fabric import FABRIC_COLUMNS
from ringyard.state.records import (
    INTEGRALS,
    LOSS_COLUMNS,
    TIMELINE_COLUMNS,
    ClusterRecord,
    Gpu,
    Job,
    Link,
    Segment,
    Server,
    Slot,
)

SERVERS_PER_WORD = 32  #: number of servers in one word of `State.free_bits`


@bundle
class State:
    """All arrays of a batch of simulations. K jobs may share a GPU."""

    jobs: Records2[Job]  #: [clusters, jobs + 1] `Job`. The last row is scratch for what-if questions.
    gpus: Records2[Gpu]  #: [clusters, gpus] `Gpu`
    slots: Records2[Slot]  #: [clusters, gpus x K] `Slot`
    servers: Records2[Server]  #: [clusters, servers] `Server`
    links: Records2[Link]  #: [clusters, servers + racks] `Link`: each server's, then each rack's uplink
    clusters: Records1[ClusterRecord]  #: [clusters] `ClusterRecord`
    initial_cluster: Records1[ClusterRecord]  #: [1] a cluster at time 0, without jobs
    #: [models + 1, GPU types, 2] compute time / compute time on the reference GPU, of the fixed part of
    #: an iteration and of each sample. The last row is for jobs without a model.
    slowness: FloatCube
    #: [(models + 1) x GPU types, batches, 3] samples per GPU (ascending, then inf), sensitivity,
    #: pressure. [0, 0, 3] where jobs do not slow one another this way.
    sharing_table: FloatCube
    #: [models + 1, models + 1] extra iteration time of the first model beside the second on a GPU, as a
    #: fraction of its own. [0, 0] where pairs are not measured.
    pairwise_excess: FloatMatrix
    #: [clusters, gpus x K, 2] sensitivity and pressure of the job in each slot at its present batch.
    #: [clusters, 0, 2] without `sharing_table`.
    slot_sharing: FloatCube
    #: [(models + 1) x GPU types, batches, 2] samples per GPU (ascending, then inf) and the share of an
    #: iteration's compute time in which kernels run. [0, 0, 2] without `losses`.
    kernel_shares: FloatCube
    between_servers: FloatVector  #: [FABRIC_COLUMNS] `Fabric.row` of the network, for Network.LIVE_TRANSFERS
    #: [servers, times] when each server leaves and returns, in turns (`Failures.outages`). [0, 0] without.
    outages: FloatMatrix
    memory_slowdowns: FloatMatrix  #: [points, 2] `LoadedMemory.slowdowns` of all servers
    #: [clusters, 2 x jobs] waiting jobs by (priority, row): `num_waiting` from `first_waiting` on. -1 - row
    #: is a hole, a job that was removed (`close_holes`).
    waiting: Int32Matrix
    running: Int32Matrix  #: [clusters, jobs] running jobs, a heap on (next event, row), `num_running` long
    ended: Int32Matrix  #: [clusters, jobs] jobs that have left, in that order: `num_done` entries
    class_waiting: Int32Matrix  #: [clusters, classes] number of waiting jobs of each demand class
    class_marks: Int32Matrix  #: [clusters, classes] scratch marks of one pass over classes
    integrals: FloatMatrix  #: [clusters, Integral] time integrals
    #: [clusters, bins, 2] waiting jobs and busy GPUs, integrated over time bins. 0 bins: off.
    timeline: FloatCube
    segments: Records2[Segment]  #: [clusters, rows] `Segment`, of which the latest are kept. 0 rows: off.
    losses: FloatCube  #: [clusters, jobs, Loss] lost time. [clusters, 0, Loss] if not counted.
    #: [clusters, gpus] time in seconds until which each GPU's kernels are counted. [clusters, 0] without
    #: `losses`.
    kernels_counted: FloatMatrix
    #: [gpus + 1] fewest servers of an empty cluster that hold so many GPUs. [0] without `losses`.
    fewest_servers: Int32Vector
    gpu_scratch: Int32Matrix  #: [clusters, gpus] GPU ids that a placement rule proposes
    place_scratch: Int32Matrix  #: [clusters, gpus] places of a job during a what-if question
    server_scratch: Int32Matrix  #: [clusters, servers] work space of placement rules
    number_scratch: FloatMatrix  #: [clusters, gpus + servers] the same, for floats
    link_scratch: Int32Matrix  #: [clusters, servers + racks] links of one job
    ring_scratch: Int32Matrix  #: [clusters, gpus x K] rings affected by one that starts or stops
    #: [clusters, numbers x words] bit s of number f says whether server s has f free GPUs
    #: (`ringyard.state.free_servers`)
    free_bits: IntMatrix
    num_with_free: Int32Matrix  #: [clusters, numbers] number of servers with so many free GPUs

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the arrays in order."""
        return (getattr(self, field.name) for field in fields(self))


def empty_state(
    num_clusters: int,
    jobs: int = 0,
    gpus: int = 0,
    servers: int = 0,
    racks: int = 0,
    jobs_per_gpu: int = 1,
    classes: int = 0,
    models: int = 0,
    gpu_types: int = 0,
    sharing_batches: int = 0,
    paired: bool = False,
    losses: bool = False,
    gpus_of_server: int = 0,
    timeline_bins: int = 0,
    segment_rows: int = 0,
) -> State:
    """Return zeroed arrays for `num_clusters` simulations of at most `jobs` jobs, `classes` demand classes.

    Only slowness is 1. Other sizes are of one cluster: `gpus`, `servers`, `racks`, `jobs_per_gpu` (K),
    `gpu_types`, `gpus_of_server` (largest), `models` of the catalogue, `sharing_batches` (largest number of a
    model, 0: no `State.sharing_table`), `timeline_bins`, `segment_rows`. `paired` and `losses` say whether
    there are `State.pairwise_excess` and `State.losses`.
    """
    b, rows = num_clusters, models + 1
    numbers, slots = gpus_of_server + 1, gpus * jobs_per_gpu
    return State(
        jobs=Job.zeros(b, jobs + 1),
        gpus=Gpu.zeros(b, gpus),
        slots=Slot.zeros(b, slots),
        servers=Server.zeros(b, servers),
        links=Link.zeros(b, servers + racks),
        clusters=ClusterRecord.zeros(b),
        initial_cluster=ClusterRecord.zeros(1),
        slowness=np.ones((rows, gpu_types, 2)),
        sharing_table=np.zeros((rows * gpu_types if sharing_batches else 0, sharing_batches, 3)),
        pairwise_excess=np.zeros((rows, rows) if paired else (0, 0)),
        slot_sharing=np.zeros((b, slots if sharing_batches else 0, 2)),
        kernel_shares=np.zeros((0, 0, 2)),
        between_servers=np.zeros(FABRIC_COLUMNS),
        outages=np.zeros((0, 0)),
        memory_slowdowns=np.ones((1, 2)),
        waiting=np.zeros((b, 2 * jobs), np.int32),
        running=np.zeros((b, jobs), np.int32),
        ended=np.zeros((b, jobs), np.int32),
        class_waiting=np.zeros((b, classes), np.int32),
        class_marks=np.zeros((b, classes), np.int32),
        integrals=np.zeros((b, INTEGRALS)),
        timeline=np.zeros((b, timeline_bins, TIMELINE_COLUMNS)),
        segments=Segment.zeros(b, segment_rows),
        losses=np.zeros((b, jobs if losses else 0, LOSS_COLUMNS)),
        kernels_counted=np.zeros((b, gpus if losses else 0)),
        fewest_servers=np.zeros(gpus + 1 if losses else 0, np.int32),
        gpu_scratch=np.zeros((b, gpus), np.int32),
        place_scratch=np.zeros((b, gpus), np.int32),
        server_scratch=np.zeros((b, servers), np.int32),
        number_scratch=np.zeros((b, gpus + servers)),
        link_scratch=np.zeros((b, servers + racks), np.int32),
        ring_scratch=np.zeros((b, slots), np.int32),
        free_bits=np.zeros((b, numbers * -(-servers // SERVERS_PER_WORD)), np.int64),
        num_with_free=np.zeros((b, numbers), np.int32),
    )


def copy_array(array: Any) -> Any:
    """Return a copy. NumPy's `copy` would copy records field by field, which is slower."""
    return array.view(np.uint8).copy().view(array.dtype) if array.dtype.names else array.copy()


def copy_state(state: State) -> State:
    """Return an independent copy."""
    return State(*map(copy_array, state))


@kernel
def shift_entries(row: Int32Vector, first: int, end: int, by: int) -> None:
    """Shift the entries `first` to `end` - 1 of `row` by `by` positions."""
    old, new = row[first:end], row[first + by : end + by]  # LLVM makes vector code of loops over slices
    if by < 0:
        for i in range(len(old)):
            new[i] = old[i]
    else:
        for i in range(len(old) - 1, -1, -1):
            new[i] = old[i]


@kernel
def end_of_waiting(cluster: ClusterRecord) -> int:
    """Return the position behind the waiting list of `cluster` in its array, holes included."""
    return cluster.first_waiting + cluster.num_waiting + cluster.num_holes


@linked_kernel
def close_holes(state: State, b: int) -> None:
    """Close the holes that removed jobs left in the waiting list, on the side with fewer entries."""
    cluster, row = state.clusters[b], state.waiting[b]
    if cluster.num_holes == 0:
        return
    first = cluster.first_waiting
    end = end_of_waiting(cluster)
    cluster.num_holes = 0
    if cluster.last_hole - first < end - cluster.first_hole:
        to = cluster.last_hole
        for i in range(cluster.last_hole, first - 1, -1):
            if row[i] >= 0:
                row[to] = row[i]
                to -= 1
        cluster.first_waiting = to + 1
        return
    to = cluster.first_hole
    for i in range(cluster.first_hole, end):
        if row[i] >= 0:
            row[to] = row[i]
            to += 1


@kernel
def waiting_at(state: State, b: int, i: int) -> int:
    """Return the row of the i-th waiting job of cluster `b` of `state` (`i` from 0)."""
    if state.clusters[b].num_holes > 0:
        close_holes(state, b)
    return int(state.waiting[b, state.clusters[b].first_waiting + i])


def waiting_rows(state: State, b: int) -> NDArray[np.int32]:
    """Return [waiting jobs] rows of the waiting jobs of cluster `b`, a window on `state`."""
    if state.clusters["num_holes"][b]:
        close_holes(state, b)
    first, count = (int(state.clusters[name][b]) for name in ("first_waiting", "num_waiting"))
    return state.waiting[b, first : first + count]
