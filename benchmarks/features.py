"""What each part of the physics costs: jobs and environment steps per second, against all off."""

import argparse
import time
from dataclasses import replace
from functools import partial

import numpy as np
from common import first_valid, machine

from ringyard import Cluster, ClusterVectorEnv, EnvConfig, Simulator, ring_contention
from ringyard.failures import Failures
from ringyard.mdp.actions.space import Actions, Adjustment
from ringyard.mdp.observations import queue_cluster_and_resources
from ringyard.performance import composite, sensitivity_pressure
from ringyard.placement import least_contended, pack, share
from ringyard.restart import constant
from ringyard.workloads import (
    Arrivals,
    Cancellations,
    CpuJobs,
    Elastic,
    Extended,
    LogNormalDurations,
    ModelMix,
    ParameterServers,
    PerWorker,
    Predictability,
    Sizes,
    Synthetic,
)
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.scheduler import run

MODELS = (
    "resnet18_cifar10",
    "resnet50_imagenet",
    "transformer_multi30k",
    "lstm_wikitext2",
    "mobilenet_v2_imagenet",
)
CORES = PerWorker("cores_per_worker", {1: 1, 2: 1, 4: 1})
SERVED = ParameterServers(0.3, {"aiturbo_resnet50": 1, "aiturbo_vgg16": 1})


def workload(num_jobs, *extensions):
    """The published size mix; at load 0.4 queues stay short, so that costs per job can be compared."""
    base = Synthetic(
        num_jobs,
        Sizes({1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}),
        LogNormalDurations(6.0, 1.0),
        Arrivals(),
        ModelMix({1: dict.fromkeys(MODELS, 1)}),
        load=0.4,
    )
    return Extended(base, extensions)


rings = partial(composite, 1.14e9, 40.27e9, alpha=0.2745, contention="worst_link")


def variants(num_jobs):
    """{name: setting}; the first is all off."""
    cpu = CpuJobs(num_jobs // 5, LogNormalDurations(6.0, 1.0), (1, 2, 4), (0.5e9, 3e9))
    off = EnvConfig(
        cluster=Cluster.homogeneous(16, 4),
        workload=workload(num_jobs),
        performance=ring_contention(1.14e9, 40.27e9, float("inf"), 0.2745, 1.0, 0.0),
        actions=Actions(templates=(pack(), least_contended()), on_invalid="raise"),
        num_workloads=64,
    )
    typed = {"gpu_type": "v100"}
    counted = {"cores_per_server": 32, "memory_bandwidth_bytes_per_second": 60e9}
    changes = (
        Adjustment(pack(), gpu_factor=2.0, batch_factor=2.0),
        Adjustment(pack(), gpu_factor=0.5, batch_factor=0.5),
    )
    elastic = replace(off.actions, adjustments=changes)
    sharing = replace(off.actions, templates=(pack(), share()))
    neighbours = rings(interference=sensitivity_pressure())
    unsure = (Predictability(0.5, (0.1, 0.9), 0.3), Cancellations(0.2, (1.0, 4.0)))
    two_types = [{"num_servers": 8, "gpus_per_server": 4, "gpu_type": kind} for kind in ("v100", "p100")]
    everything = Cluster.of_groups(
        [group | counted for group in two_types],
        servers_per_rack=4,
        uplink_oversubscription=2.0,
        jobs_per_gpu=2,
    )
    return {
        "all off": off,
        "composite model, nothing counted": replace(off, performance=rings()),
        "observation of resources": replace(off, observation=queue_cluster_and_resources()),
        "overlap": replace(off, performance=rings(overlap_exponent=2.0)),
        "GPU types": replace(off, cluster=Cluster.of_groups(two_types), performance=rings()),
        "sharing": replace(
            off,
            cluster=Cluster.homogeneous(16, 4, jobs_per_gpu=2, **typed),
            performance=neighbours,
            actions=sharing,
        ),
        "cores and memory bandwidth": replace(
            off,
            cluster=Cluster.homogeneous(16, 4, **counted),
            workload=workload(num_jobs, CORES),
            performance=rings(),
        ),
        "CPU-only jobs": replace(
            off,
            cluster=Cluster.homogeneous(16, 4, **counted),
            workload=workload(num_jobs, CORES, cpu),
            performance=rings(),
        ),
        "parameter servers": replace(off, workload=workload(num_jobs, SERVED), performance=rings()),
        "racks": replace(
            off,
            cluster=Cluster.homogeneous(16, 4, servers_per_rack=4, uplink_oversubscription=2.0),
            performance=rings(),
        ),
        "live transfers": replace(off, performance=rings(contention="live_transfers")),
        "max-min": replace(off, performance=rings(contention="max_min")),
        "predictability, cancellations": replace(off, workload=workload(num_jobs, *unsure)),
        "stragglers": replace(off, performance=rings(straggler_cv=0.1)),
        "failures": replace(off, failures=Failures(1e6, 3600.0, 1800.0)),
        "elastic jobs": replace(
            off, workload=workload(num_jobs, Elastic()), performance=rings(), actions=elastic
        ),
        "everything": replace(
            off,
            cluster=everything,
            workload=workload(num_jobs, SERVED, Elastic(0.5), CORES, cpu, *unsure),
            performance=rings(interference=sensitivity_pressure(), overlap_exponent=2.0, straggler_cv=0.1),
            failures=Failures(1e6, 3600.0, 1800.0),
            restart=constant(30.0, 2.4),
            observation=queue_cluster_and_resources(),
            actions=replace(elastic, templates=(pack(), share())),
        ),
    }


def simulator_seconds(setting, jobs):
    """Seconds per job of `fifo_backfill`, construction left out."""
    sim = Simulator(
        setting.cluster, jobs, setting.performance, setting.restart, seed=0, failures=setting.failures
    )
    scheduler = fifo_backfill(setting.actions.starts[-1].placement)
    begin = time.perf_counter()
    run(sim, scheduler, np.random.default_rng(0))
    return (time.perf_counter() - begin) / len(jobs)


class Player:
    """A vector environment played by the first valid action."""

    def __init__(self, setting, num_envs=32):
        self.env = ClusterVectorEnv(num_envs, setting, autoreset_mode="SameStep", copy=False)
        self.env.reset(seed=0)
        self.env.batch.workload_cache.rows_of(np.arange(setting.num_workloads))
        self.actions = np.zeros(num_envs, np.int64)
        self.num_envs = num_envs

    def seconds(self, steps):
        """Seconds per step of one cluster."""
        begin = time.perf_counter()
        for _ in range(steps):
            first_valid(self.env.batch.masks, self.actions)
            self.env.step(self.actions)
        return (time.perf_counter() - begin) / (steps * self.num_envs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(
        f"{machine()}; 16 x 4 GPUs, load 0.4; steps of 64 cached workloads;"
        f" times are medians over {options.rounds} interleaved rounds"
    )
    large, small = variants(options.jobs), variants(100)
    tables = {
        name: setting.workload.sample(setting.cluster, np.random.default_rng(0))
        for name, setting in large.items()
    }
    players = {name: Player(setting) for name, setting in small.items()}
    fifo_times = {name: [] for name in large}
    step_times = {name: [] for name in small}
    for _ in range(options.rounds + 1):  # the first round warms up
        for name in large:
            fifo_times[name].append(simulator_seconds(large[name], tables[name]))
            step_times[name].append(players[name].seconds(options.steps))
    print(f"{'':33s}      jobs/s  time x off   env steps/s  time x off")
    for name in large:
        one = np.median(fifo_times[name][1:]) / np.median(fifo_times["all off"][1:])
        two = np.median(step_times[name][1:]) / np.median(step_times["all off"][1:])
        rates = 1 / np.median(fifo_times[name][1:]), 1 / np.median(step_times[name][1:])
        print(f"{name:33s} {rates[0]:11,.0f} {one:11.2f} {rates[1]:13,.0f} {two:11.2f}")


if __name__ == "__main__":
    main()
