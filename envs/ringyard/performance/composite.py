"""The model of all parts: GPU, sharing, input pipeline, ring, parameter servers, CPU-only jobs."""

from typing import Annotated, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import NonNegative, checked
from ringyard.compiled import FloatVector, implements, kernel, linked_kernel, to_int
from ringyard.errors import ConfigurationError
from ringyard.fabric import FABRIC_COLUMNS, Bandwidth, Fabric, latency_seconds, ring_bytes_per_second
from ringyard.performance.host_resources import LoadedMemory, cpu_job_seconds, input_seconds, useful_cores
from ringyard.performance.interference import Interference, no_interference
from ringyard.performance.model import IterationSeconds, PerformanceModel
from ringyard.performance.ring import TransmitFraction, contended_bandwidth, overlapped_seconds, ring_seconds
from ringyard.profiles import ModelProfile, catalogue
from ringyard.state.random_numbers import normal_at
from ringyard.state.records import Job, JobKind, Network

CALIBRATION_CORES = 5  #: cores of each parameter server in the published calibration runs

#: theta0 .. theta5, a, b, d of the server efficiency, and the stream of random numbers of the model
COEFFICIENTS = 10


@kernel
def server_efficiency(cores: float, a: float, b: float, d: float) -> float:
    """f(x) = a exp(-b x) + d: efficiency of a parameter server with x `cores` (AITurbo's offline profile)."""
    return a * np.exp(-b * cores) + d


@kernel
def step_seconds(
    compute_seconds: float,
    workers: int,
    servers: int,
    gpus: int,
    efficiency_ratio: float,
    theta: tuple[float, float, float, float],
) -> float:
    """T = compute + theta2 r w/p + theta3 w + theta4 p + theta5 g, seconds per synchronous step.

    w are workers, p parameter servers, g GPUs, and r the efficiency of a server with `CALIBRATION_CORES` /
    that with its cores. AITurbo's follow-on writes compute = theta0 m + theta1 (m samples per worker) and has
    two terms in w/p, of which only one scales with the servers' cores. Its calibration at one core count
    cannot tell them apart (it has rank 6 of 7). Assumption: both scale.
    """
    update = theta[0] * efficiency_ratio * workers / servers
    return compute_seconds + update + theta[1] * workers + theta[2] * servers + theta[3] * gpus


def coefficient_row(model: ModelProfile) -> NDArray[np.float64]:
    """[COEFFICIENTS] coefficients of a `model`, NaN if its profile has none."""
    if model.step_coefficients is None:
        return np.full(COEFFICIENTS, np.nan)
    theta, efficiency = model.step_coefficients, model.require_value("server_efficiency")
    if not efficiency[0] * np.exp(-efficiency[1]) + efficiency[2] > 0:
        raise ConfigurationError(f"{model.file}: server_efficiency is not above 0 at one core")
    return np.array([*theta, *efficiency, crc32(model.name.encode())])


_REDUCTION, _ALPHA, _XI_1, _XI_2, _DEVIATION = range(5)
_NETWORK = 5
_INTERCONNECT = _NETWORK + FABRIC_COLUMNS
_TABLE = _INTERCONNECT + FABRIC_COLUMNS


@kernel
def _compute_seconds(job: Job) -> float:
    """The longest of computing, preparing and reading samples, which overlap, of the slowest worker."""
    gpu = job.compute_seconds * job.sharing_slowdown * job.straggler / job.gpu_speed
    samples = job.batch_size / job.num_gpus
    cores = useful_cores(job.cores_per_worker, job.loading_serial_share)
    ready = input_seconds(samples, cores, job.samples_per_core_second, job.bandwidth_slowdown)
    return max(gpu, ready, samples * job.stored_bytes * job.storage_seconds_per_byte)


@kernel
def _ring_seconds(job: Job, parameters: FloatVector) -> float:
    if job.num_gpus <= 1:
        return 0.0
    if job.num_servers > 1:
        fabric = _NETWORK
        alone = ring_bytes_per_second(parameters, fabric, job.num_servers)
        bandwidth = contended_bandwidth(alone, parameters[_ALPHA], parameters[_XI_1], job.contenders)
    else:
        fabric = _INTERCONNECT
        bandwidth = ring_bytes_per_second(parameters, fabric, job.num_gpus)
    ring = ring_seconds(job.num_gpus, job.gradient_bytes, bandwidth, parameters[_REDUCTION])
    return ring + latency_seconds(parameters, fabric, job.num_gpus)


@linked_kernel
def _parameter_server_seconds(job: Job, parameters: FloatVector) -> float:
    """Seconds of a synchronous step of a parameter-server job with one worker per GPU."""
    row = _TABLE + job.model * COEFFICIENTS
    a, b, d = parameters[row + 6], parameters[row + 7], parameters[row + 8]
    ratio = 1.0
    if job.cores_per_server_task > 0:
        full = server_efficiency(float(CALIBRATION_CORES), a, b, d)
        ratio = full / server_efficiency(float(job.cores_per_server_task), a, b, d)
    theta = (parameters[row + 2], parameters[row + 3], parameters[row + 4], parameters[row + 5])
    workers, servers = job.num_gpus, job.parameter_servers
    deviation = parameters[_DEVIATION]
    if deviation > 0.0:
        stream = to_int(parameters[row + 9])  # of the name: another model in the catalogue changes nothing
        deviation *= normal_at(np.uint64(0), stream, (workers << 20) + servers)
    return step_seconds(_compute_seconds(job), workers, servers, workers, ratio, theta) * np.exp(deviation)


@implements(IterationSeconds)
def composite_iteration_seconds(job: Job, parameters: FloatVector) -> float:
    """Return the seconds of one iteration of `job` at its present batch (`composite` sets `parameters`)."""
    if job.kind == JobKind.CPU_ONLY:
        return cpu_job_seconds(job)
    if job.kind == JobKind.PARAMETER_SERVER:
        return _parameter_server_seconds(job, parameters)
    together = overlapped_seconds(_compute_seconds(job), _ring_seconds(job, parameters), job.overlap_exponent)
    return together + parameters[_XI_2] * job.num_servers


@checked("performance")
def composite(
    network: Fabric | Bandwidth,
    interconnect: Fabric | Bandwidth,
    reduction_bytes_per_second: Bandwidth = float("inf"),
    alpha: NonNegative = 0.0,
    xi_1: TransmitFraction = 1.0,
    overhead_seconds_per_server: NonNegative = 0.0,
    overlap_exponent: Annotated[float, "[1, inf)"] | None = None,
    out_of_order_backprop: Annotated[float, "[0, 1]"] = 0.0,
    batch_split: Literal["equal", "by_speed"] = "equal",
    contention: Literal["none", "worst_link", "live_transfers", "max_min"] = "live_transfers",
    interference: Interference | None = None,
    straggler_cv: Annotated[float, "[0, 1e3]"] = 0.0,
    step_deviation: Annotated[float, "[0, 1]"] = 0.0,
    memory: LoadedMemory | None = None,
) -> PerformanceModel:
    """Return the model of GPU types, sharing, CPU cores, memory bandwidth, batches, rings, parameter servers.

    t = ((max(t_gpu, t_input))^g + t_ring^g)^(1/g) + gamma, with

    * t_gpu = (fixed + sample b) x (1 + excess), all by GPU type (`ringyard.state.gpu_effects`),
    * t_input: the longer of `ringyard.performance.host_resources.input_seconds` (on `useful_cores`) and of
      reading from storage what is not cached (`stored_bytes`), in equal shares for all workers of a server,
    * t_ring: SJF-BCO eq. 8, plus the latency of 2 (w - 1) steps.

    Resources that the cluster does not count have no effect.

    Args:
        network: network of an isolated ring between servers. A number is b_e, bytes per second, no latency.
        interconnect: the same inside a server. A number is b_i.
        reduction_bytes_per_second: C, reduction speed of a GPU, above 0, inf allowed.
        alpha: at least 0, in f(alpha, k) = k + alpha (k - 1) for k rings on the worst link.
        xi_1: share of the time a job transmits (SJF-BCO eq. 7), in (0, 1], for contention "worst_link".
        overhead_seconds_per_server: xi_2, added once per iteration and server spanned, at least 0.
        overlap_exponent: g, at least 1 (`ring.overlapped_seconds`). None: each model's own, 1 if its profile
            has none.
        out_of_order_backprop: how far gradients are reordered to overlap transfers with computing, in [0, 1]
            (`PerformanceModel`; Oh et al., EuroSys 2022).
        batch_split: "equal" or "by_speed" (`PerformanceModel`; Ma et al., Adaptive SGD, arXiv 2110.07029).
        contention: "none", "worst_link", "live_transfers" or "max_min" (`ringyard.state.records.Network`).
        interference: how jobs that share a GPU slow each other. None: not at all.
        straggler_cv: see `PerformanceModel`, in [0, 1000].
        step_deviation: standard deviation of ln(seconds of a parameter-server step / those of its form), in
            [0, 1]. Each model has one deviation for each number of workers and servers.
        memory: how servers' memory slows down under load. None: not before its bandwidth is full.

    Raises:
        ConfigurationError: a constant out of its range.
    """
    counted = Network[contention.upper()]
    if xi_1 != 1.0 and counted is not Network.WORST_LINK:
        raise ConfigurationError(
            f"performance.xi_1 is {xi_1}; expected 1 with contention {contention!r}, which counts"
            " transfers itself"
        )
    between, inside = (one if isinstance(one, Fabric) else Fabric(one) for one in (network, interconnect))
    constants = np.array(
        [reduction_bytes_per_second, alpha, xi_1, overhead_seconds_per_server, step_deviation]
    )
    table = [coefficient_row(model) for model in catalogue()]
    return PerformanceModel(
        composite_iteration_seconds,
        np.concatenate([constants, between.row, inside.row, *table]),
        counted,
        interference or no_interference(),
        between,
        straggler_cv,
        overlap_exponent,
        out_of_order_backprop,
        batch_split,
        memory or LoadedMemory(),
    )
