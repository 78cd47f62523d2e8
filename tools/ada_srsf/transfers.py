"""Ada-SRSF's own model of single transfers, in which AdaDUAL acts as published.

The simulator of `ringyard` averages over iterations. Here every forward and backward task and every
all-reduce is an event, as in the authors' public simulator (HKBU, `dl-scheduling`), but in continuous time
instead of ticks of 1 ms. Jobs share GPUs as far as memory goes. One task computes at a time, of the resident
job with the least service left. While a job transfers, its GPUs may compute for another. All of it is FOUND
in that simulator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from tools.ada_srsf.transfer_events import (
    FIRST_FIT,
    RANDOM,
    TransferGpu,
    TransferJob,
    TransferRun,
    TransferWorker,
    run_events,
)

#: (MB, forward ms, backward ms, GPU memory MB), public simulator: VGG-16, ResNet-50, Inception-v3, LSTM
MODELS = (
    (526.4, 36.0, 54.0, 4527.0),
    (99.2, 25.0, 37.0, 3213.0),
    (103.0, 35.0, 52.0, 3291.0),
    (251.8, 32.0, 47.0, 2751.0),
)
SIZES = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}


@dataclass(frozen=True)
class JobMix:
    """Jobs of one run."""

    model: NDArray[np.int64]  #: [jobs] position in `MODELS`
    workers: NDArray[np.int64]  #: [jobs] number of GPUs
    iterations: NDArray[np.int64]  #: [jobs] number of iterations
    arrival: NDArray[np.float64]  #: [jobs] in ms


@dataclass(frozen=True)
class TransferResult:
    """Completion times of one run."""

    jct: NDArray[np.float64]  #: [jobs] ms
    makespan: float  #: ms


def published_mix(rng: np.random.Generator, scale: float = 10.0, arrival_factor: float = 1.0) -> JobMix:
    """Draw the public 160 jobs: [1, 6] x scale (10) iterations, arrivals in 1200 x scale x factor ms."""
    workers = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    count = len(workers)
    return JobMix(
        model=rng.integers(0, len(MODELS), count),
        workers=workers,
        iterations=rng.integers(round(scale), round(6 * scale) + 1, count),
        arrival=np.sort(rng.uniform(0.0, 1200.0 * scale, count)) * arrival_factor,
    )


def simulate_transfers(
    mix: JobMix,
    placement: int = 1,
    max_transfers: int = 2,
    adaptive: bool = True,
    miscount: bool = False,
    num_servers: int = 16,
    gpus_per_server: int = 4,
    gpu_megabytes: float = 32768.0,
    beta: float = 0.856,
    eta: float = 0.235,
    seed: int = 0,
) -> TransferResult:
    """Simulate a job mix to its end.

    Args:
        mix: jobs.
        placement: kappa of LWF-kappa, or `RANDOM` or `FIRST_FIT`.
        max_transfers: k of SRSF(k), 2 with AdaDUAL.
        adaptive: whether AdaDUAL decides.
        miscount: reproduce the public simulator's error. There a waiting job that asks how much of a transfer
            is left counts the elapsed time once more, so that every such job adds the transfer's own rate to
            it.
        num_servers: servers of the cluster.
        gpus_per_server: GPUs of each server.
        gpu_megabytes: memory of a GPU in MB.
        beta: ms per MB of an isolated transfer (10GbE).
        eta: extra ms per MB and contender.
        seed: of random placement.

    Raises:
        ConfigurationError: the empty cluster cannot hold a job.
    """
    if mix.workers.max() > num_servers * gpus_per_server:
        raise ConfigurationError(
            f"a job has {mix.workers.max()} workers; expected at most {num_servers * gpus_per_server} GPUs"
        )
    models = np.array(MODELS)[mix.model]
    count = len(mix.workers)
    jobs = TransferJob.zeros(count)
    for i, name in enumerate(("megabytes", "forward", "backward", "memory")):
        jobs[name] = models[:, i]
    jobs["arrival"], jobs["workers"], jobs["iterations"] = mix.arrival, mix.workers, mix.iterations
    jobs["first_worker"] = np.cumsum(mix.workers) - mix.workers
    jobs["total_service"] = (jobs["forward"] + jobs["backward"]) * mix.iterations * mix.workers
    jobs["service"] = jobs["total_service"]
    workers = TransferWorker.zeros(int(mix.workers.sum()))
    workers["job"] = np.repeat(np.arange(count), mix.workers)
    gpus = TransferGpu.zeros(num_servers * gpus_per_server)
    gpus["memory"], gpus["worker"], gpus["busy_until"] = gpu_megabytes, -1, np.inf
    run = TransferRun(
        jobs=jobs,
        gpus=gpus,
        workers=workers,
        order=np.argsort(jobs["total_service"], kind="stable"),
        on_server=np.zeros((count, num_servers), dtype=np.bool_),
        num_transfers=np.zeros(num_servers, dtype=np.int64),
        draws=np.random.default_rng(seed).random((count, len(gpus))),
        gpus_per_server=gpus_per_server,
        kappa=placement,
        max_transfers=max_transfers,
        adaptive=adaptive,
        min_ratio=2.0 * (beta + eta) / beta,
        beta=beta,
        eta=eta,
        miscount=miscount,
    )
    run_events(run)
    return TransferResult(jobs["end_time"] - jobs["arrival"], float(jobs["end_time"].max()))


def run_case(case: Mapping[str, Any], seeds: int) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Run the schedulers of a case of tools/conf/transfers.

    Args:
        case: `mix` and `settings` of `published_mix` and `simulate_transfers`, and settings of `schedulers`.
        seeds: number of workloads.

    Returns:
        {scheduler: {"mean_jct" and "makespan": seconds [seeds]}}.
    """
    named = {"random": RANDOM, "first_fit": FIRST_FIT}
    figures = {}
    for label, entry in case["schedulers"].items():
        options = {"placement": 1, **case.get("settings", {}), **entry}
        options["placement"] = named.get(options["placement"], options["placement"])
        mixes = [published_mix(np.random.default_rng(seed), **case["mix"]) for seed in range(seeds)]
        runs = [simulate_transfers(mix, seed=seed, **options) for seed, mix in enumerate(mixes)]
        jcts, makespans = np.array([run.jct.mean() for run in runs]), np.array([run.makespan for run in runs])
        figures[label] = {"mean_jct": jcts / 1e3, "makespan": makespans / 1e3}
    return figures
