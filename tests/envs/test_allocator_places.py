"""The allocator's places: servers with cores, jobs that shrink where they are, shared GPUs, GPU types."""

from dataclasses import replace

import numpy as np
import pytest
from test_allocator import decide, jobs_of, ready, simulated

from ringyard import Allocation, Cluster, Simulator
from ringyard.allocator import Allocator, empty_allocation_plan, write_utilities
from ringyard.allocator.allocation_plan import MOVES, logged_moves
from ringyard.allocator.allocator import run_allocator
from ringyard.allocator.utilities import job_utilities
from ringyard.allocator.worker_resources import set_wanted_cores
from ringyard.mdp.actions import Scores
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations import live_jobs
from ringyard.performance import composite, pair_table
from ringyard.profiles import model_id
from ringyard.restart import constant
from ringyard.sim.speeds import IsolatedJobs, isolated_iteration_seconds
from ringyard_baselines.policies.allocating import allocator
from small_simulations import arrived, specs


def with_sizes(jobs, fewest, most):
    return replace(jobs, min_gpus=np.array(fewest), max_gpus=np.array(most))


def two_rounds(sim, holders):
    """{job: its GPUs} after the second decision point. Before it, jobs hold `holders` {job: GPUs}."""
    scheduler = ready(sim, allocator())
    sim.apply([Allocation(job, gpus) for job, gpus in holders.items()])
    sim.advance()
    return decide(sim, scheduler)


def test_a_job_that_wants_cores_takes_the_server_that_has_them():
    """Server 0 is the tightest that fits, but has one free core. The job could use eight."""
    jobs = replace(
        specs((1, "alexnet_imagenet"), (1, "alexnet_imagenet")), submit_seconds=np.array([0.0, 1.0])
    )
    jobs = replace(jobs, cores_per_worker=np.array([7, 4]))
    sim = Simulator(Cluster.homogeneous(2, 2, cores_per_server=8), jobs, composite(1e9, 1e9))
    scheduler = ready(sim, allocator())
    sim.apply([Allocation(0, (0,), cores_per_worker=7)])
    sim.advance()
    assert decide(sim, scheduler)[1] == (2,)


def test_a_job_shrinks_where_it_runs():
    """Job 0 may have 2 to 4 GPUs. Job 1 wants 5 of all 7: a whole server, and the two that job 0 leaves."""
    jobs = with_sizes(jobs_of([4, 5], [1000, 10], [0, 1]), [2, 5], [4, 5])
    assert two_rounds(simulated(Cluster((4, 3)), jobs), {0: (0, 1, 2, 3)}) == {0: (0, 1), 1: (2, 3, 4, 5, 6)}


def test_a_job_that_shrinks_does_not_stay_on_two_servers_if_it_fits_one():
    """Job 0 holds 3 and 2 GPUs of two servers of 4. Four are left to it when job 1 comes."""
    jobs = with_sizes(jobs_of([5, 4], [1000, 10], [0, 1]), [4, 4], [5, 4])
    found = two_rounds(simulated(Cluster.homogeneous(2, 4), jobs), {0: (0, 1, 4, 5, 6)})
    assert sorted(found.values()) == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_job_is_not_preempted_where_that_makes_no_room():
    """Jobs 1 and 2 shall hold nothing. Job 3 wants 2 GPUs of one server: job 1 has one beside job 0."""
    jobs = jobs_of([2, 1, 3, 2, 2], [100, 9000, 9000, 10, 20], [0, 0, 0, 1, 1])
    sim = simulated(Cluster((3, 3)), jobs)
    found = two_rounds(sim, {0: (0, 1), 1: (2,), 2: (3, 4, 5)})
    assert found == {0: (0, 1), 1: (2,), 3: (3, 4)}
    assert sim.state.jobs["num_preemptions"][0, :3].tolist() == [0, 0, 1]


NAMES = ("resnet18_cifar10", "a3c_pong", "lstm_wikitext2")


@pytest.mark.parametrize(
    ("seconds", "holders", "stays"),
    [
        ([1000, 2000, 4000], {1: (0,), 0: (0,)}, {0, 2}),
        ([1000, 2000, 4000, 1100, 3000], {3: (0,), 4: (0,), 0: (1,), 1: (1,)}, {0, 2, 3, 4}),
    ],
)
def test_a_light_job_replaces_a_heavier_one_that_slows_its_neighbour(seconds, holders, stays):
    """All places are taken. Weights are 1 / sqrt(seconds): job 1 has 0.022 and takes 0.024 from job 0.

    Job 2 would have 0.016 and take nothing. Jobs 3 and 4 are as mild.
    """
    pairs = {one: dict.fromkeys(NAMES, 1.0) for one in NAMES}
    pairs[NAMES[0]][NAMES[1]] = 0.25
    models = [model_id(name) for name in (*NAMES, NAMES[2], NAMES[2])][: len(seconds)]
    jobs = jobs_of([1] * len(seconds), seconds).with_models(np.array(models))
    cluster = Cluster.homogeneous(1, len(holders) // 2, gpu_type="v100", jobs_per_gpu=2)
    sim = Simulator(cluster, jobs, composite(1e9, 40e9, interference=pair_table(pairs)), constant(1.0))
    scheduler = ready(sim, allocator())
    sim.apply([Allocation(job, gpus) for job, gpus in holders.items()])
    assert set(decide(sim, scheduler)) == stays


@pytest.mark.parametrize(("rate", "fewer"), [(None, False), (2e8, True)])
def test_wanted_cores_are_the_fewest_that_nearly_reach_the_best_speed(rate, fewer):
    """Of all cores of the server. The last job asks for none, and its cores are not counted.

    If storage has a rate, it is shared by a worker on each GPU, and preparing samples may take as long.
    """
    models = ("alexnet_imagenet", "resnet50_imagenet", "mobilenet_v2_imagenet")
    jobs = replace(
        specs(*((1, name) for name in (*models, models[0]))), cores_per_worker=np.array([1, 2, 4, 0])
    )
    jobs = replace(jobs, sample_bytes=np.full(4, 1e5), dataset_bytes=np.full(4, 1e12))
    cluster = Cluster.homogeneous(1, 4, "v100", 40, storage_bytes_per_second=rate)
    sim = arrived(cluster, jobs, composite(1e9, 1e9))
    found = []
    for readers in (4, 1):
        shape = {"cores_per_worker": np.arange(1, 41), "storage_readers": readers}
        seconds = [isolated_iteration_seconds(sim.view(), np.full(40, job), **shape) for job in range(3)]
        found.append([1 + int(np.flatnonzero(one <= one[-1] / 0.98)[0]) for one in seconds])
    plan = empty_allocation_plan(sim.state, 4)
    set_wanted_cores(sim.state, 0, plan, sim.performance.physics)
    assert plan.wanted_cores[0, :4].tolist() == [*found[0], -1]
    assert (sum(found[0]) < sum(found[1])) == fewer
    assert 1 < max(found[0]) < 40


def test_a_job_gets_the_ram_that_holds_its_data():
    """RAM comes in steps of 2 GB, a third of a GPU's share. Storage is slow, and the data are 5 GB."""
    jobs = replace(specs((1, "resnet50_imagenet")), ram_per_worker=np.array([2e9]))
    jobs = replace(jobs, sample_bytes=np.array([1e5]), dataset_bytes=np.array([5e9]))
    cluster = replace(
        Cluster.homogeneous(1, 2), ram_bytes_per_server=(12 * 10**9,), storage_bytes_per_second=(1e6,)
    )
    sim = Simulator(cluster, jobs, composite(1e9, 1e9))
    decide(sim, ready(sim, allocator()))
    assert sim.state.jobs["ram_per_worker"][0, 0] == 6 * 10**9


def test_a_job_keeps_its_gpu_type_if_another_is_no_faster():
    """Scores like the P100, then the V100. Models without a profile run as fast on both."""
    groups = [{"num_servers": 1, "gpus_per_server": 1, "gpu_type": kind} for kind in ("p100", "v100")]
    sim = simulated(Cluster.of_groups(groups), jobs_of([1, 1, 1], [100, 1000, 1000], [0, 10, 20]))
    setting = replace(
        experiment("contention"),
        cluster=sim.cluster,
        performance=sim.performance,
        actions=Scores(num_jobs=3, type_scores=("p100", "v100")),
        observation=live_jobs(),
        num_workloads=1,
    )
    batch = ClusterBatch(setting, 1, state=sim.state)
    batch.resume()
    held = []
    for liked in (0, 1):
        scores = np.zeros((1, 3, 3), np.float32)
        scores[0, 1:, 0] = [1 - 2 * liked, 2 * liked - 1]
        batch.step(scores.reshape(1, 9))
        held.append(sim.view().gpus_of(0))
    assert held == [(0,), (0,)]


@pytest.mark.parametrize("logged", [True, False])
def test_a_plan_without_a_log_records_no_changes(logged):
    """Job 1 preempts job 0."""
    sim = simulated(Cluster.homogeneous(1, 4), jobs_of([4, 4], [1000, 10], [0, 1]))
    sim.advance()
    sim.apply([Allocation(0, (0, 1, 2, 3))])
    sim.advance()
    view = sim.view()
    plan = empty_allocation_plan(sim.state, 4, logged=logged)
    write_utilities(plan, 0, job_utilities(IsolatedJobs.of_view(view), 1.0))
    run_allocator(sim.state, 0, plan, Allocator().config, sim.physics)
    assert view.running.tolist() == [1]
    found = [(one.job, one.gpu_ids) for one in logged_moves(plan, sim.state, 0)]
    assert found == ([(0, ()), (1, (0, 1, 2, 3))] if logged else [])
    assert plan.counts[0, MOVES] == len(found)


@pytest.mark.parametrize(("held", "there"), [(7 * 10**9, 0), (7 * 10**9 + 1, 1)])
def test_a_job_takes_a_server_with_a_byte_less_than_it_needs_for_full(held, there):
    """Two servers of 3 GPUs and 9 GB. Workers of jobs 2 and 3 need 1 GB each, a third of a GPU's share.

    Job 0 stays. Job 1, on all of server 1, shall hold nothing, as jobs 2 and 3 weigh more.
    """
    jobs = jobs_of([1, 3, 2, 2], [100, 9000, 10, 20], [0, 0, 1, 1])
    jobs = replace(jobs, ram_per_worker=np.array([8e9, 0, 3e9, 3e9]))
    cluster = replace(Cluster.homogeneous(2, 3), ram_bytes_per_server=(9 * 10**9,) * 2)
    sim = simulated(cluster, jobs)
    scheduler = ready(sim, allocator())
    sim.apply([Allocation(0, (0,), ram_per_worker=held), Allocation(1, (3, 4, 5))])
    sim.advance()
    found = decide(sim, scheduler)
    assert {gpu // 3 for gpu in found[2]} == {there}
