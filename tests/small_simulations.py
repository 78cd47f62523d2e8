"""Small simulations that several tests use."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from ringyard import Allocation, Cluster, Fabric, JobTable, Simulator, ideal, ring_contention
from ringyard.compiled import FloatVector, Int32Vector, implements
from ringyard.errors import WorkloadError
from ringyard.failures import Failures, no_failures
from ringyard.performance import composite, sensitivity_pressure
from ringyard.placement import FindGpus, PlacementRule
from ringyard.profiles import model_id, profile
from ringyard.profiles import profile_values as figures_of_profiles
from ringyard.sim.metrics import job_times
from ringyard.sim.view import unrestricted
from ringyard.state.arrays import State
from ringyard.state.records import JobKind
from ringyard.workloads import ParameterServers
from ringyard_baselines.scheduler import run


@implements(FindGpus)
def _nowhere(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    return 0


def nowhere():
    """A placement rule that never finds a place."""
    return PlacementRule(_nowhere, "nowhere")


def rings(alpha=0.2745, xi_1=1.0, xi_2=0.01, inter=1.0e9, intra=40.0e9, reduction=1.0e11):
    return ring_contention(inter, intra, reduction, alpha, xi_1, xi_2)


def specs(*jobs):
    """Jobs of (GPUs, model), all at time 0, 100 s each."""
    gpus, models = zip(*jobs, strict=True)
    table = JobTable.from_columns(np.zeros(len(jobs)), gpus, np.full(len(jobs), 100.0))
    return table.with_models(np.array([model_id(model) for model in models]))


def arrived(cluster, jobs, performance, **options):
    """A simulator at its first decision point."""
    sim = Simulator(cluster, jobs, performance, **options)
    sim.advance()
    return sim


def random_jobs(rng, count, largest, spread=50.0):
    """Jobs whose times are irrational enough never to coincide."""
    submit = np.sort(rng.uniform(0, spread, count))
    jobs = JobTable.from_columns(
        submit - submit[0], rng.integers(1, largest + 1, count), rng.lognormal(3.0, 1.0, count)
    )
    return replace(
        jobs,
        compute_seconds=rng.uniform(0.05, 0.3, count),
        gradient_bytes=rng.uniform(0.0, 5e8, count),
    )


@st.composite
def small_cases(draw, max_jobs=14):
    """(cluster, jobs, performance, seed)."""
    cluster = Cluster(tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    jobs = random_jobs(rng, draw(st.integers(1, max_jobs)), cluster.num_gpus)
    performance = draw(st.sampled_from([ideal(), rings(), rings(xi_1=0.3, alpha=0.0)]))
    return cluster, jobs, performance, seed


def random_decision(view, rng, stop_probability=0.2):
    """Valid allocations at random: stop some jobs, start some waiting ones on random free GPUs."""
    free = set(np.flatnonzero(view.gpu_is_free).tolist())
    allocations = []
    for job in view.running.tolist():
        if rng.random() < stop_probability:
            free |= set(view.gpus_of(job))
            allocations.append(Allocation(job, ()))
    stopped = {allocation.job for allocation in allocations}
    for job in rng.permutation(view.waiting).tolist():
        asked = int(view.num_gpus[job])
        if job not in stopped and asked <= len(free) and rng.random() < 0.8:
            gpus = rng.permutation(sorted(free))[:asked].tolist()
            free -= set(gpus)
            allocations.append(Allocation(job, tuple(gpus)))
    idle = len(free) == view.cluster.num_gpus
    if idle and not len(view.waiting):
        return []  # everything was to be stopped and nothing would ever happen again
    if idle:
        job = int(view.waiting[0])
        gpus = sorted(free)[: int(view.num_gpus[job])]
        allocations.append(Allocation(job, tuple(gpus)))
    return allocations


@contextmanager
def figures(gpus):
    """Profiles as they would be with other figures by GPU type: {model: {GPU type: GpuProfile}}."""
    kept = {name: profile(name).gpus for name in gpus}
    try:
        for name, by_type in gpus.items():
            object.__setattr__(profile(name), "gpus", by_type)
        figures_of_profiles.cache_clear()
        yield
    finally:
        for name, by_type in kept.items():
            object.__setattr__(profile(name), "gpus", by_type)
        figures_of_profiles.cache_clear()


MODELS = ("resnet18_cifar10", "resnet50_imagenet", "lstm_wikitext2", "transformer_multi30k", "vgg16_imagenet")


def everything(rng, count=12):
    """(cluster, jobs, performance, failures): random, with every part of the physics switched on."""
    cluster = Cluster.of_groups(
        [
            {
                "num_servers": int(rng.integers(1, 4)),
                "gpus_per_server": int(rng.integers(1, 5)),
                "gpu_type": str(kind),
                "cores_per_server": int(rng.integers(8, 33)),
                "memory_bandwidth_bytes_per_second": float(rng.uniform(10e9, 60e9)),
                "ram_bytes_per_server": 10 * 10**9,
                "storage_bytes_per_second": 50e6,
            }
            for kind in rng.choice(["v100", "t4", "a100"], 2)
        ],
        servers_per_rack=int(rng.integers(1, 4)) if rng.random() < 0.5 else None,
        uplink_oversubscription=float(rng.uniform(1.0, 5.0)),
        jobs_per_gpu=int(rng.integers(1, 4)),
    )
    performance = composite(
        Fabric({2: 1.0e9, 3: 1.6e9}, 2e-4),
        Fabric({2: 40e9, 4: 70e9}, 5e-5),
        alpha=float(rng.choice([0.0, 0.27])),
        overhead_seconds_per_server=0.003,
        overlap_exponent=float(rng.choice([1.0, 2.3])),
        contention=str(rng.choice(["none", "worst_link", "live_transfers", "max_min"])),
        interference=sensitivity_pressure(),
        straggler_cv=float(rng.choice([0.0, 0.2])),
    )
    failures = no_failures()
    if rng.random() < 0.5:
        failures = Failures(60.0, 15.0, float(rng.choice([8.0, np.inf])))
    while True:  # until every gang fits the empty cluster
        jobs = everything_jobs(rng, count, cluster)
        try:
            jobs.check(cluster)
        except WorkloadError:
            continue
        return cluster, jobs, performance, failures


def everything_jobs(rng, count, cluster):
    """Elastic rings, parameter-server jobs and CPU-only jobs; some cancelled, some unpredictable."""
    submit = np.sort(rng.uniform(0, 60.0, count))
    gpus = rng.integers(1, cluster.num_gpus + 1, count)
    jobs = JobTable.from_columns(submit - submit[0], gpus, rng.lognormal(3.0, 1.0, count))
    jobs = jobs.with_models(rng.choice([model_id(name) for name in MODELS], count))
    served = rng.random(count) < 0.3
    jobs = jobs.with_models(np.where(served, model_id("aiturbo_resnet50"), jobs.model_ids))
    least = min(cluster.cores_per_server)
    jobs = replace(
        jobs,
        kind=np.where(served, JobKind.PARAMETER_SERVER, JobKind.RING),
        parameter_servers=np.where(served, rng.integers(1, 4, count), 0),
        cores_per_server_task=np.where(served, rng.integers(0, 3, count), 0),
        cores_per_worker=rng.integers(0, max(least // 4, 1) + 1, count),
        min_gpus=np.maximum(gpus - rng.integers(0, 3, count), 1),
        max_gpus=gpus + rng.integers(0, 3, count),
        min_batch=jobs.batch_size / 2,
        max_batch=jobs.batch_size * 2,
        predictable_from=rng.choice([0.0, 0.4, np.inf], count),
        prediction_factor=rng.lognormal(0.0, 0.3, count),
        cancel_seconds=np.where(
            rng.random(count) < 0.2, jobs.submit_seconds + rng.uniform(5, 80, count), np.inf
        ),
        acceptable_jct=np.where(rng.random(count) < 0.2, rng.uniform(20, 300, count), np.inf),
        ram_per_worker=np.resize([0.0, 1e9, 2.5e9], count),
        sample_bytes=np.resize([0.0, 1e5, 1e6, 1e5], count),
        dataset_bytes=np.resize([4e9, 1e12], count),
    )
    extra = int(rng.integers(1, 6))
    helpers = JobTable.cpu_only(
        np.sort(rng.uniform(0, 60.0, extra)),
        rng.integers(1, least + 1, extra),
        rng.lognormal(3.0, 1.0, extra),
        rng.uniform(0, 3e9, extra),
    )
    return jobs.merged(helpers)


def random_allocation(view, rng, job):
    """Any allocation for a job, quite possibly one that the cluster cannot hold."""
    state, b, _, _ = unrestricted(view)
    record = state.jobs[b, job]
    if record["kind"] == JobKind.CPU_ONLY:
        cores = int(rng.integers(1, 9)) if rng.random() < 0.5 else None
        cap = float(rng.uniform(0.2, 1.0)) if rng.random() < 0.5 else None
        server = int(rng.integers(view.cluster.num_servers))
        return Allocation(job, (), cores, server=server, memory_bandwidth_cap=cap)
    gpus = view.gpus_of(job)
    if not gpus or rng.random() < 0.5:
        wanted = int(rng.integers(record["min_gpus"], record["max_gpus"] + 1))
        gpus = tuple(rng.permutation(view.cluster.num_gpus)[:wanted].tolist())
    options = {}
    if rng.random() < 0.4:
        options["batch_size"] = float(rng.uniform(record["min_batch"], record["max_batch"]))
    if rng.random() < 0.3:
        options["cores_per_worker"] = int(rng.integers(0, 4))
    if rng.random() < 0.3:
        options["link_share"] = float(rng.uniform(0.1, 10.0))
    if record["kind"] == JobKind.PARAMETER_SERVER and rng.random() < 0.3:
        options["parameter_servers"] = int(rng.integers(1, 4))
        options["ram_per_worker"] = int(rng.integers(0, 4)) * 10**9
    return Allocation(job, gpus, **options)


def simulated(scheduler, cluster, jobs, performance=None):
    """A simulator in which the scheduler has finished these jobs."""
    sim = Simulator(cluster, jobs, performance or ideal(), round_seconds=scheduler.round_seconds)
    run(sim, scheduler, np.random.default_rng(0))
    return sim


def elastic(gpus, durations, low=1, high=4):
    """Jobs that halve their time on twice the GPUs, all at once, on one server."""
    jobs = JobTable.from_columns(np.zeros(len(gpus)), gpus, durations)
    count = len(gpus)
    return replace(jobs, min_gpus=np.full(count, low), max_gpus=np.full(count, high))


def perfect():
    """Computing is shared evenly, transfers take no time."""
    return rings(inter=np.inf, intra=np.inf, reduction=np.inf, xi_2=0.0)


def times_of(sim):
    """When each finished job started and ended."""
    return job_times(sim.state, 0, sim.jobs)


def served(count, workers=1, model="resnet50"):
    """Parameter-server jobs of some workers and one server, 5 cores each, 1 to 4 GPUs, never predictable."""
    jobs = JobTable.from_columns([0] * count, [workers] * count, [3000.0] * count)
    dress = ParameterServers(1.0, {f"aiturbo_{model}": 1}, servers=(1,), elastic=True)
    jobs = dress.extend(jobs, Cluster.homogeneous(1, 4), np.random.default_rng(0))
    never = np.full(count, np.inf)
    return replace(jobs, cores_per_worker=np.full(count, 5), predictable_from=never)
