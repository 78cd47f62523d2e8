"""What a job's time is lost to: small cases on paper, and the sum on every kind of job."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.bounds import simulation_bounds
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import experiment
from ringyard.performance import composite, pair_table
from ringyard.placement import pack, share
from ringyard.profiles import model_id, profile
from ringyard.restart import constant
from ringyard.sim.engine.setup import kernel_share_table
from ringyard.sim.metrics import LOSS_NAMES, job_times
from ringyard.state.records import JobOutcome
from ringyard_baselines.classic.preemptive import srtf
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.papers.pollux import Pollux
from ringyard_baselines.scheduler import run
from small_simulations import arrived, rings, specs

INF = float("inf")
PARTS = ("queueing_seconds", *(f"lost_to_{name}" for name in LOSS_NAMES), "work_seconds")


def lossy(cluster, iterations, physics, compute=1.0, gpus=1, **columns):
    """At the first decision point: two jobs, losses counted, from time 0 on."""
    jobs = JobTable.from_columns(np.zeros(2), [gpus] * 2, [1.0] * 2)
    columns = {name: np.full(2, value) for name, value in columns.items()}
    given = {"iterations": np.array(iterations, dtype=float), "compute_seconds": np.full(2, compute)}
    options = {"restart": constant(5.0, 2.0), "losses": True, "round_seconds": 10.0}
    return arrived(cluster, replace(jobs, **given, **columns), physics, **options)


def finish(sim):
    while not sim.done:
        sim.advance()
    return job_times(sim.state, 0, sim.jobs)


def until(sim, second):
    while sim.now < second:
        sim.advance()


def assert_parts(times, row, **expected):
    """The job's parts are these, and nothing is lost to anything else."""
    found = {name: float(getattr(times, name)[row]) for name in PARTS}
    assert found == pytest.approx(dict.fromkeys(PARTS, 0.0) | expected, abs=1e-9)
    assert sum(found.values()) == pytest.approx(times.jct[row])


def test_rings_that_share_links_and_span_servers():
    sim = lossy(Cluster((2, 2)), (100, 50), rings(0.0, 1.0, 0.01, 1e9, 1e10, INF), gpus=2, gradient_bytes=1e9)
    sim.apply([Allocation(0, (0, 2)), Allocation(1, (1, 3))])
    times = finish(sim)
    # an iteration: 1 s, a ring of 2 s (1 s without the other, 0.1 s inside a server), 0.01 s for each server
    spread = (1.0 + 0.02) - (0.1 + 0.01)
    assert_parts(times, 1, lost_to_contention=50.0, lost_to_spread=50 * spread, work_seconds=55.5)
    assert_parts(times, 0, lost_to_contention=50.0, lost_to_spread=100 * spread, work_seconds=111.0)


def test_an_oversubscribed_uplink_is_spread_not_contention():
    cluster = Cluster((1, 1), rack_of_server=(0, 1), uplink_oversubscription=4.0)
    physics = composite(1e9, 1e10, contention="max_min")
    sim = lossy(cluster, (10, 10), physics, gpus=2, gradient_bytes=1e9)
    sim.apply([Allocation(0, (0, 1))])  # a ring of 4 s, of 1 s in one rack
    sim.advance()
    until(sim, 50.0)
    sim.apply([Allocation(1, reject=True)])
    assert_parts(finish(sim), 0, lost_to_spread=30.0, work_seconds=20.0)


def test_stops_restarts_and_waiting():
    sim = lossy(Cluster((1,)), (100, 1), rings())
    sim.apply([Allocation(0, (0,))])
    until(sim, 30.0)
    sim.apply([Allocation(0)])
    until(sim, 40.0)
    sim.apply([Allocation(0, (0,))])
    until(sim, 115.0)
    sim.apply([Allocation(1, (0,))])
    times = finish(sim)
    per_iteration = 1.0 + 0.01  # rings' overhead for its server
    queueing = {"queueing_seconds": 10.0, "lost_to_restarts": 5.0, "work_seconds": 100 * per_iteration}
    assert_parts(times, 0, **queueing)


def test_neighbours_on_a_gpu_and_their_kernels():
    names = ("vgg16_imagenet", "resnet50_imagenet")
    pairs = pair_table({names[0]: {names[0]: 0.8, names[1]: 0.5}, names[1]: {names[0]: 0.8, names[1]: 0.8}})
    cluster = Cluster((1,), jobs_per_gpu=2)
    table = replace(specs(*((1, name) for name in names)), iterations=np.array([100.0, 1e4]))
    sim = arrived(cluster, table, composite(1e9, 1e10, interference=pairs), losses=True)
    sim.apply([Allocation(0, (0,)), Allocation(1, (0,))])
    times = finish(sim)
    alone = profile(names[0]).compute_seconds
    assert_parts(times, 0, lost_to_interference=100 * alone, work_seconds=100 * alone)  # half its speed
    assert sim.metrics().kernel_utilisation == pytest.approx(1.0)
    assert times.gpu_activity[0] == pytest.approx(0.5)


def test_kernels_of_jobs_that_wait_for_input_interleave():
    cluster = Cluster((1,), cores_per_server=(2,), jobs_per_gpu=2)
    columns = {"cores_per_worker": 1, "samples_per_core_second": 0.25, "batch_size": 1.0}
    columns |= {"min_batch": 1.0, "max_batch": 1.0}
    sim = lossy(cluster, (10, 20), composite(1e9, 1e10), **columns)
    sim.apply([Allocation(0, (0,)), Allocation(1, (0,))])  # 4 s for input, 1 s of it with kernels
    times = finish(sim)
    assert_parts(times, 0, lost_to_input=30.0, work_seconds=10.0)
    both, one = 2 * 0.25, 0.25
    assert sim.metrics().kernel_utilisation == pytest.approx((40 * both + 40 * one) / 80)
    assert sim.metrics().gpu_activity == pytest.approx(0.25)


def test_jobs_that_share_a_gpu_fill_the_gaps_between_kernels_up_to_all_of_its_time():
    names = ("resnet50_imagenet", "transformer_multi30k", "a3c_pong")  # kernels for 100, 75 and 12 % alone
    pairs = pair_table({one: dict.fromkeys(names, 0.8) for one in names})
    alone = {name: kernel_share(name, profile(name).batch_size) for name in names}
    for here, busy in (
        (names[:1], 1.0),
        (names[1:2], alone[names[1]]),
        (names[1:], 0.8 * (alone[names[1]] + alone[names[2]])),
        (names[:2], 1.0),  # 0.8 x (1 + 0.75)
    ):
        seconds = np.array([profile(name).compute_seconds for name in here])
        iterations = 1000 * seconds.max() / seconds  # they end together
        table = replace(specs(*((1, name) for name in here)), iterations=iterations)
        cluster = Cluster((1,), jobs_per_gpu=2)
        sim = arrived(cluster, table, composite(1e9, 1e10, interference=pairs), losses=True)
        sim.apply([Allocation(j, (0,)) for j in range(len(here))])
        finish(sim)
        assert sim.metrics().kernel_utilisation == pytest.approx(busy)


def kernel_share(name, samples):
    """Share of a model with measured batches: a line through logarithms, flat beyond its ends."""
    ((at, values),) = [np.log(list(one.items())).T for one in profile(name).kernel_share.values()]
    return np.exp(np.interp(np.log(samples), at, values))


@pytest.mark.parametrize("samples", [16, 32, 48, 64, 200, 1024])
def test_kernels_by_batch_follow_the_measured_ones(samples):
    table = replace(specs((1, "resnet18_cifar10")), iterations=np.array([100.0]))
    table = replace(table, min_batch=np.array([16.0]), max_batch=np.array([2048.0]))
    sim = arrived(Cluster((1,)), table, composite(1e9, 1e10), losses=True)
    sim.apply([Allocation(0, (0,), batch_size=samples)])
    finish(sim)
    assert sim.metrics().kernel_utilisation == pytest.approx(kernel_share("resnet18_cifar10", samples))


def test_a_gpu_type_without_measured_kernels_has_those_of_the_measured_one():
    cluster = Cluster((1, 1), gpu_types=("rtx_3090", "k80"))
    table = kernel_share_table(cluster).reshape(-1, 2, 3, 2)
    row = table[model_id("resnet18_cifar10")]
    assert np.array_equal(row[0], row[1])
    assert row[0].tolist() == [[32.0, 0.58667], [64.0, 0.80667], [128.0, 0.9625]]
    assert table[model_id("vgg16_imagenet"), 0, 0].tolist() == [1.0, 1.0]  # not measured: no gaps


def test_no_kernel_runs_while_its_job_restarts():
    cluster = Cluster((1, 1), jobs_per_gpu=2)
    sim = lossy(cluster, (20, 20), composite(1e9, 1e10))
    sim.apply([Allocation(0, (0,))])
    until(sim, 10.0)
    sim.apply([Allocation(0, (1,)), Allocation(1, (0,))])
    finish(sim)  # the first runs 10 s, pauses for 5 s, runs 10 s; the second 20 s from second 10 on
    assert sim.metrics().kernel_utilisation == pytest.approx((20.0 + 20.0) / (2 * 30.0))


def test_slow_gpu_types_and_more_gpus_than_asked():
    cluster = Cluster((1, 2), gpu_types=("t4", "v100"))
    name = "resnet50_imagenet"
    table = specs((1, name), (1, name))
    table = replace(table, iterations=np.full(2, 100.0), max_gpus=np.full(2, 2))
    sim = arrived(cluster, table, composite(INF, INF), losses=True)
    sim.apply([Allocation(0, (0,)), Allocation(1, (1, 2))])
    times = finish(sim)
    model = profile(name)
    slow = model.relative_seconds("t4")
    fixed = model.fixed_seconds / (model.fixed_seconds + model.sample_seconds * model.batch_size)
    slower = fixed * slow[0] + (1 - fixed) * slow[1]
    work = 100 * model.compute_seconds
    assert_parts(times, 0, lost_to_gpu_types=work * (slower - 1.0), work_seconds=work)
    assert_parts(times, 1, lost_to_size=-work * (1.0 - fixed) / 2, work_seconds=work)


def test_a_cancelled_job_worked_until_then_and_a_blocked_one_only_waited():
    sim = lossy(Cluster((1,)), (100, 50), composite(1e9, 1e10), cancel_seconds=25.0)
    sim.apply([Allocation(0, (0,))])
    until(sim, 10.0)
    sim.apply([Allocation(1, reject=True)])
    times = finish(sim)
    assert times.outcome.tolist() == [JobOutcome.CANCELLED, JobOutcome.BLOCKED]
    assert_parts(times, 0, work_seconds=25.0)
    assert_parts(times, 1, queueing_seconds=10.0)
    assert sim.metrics().mean_work == 25.0  # as mean_jct, of the jobs that were not blocked


@pytest.mark.parametrize(
    "scheduler", [fifo_backfill(share()), srtf(share()), Pollux(pack())], ids=lambda one: one.name
)
def test_parts_add_up_with_everything_at_once(scheduler):
    setting = experiment("full")
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(3))
    parts = (setting.cluster, jobs, setting.performance, setting.restart, scheduler.round_seconds)
    sim = Simulator(*parts, failures=setting.failures, losses=True)
    run(sim, scheduler, np.random.default_rng(0))
    times = job_times(sim.state, 0, sim.jobs)
    found = np.sum([getattr(times, name) for name in PARTS], axis=0)
    np.testing.assert_allclose(found, times.jct, rtol=1e-9)
    metrics = sim.metrics().as_dict()
    means = [
        metrics["mean_queueing"],
        metrics["mean_work"],
        *(metrics[f"lost_to_{name}"] for name in LOSS_NAMES),
    ]
    assert sum(means) == pytest.approx(metrics["mean_jct"], rel=1e-12)
    assert (times.work_seconds <= times.jct / times.slowdown * (1 + 1e-9)).all()


def test_counting_changes_nothing_and_may_be_left():
    found = []
    for losses in (False, True):
        jobs = replace(specs(*[(2, "vgg16_imagenet")] * 6), iterations=np.arange(100.0, 700.0, 100.0))
        sim = Simulator(Cluster((4, 4)), jobs, rings(), losses=losses)
        run(sim, fifo_backfill(pack()), np.random.default_rng(0))
        found.append(sim.metrics().as_dict())
    assert "mean_work" not in found[0]
    assert found[0].items() <= found[1].items()


def test_only_the_jobs_of_the_window_are_measured():
    jobs = JobTable.from_columns(np.arange(10.0), [1] * 10, [4.0] * 10)
    sim = Simulator(Cluster((1,)), jobs, composite(1e9, 1e10), losses=True)
    run(sim, fifo_backfill(pack()), np.random.default_rng(0))
    metrics = sim.metrics((0.2, 0.5))  # jobs 2 to 4: each waits 3 s longer than the last
    assert (metrics.num_finished, metrics.mean_jct, metrics.mean_queueing) == (3, 13.0, 9.0)
    assert metrics.mean_work == 4.0
    assert metrics.makespan == sim.metrics().makespan == 40.0
    bounds = simulation_bounds(sim, (0.2, 0.5))
    assert bounds.mean_jct == pytest.approx(7.0)  # 4, 7 and 10 s, were these three alone
    assert bounds.makespan == simulation_bounds(sim).makespan


@pytest.mark.parametrize(
    ("window", "said"),
    [((0.5, 0.5), "ascending"), ((0.0, 1.5), r"in \[0, 1\]"), ((0.31, 0.34), "none of 10 jobs")],
)
def test_windows_that_make_no_sense(window, said):
    sim = Simulator(Cluster((1,)), JobTable.from_columns(np.arange(10.0), [1] * 10, [4.0] * 10), rings())
    with pytest.raises(ConfigurationError, match=rf"measured_jobs.*{said}"):
        sim.metrics(window)
