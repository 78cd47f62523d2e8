"""Times that depend on a server's other resources: cores, memory bandwidth, storage."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Fraction, checked
from ringyard.compiled import FloatMatrix, kernel, to_int
from ringyard.errors import ConfigurationError
from ringyard.state.records import Job


@checked("memory")
@dataclass(frozen=True)
class LoadedMemory:
    """How memory slows down before its bandwidth is full. The default: not at all.

    At load v (bytes moved / sustained bandwidth) an access takes L(v) times as long as at low load. Work
    that waits for memory in a share m of its time then takes s = 1 + m (L - 1) times as long, and moves its
    bytes so much slower: jobs that request a load of u = v s move v. Full memory slows all work by u.

    Raises:
        ConfigurationError: a number out of its range, latencies that fall, or none for a load of 1.
    """

    #: {v, in (0, 1]: L, at least 1}, both rising, up to v = 1. Lines between them, constant before the first
    latencies: Mapping[Annotated[float, "(0, 1]"], Annotated[float, "[1, 1e6]"]] = field(
        default_factory=lambda: {1.0: 1.0}
    )
    stalled_share: Fraction = 1.0  #: m, in [0, 1]

    def __post_init__(self) -> None:
        loads, latencies = list(self.latencies), list(self.latencies.values())
        if loads != sorted(loads) or latencies != sorted(latencies) or loads[-1:] != [1.0]:
            raise ConfigurationError(
                f"memory.latencies is {self.latencies}; expected {{load: latency}}, both rising, up to load 1"
            )

    @property
    def slowdowns(self) -> NDArray[np.float64]:
        """[points, 2] requested load u, ascending, and slowdown s."""
        slower = 1.0 + self.stalled_share * (np.array(list(self.latencies.values())) - 1.0)
        return np.stack([np.array(list(self.latencies)) * slower, slower], axis=1)


@kernel
def useful_cores(cores: int, serial_share: float) -> float:
    """Cores c without serial work that prepare samples as fast as `cores`: c / (1 + s c) (Amdahl's law).

    s is serial seconds / parallel seconds of one core, per sample. Synergy's curves bend in this way.
    """
    return cores / (1.0 + serial_share * cores)


@kernel
def input_seconds(
    samples: float, cores: float, samples_per_core_second: float, bandwidth_slowdown: float
) -> float:
    """Seconds to prepare one worker's samples: samples / (cores x rate) x bandwidth slowdown.

    Computing overlaps with it, so that an iteration takes the longer of the two (Synergy's curves). `cores`
    are `useful_cores`, 0: not counted.
    """
    if cores <= 0:
        return 0.0
    return samples / (cores * samples_per_core_second) * bandwidth_slowdown


@kernel
def cpu_job_seconds(job: Job) -> float:
    """Seconds of one iteration of a CPU-only `job`, which is bound by memory bandwidth (`input_seconds`).

    Its `compute_seconds` are on the cores asked for with all wanted bandwidth, of which it may use a share,
    the cap (CODA's throttle).
    """
    seconds = job.compute_seconds * job.asked_cores / job.cores_per_worker
    return seconds * job.bandwidth_slowdown / job.memory_bandwidth_cap


@kernel
def bandwidth_slowdown(demand: float, capacity: float, slowdowns: FloatMatrix) -> float:
    """Slowdown of all work on a server by the memory bandwidth that its jobs request, at least 1.

    `slowdowns` [points, 2] are `LoadedMemory.slowdowns`, of which the default is max(1, demand / capacity).
    """
    load = demand / capacity
    i = 0
    while i < len(slowdowns) and slowdowns[i, 0] < load:
        i += 1
    if i == len(slowdowns):
        return load
    if i == 0:
        return slowdowns[0, 1]
    slope = (slowdowns[i, 1] - slowdowns[i - 1, 1]) / (slowdowns[i, 0] - slowdowns[i - 1, 0])
    return slope * (load - slowdowns[i - 1, 0]) + slowdowns[i - 1, 1]


@kernel
def requested_bandwidth(job: Job, cores: int) -> int:
    """Memory bandwidth that `cores` cores of `job` request under its cap, bytes per second."""
    return to_int(np.ceil(job.memory_bandwidth * job.memory_bandwidth_cap)) * cores


@kernel
def stored_bytes(sample_bytes: float, dataset_bytes: float, cached_bytes: float) -> float:
    """S (1 - min(cached / D, 1)): mean bytes of a sample that are read from storage, over an epoch.

    S is `sample_bytes`, D `dataset_bytes` (inf: caching does not help), cached the RAM of all workers
    together. Cached samples stay (MinIO: Mohan et al., VLDB 2021), so the hit rate is the cached share of the
    data set. Assumptions: all of a job's RAM is a cache, and its workers share it at no cost (CoorDL).
    """
    return sample_bytes * (1.0 - min(cached_bytes / dataset_bytes, 1.0))
