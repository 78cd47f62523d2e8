"""Iteration time of ring all-reduce jobs under link contention (SJF-BCO eq. 6-8)."""

from typing import Annotated

import numpy as np

from ringyard.checks import Amount, checked
from ringyard.compiled import FloatVector, fills
from ringyard.fabric import Bandwidth
from ringyard.performance.allreduce import ring_seconds
from ringyard.performance.contention import live_share
from ringyard.performance.model import IterationSeconds, PerformanceModel
from ringyard.state.records import Job, Network

__all__ = ["Transmitting", "ring_contention"]

_INTER, _INTRA, _REDUCTION, _ALPHA, _XI_1, _XI_2, _SLOT = range(7)


@fills(IterationSeconds)
def ring_iteration_seconds(job: Job, parameters: FloatVector) -> float:
    """Compute + ring + gamma, no overlap: SJF-BCO eq. 8 with compute = Df M + Db."""
    if job.num_servers > 1:
        bandwidth = live_share(parameters[_INTER], parameters[_ALPHA], parameters[_XI_1], job.contenders)
    else:
        bandwidth = parameters[_INTRA]
    ring = ring_seconds(job.num_gpus, job.gradient_bytes, bandwidth, parameters[_REDUCTION])
    seconds = job.compute_seconds + ring + parameters[_XI_2] * job.num_servers
    if seconds < parameters[_SLOT]:
        return parameters[_SLOT] / np.floor(parameters[_SLOT] / seconds)
    return seconds


Transmitting = Annotated[float, "(0, 1]"]


@checked("performance")
def ring_contention(
    inter_server_bytes_per_second: Bandwidth,
    intra_server_bytes_per_second: Bandwidth,
    reduction_bytes_per_second: Bandwidth,
    alpha: Amount,
    xi_1: Transmitting,
    overhead_seconds_per_server: Amount,
    slot_seconds: Amount = 0.0,
) -> PerformanceModel:
    """Rings that share links: the constants of SJF-BCO eq. 6-8.

    Args:
        inter_server_bytes_per_second: b_e, what one ring alone gets between servers.
        intra_server_bytes_per_second: b_i, inside a server.
        reduction_bytes_per_second: C, reduction speed of a GPU; infinity is allowed.
        alpha: bandwidth-sharing degradation in f(alpha, k) = k + alpha (k - 1); Ada-SRSF's eta / b.
        xi_1: share of the time a job transmits (eq. 7), in (0, 1].
        overhead_seconds_per_server: xi_2, added once per iteration and server spanned (gamma).
        slot_seconds: only whole iterations of a slot count, phi = floor(1 / tau), as SJF-BCO defines it for
            iterations shorter than a slot (longer ones keep their time); 0: parts of iterations count too.

    Raises:
        ConfigurationError: a constant out of its range.
    """
    parameters = np.array(
        [
            inter_server_bytes_per_second,
            intra_server_bytes_per_second,
            reduction_bytes_per_second,
            alpha,
            xi_1,
            overhead_seconds_per_server,
            slot_seconds,
        ],
        dtype=np.float64,
    )
    return PerformanceModel(ring_iteration_seconds, parameters, Network.WORST_LINK)
