"""Seconds of one ring all-reduce (SJF-BCO eq. 8, the two communication terms)."""

from ringyard.compiled import kernel

__all__ = ["ring_seconds"]


@kernel
def ring_seconds(
    workers: int, gradient_bytes: float, bytes_per_second: float, reduction_bytes_per_second: float
) -> float:
    """2 m (w-1)/w / B + m (w-1)/w / C; zero for one worker.

    Args:
        workers: w, ring size.
        gradient_bytes: m.
        bytes_per_second: B, bandwidth the ring gets; infinity is allowed.
        reduction_bytes_per_second: C, reduction speed of one GPU; infinity is allowed.
    """
    if workers <= 1:
        return 0.0
    share = gradient_bytes * (workers - 1) / workers
    return 2.0 * share / bytes_per_second + share / reduction_bytes_per_second
