"""The counted resources of a server: what workers hold beside their GPUs and give back when they stop.

State, feasibility, job tables, what schedulers may see and the tests' oracle loop over `RESOURCES`. GPUs are
not among them, since each is held by name. Nor are GPU memory, memory bandwidth and storage: each of these is
shared in a way of its own.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    """One counted resource. Its amounts are whole numbers of at most 64 bits.

    Attributes:
        name: as error messages say it.
        unit: of amounts, before the name: "bytes of ", or "".
        capacity: field of `Cluster` with what each server has; () there: not counted, no limit.
        per_worker: column of `JobTable` with what each worker asks for (a CPU-only job: in all), and the
            field of `Job` and of allocations with what each holds; 0: nothing of it.
        asked: field of `Job` with what each worker asks for.
        total: field of `Server` with what it has.
        free: field of `Server` with what no job holds.
        unlimited: what a server has where the cluster does not count it.
        per_server_task: column with what each parameter server asks for; "": parameter servers hold none.
        can_change: whether an allocation may name another amount than the job asks for. Such a resource also
            needs a field of `Allocation` and of `Shape`.
    """

    name: str
    unit: str
    capacity: str
    per_worker: str
    asked: str
    total: str
    free: str
    unlimited: int
    per_server_task: str = ""
    can_change: bool = False


#: in this order everywhere
RESOURCES: tuple[Resource, ...] = (
    Resource(
        name="cores",
        unit="",
        capacity="cores_per_server",
        per_worker="cores_per_worker",
        asked="asked_cores",
        total="num_cores",
        free="free_cores",
        unlimited=1 << 30,
        per_server_task="cores_per_server_task",
        can_change=True,
    ),
    Resource(
        name="RAM",
        unit="bytes of ",
        capacity="ram_bytes_per_server",
        per_worker="ram_per_worker",
        asked="asked_ram",
        total="ram_bytes",
        free="free_ram",
        unlimited=1 << 60,
        can_change=True,
    ),
)
NUM_RESOURCES = len(RESOURCES)
#: positions of the resources that the engine treats in ways of their own
CORES, RAM = 0, 1
