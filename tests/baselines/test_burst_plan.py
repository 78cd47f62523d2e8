"""DeepPool's burst-parallel plans, worked out by hand, and background jobs in what they leave idle."""

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.burst_plan import LayerGroup, burst_plan
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import experiment
from ringyard.performance import burst_interference, composite
from ringyard.placement import consolidate
from ringyard.profiles import catalogue, profile
from ringyard.workloads import BurstJobs
from ringyard_baselines.papers.burst_sharing import BurstSharing
from ringyard_baselines.scheduler import run


def groups(*seconds, gradient_bytes=0.0, input_bytes=0.0):
    """Groups with seconds for 4, 2 and 1 samples on a GPU."""
    by_samples = [dict(zip((4, 2, 1), one, strict=True)) for one in seconds]
    return [LayerGroup(gradient_bytes, input_bytes, one) for one in by_samples]


def test_a_plan_by_hand():
    # the first group scales. The second hardly does: 4 x 0.8 s on 4 GPUs, 2 x 0.9 s on 2, 1 s on one
    layers = groups((4.0, 2.0, 1.0), (1.0, 0.9, 0.8), input_bytes=1e9)
    plain = burst_plan(layers, 4, 4, None)
    assert (plain.num_gpus, plain.seconds, plain.idle_share) == ((4, 4), pytest.approx(1.8), 0.0)
    assert burst_plan(layers, 4, 4, 99.0) == plain
    limited = burst_plan(layers, 4, 4, 2.0)
    assert limited.num_gpus == (4, 2)
    # |4 / 4 - 4 / 2| = 1 sample of 1 GB moves at 266 GB/s, after 40 us, forward and backward
    moves = 2 * (1 / 266 + 40e-6)
    assert limited.seconds == pytest.approx(1.9 + moves)
    assert limited.idle_share == pytest.approx(1 - (4 * 1.0 + 2 * 0.9) / (4 * (1.9 + moves)))
    assert burst_plan(layers, 4, 4, 1.5).num_gpus == (4, 1)


def test_gradients_take_time_on_several_gpus_only():
    layers = groups((2.0, 1.0, 0.5), gradient_bytes=266e9)
    assert burst_plan(layers, 4, 4, None).seconds == pytest.approx(1.5)
    assert burst_plan(layers, 4, 4, None).idle_share == pytest.approx(1 - 0.5 / 1.5)
    assert burst_plan(layers, 4, 4, 1.5).num_gpus == (1,)
    short = groups((200e-6, 190e-6, 180e-6))  # below 300 us on one GPU, the limit does not count
    assert burst_plan(short, 4, 4, 1.0).num_gpus == (4,)
    with pytest.raises(ConfigurationError, match="for 4, 2, 1 samples on a GPU, and a plan asks for 8"):
        burst_plan(short, 4, 8, 2.0)


def test_layer_groups_add_up_to_the_model():
    """The bytes of the groups' gradients, counted from shapes, against the number of parameters."""
    vgg = profile("vgg16_imagenet")
    total = sum(group.gradient_bytes for group in vgg.layer_groups)
    assert total == pytest.approx(vgg.gradient_bytes, rel=1e-3)
    for name in ("vgg16_imagenet", "inception_v3_imagenet"):
        for group in profile(name).layer_groups:
            seconds = [group.seconds[samples] for samples in (1, 2, 4, 8, 16, 32)]
            assert seconds == sorted(seconds)


def test_background_jobs_run_in_what_a_plan_leaves_idle():
    setting = experiment("deeppool")
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(0))
    two = np.sort([np.flatnonzero(jobs.num_gpus == gpus)[0] for gpus in (1, 8)])
    sim = Simulator(setting.cluster, jobs.rows(two), setting.performance)
    while len(sim.view().waiting) < 2:
        sim.advance()
    large = int(np.argmax(sim.jobs.num_gpus))
    sim.apply([Allocation(large, tuple(range(8))), Allocation(1 - large, (3,))])
    plan = burst_plan(catalogue()[sim.jobs.model_ids[large]].layer_groups, 8, 32, 2.0)
    now = sim.state.jobs["iteration_seconds"][0]
    assert now[large] == pytest.approx(1.1 * plan.seconds)
    assert now[1 - large] == pytest.approx(sim.jobs.compute_seconds[1 - large] / plan.idle_share)


def test_both_kinds_of_jobs_must_differ():
    with pytest.raises(ConfigurationError, match="background_batch is 4, as many samples"):
        burst_interference(["vgg16_imagenet"], 8, 32, 4, 2.0)
    with pytest.raises(ConfigurationError, match="no layer_groups"):
        burst_interference(["lstm"], 8, 32, 8, 2.0)


def test_plans_and_background_jobs_raise_throughput():
    done = {}
    cluster, models = experiment("deeppool").cluster, ("vgg16_imagenet", "inception_v3_imagenet")
    for limit, slowdown in ((None, 1.0), (2.0, 1.1)):
        interference = burst_interference(models, 8, 32, 8, limit)
        performance = composite(1e12, 1e12, contention="none", interference=interference)
        jobs = BurstJobs(300, amplification_limit=limit).sample(cluster, np.random.default_rng(1))
        sim = Simulator(cluster, jobs, performance)
        scheduler = BurstSharing(consolidate(), max_slowdown=slowdown, join_background=True)
        run(sim, scheduler, np.random.default_rng(0))
        last, records = jobs.submit_seconds[-1], sim.state.jobs[0, : len(jobs)]
        done[limit] = (records["end_seconds"] <= last).sum()
        # without sharing, foreground jobs have all GPUs
        began = records["first_start_seconds"][jobs.num_gpus == 1] < last
        assert began.any() == (slowdown > 1.0)
    assert done[2.0] > done[None]


def test_foreground_jobs_start_over_background_jobs_only_if_they_may():
    cluster = Cluster.homogeneous(2, 2, jobs_per_gpu=2)
    jobs = JobTable.from_columns([0.0, 0.0, 0.0, 1.0], [1, 1, 1, 2], [100.0] * 4)
    for joins, start in ((False, 100.0), (True, 1.0)):
        sim = Simulator(cluster, jobs, ideal())
        run(sim, BurstSharing(consolidate(), join_background=joins), np.random.default_rng(0))
        assert sim.state.jobs["first_start_seconds"][0, 3] == start


def test_background_jobs_that_run_phase_by_phase_do_what_the_mean_idle_share_says():
    layers = groups((10.0, 6.0, 4.0), (4.0, 3.0, 2.5), (8.0, 4.5, 2.5), gradient_bytes=266e9, input_bytes=1e9)
    plan = burst_plan(layers, 4, 4, 2.2)
    assert len(set(plan.num_gpus)) > 1
    done, at = [0.0] * 4, 0.0  # a background job on each GPU runs while the GPU does not compute
    for layer, count in zip(layers, plan.num_gpus, strict=True):
        computes = layer.seconds[4 / count]
        for gpu in range(count, 4):
            done[gpu] += computes
        at += computes
    done = [one + plan.seconds - at for one in done]  # the rest of the iteration is transfers
    assert done[3] > done[0]
    assert sum(done) / (4 * plan.seconds) == pytest.approx(plan.idle_share)
