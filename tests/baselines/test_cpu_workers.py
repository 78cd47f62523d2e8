"""Workers on CPUs: where AITurbo puts them, and how fast they train."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, Simulator
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import CPU_CORES
from ringyard.performance import composite
from ringyard.placement import pack, pack_on_types
from ringyard.profiles import profile
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard_baselines.papers.aiturbo import AITurbo
from ringyard_baselines.tools.targets import Target, apply_sizes
from small_simulations import arrived, served, simulated, times_of

(CPU,) = CPU_CORES
PHYSICS = composite(1e9, 40e9)


def servers(*groups):
    """Servers of (number, GPUs of each, type), with 32 cores."""
    names = ("num_servers", "gpus_per_server", "gpu_type")
    each = [dict(zip(names, group, strict=True), cores_per_server=32) for group in groups]
    return Cluster.of_groups(each)


ONE_OF_EACH = servers((1, 1, "v100"), (1, 1, CPU))


def times_longer(view):
    """Of a step of the first job on a CPU, by its parameter server's share that is as fast everywhere."""
    types = view.cluster.distinct_gpu_types
    on_cpu, on_gpu = (
        isolated_iteration_seconds(view, np.array([0]), gpu_type=types.index(kind))[0]
        for kind in (CPU, "v100")
    )
    return on_cpu / on_gpu


def test_a_job_without_a_gpu_trains_on_a_cpu_and_moves_when_a_gpu_is_free():
    longer = times_longer(arrived(ONE_OF_EACH, served(1), PHYSICS).view())
    own = profile("aiturbo_resnet50")
    slower = own.gpus[CPU].sample_seconds / own.sample_seconds
    assert 1.0 < longer < slower  # the parameter server is as fast as ever
    on_both = simulated(AITurbo(pack()), ONE_OF_EACH, served(2), PHYSICS)
    assert times_of(on_both).end_seconds.tolist() == pytest.approx([3000.0, 6000.0 - 3000.0 / longer])
    on_gpus = simulated(AITurbo(pack(), cpu_workers=False), ONE_OF_EACH, served(2), PHYSICS)
    assert times_of(on_gpus).end_seconds.max() == pytest.approx(6000.0)
    alone = simulated(AITurbo(pack()), servers((1, 1, CPU)), served(1), PHYSICS)
    assert times_of(alone).end_seconds.tolist() == pytest.approx([3000.0])  # 3000 s are on what there is


def test_workers_of_a_job_are_of_one_kind_and_fit_the_cores_beside_the_cpu():
    cluster = servers((2, 1, "v100"), (4, 1, CPU))
    sim = arrived(cluster, served(3, workers=2), PHYSICS)
    scheduler = AITurbo(pack(), predictor="none")
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    allocations = scheduler.decide(sim.view())
    assert [one.gpu_ids for one in allocations] == [(0, 1), (2, 3), (4, 5)]
    sim = arrived(cluster, served(1, workers=4), PHYSICS)
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    assert [one.gpu_ids for one in scheduler.decide(sim.view())] == [(2, 3, 4, 5)]
    few = servers((2, 1, "v100"), (2, 1, CPU))  # of neither kind as many as the job asks for
    for cpu_workers in (True, False):
        mixed = simulated(AITurbo(pack(), cpu_workers=cpu_workers), few, served(2, workers=4), PHYSICS)
        assert np.isfinite(times_of(mixed).end_seconds).all()
    small = replace(cluster, cores_per_server=(32, 32, 9, 9, 9, 9))  # a worker and a server take 5 each
    sim = arrived(small, served(3, workers=2), PHYSICS)
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    assert [one.gpu_ids for one in scheduler.decide(sim.view())] == [(0, 1)]


def test_service_on_a_cpu_counts_its_cores():
    jobs = replace(served(3), submit_seconds=np.array([0.0, 0.0, 100.0]))
    sim = arrived(ONE_OF_EACH, jobs, PHYSICS)
    scheduler = AITurbo(pack(), predictor="none", gpu_weight=10.0)
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    sim.advance()
    scheduler.decide(sim.view())
    service = scheduler._service / 100.0  # a second: 5 cores for each pod, and the GPU or the CPU
    assert service.tolist() == [10 + 5 + 5, CPU_CORES[CPU] + 5 + 5, 0]


def test_models_without_a_figure_cannot_run_there():
    with pytest.raises(ConfigurationError, match=f"model aiturbo_vgg11 has no gpus.{CPU}"):
        Simulator(ONE_OF_EACH, served(1, model="vgg11"), PHYSICS)
    shipped = [name for name in ("vgg19", "googlenet", "alexnet") if CPU in profile(f"aiturbo_{name}").gpus]
    assert len(shipped) == 3


def test_the_rule_packs_on_servers_of_its_types():
    cluster = servers((1, 4, "v100"), (2, 2, CPU), (1, 3, "v100"))
    view = arrived(cluster, served(4), PHYSICS).view()
    plan, rule = PlacementPlan(view), pack_on_types(cluster, ["v100"])

    def place(job, count):
        found = plan.place(rule, job, Allocation(job, tuple(range(count))))
        return None if found is None else found.gpu_ids

    assert place(0, 2) == (8, 9)  # the server with fewest free GPUs that fits
    assert place(1, 5) == (0, 1, 2, 3, 10)  # else as few servers as can be
    assert place(2, 1) is None  # only CPUs are left
    assert plan.place(pack_on_types(cluster, [CPU]), 2).gpu_ids == (4,)


def test_a_target_that_moves_keeps_its_size_and_otherwise_its_place():
    sim = arrived(ONE_OF_EACH, served(2), PHYSICS)
    sim.apply([Allocation(0, (1,))])
    there, here = (pack_on_types(sim.cluster, [kind]) for kind in ("v100", CPU))
    assert apply_sizes(sim.view(), [Target(0, 1, rule=there)], pack()) == []
    targets = [Target(0, 1, rule=there, moves=True), Target(1, 1, rule=here)]
    moved = apply_sizes(sim.view(), targets, pack())
    assert [(one.job, one.gpu_ids) for one in moved] == [(0, (0,)), (1, (1,))]
