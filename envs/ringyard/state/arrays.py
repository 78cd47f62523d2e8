"""The arrays that hold a batch of simulations.

Every array has a leading dimension [clusters], so that one kernel call serves one simulator (B = 1)
or a whole vector environment; `records` has what they hold. Array types do not depend on sizes:
kernels compile once.
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

#: servers that one word of `State.free_bits` stands for
SERVERS_PER_WORD = 32


@bundle
class State:
    """All arrays of a batch of simulations; K jobs may share a GPU.

    Attributes:
        jobs: [clusters, jobs + 1] `Job`; the last row is scratch for what-if questions.
        gpus: [clusters, gpus] `Gpu`.
        slots: [clusters, gpus x K] `Slot`.
        servers: [clusters, servers] `Server`.
        links: [clusters, servers + racks] `Link`: every server's own, then every rack's uplink.
        clusters: [clusters] `ClusterRecord`.
        initial_cluster: [1] a cluster at time zero, before it is given jobs.
        slowness: [models + 1, GPU types, 2] times longer than on the reference GPU: what is fixed of an
            iteration's compute time, and each sample's; the last row is for no model.
        sharing_table: [(models + 1) x GPU types, batches, 3] samples per GPU (ascending, inf: no more),
            sensitivity, pressure; [0, 0, 3] where jobs do not slow one another so.
        pairwise_excess: [models + 1, models + 1] extra iteration time of the first model, as a share of
            its own, for each neighbour of the second on the same GPU; [0, 0] where pairs are not measured.
        slot_sharing: [clusters, gpus x K, 2] sensitivity and pressure of the job in each slot, at its present
            batch; [clusters, 0, 2] without `sharing_table`.
        between_servers: [FABRIC_COLUMNS] `Fabric.row` of the network, for Network.LIVE_TRANSFERS.
        waiting: [clusters, 2 x jobs] waiting jobs by (priority, row), `num_waiting` of them from
            `first_waiting` on (`waiting_at`).
        running: [clusters, jobs] running jobs, a heap on (due, row), the first `num_running` valid.
        ended: [clusters, jobs] jobs that have left, in that order, the first `num_done` valid.
        class_waiting: [clusters, classes] waiting jobs of each demand class.
        class_marks: [clusters, classes] scratch marks of one pass over classes.
        integrals: [clusters, Integral].
        timeline: [clusters, bins, 2] waiting jobs and busy GPUs integrated over time bins; 0 bins: off.
        segments: [clusters, rows] `Segment`, the latest are kept; 0 rows: off.
        losses: [clusters, jobs, Loss]; [clusters, 0, Loss]: not counted.
        kernels_counted: [clusters, gpus] until when each GPU's kernels are counted, seconds; [clusters, 0]
            without `losses`.
        fewest_servers: [gpus + 1] of an empty cluster, that hold so many GPUs; [0] without `losses`.
        gpu_scratch: [clusters, gpus] GPU ids a placement rule proposes.
        place_scratch: [clusters, gpus] GPU ids put aside while a what-if question is answered.
        server_scratch: [clusters, servers] work space of placement rules.
        number_scratch: [clusters, gpus + servers] the same, for numbers of GPUs or servers.
        link_scratch: [clusters, servers + racks] links of one job.
        ring_scratch: [clusters, gpus x K] rings that feel one that comes or goes.
        free_bits: [clusters, numbers x words] bit s of number f: server s has f free GPUs
            (`ringyard.state.free_servers`).
        num_with_free: [clusters, numbers] servers with so many free GPUs.
    """

    jobs: Records2[Job]
    gpus: Records2[Gpu]
    slots: Records2[Slot]
    servers: Records2[Server]
    links: Records2[Link]
    clusters: Records1[ClusterRecord]
    initial_cluster: Records1[ClusterRecord]
    slowness: FloatCube
    sharing_table: FloatCube
    pairwise_excess: FloatMatrix
    slot_sharing: FloatCube
    between_servers: FloatVector
    waiting: Int32Matrix
    running: Int32Matrix
    ended: Int32Matrix
    class_waiting: Int32Matrix
    class_marks: Int32Matrix
    integrals: FloatMatrix
    timeline: FloatCube
    segments: Records2[Segment]
    losses: FloatCube
    kernels_counted: FloatMatrix
    fewest_servers: Int32Vector
    gpu_scratch: Int32Matrix
    place_scratch: Int32Matrix
    server_scratch: Int32Matrix
    number_scratch: FloatMatrix
    link_scratch: Int32Matrix
    ring_scratch: Int32Matrix
    free_bits: IntMatrix
    num_with_free: Int32Matrix

    def __iter__(self) -> Iterator[Any]:
        """The arrays, in order."""
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
    """Zeroed arrays of the given sizes; slowness is 1.

    Args:
        num_clusters: simulations.
        jobs: most of any simulation. All other sizes are of one cluster.
        classes: most demand classes.
        models: of the catalogue.
        sharing_batches: most of any model on any GPU type; 0: no `State.sharing_table`.
        paired: whether there are `State.pairwise_excess`.
        losses: whether they are counted.
        gpus_of_server: most of any server.
        (others): as their names say; see `State`.
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
        between_servers=np.zeros(FABRIC_COLUMNS),
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
    """The same as `array.copy()`, which would copy records field by field."""
    return array.view(np.uint8).copy().view(array.dtype) if array.dtype.names else array.copy()


def copy_state(state: State) -> State:
    """An independent copy."""
    return State(*map(copy_array, state))


@kernel
def waiting_at(state: State, b: int, i: int) -> int:
    """Row of the i-th waiting job."""
    return int(state.waiting[b, state.clusters[b].first_waiting + i])


def waiting_rows(state: State, b: int) -> NDArray[np.int32]:
    """[waiting jobs] their rows, a window on the state."""
    first, count = (int(state.clusters[name][b]) for name in ("first_waiting", "num_waiting"))
    return state.waiting[b, first : first + count]
