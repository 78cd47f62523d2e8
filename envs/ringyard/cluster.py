"""The cluster: servers with their GPUs, cores and links, fixed for the length of a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import NonNegativeInt, PositiveInt, Seed, checked, require
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.resources import RESOURCES

#: servers, and places for jobs on their GPUs: more would take gigabytes for each simulation
MAX_SIZE = 1 << 24

_Size = Annotated[int, "[1, 16777216]"]
_Cores = Annotated[int, "[1, 1000000]"]
_BytesPerSecond = Annotated[float, "[1, 1e15]"]
_Oversubscription = Annotated[float, "[1, inf)"]
_Bytes = Annotated[int, "[1, 1000000000000000]"]
_Sharing = Annotated[int, "[1, 1024]"]
#: {what a group of servers is given: the field of `Cluster` with it}
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
    """Servers connected by one network; server s holds `gpus_per_server[s]` GPUs.

    GPUs are numbered server by server: server 0 holds GPUs 0 .. gpus_per_server[0]-1, and so on.
    An empty tuple means that the cluster does not count that resource, so that it limits no job.

    Attributes:
        gpus_per_server: [servers] GPUs.
        gpu_types: [servers] names of `ringyard.gpu_types.GPU_MEMORY_BYTES`; (): reference speed, any memory.
        cores_per_server: [servers] CPU cores; (): not counted.
        memory_bandwidth_bytes_per_second: [servers] of main memory; (): not counted.
        ram_bytes_per_server: [servers] main memory that jobs may ask for; (): not counted.
        storage_bytes_per_second: [servers] at which a server reads samples that are not cached, in equal
            shares for the workers there that read (assumption); (): not counted.
        rack_of_server: [servers] rack, numbered from 0; (): one switch for all.
        uplink_oversubscription: servers' links of a rack together / the rack's uplink, 1 or more.
        jobs_per_gpu: K, jobs that may share one GPU.

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
                f"cluster has {self.num_servers:,} servers and {places:,} places for jobs on GPUs;"
                f" expected at most {MAX_SIZE:,} of each, or memory runs out"
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
                    f"cluster.gpu_types holds {kind!r}; expected one of {', '.join(GPU_MEMORY_BYTES)}"
                )
        if self.memory_bandwidth_bytes_per_second and not self.cores_per_server:
            raise ConfigurationError(
                "cluster counts memory bandwidth but no cores, which use it; expected cores_per_server too"
            )
        racks = set(self.rack_of_server)
        if racks and racks != set(range(len(racks))):
            raise ConfigurationError(
                f"cluster.rack_of_server uses racks {sorted(racks)}; expected 0, 1, 2 ..."
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
        """`num_servers` equal servers of `gpus_per_server` GPUs each; None: that is not counted."""
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
        """Groups of equal servers, one after the other.

        Args:
            groups: each with `num_servers`, `gpus_per_server` and, in every group or in none, `gpu_type`,
                `cores_per_server`, `memory_bandwidth_bytes_per_second`, `ram_bytes_per_server`,
                `storage_bytes_per_second`.
            servers_per_rack: racks are filled in order; None: one switch for all.
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
        """Draw the GPUs of each server uniformly, as in SJF-BCO's experiment (section 7).

        Args:
            num_servers: how many.
            choices: GPUs that a server may have.
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
        """Number of GPUs of all servers together."""
        return sum(self.gpus_per_server)

    @property
    def num_racks(self) -> int:
        """Number of racks; 0 where one switch serves all."""
        return max(self.rack_of_server) + 1 if self.rack_of_server else 0

    @cached_property
    def distinct_gpu_types(self) -> tuple[str, ...]:
        """GPU types in the cluster, sorted; () if the cluster does not tell them apart."""
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
        """[servers] memory of each of the server's GPUs; infinite where types are not told apart."""
        if not self.gpu_types:
            return np.full(self.num_servers, np.inf)
        return np.array([GPU_MEMORY_BYTES[kind] for kind in self.gpu_types])

    def fewest_servers(self, num_gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        """[...] smallest number of (empty) servers that hold `num_gpus` GPUs; 0 where none can."""
        capacity = np.cumsum(np.sort(np.asarray(self.gpus_per_server))[::-1])
        needed = np.searchsorted(capacity, num_gpus) + 1
        return np.where(np.asarray(num_gpus) <= capacity[-1], needed, 0)
