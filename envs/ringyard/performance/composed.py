"""All parts together: GPU, sharing, input pipeline, ring, parameter servers, CPU-only jobs."""

from typing import Annotated, Literal

import numpy as np

from ringyard.checks import Amount, checked
from ringyard.compiled import FloatVector, fills, kernel
from ringyard.errors import ConfigurationError
from ringyard.performance.allreduce import inside_bandwidth, overlapped, ring_seconds
from ringyard.performance.contention import live_share
from ringyard.performance.cpu import cpu_job_seconds, input_seconds
from ringyard.performance.interference import Interference, no_interference
from ringyard.performance.model import IterationSeconds, PerformanceModel
from ringyard.performance.parameter_server import (
    CALIBRATION_CORES,
    COEFFICIENTS,
    coefficient_row,
    server_efficiency,
    step_seconds,
)
from ringyard.performance.ring import Bandwidth, Transmitting
from ringyard.profiles import catalogue
from ringyard.state.records import Job, JobKind, Network

__all__ = ["composed"]

_INTER, _INTRA, _REDUCTION, _ALPHA, _XI_1, _XI_2, _OVERLAP, _GROWTH = range(8)
_TABLE = 8
_PARAMETER_SERVER = int(JobKind.PARAMETER_SERVER)
_CPU_ONLY = int(JobKind.CPU_ONLY)


@kernel
def _compute_seconds(job: Job) -> float:
    """The longer of GPU and input pipeline, for the slowest worker."""
    gpu = job.compute_seconds * job.sharing_slowdown * job.straggler / job.gpu_speed
    samples = job.batch_size / job.num_gpus
    ready = input_seconds(samples, job.cores_per_worker, job.samples_per_core_second, job.bandwidth_slowdown)
    return max(gpu, ready)


@kernel
def _ring_seconds(job: Job, parameters: FloatVector) -> float:
    if job.num_servers > 1:
        bandwidth = live_share(parameters[_INTER], parameters[_ALPHA], parameters[_XI_1], job.contenders)
    else:
        bandwidth = inside_bandwidth(job.num_gpus, parameters[_INTRA], parameters[_GROWTH])
    return ring_seconds(job.num_gpus, job.gradient_bytes, bandwidth, parameters[_REDUCTION])


@kernel
def _served_seconds(job: Job, parameters: FloatVector) -> float:
    """Step of a parameter-server job: one worker on each GPU."""
    row = _TABLE + job.model * COEFFICIENTS
    a, b, d = parameters[row + 6], parameters[row + 7], parameters[row + 8]
    ratio = 1.0
    if job.cores_per_server_task > 0:
        full = server_efficiency(float(CALIBRATION_CORES), a, b, d)
        ratio = full / server_efficiency(float(job.cores_per_server_task), a, b, d)
    theta = (parameters[row + 2], parameters[row + 3], parameters[row + 4], parameters[row + 5])
    workers = job.num_gpus
    return step_seconds(_compute_seconds(job), workers, job.parameter_servers, workers, ratio, theta)


@fills(IterationSeconds)
def composed_iteration_seconds(job: Job, parameters: FloatVector) -> float:
    """Seconds of one iteration at the job's present batch."""
    if job.kind == _CPU_ONLY:
        return cpu_job_seconds(
            job.compute_seconds,
            job.asked_cores,
            job.cores_per_worker,
            job.bandwidth_slowdown,
            job.memory_bandwidth_cap,
        )
    if job.kind == _PARAMETER_SERVER:
        return _served_seconds(job, parameters)
    together = overlapped(_compute_seconds(job), _ring_seconds(job, parameters), parameters[_OVERLAP])
    return together + parameters[_XI_2] * job.num_servers


@checked("performance")
def composed(
    inter_server_bytes_per_second: Bandwidth,
    intra_server_bytes_per_second: Bandwidth,
    reduction_bytes_per_second: Bandwidth = float("inf"),
    alpha: Amount = 0.0,
    xi_1: Transmitting = 1.0,
    overhead_seconds_per_server: Amount = 0.0,
    intra_server_growth: Annotated[float, "[0, 10]"] = 0.0,
    overlap_exponent: Annotated[float, "[1, inf)"] = 1.0,
    contention: Literal["none", "worst_link", "live_transfers", "max_min"] = "worst_link",
    interference: Interference | None = None,
    straggler_cv: Annotated[float, "[0, 1e3]"] = 0.0,
) -> PerformanceModel:
    """GPU types, sharing, CPU cores, memory bandwidth, elastic batches, rings and parameter servers.

    t = ((max(t_gpu, t_input))^g + t_ring^g)^(1/g) + gamma, with t_gpu = (fixed + sample b) x (1 + excess)
    / speed, t_input by `cpu.input_seconds`, t_ring by SJF-BCO eq. 8. A part whose resource the cluster does
    not count is neutral.

    Args:
        inter_server_bytes_per_second: b_e, what one ring alone gets between servers.
        intra_server_bytes_per_second: b_i, of two GPUs of a server.
        reduction_bytes_per_second: C, reduction speed of a GPU; infinity is allowed.
        alpha: in f(alpha, k) = k + alpha (k - 1), for k rings on the worst link.
        xi_1: share of the time a job transmits (SJF-BCO eq. 7); only with contention "worst_link".
        overhead_seconds_per_server: xi_2, added once per iteration and server spanned.
        intra_server_growth: how b_i grows with GPUs, see `allreduce.inside_bandwidth`.
        overlap_exponent: g, 1 or more: see `allreduce.overlapped`.
        contention: "none", "worst_link", "live_transfers" or "max_min": see `ringyard.state.records.Network`.
        interference: of jobs that share a GPU; None: none.
        straggler_cv: see `PerformanceModel`.

    Raises:
        ConfigurationError: a constant out of its range.
    """
    network = Network[contention.upper()]
    if xi_1 != 1.0 and network is not Network.WORST_LINK:
        raise ConfigurationError(
            f"performance.xi_1 is {xi_1}; expected 1 with contention {contention!r}, which counts"
            " transfers itself"
        )
    constants = [
        inter_server_bytes_per_second,
        intra_server_bytes_per_second,
        reduction_bytes_per_second,
        alpha,
        xi_1,
        overhead_seconds_per_server,
        overlap_exponent,
        intra_server_growth,
    ]
    table = [coefficient_row(model) for model in catalogue()]
    return PerformanceModel(
        composed_iteration_seconds,
        np.concatenate([np.array(constants, dtype=np.float64), *table]),
        network,
        interference or no_interference(),
        inter_server_bytes_per_second,
        straggler_cv,
    )
