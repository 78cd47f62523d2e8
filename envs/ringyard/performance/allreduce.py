"""Seconds of one ring all-reduce (SJF-BCO eq. 8, the two communication terms)."""

import numpy as np

from ringyard.compiled import kernel

__all__ = ["overlapped", "ring_seconds"]


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


@kernel
def overlapped(compute_seconds: float, transfer_seconds: float, exponent: float) -> float:
    """(compute^g + transfer^g)^(1/g): g = 1 one after the other, g -> infinity the longer of the two.

    Pollux (OSDI 2021) eq. 11.
    """
    if exponent == 1.0:
        return compute_seconds + transfer_seconds
    longer = max(compute_seconds, transfer_seconds)
    if longer == 0.0 or longer == np.inf:
        return longer
    shorter = min(compute_seconds, transfer_seconds)
    return longer * (1.0 + (shorter / longer) ** exponent) ** (1.0 / exponent)
