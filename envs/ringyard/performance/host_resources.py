"""What jobs need of their servers beside GPUs: cores, memory bandwidth, storage."""

import numpy as np

from ringyard.compiled import kernel, to_int
from ringyard.state.records import Job


@kernel
def useful_cores(cores: int, serial_share: float) -> float:
    """Cores without serial work that prepare as fast as `cores`: c / (1 + s c), at most 1 / s (Amdahl's law).

    Synergy's curves bend: a pipeline has work that more cores do not speed up.

    Args:
        cores: c, of one worker.
        serial_share: s, seconds of that work / seconds of one core's other work, per sample; 0: none.
    """
    return cores / (1.0 + serial_share * cores)


@kernel
def input_seconds(
    samples: float, cores: float, samples_per_core_second: float, bandwidth_slowdown: float
) -> float:
    """Seconds to prepare one worker's samples: b / (c x rate) x slowdown.

    Computing overlaps with it, so that an iteration takes the longer of the two (Synergy's curves).

    Args:
        samples: b, of one worker and iteration.
        cores: c, `useful_cores` of that worker; 0: not counted.
        samples_per_core_second: of one core; infinity: never the bottleneck.
        bandwidth_slowdown: memory bandwidth asked / there is, at least 1.
    """
    if cores <= 0:
        return 0.0
    return samples / (cores * samples_per_core_second) * bandwidth_slowdown


@kernel
def cpu_job_seconds(
    seconds: float, asked_cores: int, cores: int, bandwidth_slowdown: float, bandwidth_cap: float
) -> float:
    """Seconds of one iteration of a CPU-only job, which is bound by memory bandwidth.

    Args:
        seconds: on the cores it asked for, with all the bandwidth it wants.
        asked_cores: those cores.
        cores: that it has.
        bandwidth_slowdown: as above.
        bandwidth_cap: share of its wanted bandwidth it may use, in (0, 1] (CODA's throttle).
    """
    return seconds * asked_cores / cores * bandwidth_slowdown / bandwidth_cap


@kernel
def bandwidth_slowdown(demand: float, capacity: float) -> float:
    """Max(1, demand / capacity): all accesses of a server are stretched alike."""
    return max(1.0, demand / capacity)


@kernel
def requested_bandwidth(job: Job, cores: int) -> int:
    """Bytes per second of memory bandwidth that `cores` cores of a job ask for, its cap applied."""
    return to_int(np.ceil(job.memory_bandwidth * job.memory_bandwidth_cap)) * cores


@kernel
def stored_bytes(sample_bytes: float, dataset_bytes: float, cached_bytes: float) -> float:
    """Bytes of a sample that come from storage, on average over an epoch: S (1 - min(cached / D, 1)).

    What is cached stays (MinIO: Mohan et al., VLDB 2021), so that hits are the part of the data set that is
    cached. Assumptions: all of a job's RAM caches, and its workers share what they cache (CoorDL's
    partitioned cache) at no cost.

    Args:
        sample_bytes: S, of one sample on storage.
        dataset_bytes: D, above 0; infinity: nothing of it is worth caching.
        cached_bytes: RAM of all its workers together.
    """
    return sample_bytes * (1.0 - min(cached_bytes / dataset_bytes, 1.0))


@kernel
def storage_seconds_per_byte(readers: int, bytes_per_second: float) -> float:
    """For one of the workers that read from a server's storage: each gets an equal share of it.

    Args:
        readers: workers there that read, itself included.
        bytes_per_second: of the server's storage.
    """
    return float(readers) / bytes_per_second


@kernel
def read_seconds(samples: float, stored: float, seconds_each: float) -> float:
    """Seconds to read one worker's samples of an iteration from storage.

    Args:
        samples: of one worker and iteration.
        stored: bytes of each that come from storage (`stored_bytes`).
        seconds_each: `storage_seconds_per_byte`; 0: storage is never the bottleneck.
    """
    return samples * stored * seconds_each
