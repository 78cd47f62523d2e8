"""Where a worker's samples come from: storage, or what the job's workers have cached in their RAM."""

from ringyard.compiled import kernel

__all__ = ["read_seconds", "seconds_per_byte", "stored_bytes"]


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
def seconds_per_byte(readers: int, bytes_per_second: float) -> float:
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
        seconds_each: `seconds_per_byte`; 0: storage is never the bottleneck.
    """
    return samples * stored * seconds_each
