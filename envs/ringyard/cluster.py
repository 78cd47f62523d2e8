"""`Cluster`: servers with their GPUs, cores, memory and links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import NonNegativeInt, PositiveInt, Seed, checked, require, suggest
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.resources import RESOURCES

#: largest number of servers, and of GPUs x `jobs_per_gpu`. More would take gigabytes in each simulation
MAX_SIZE = 1 << 24

_Size = Annotated[int, "[1, 16777216]"]
_Cores = Annotated[int, "[1, 1000000]"]
_BytesPerSecond = Annotated[float, "[1, 1e15]"]
_Oversubscription = Annotated[float, "[1, inf)"]
_Bytes = Annotated[int, "[1, 1000000000000000]"]
_Sharing = Annotated[int, "[1, 1024]"]
#: {key of a server group: field of `Cluster`}
_GROUP_FIELDS = {
    "gpus_per_server": "gpus_per_server",
    "gpu_type": "gpu_types",
    "memory_bandwidth_bytes_per_second": "memory_bandwidth_bytes_per_second",
    "storage_bytes_per_second": "storage_bytes_per_second",
} | {one.capacity: one.capacity for one in RESOURCES}
_COLUMNS = (*_GROUP_FIELDS.values(), "rack_of_server")


@checked("cluster")
@dataclass(frozen=True)
class Cluster:
    """Servers connected by a network. It does not change during a simulation, apart from failures.

    GPUs are numbered server by server: server 0 has GPUs 0 to `gpus_per_server[0]` - 1, and so on. An empty
    tuple means that the resource is not counted and limits no job.

    Attributes:
        gpus_per_server: [servers] number of GPUs.
        gpu_types: [servers] names in `ringyard.gpu_types.GPU_MEMORY_BYTES`. Empty: all GPUs have the
            reference speed and unlimited memory. A type of `ringyard.gpu_types.CPU_CORES` stands for the
            processors of a server without GPUs, which then counts as one GPU.
        cores_per_server: [servers] CPU cores, beside those that such a type stands for.
        memory_bandwidth_bytes_per_second: [servers] bandwidth of main memory.
        ram_bytes_per_server: [servers] main memory that jobs can ask for.
        storage_bytes_per_second: [servers] rate at which a server reads samples that are not cached. The
            workers that read there share it equally (assumption).
        rack_of_server: [servers] rack, numbered from 0 and ascending. Empty: one switch connects all.
        uplink_oversubscription: bandwidth of the links of a rack's servers over that of its uplink, >= 1.
        jobs_per_gpu: K, number of jobs that may share one GPU.

    Raises:
        ConfigurationError: no server, a server without GPUs, lists of other lengths, values out of range.
    """

    gpus_per_server: Annotated[tuple[_Size, ...], "not empty"]
    gpu_types: tuple[str, ...] = ()
    cores_per_server: tuple[_Cores, ...] = ()
    memory_bandwidth_bytes_per_second: tuple[_BytesPerSecond, ...] = ()
    ram_bytes_per_server: tuple[_Bytes, ...] = ()
    storage_bytes_per_second: tuple[_BytesPerSecond, ...] = ()
    rack_of_server: tuple[NonNegativeInt, ...] = ()
    uplink_oversubscription: _Oversubscription = 1.0
    jobs_per_gpu: _Sharing = 1

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            if type(getattr(self, name)) is not tuple:
                object.__setattr__(self, name, tuple(np.asarray(getattr(self, name)).tolist()))
        places = self.num_gpus * self.jobs_per_gpu
        if self.num_servers > MAX_SIZE or places > MAX_SIZE:
            raise ConfigurationError(
                f"cluster has {self.num_servers:,} servers and {places:,} slots for jobs on GPUs (GPUs x"
                f" jobs_per_gpu); expected at most {MAX_SIZE:,} of each, or memory runs out"
            )
        for name in _COLUMNS[1:]:
            values = getattr(self, name)
            if values and len(values) != self.num_servers:
                raise ConfigurationError(
                    f"cluster.{name} has {len(values)} entries; expected one for each of the"
                    f" {self.num_servers} servers, or none"
                )
        for kind in self.gpu_types:
            if kind not in GPU_MEMORY_BYTES:
                raise ConfigurationError(
                    f"cluster.gpu_types holds {kind!r}; expected {suggest(kind, GPU_MEMORY_BYTES)}"
                )
        if self.memory_bandwidth_bytes_per_second and not self.cores_per_server:
            raise ConfigurationError(
                "cluster counts memory bandwidth but no cores, which use it; expected cores_per_server too"
            )
        racks = set(self.rack_of_server)
        if racks and racks != set(range(len(racks))):
            raise ConfigurationError(
                f"cluster.rack_of_server has racks {sorted(racks)}; expected 0, 1, 2 ..."
            )
        if list(self.rack_of_server) != sorted(self.rack_of_server):
            raise ConfigurationError("cluster.rack_of_server is not ascending; number servers rack by rack")

    @classmethod
    @checked("cluster")
    def homogeneous(
        cls,
        num_servers: _Size,
        gpus_per_server: _Size,
        gpu_type: str | None = None,
        cores_per_server: _Cores | None = None,
        memory_bandwidth_bytes_per_second: _BytesPerSecond | None = None,
        ram_bytes_per_server: _Bytes | None = None,
        storage_bytes_per_second: _BytesPerSecond | None = None,
        servers_per_rack: PositiveInt | None = None,
        uplink_oversubscription: _Oversubscription = 1.0,
        jobs_per_gpu: _Sharing = 1,
    ) -> Self:
        """Create a cluster of equal servers.

        Args:
            num_servers: number of servers.
            gpus_per_server: GPUs of each server.
            gpu_type: type of all GPUs. None: reference speed and unlimited memory.
            cores_per_server: CPU cores. None: not counted, as with the three that follow.
            memory_bandwidth_bytes_per_second: bandwidth of a server's main memory.
            ram_bytes_per_server: main memory of each server.
            storage_bytes_per_second: rate of a server's storage.
            servers_per_rack: racks are filled in order. None: one switch connects all.
            uplink_oversubscription: see `Cluster`.
            jobs_per_gpu: see `Cluster`.
        """
        group = {
            "num_servers": num_servers,
            "gpus_per_server": gpus_per_server,
            "gpu_type": gpu_type,
            "cores_per_server": cores_per_server,
            "memory_bandwidth_bytes_per_second": memory_bandwidth_bytes_per_second,
            "ram_bytes_per_server": ram_bytes_per_server,
            "storage_bytes_per_second": storage_bytes_per_second,
        }
        return cls.of_groups([group], servers_per_rack, uplink_oversubscription, jobs_per_gpu)

    @classmethod
    @checked("cluster")
    def of_groups(
        cls,
        groups: Sequence[Mapping[str, Any]],
        servers_per_rack: PositiveInt | None = None,
        uplink_oversubscription: _Oversubscription = 1.0,
        jobs_per_gpu: _Sharing = 1,
    ) -> Self:
        """Create a cluster of groups of equal servers.

        Args:
            groups: mappings with `num_servers`, `gpus_per_server` and, in all groups or in none, `gpu_type`,
                `cores_per_server`, `memory_bandwidth_bytes_per_second`, `ram_bytes_per_server`,
                `storage_bytes_per_second`. Servers are numbered group by group.
            servers_per_rack: racks are filled in order. None: one switch connects all.
            uplink_oversubscription: see `Cluster`.
            jobs_per_gpu: see `Cluster`.

        Raises:
            ConfigurationError: an unknown key, or a key that only some groups have.
        """
        columns: dict[str, list[Any]] = {name: [] for name in _GROUP_FIELDS}
        for group in groups:
            unknown = set(group) - {"num_servers", *columns}
            if unknown:
                raise ConfigurationError(
                    f"a server group has {sorted(unknown)}; expected num_servers, {', '.join(columns)}"
                )
            for name in ("num_servers", "gpus_per_server"):
                require(f"cluster.{name}", group.get(name), _Size)
            for name, column in columns.items():
                column.extend([group.get(name)] * group["num_servers"])
        for name, column in columns.items():
            if None in column and any(value is not None for value in column):
                raise ConfigurationError(f"only some server groups give {name}; give it in all or in none")
        given: dict[str, Any] = {
            _GROUP_FIELDS[name]: () if None in column else tuple(column) for name, column in columns.items()
        }
        num_servers = len(columns["gpus_per_server"])
        racks: tuple[int, ...] = ()
        if servers_per_rack is not None:
            racks = tuple(s // servers_per_rack for s in range(num_servers))
        return cls(
            **given,
            rack_of_server=racks,
            uplink_oversubscription=uplink_oversubscription,
            jobs_per_gpu=jobs_per_gpu,
        )

    @classmethod
    @checked("cluster")
    def drawn(cls, num_servers: _Size, choices: Annotated[Sequence[_Size], "not empty"], seed: Seed) -> Self:
        """Create servers with random numbers of GPUs, as in SJF-BCO's experiment (section 7).

        Args:
            num_servers: number of servers.
            choices: numbers of GPUs, of which each server draws one uniformly.
            seed: of the draws.
        """
        drawn = np.random.default_rng(seed).choice(np.asarray(choices, dtype=np.int64), num_servers)
        return cls(tuple(int(count) for count in drawn))

    @property
    def num_servers(self) -> int:
        """Number of servers."""
        return len(self.gpus_per_server)

    @cached_property
    def num_gpus(self) -> int:
        """Number of GPUs."""
        return sum(self.gpus_per_server)

    @property
    def num_racks(self) -> int:
        """Number of racks, 0 if one switch connects all servers."""
        return max(self.rack_of_server) + 1 if self.rack_of_server else 0

    @cached_property
    def distinct_gpu_types(self) -> tuple[str, ...]:
        """GPU types in the cluster, sorted. Empty if it has no `gpu_types`."""
        return tuple(sorted(set(self.gpu_types)))

    @cached_property
    def server_of_gpu(self) -> NDArray[np.int32]:
        """[gpus] server that holds each GPU."""
        return np.repeat(np.arange(self.num_servers, dtype=np.int32), self.gpus_per_server)

    @cached_property
    def first_gpu_of_server(self) -> NDArray[np.int32]:
        """[servers] lowest GPU id of each server."""
        ends = np.cumsum(self.gpus_per_server)
        return (ends - np.asarray(self.gpus_per_server)).astype(np.int32)

    @cached_property
    def gpu_memory_bytes(self) -> NDArray[np.float64]:
        """[servers] memory of each of the server's GPUs, infinite without `gpu_types`."""
        if not self.gpu_types:
            return np.full(self.num_servers, np.inf)
        return np.array([GPU_MEMORY_BYTES[kind] for kind in self.gpu_types])

    def fewest_servers(self, num_gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the smallest number of empty servers [...] that hold `num_gpus` GPUs [...], or 0."""
        capacity = np.cumsum(np.sort(np.asarray(self.gpus_per_server))[::-1])
        needed = np.searchsorted(capacity, num_gpus) + 1
        return np.where(np.asarray(num_gpus) <= capacity[-1], needed, 0)
