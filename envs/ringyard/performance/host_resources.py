"""Times that depend on a server's other resources: cores, memory bandwidth, storage."""

import numpy as np

from ringyard.compiled import kernel, to_int
from ringyard.state.records import Job


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
    are `useful_cores`, 0: not counted. The slowdown is memory bandwidth requested / capacity, at least 1.
    """
    if cores <= 0:
        return 0.0
    return samples / (cores * samples_per_core_second) * bandwidth_slowdown


@kernel
def cpu_job_seconds(
    seconds: float, asked_cores: int, cores: int, bandwidth_slowdown: float, bandwidth_cap: float
) -> float:
    """Seconds of one iteration of a CPU-only job, which is bound by memory bandwidth (`input_seconds`).

    `seconds` are on `asked_cores` with all wanted bandwidth, of which it may use a share (CODA's throttle).
    """
    return seconds * asked_cores / cores * bandwidth_slowdown / bandwidth_cap


@kernel
def bandwidth_slowdown(demand: float, capacity: float) -> float:
    """max(1, demand / capacity) of a server's memory bandwidth. It slows all accesses alike."""
    return max(1.0, demand / capacity)


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


@kernel
def storage_seconds_per_byte(readers: int, bytes_per_second: float) -> float:
    """Seconds per byte of one of the workers that read from a server's storage in equal shares."""
    return float(readers) / bytes_per_second


@kernel
def read_seconds(samples: float, stored: float, seconds_each: float) -> float:
    """Seconds to read one worker's samples of an iteration, with `stored` bytes each from storage."""
    return samples * stored * seconds_each
