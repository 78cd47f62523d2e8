"""Small worlds that several tests use."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from ringyard import Allocation, Cluster, JobTable, ideal, ring_contention
from ringyard.compiled import function_value
from ringyard.placement import PLACE, PlacementRule


@function_value(PLACE)
def _nowhere(state, b, j, parameters, out):
    return 0


def nowhere():
    """A placement rule that never finds a place."""
    return PlacementRule(_nowhere, np.zeros(1), "nowhere")


def rings(alpha=0.2745, xi_1=1.0, xi_2=0.01, inter=1.0e9, intra=40.0e9, reduction=1.0e11):
    return ring_contention(inter, intra, reduction, alpha, xi_1, xi_2)


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
def worlds(draw, max_jobs=14):
    """(cluster, jobs, performance, seed)."""
    cluster = Cluster(tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    jobs = random_jobs(rng, draw(st.integers(1, max_jobs)), cluster.num_gpus)
    performance = draw(st.sampled_from([ideal(), rings(), rings(xi_1=0.3, alpha=0.0)]))
    return cluster, jobs, performance, seed


def random_decision(view, rng, stop_probability=0.2):
    """Valid allocations at random: stop some jobs, start some waiting ones on random free GPUs."""
    free = set(np.flatnonzero(view.job_of_gpu < 0).tolist())
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
