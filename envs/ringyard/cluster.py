"""The cluster: servers with their GPUs, fixed for the length of a simulation."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError

__all__ = ["Cluster"]


@dataclass(frozen=True)
class Cluster:
    """Servers connected by one network; server s holds `gpus_per_server[s]` exclusive GPUs.

    GPUs are numbered server by server: server 0 holds GPUs 0 .. gpus_per_server[0]-1, and so on.

    Raises:
        ConfigurationError: no server, or a server without GPUs.
    """

    gpus_per_server: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.gpus_per_server:
            raise ConfigurationError("cluster has no servers; give num_servers >= 1")
        for server, count in enumerate(self.gpus_per_server):
            if count < 1:
                raise ConfigurationError(f"server {server} has {count} GPUs; expected at least 1")

    @classmethod
    def homogeneous(cls, num_servers: int, gpus_per_server: int) -> Self:
        """`num_servers` equal servers of `gpus_per_server` GPUs each."""
        for name, value in (("num_servers", num_servers), ("gpus_per_server", gpus_per_server)):
            if not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"cluster.{name} is {value!r}; expected a whole number, 1 or more")
        return cls((gpus_per_server,) * num_servers)

    @classmethod
    def drawn(cls, num_servers: int, choices: list[int], seed: int) -> Self:
        """Servers whose GPU counts are drawn uniformly from `choices` (SJF-BCO's experiment, section 7)."""
        if num_servers < 1 or not choices:
            raise ConfigurationError(
                f"cluster.drawn needs num_servers >= 1 and choices, got {num_servers}, {choices}"
            )
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

    @cached_property
    def server_of_gpu(self) -> NDArray[np.int32]:
        """[gpus] server that holds each GPU."""
        return np.repeat(np.arange(self.num_servers, dtype=np.int32), self.gpus_per_server)

    @cached_property
    def first_gpu_of_server(self) -> NDArray[np.int32]:
        """[servers] lowest GPU id of each server."""
        ends = np.cumsum(self.gpus_per_server)
        return (ends - np.asarray(self.gpus_per_server)).astype(np.int32)

    def fewest_servers(self, num_gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        """[...] smallest number of (empty) servers that hold `num_gpus` GPUs; 0 where none can."""
        capacity = np.cumsum(np.sort(np.asarray(self.gpus_per_server))[::-1])
        needed = np.searchsorted(capacity, num_gpus) + 1
        return np.where(np.asarray(num_gpus) <= capacity[-1], needed, 0)
