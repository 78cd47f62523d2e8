"""Counted resources of a server, such as cores and RAM, which workers hold beside their GPUs.

State, feasibility, job tables, observability and the tests' oracle loop over `RESOURCES`. GPUs are not among
them, because allocations name each GPU. GPU memory, memory bandwidth and storage are not, because they are
shared in other ways.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    """One counted resource. Its amounts are whole numbers of at most 64 bits."""

    name: str  #: in error messages
    unit: str  #: text before the name in error messages, such as "bytes of "
    capacity: str  #: field of `Cluster` with the amount of each server. An empty tuple there means no limit.
    #: column of `JobTable` with the amount that each worker asks for (a CPU-only job: in all), and field
    #: of `Job` and `Allocation` with the amount that each worker holds
    per_worker: str
    asked: str  #: field of `Job` with the amount that each worker asks for
    total: str  #: field of `Server` with its amount
    free: str  #: field of `Server` with the amount that no job holds
    unlimited: int  #: amount of a server if the cluster does not count the resource
    #: column with the amount that each parameter server asks for. "": they hold none.
    per_server_task: str = ""
    #: whether an allocation may name another amount than the job asks for. Such a resource also needs a
    #: field of `Allocation` and of `Shape`.
    can_change: bool = False


#: all counted resources. Arrays of the state have them in this order
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
#: positions in `RESOURCES`
CORES, RAM = 0, 1
