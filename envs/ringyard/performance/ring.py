"""Iteration time of ring all-reduce jobs under link contention (SJF-BCO eq. 6-8)."""

from typing import Annotated

import numpy as np

from ringyard.checks import NonNegative, checked
from ringyard.compiled import FloatVector, implements, kernel
from ringyard.fabric import Bandwidth
from ringyard.performance.model import IterationSeconds, PerformanceModel
from ringyard.state.records import Job, Network

# Ada-SRSF transfers take k b M + (k-1) eta M = b M (k + eta/b (k-1)): alpha = eta / b.
# b = 0.856, eta = 0.235 ms per MB on 10GbE (constants of its public simulator).
ADA_SRSF_ALPHA_10GBE = 0.235 / 0.856


@kernel
def effective_contenders(contenders: float, xi_1: float) -> float:
    """max(1, xi_1 p) of p `contenders`: SJF-BCO eq. 7, at least 1 so that sharing never speeds a job up."""
    return max(1.0, xi_1 * contenders)


@kernel
def contention_factor(alpha: float, contenders: float) -> float:
    """f(alpha, k) = k + alpha (k - 1): slowdown of a transfer among k `contenders` (SJF-BCO section 4.2)."""
    return contenders + alpha * (contenders - 1.0)


@kernel
def contended_bandwidth(bytes_per_second: float, alpha: float, xi_1: float, contenders: float) -> float:
    """b_e / f(alpha, k): bandwidth of one of k rings on a link of `bytes_per_second` b_e.

    k are the effective ones of `contenders` rings by `xi_1`, and `alpha` is the degradation by sharing.
    """
    return bytes_per_second / contention_factor(alpha, effective_contenders(contenders, xi_1))


@kernel
def ring_seconds(
    workers: int, gradient_bytes: float, bytes_per_second: float, reduction_bytes_per_second: float
) -> float:
    """2 m (w-1)/w / B + m (w-1)/w / C: seconds of a ring all-reduce of w workers. 0 for one.

    m are bytes of all gradients, B is the bandwidth of the ring, C the reduction speed of one GPU.
    """
    if workers <= 1:
        return 0.0
    share = gradient_bytes * (workers - 1) / workers
    return 2.0 * share / bytes_per_second + share / reduction_bytes_per_second


@kernel
def overlapped_seconds(compute_seconds: float, transfer_seconds: float, exponent: float) -> float:
    """(c^g + t^g)^(1/g) of `compute_seconds` c and `transfer_seconds` t (Pollux, OSDI 2021, eq. 11).

    With `exponent` g = 1 they do not overlap. With g -> inf, the longer of them remains.
    """
    if exponent == 1.0:
        return compute_seconds + transfer_seconds
    longer = max(compute_seconds, transfer_seconds)
    if longer == 0.0 or longer == np.inf:
        return longer
    shorter = min(compute_seconds, transfer_seconds)
    return longer * (1.0 + (shorter / longer) ** exponent) ** (1.0 / exponent)


_INTER, _INTRA, _REDUCTION, _ALPHA, _XI_1, _XI_2, _SLOT = range(7)


@implements(IterationSeconds)
def ring_iteration_seconds(job: Job, parameters: FloatVector) -> float:
    """Return compute + ring + gamma of `job`, without overlap: SJF-BCO eq. 8 with compute = Df M + Db.

    The `parameters` are those of `ring_contention`, in its order.
    """
    if job.num_servers > 1:
        bandwidth = contended_bandwidth(
            parameters[_INTER], parameters[_ALPHA], parameters[_XI_1], job.contenders
        )
    else:
        bandwidth = parameters[_INTRA]
    ring = ring_seconds(job.num_gpus, job.gradient_bytes, bandwidth, parameters[_REDUCTION])
    seconds = job.compute_seconds + ring + parameters[_XI_2] * job.num_servers
    if seconds < parameters[_SLOT]:
        return parameters[_SLOT] / np.floor(parameters[_SLOT] / seconds)
    return seconds


TransmitFraction = Annotated[float, "(0, 1]"]


@checked("performance")
def ring_contention(
    inter_server_bytes_per_second: Bandwidth,
    intra_server_bytes_per_second: Bandwidth,
    reduction_bytes_per_second: Bandwidth,
    alpha: NonNegative,
    xi_1: TransmitFraction,
    overhead_seconds_per_server: NonNegative,
    slot_seconds: NonNegative = 0.0,
) -> PerformanceModel:
    """Return the model of rings that share links, with the constants of SJF-BCO eq. 6 to 8.

    Args:
        inter_server_bytes_per_second: b_e, bandwidth of an isolated ring between servers.
        intra_server_bytes_per_second: b_i, the same inside a server.
        reduction_bytes_per_second: C, reduction speed of a GPU, inf allowed.
        alpha: degradation in f(alpha, k) = k + alpha (k - 1), at least 0. Ada-SRSF's is eta / b.
        xi_1: share of the time a job transmits (eq. 7), in (0, 1].
        overhead_seconds_per_server: xi_2, added once per iteration and server spanned (gamma).
        slot_seconds: only whole iterations of a slot count, phi = floor(1 / tau), as SJF-BCO defines it for
            iterations shorter than a slot. Longer ones keep their time. 0: parts of iterations count too.

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
