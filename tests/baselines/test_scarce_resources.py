"""Every scheduler copes with every scarce resource, or says before the run what it cannot plan for."""

import copy
import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

from conftest import leaf, names, seeds
from ringyard import Cluster, JobTable, Simulator
from ringyard.errors import ConfigurationError, SchedulerError, WorkloadError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.performance import composite, sensitivity_pressure
from ringyard.profiles import model_id
from ringyard.resources import RESOURCES
from ringyard.restart import constant
from ringyard.state.records import JobKind
from ringyard_baselines.papers.pac_ml import PartitioningHeuristic
from ringyard_baselines.papers.sjf_bco.scheduler import PlannedScheduler
from ringyard_baselines.scheduler import run
from small_simulations import MODELS

COUNT = 12
GPUS = (4, 2, 3)
LEAST_MEMORY = min(GPU_MEMORY_BYTES, key=GPU_MEMORY_BYTES.__getitem__)


def some_jobs(rng, most=4, models=MODELS, **columns):
    submit = np.sort(rng.uniform(0, 30.0, COUNT))
    jobs = JobTable.from_columns(
        submit - submit[0], rng.integers(1, most + 1, COUNT), rng.lognormal(3.0, 1.0, COUNT)
    )
    jobs = jobs.with_models(rng.choice([model_id(name) for name in models], COUNT))
    return replace(jobs, **columns)


def counted(resource):
    """Servers with 4 to 8 units of a counted resource, workers that ask for 0 to 3."""

    def draw(rng):
        cluster = Cluster(GPUS, **{resource.capacity: tuple(rng.integers(4, 9, 3).tolist())})
        return cluster, some_jobs(rng, **{resource.per_worker: rng.integers(0, 4, COUNT)})

    return draw


def gpu_memory(rng):
    jobs = some_jobs(rng)
    elastic = {"min_batch": jobs.batch_size / 2, "max_batch": jobs.batch_size * 2}
    cluster = Cluster(GPUS, gpu_types=(LEAST_MEMORY, "a100", LEAST_MEMORY), jobs_per_gpu=3)
    return cluster, replace(jobs, **elastic, max_gpus=jobs.num_gpus + 1)


def memory_bandwidth(rng):
    cluster = Cluster(GPUS, cores_per_server=(8,) * 3, memory_bandwidth_bytes_per_second=(2e9, 1e9, 1e9))
    return cluster, some_jobs(rng, cores_per_worker=np.ones(COUNT, int))


def storage(rng):
    ram = 8 * 10**9
    cluster = Cluster(GPUS, ram_bytes_per_server=(ram,) * 3, storage_bytes_per_second=(1e6,) * 3)
    read = {"sample_bytes": np.full(COUNT, 1e5), "dataset_bytes": np.full(COUNT, 1e12)}
    return cluster, some_jobs(rng, ram_per_worker=rng.choice([0, 1e9, 3e9], COUNT), **read)


def links(rng):
    return Cluster((2,) * 4, rack_of_server=(0, 0, 1, 1), uplink_oversubscription=4.0), some_jobs(rng, 8)


def cpu_only_jobs(rng):
    cpu = JobTable.cpu_only(
        np.sort(rng.uniform(0, 20.0, 5)),
        rng.integers(1, 9, 5),
        rng.lognormal(3.0, 1.0, 5),
        rng.uniform(0, 3e9, 5),
    )
    jobs = some_jobs(rng, cores_per_worker=rng.integers(0, 3, COUNT))
    return Cluster(GPUS, cores_per_server=(8,) * 3), jobs.merged(cpu)


def parameter_servers(rng):
    jobs = some_jobs(
        rng,
        models=("aiturbo_resnet50", "aiturbo_vgg19"),
        kind=np.full(COUNT, JobKind.PARAMETER_SERVER),
        parameter_servers=rng.integers(1, 4, COUNT),
        cores_per_server_task=rng.integers(0, 3, COUNT),
    )
    return Cluster(GPUS, cores_per_server=(8,) * 3), jobs


def impatient_users(rng):
    jobs = some_jobs(rng, acceptable_jct=rng.uniform(20, 300, COUNT))
    return Cluster(GPUS), replace(jobs, cancel_seconds=jobs.submit_seconds + rng.uniform(5, 80, COUNT))


OTHERS = (gpu_memory, memory_bandwidth, storage, links, cpu_only_jobs, parameter_servers, impatient_users)
SCARCE = {one.name: counted(one) for one in RESOURCES} | {one.__name__: one for one in OTHERS}


def scarce_case(name, scheduler, seed):
    """A simulator that has too little of one thing for all its jobs, but enough for each alone."""
    rng = np.random.default_rng(seed)
    performance = composite(
        *(1e9, 40e9), alpha=0.27, contention="max_min", interference=sensitivity_pressure()
    )
    while True:
        cluster, jobs = SCARCE[name](rng)
        if getattr(scheduler, "offline", False):
            jobs = jobs.shifted(np.zeros(len(jobs)))
        if isinstance(scheduler, PartitioningHeuristic) and np.isinf(jobs.acceptable_jct).all():
            jobs = replace(jobs, acceptable_jct=2.0 * jobs.duration_seconds)
        try:
            return Simulator(cluster, jobs, performance, constant(2.0), scheduler.round_seconds, seed=seed)
        except (WorkloadError, ConfigurationError):  # a gang that not even an empty cluster holds
            continue


def test_every_resource_of_a_cluster_is_scarce_somewhere():
    rng = np.random.default_rng(0)
    plain = Cluster(GPUS)
    clusters = [draw(rng)[0] for draw in SCARCE.values()]
    for field in fields(Cluster):
        values = {getattr(cluster, field.name) for cluster in clusters}
        assert values - {getattr(plain, field.name)}, f"no case makes {field.name} scarce"


def refusal(sim, scheduler):
    """What the scheduler says instead of running to the end, or nothing."""
    try:
        run(sim, scheduler, np.random.default_rng(0))
    except SchedulerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("drawn", seeds(1, 8), ids=["few", "many"])
@pytest.mark.parametrize("scheduler", names("scheduler"))
def test_scheduler_ends_or_refuses_before_the_run(scheduler, drawn):
    """SJF-BCO and its comparators planned without RAM, and a PlacementError ended their runs."""
    made = leaf("scheduler", scheduler)
    for name, seed in itertools.product(SCARCE, drawn):
        sim = scarce_case(name, made, seed)
        refused = refusal(sim, copy.deepcopy(made))
        if name == "cpu_only_jobs" and isinstance(made, PlannedScheduler):
            assert "plans GPUs only; leave CPU-only jobs out" in refused
            assert sim.now == sim.state.clusters["num_starts"][0] == 0
        else:
            assert sim.done, f"{name}: {refused}"
