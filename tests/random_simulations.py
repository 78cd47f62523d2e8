"""Random simulations, each drawn from its seed: clusters, jobs, physics, and what to do with a job.

Everything in one can tie: times are often whole or tenths, jobs are often alike, deadlines are often as
long as jobs.
"""

import os
import secrets
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ringyard import Allocation, Cluster, Fabric, JobTable, Simulator, ideal, ring_contention
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.failures import Failures, no_failures
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.performance import (
    LoadedMemory,
    PerformanceModel,
    composite,
    pair_table,
    plans,
    sensitivity_pressure,
)
from ringyard.profiles import GpuProfile, model_id, profile
from ringyard.restart import RestartCost, constant, growing, per_model
from ringyard.state.records import JobKind, JobStatus
from small_simulations import figures

SEED = "RINGYARD_ORACLE_SEED"
MODELS = ("resnet18_cifar10", "resnet50_imagenet", "lstm_wikitext2", "transformer_multi30k", "vgg16_imagenet")
SERVED = ("aiturbo_resnet50", "aiturbo_vgg19")


class RandomSimulation(NamedTuple):
    """What both simulators are given."""

    cluster: Cluster
    jobs: JobTable
    performance: PerformanceModel
    restart: RestartCost
    round_seconds: float | None
    seed: int
    failures: Failures
    rounds_only: bool
    losses: bool


def fresh_seed():
    """The seed that the environment names, else one that nobody has seen."""
    return int(os.environ.get(SEED) or secrets.randbelow(10**9))


def one_of(rng, *values):
    return values[rng.integers(len(values))]


def draw_gpus(rng, model):
    """Figures of every GPU type: fixed and per-sample seconds apart, sharing by one to three batches."""
    found = {}
    for kind in GPU_MEMORY_BYTES:
        fixed, sample = (
            (1.0, 1.0) if kind == REFERENCE_GPU else rng.choice([1.0, 0.5, rng.uniform(0.2, 9)], 2)
        )
        batches = np.unique(model.batch_size * rng.choice([0.25, 0.5, 1.0, 1.7, 4.0], rng.integers(1, 4)))
        drawn = rng.choice([0.0, 0.25, 1.0, rng.uniform(0, 3), rng.uniform(0, 3)], (len(batches), 2))
        found[kind] = GpuProfile(
            model.fixed_seconds * fixed,
            model.sample_seconds * sample,
            "drawn",
            dict(zip(batches.tolist(), map(tuple, drawn.tolist()), strict=True)),
        )
    return found


def drawn_profiles(seed):
    """The profiles of these simulations' models have other figures by GPU type."""
    rng = np.random.default_rng([seed, 1 << 21])
    return figures({name: draw_gpus(rng, profile(name)) for name in MODELS + SERVED})


def draw_cluster(rng, plain):
    servers = int(rng.integers(1, 5))
    gpus = [int(g) for g in rng.integers(1, 5, servers)]
    cores = not plain and rng.random() < 0.7
    ram = not plain and rng.random() < 0.5
    storage = not plain and rng.random() < 0.7
    racks = sorted(rng.integers(0, 2, servers).tolist()) if rng.random() < 0.3 else []
    return Cluster(
        gpus_per_server=tuple(gpus if rng.random() < 0.5 else [gpus[0]] * servers),
        gpu_types=tuple(rng.choice(["v100", "t4", "a100", "k80"], servers).tolist())
        if not plain and rng.random() < 0.4
        else (),
        cores_per_server=tuple(rng.integers(4, 17, servers).tolist()) if cores else (),
        memory_bandwidth_bytes_per_second=tuple(rng.uniform(2e9, 4e10, servers).tolist())
        if cores and rng.random() < 0.6
        else (),
        ram_bytes_per_server=tuple(rng.integers(4, 17, servers) * 10**9) if ram else (),
        storage_bytes_per_second=tuple(rng.uniform(1e5, 1e9, servers).tolist()) if storage else (),
        rack_of_server=tuple(rack - racks[0] for rack in racks),
        uplink_oversubscription=float(one_of(rng, 1.0, 2.0, 3.0, rng.uniform(1, 5))),
        jobs_per_gpu=int(one_of(rng, 1, 1, 2, 3, 4)),
    )


def draw_performance(rng, plain):
    if plain:
        return one_of(rng, ideal(), ring_contention(1e9, 4e10, 1e11, float(one_of(rng, 0, 0.3)), 1.0, 0.0))
    beside = one_of(rng, 0.5, 0.75, 0.9)
    pairs = pair_table({one: dict.fromkeys(MODELS + SERVED, beside) for one in MODELS + SERVED})
    return composite(
        one_of(rng, 1.0e9, Fabric({2: 0.5e9, 3: 1.5e9}, 1e-3), Fabric({2: 2e9, 4: 1e9, 7: 0.7e9})),
        one_of(rng, 40e9, Fabric({2: 40e9, 4: 80e9}, 2e-3)),
        alpha=float(one_of(rng, 0.0, 0.27)),
        overhead_seconds_per_server=float(one_of(rng, 0.0, 0.003)),
        overlap_exponent=one_of(rng, 1.0, 2.3, None),
        out_of_order_backprop=float(one_of(rng, 0.0, 0.0, 0.5, 1.0)),
        contention=str(one_of(rng, "none", "worst_link", "live_transfers", "max_min")),
        interference=one_of(rng, None, sensitivity_pressure(), sensitivity_pressure(), pairs),
        straggler_cv=float(one_of(rng, 0.0, 0.0, 0.3)),
        step_deviation=float(one_of(rng, 0.0, 0.2)),
        memory=one_of(rng, None, LoadedMemory({0.4: 1.0, 0.8: 1.5, 1.0: 3.0}, float(rng.uniform(0, 1)))),
    )


def draw_times(rng, count, grid, lowest, highest):
    """[count] times above 0; multiples of the grid, if there is one, few of them different."""
    times = rng.uniform(lowest, highest if rng.random() < 0.5 else highest / 6, count)
    if rng.random() < 0.4:
        times = rng.choice(times[:2], count)
    return times if grid is None else np.maximum(np.rint(times / grid), 1.0) * grid


def draw_jobs(rng, cluster, plain, grid):
    count = int(rng.integers(1, 14 if rng.random() < 0.2 else 9))
    submit = np.sort(draw_times(rng, count, grid, 0.0, float(one_of(rng, 0.01, 20.0))))
    submit = submit - submit[0] + float(one_of(rng, 0.0, 0.0, 0.0, 1e6, 1e9, rng.uniform(0, 100)))
    gpus = np.minimum(rng.integers(1, 5, count), cluster.num_gpus)
    if rng.random() < 0.4:
        gpus[:] = gpus[0]
    duration = draw_times(rng, count, grid, 0.5, 30.0)
    alike = rng.random() < 0.3
    kinds = 1 if alike else count
    if alike:
        submit[:], gpus[:], duration[:] = submit[0], gpus[0], duration[0]
    if rng.random() < 0.05:
        duration *= np.where(rng.random(count) < 0.5, 1e-9, 1.0)
    jobs = JobTable.from_columns(submit, gpus, duration)
    jobs = replace(
        jobs,
        compute_seconds=np.resize(rng.choice([1.0, 0.1, 0.25, rng.uniform(0.05, 0.3)], kinds), count),
        gradient_bytes=np.resize(rng.choice([0.0, 1e8, rng.uniform(0.0, 5e8)], kinds), count),
    )
    if rng.random() < 0.2:
        jobs = replace(jobs, iterations=np.where(rng.random(count) < 0.5, duration, jobs.iterations))
    if not plain:
        jobs = with_shapes(rng, jobs, cluster)
    patience = draw_times(rng, count, grid, 0.5, 40.0)
    tolerance = rng.choice([1.0, 1.0, 1.1, 1.5, 2.0, 4.0], count) * duration
    never = np.full(count, np.inf)
    deadlines, cancels = (rng.random(count) < one_of(rng, 0.0, 0.3, 0.9) for _ in range(2))
    jobs = replace(
        jobs,
        predictable_from=rng.choice([0.0, 0.0, 0.25, 0.5, 1 - 1e-16, 1.0, np.inf], count),
        prediction_factor=rng.lognormal(0.0, 0.3, count),
        deadline_seconds=tolerance,
        acceptable_jct=np.where(deadlines, one_of(rng, tolerance, patience), never),
        cancel_seconds=np.where(cancels, jobs.submit_seconds + patience, never),
        outcome=rng.choice([0, 0, 1], count),
    )
    if not plain and cluster.cores_per_server and rng.random() < 0.5:
        jobs = jobs.merged(draw_cpu_jobs(rng, cluster, grid, jobs.submit_seconds[0]))
    return jobs


def with_shapes(rng, jobs, cluster):
    """Models, elastic jobs, parameter servers, cores."""
    count = len(jobs)
    names = rng.choice(MODELS, count) if rng.random() < 0.6 else np.repeat(rng.choice(MODELS), count)
    served = rng.random(count) < one_of(rng, 0.0, 0.3)
    names = np.where(served, rng.choice(SERVED), names)
    models = np.array([model_id(str(name)) for name in names])
    unknown = ~served & (rng.random(count) < one_of(rng, 0.0, 0.3))
    jobs = jobs.with_models(np.where(unknown, -1, models))
    measured = rng.random(count) < one_of(rng, 0.0, 0.3)  # the table's own seconds
    jobs = replace(
        jobs,
        compute_seconds=np.where(measured, rng.uniform(0.05, 0.3, count), jobs.compute_seconds),
        fixed_fraction=np.where(measured, rng.choice([0.0, 0.4, 1.0], count), jobs.fixed_fraction),
    )
    elastic = rng.random(count) < one_of(rng, 0.0, 0.7)
    cores = np.minimum(rng.integers(0, 4, count), min(cluster.cores_per_server, default=0))
    least = min(cluster.ram_bytes_per_server, default=0)
    read = rng.random(count) < one_of(rng, 0.0, 0.5, 1.0)
    return replace(
        jobs,
        kind=np.where(served, JobKind.PARAMETER_SERVER, JobKind.RING),
        parameter_servers=np.where(served, rng.integers(1, 4, count), 0),
        cores_per_server_task=np.where(served & (cores > 0), rng.integers(0, 2, count), 0),
        cores_per_worker=cores,
        loading_serial_share=rng.choice([0.0, 0.04], count),
        ram_per_worker=np.minimum(rng.integers(0, 4, count) * 1e9, least),
        sample_bytes=np.where(read, rng.choice([1e4, 1e5, rng.uniform(1e3, 1e6)], count), 0.0),
        dataset_bytes=rng.choice([2e9, 5e9, 1e12, np.inf], count),
        min_gpus=np.where(elastic, 1, jobs.num_gpus),
        max_gpus=np.where(elastic, jobs.num_gpus + 2, jobs.num_gpus),
        min_batch=np.where(elastic, jobs.batch_size / 2, jobs.batch_size),
        max_batch=np.where(elastic, jobs.batch_size * 2, jobs.batch_size),
        noise_scale=np.where(rng.random(count) < 0.5, np.inf, jobs.noise_scale),
    )


def with_warm_jobs(rng, jobs):
    """The same jobs from 0 s on, of which some of the first ran before."""
    jobs = jobs.shifted(jobs.submit_seconds - jobs.submit_seconds[0])
    possible = np.isnan(jobs.iterations) & (jobs.kind != JobKind.CPU_ONLY)
    count = int(rng.integers(1, 4))
    warm = (np.cumprod(possible) > 0) & (np.arange(len(jobs)) < count)
    elapsed = np.where(warm, jobs.duration_seconds * rng.choice([0.25, 0.5, rng.uniform(0, 1)], len(jobs)), 0)
    jobs = jobs.shifted(np.where(warm, 0.0, jobs.submit_seconds))
    return replace(jobs, elapsed_seconds=elapsed)


def with_plans(rng, case):
    """The same jobs with execution plans, on servers of up to 4 GPUs."""
    contention = str(one_of(rng, "live_transfers", "live_transfers", "none"))
    performance = plans(
        servers=4, gpus_per_server=4, alpha=float(one_of(rng, 0.0, 0.3)), contention=contention
    )
    table, jobs, count = performance.plans, case.jobs, len(case.jobs)
    models, asked, least = (np.zeros(count, np.int64) for _ in range(3))
    for j, gpus in enumerate(jobs.num_gpus.tolist()):
        models[j] = rng.choice(np.flatnonzero(table.fits[table.first, gpus]))
        rows = table.first[models[j]] + np.arange(len(table.models[models[j]].plans) + 1)
        asked[j] = rng.choice(np.flatnonzero(table.fits[rows, gpus]))
        least[j] = np.argmax(table.fits[rows[0]])
    elastic = rng.random(count) < one_of(rng, 0.0, 0.7)
    jobs = replace(
        jobs,
        plan_model=models,
        plan=asked,
        min_gpus=np.where(elastic, least, jobs.num_gpus),
        max_gpus=np.where(elastic, np.minimum(jobs.num_gpus + 4, 16), jobs.num_gpus),
    )
    racks = case.cluster.rack_of_server
    if not racks and rng.random() < 0.5:  # most plans on racks have stages in one and in several
        racks = tuple(s * 2 // case.cluster.num_servers for s in range(case.cluster.num_servers))
    racks = tuple(rack - racks[0] for rack in racks)
    cluster = replace(case.cluster, jobs_per_gpu=1, rack_of_server=racks)
    return case._replace(cluster=cluster, jobs=jobs, performance=performance)


def draw_cpu_jobs(rng, cluster, grid, begin):
    count = int(rng.integers(1, 4))
    cores = rng.integers(1, min(cluster.cores_per_server) + 1, count)
    submit = begin + np.sort(draw_times(rng, count, grid, 0.0, 20.0))
    jobs = JobTable.cpu_only(
        submit, cores, draw_times(rng, count, grid, 0.5, 30.0), rng.uniform(0, 3e9, count)
    )
    return replace(jobs, ram_per_worker=rng.uniform(0, min(cluster.ram_bytes_per_server, default=0), count))


def simulator(case):
    """The compiled simulator of a world."""
    names = ("seed", "failures", "rounds_only", "losses")
    return Simulator(*case[:5], **{name: getattr(case, name) for name in names})


def changes(rng):
    """What other parameter servers and other cores cost."""
    return {
        "servers_seconds": one_of(rng, None, 0.0, 1.0, float(rng.uniform(0, 5))),
        "cores_seconds": float(one_of(rng, 0.0, 1.0, 0.1, rng.uniform(0, 3))),
    }


def growing_costs(rng):
    jump = float(rng.uniform(0, 2))
    amounts = {
        name: float(rng.uniform(0, 3)) for name in ("seconds", "growth", "resize_seconds", "resize_growth")
    }
    return growing(
        jump=jump, jump_gpus=int(rng.integers(1, 4)), resize_jump=jump / 2, **amounts, **changes(rng)
    )


def come_and_go(rng, failures, num_servers):
    """In half of the worlds servers leave and return as recorded, in a third preemptions lose work."""
    loses = rng.random() < 1 / 3
    if rng.random() < 0.5:
        return replace(failures, checkpoint_on_preemption=not loses)
    period = float(rng.uniform(20, 120))
    times = (
        rng.uniform(0, 0.9 * period) + np.sort(rng.uniform(0, 0.9 * period, 2 * rng.integers(4)))
        for _ in range(num_servers)
    )
    outages = tuple(tuple((np.unique(one) - period * (one[:1].sum() >= period)).tolist()) for one in times)
    return Failures(np.inf, 1.0, failures.checkpoint_seconds, not loses, outages, period)


def draw_simulation(seed):
    """The world of a seed."""
    for attempt in range(1000):  # until every gang fits the empty cluster
        rng = np.random.default_rng([seed, attempt])
        plain = rng.random() < 0.4
        grid = one_of(rng, None, 1.0, 1.0, 0.1, 0.5)
        cluster = draw_cluster(rng, plain)
        failures = no_failures()
        if rng.random() < 0.3:
            between = float(one_of(rng, 1.0, 8.0, np.inf))
            failures = Failures(float(rng.uniform(10, 80)), float(rng.uniform(1, 20)), between)
            failures = come_and_go(np.random.default_rng([seed, attempt, 2]), failures, cluster.num_servers)
        pause, resize = (float(one_of(rng, 0.0, 1.0, 0.1, rng.uniform(0, 5))) for _ in range(2))
        case = RandomSimulation(
            cluster,
            draw_jobs(rng, cluster, plain, grid),
            draw_performance(rng, plain),
            one_of(
                rng,
                constant(0.0),
                constant(pause, resize, **changes(rng)),
                per_model(pause, resize, **changes(rng)),
                growing_costs(rng),
            ),
            one_of(rng, None, None, 1.0, 7.0, 0.7, 3.3, 59.9, float(rng.uniform(0.5, 20))),
            int(rng.integers(2**32)),
            failures,
            False,
            False,
        )
        soon = case.jobs.submit_seconds[0] < 1e3  # or servers fail a million times until the first round
        case = case._replace(rounds_only=bool(soon and case.round_seconds and rng.random() < 0.4))
        case = case._replace(losses=bool(rng.random() < 0.3))
        own = np.random.default_rng([seed, attempt, 1])  # so that other simulations stay as they are
        if plain and own.random() < 0.3:
            case = with_plans(own, case)
        own = np.random.default_rng([seed, attempt, 3])
        if own.random() < 0.2:
            case = case._replace(jobs=with_warm_jobs(own, case.jobs))
        own = np.random.default_rng([seed, attempt, 4])
        if len(set(case.cluster.gpu_types)) > 1 and own.random() < 0.5:
            by_model = str(one_of(own, "equal", "by_speed"))
            split = own.integers(0, 3, len(case.jobs))
            case = case._replace(
                performance=replace(case.performance, batch_split=by_model),
                jobs=replace(case.jobs, batch_split=split),
            )
        try:
            simulator(case)
        except (WorkloadError, ConfigurationError):
            continue
        return case
    raise AssertionError(f"no world of seed {seed} fits its cluster")


def draw_allocation(rng, sim, j, record, order):
    """Something to do with a waiting or running job, quite possibly more than the cluster holds."""
    running = record["status"] == JobStatus.RUNNING
    if running and rng.random() < 0.4:
        return Allocation(j)
    if not running and rng.random() < 0.03:
        return Allocation(j, reject=True)
    if record["kind"] == JobKind.CPU_ONLY:
        return Allocation(
            j,
            (),
            one_of(rng, None, int(rng.integers(1, 9))),
            server=int(rng.integers(sim.cluster.num_servers)),
            memory_bandwidth_cap=one_of(rng, None, float(rng.uniform(0.2, 1.0))),
        )
    state, per_gpu = sim.state, sim.cluster.jobs_per_gpu
    gpus = np.flatnonzero(state.slots["job"][0] == j) // per_gpu
    if not running or rng.random() < 0.5:
        low, high = int(record["min_gpus"]), int(record["max_gpus"])
        wanted = int(record["num_gpus"]) if rng.random() < 0.6 else int(rng.integers(low, high + 1))
        room = np.flatnonzero(state.gpus["num_jobs"][0] < per_gpu)
        room = np.union1d(room, gpus)
        first = np.array(sim.cluster.first_gpu_of_server)[sim.cluster.server_of_gpu[room]]
        orders = (room, room[np.argsort(room - first, kind="stable")], rng.permutation(room))
        gpus = orders[order][:wanted]  # side by side, one on each server, anywhere
    options = {}
    if record["min_batch"] < record["max_batch"] and rng.random() < 0.3:
        options["batch_size"] = float(rng.uniform(record["min_batch"], record["max_batch"]))
    if sim.cluster.cores_per_server and rng.random() < 0.3:
        options["cores_per_worker"] = int(rng.integers(0, 4))
        if record["kind"] == JobKind.PARAMETER_SERVER:
            options["parameter_servers"] = int(rng.integers(1, 4))
            options["cores_per_server_task"] = int(rng.integers(0, 2))
    if sim.cluster.ram_bytes_per_server and rng.random() < 0.3:
        options["ram_per_worker"] = int(rng.integers(0, 5)) * 10**9
    if record["plan_model"] >= 0 and rng.random() < 0.3:
        most = len(sim.performance.plans.models[record["plan_model"]].plans)
        options["plan"] = int(rng.integers(0, most + 1))
    if rng.random() < 0.3:
        options["link_share"] = float(rng.choice([0.1, 0.25, 1.0, 3.0, 10.0, rng.uniform(0.1, 10)]))
    return Allocation(j, tuple(gpus.tolist()), **options)
