"""Morphling's rule, worked out by hand on servers of 8 GPUs."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import leaf
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError
from ringyard.performance import plans
from ringyard.placement import consolidate
from ringyard.restart import constant
from ringyard_baselines.papers.morphling import Morphling

MODEL = plans()
NAMES = [model.name for model in MODEL.plans.models]
#: per model: fewest and most GPUs
RANGES = {"bert": (1, 8), "llama7": (1, 64), "llama30": (24, 64)}


def decided(cluster, *chosen, rounds=1, vc="best_effort"):
    """GPUs by server of each job (model, GPUs asked for[, class]) after decisions a minute apart."""
    models, gpus, *classes = zip(*((*one, vc)[:3] for one in chosen), strict=True)
    jobs = JobTable.from_columns(np.zeros(len(gpus)), gpus, np.full(len(gpus), 1e6), vc=np.array(classes[0]))
    least, most = np.array([RANGES[model] for model in models]).T
    jobs = replace(
        jobs, plan_model=np.array([NAMES.index(one) for one in models]), min_gpus=least, max_gpus=most
    )
    known = plans(gpus_per_server=max(cluster.gpus_per_server))
    sim = Simulator(cluster, jobs, known, constant(0.0), round_seconds=60.0)
    scheduler = leaf("scheduler", "morphling")
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    for _ in range(rounds):
        sim.advance()
        sim.apply(scheduler.decide(sim.view(scheduler.observability)))
    held = [sim.cluster.server_of_gpu[list(sim.view().gpus_of(job))] for job in range(len(gpus))]
    assert (sim.state.jobs["plan"][0, :-1] == 0).all()
    return [np.bincount(servers, minlength=cluster.num_servers).tolist() for servers in held]


def test_a_small_job_takes_a_server_and_the_next_what_is_left():
    assert decided(Cluster.homogeneous(2, 8), ("bert", 2), ("bert", 2)) == [[8, 0], [0, 8]]
    assert decided(Cluster.homogeneous(1, 8), ("bert", 1), ("bert", 1)) == [[8], [0]]


def test_gpus_that_bring_nothing_stay_free():
    """7 GPUs are no faster than 4 (the batch divides into 1, 2, 4 and 8)."""
    assert decided(Cluster((7,)), ("bert", 2)) == [[4]]
    assert decided(Cluster((7,)), ("bert", 2), ("bert", 2)) == [[4], [2]]


def test_a_guaranteed_job_comes_first_and_starts_with_two_thirds_of_its_throughput():
    assert decided(Cluster.homogeneous(1, 8), ("bert", 2), ("bert", 2, "sla")) == [[0], [8]]
    both = ("bert", 8, "sla"), ("bert", 8, "sla")
    assert decided(Cluster((8, 4)), *both) == [[8, 0], [0, 4]]  # 0.67 of what it asks for
    assert decided(Cluster((8, 2)), *both) == [[8, 0], [0, 0]]  # 0.40


def test_large_models_have_listed_placements_and_grow_to_the_largest_that_there_is_room_for():
    assert decided(Cluster.homogeneous(2, 8), ("llama7", 8)) == [[8, 8]]
    assert decided(Cluster.homogeneous(4, 8), ("llama7", 8)) == [[8, 8, 8, 8]]
    assert decided(Cluster.homogeneous(6, 8), ("llama30", 24)) == [[8] * 6]
    assert decided(Cluster.homogeneous(3, 8), ("llama30", 24)) == [[8, 8, 8]]  # work-conserving, as it asks


def test_a_job_keeps_its_gpus_while_nothing_changes():
    chosen = (Cluster.homogeneous(3, 8), ("bert", 2), ("llama7", 16))
    assert decided(*chosen, rounds=3) == decided(*chosen) == [[8, 0, 0], [0, 8, 8]]


@pytest.mark.parametrize("vc", ["sla", "best_effort"])
def test_jobs_of_other_models_run_as_they_ask(vc):
    jobs = JobTable.from_columns([0.0], [12], [100.0], vc=[vc])
    sim = Simulator(Cluster.homogeneous(2, 8), jobs, ideal())
    scheduler = leaf("scheduler", "morphling")
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    sim.advance()
    sim.apply(scheduler.decide(sim.view(scheduler.observability)))
    assert len(sim.view().gpus_of(0)) == 12


def test_unknown_models_are_refused():
    with pytest.raises(ConfigurationError, match=r"placements has llama13; expected .*llama"):
        Morphling(consolidate(), placements={"llama13": [[8]]})
