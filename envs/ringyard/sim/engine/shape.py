"""How a job runs: on how many GPUs, with which batch, cores, parameter servers and bandwidth cap."""

from typing import Any

import numpy as np

from ringyard.compiled.functions import kernel
from ringyard.performance.elastic import progress_per_iteration
from ringyard.state.records import JobKind

__all__ = ["ask", "set_cores", "set_size"]

_CPU_ONLY = int(JobKind.CPU_ONLY)


@kernel
def set_size(job: Any, num_gpus: int, batch_size: float) -> None:
    """GPUs and global batch, and what follows from them; the job holds nothing now."""
    job.num_gpus = num_gpus
    job.batch_size = batch_size
    if job.kind == _CPU_ONLY:
        return
    samples = batch_size / num_gpus
    ratio = samples / (job.base_batch / job.asked_gpus)
    share = job.fixed_fraction
    job.compute_seconds = job.base_compute_seconds * (share + (1.0 - share) * ratio)
    job.progress_per_iteration = progress_per_iteration(job.noise_scale, job.base_batch, batch_size)
    job.gpu_memory_bytes = np.int64(np.ceil(job.fixed_memory_bytes + job.sample_memory_bytes * samples))


@kernel
def set_cores(job: Any, cores_per_worker: int, servers: int, server_cores: int, cap: float) -> None:
    """Cores of each worker, parameter servers with their cores, share of memory bandwidth."""
    job.cores_per_worker = cores_per_worker
    job.parameter_servers = servers
    job.cores_per_server_task = server_cores
    job.memory_bandwidth_cap = cap


@kernel
def ask(job: Any) -> None:
    """What the job asks for when it is submitted."""
    set_size(job, job.asked_gpus, job.base_batch)
    set_cores(job, job.asked_cores, job.asked_parameter_servers, job.asked_cores_per_server_task, 1.0)
