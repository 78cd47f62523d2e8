"""Schedules of the elastic schedulers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.performance import composite
from ringyard.placement import pack
from ringyard.profiles import model_id
from ringyard.sim.speeds import BatchRule, fewest_gpus, isolated_iteration_seconds, speed_table
from ringyard.workloads import AITurboJobs
from ringyard_baselines.papers.afs_l import AFSL
from ringyard_baselines.papers.aiturbo import AITurbo
from ringyard_baselines.papers.drf import DominantResourceFairness
from ringyard_baselines.papers.e_tiresias import ElasticTiresias
from ringyard_baselines.papers.elastic_dp import ElasticDP
from ringyard_baselines.papers.gadget import Gadget
from ringyard_baselines.papers.ones.progress import BetaProgress
from ringyard_baselines.papers.ones.scheduler import Ones
from ringyard_baselines.papers.optimus import Optimus
from ringyard_baselines.papers.pollux import Pollux
from ringyard_baselines.scheduler import Observability
from ringyard_baselines.tools.step_model import StepModels
from ringyard_baselines.tools.targets import Target, apply_sizes
from small_simulations import arrived, elastic, perfect, served, simulated, times_of


def ends(scheduler, jobs, size=4):
    sim = simulated(scheduler, Cluster.homogeneous(1, size), jobs, perfect())
    return times_of(sim).end_seconds


def test_solo_speed_is_the_isolated_one_and_scales():
    view = arrived(Cluster.homogeneous(2, 4), elastic([2, 4], [10.0, 20.0]), perfect()).view()
    isolated = view.column("isolated_iteration_seconds")[:2]
    assert isolated_iteration_seconds(view, np.arange(2)).tolist() == isolated.tolist()
    assert isolated_iteration_seconds(view, np.array([0]), 4)[0] == pytest.approx(isolated[0] / 2)
    table = speed_table(view, BatchRule.ASKED)
    assert table.speed[0].tolist() == pytest.approx([0, 0.5, 1.0, 1.5, 2.0])


def test_memory_bounds_the_fewest_gpus():
    # a batch of 32 on V100s of 16 GB: at 4 GB a sample all 8 GPUs, at 2 GB 4
    cluster = Cluster.homogeneous(1, 8, "v100")
    jobs = elastic([8] * 4, [100.0, 100.0, 100.0, 1000.0], high=8).with_models(
        np.full(4, model_id("resnet50_imagenet"))
    )
    batch = np.full(4, 32.0)
    jobs = replace(
        jobs,
        batch_size=batch,
        min_batch=batch,
        max_batch=batch,
        fixed_memory_bytes=np.zeros(4),
        sample_memory_bytes=np.array([2e9, 2e9, 2e9, 4e9]),
    )
    sim = arrived(cluster, jobs, composite(1e9, 40e9))
    view = sim.view()
    assert fewest_gpus(view, np.arange(4)).tolist() == [4, 4, 4, 8]
    assert np.flatnonzero(speed_table(view, BatchRule.ASKED).speed[0]).tolist() == [4, 5, 6, 7, 8]
    scheduler = AFSL(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(view))
    assert sorted(sim.view().num_gpus[sim.view().running].tolist()) == [4, 4]


def test_what_has_no_room_in_its_shape_starts_as_asked():
    cluster = Cluster.homogeneous(1, 2, "v100", 4, 100e9)
    jobs = JobTable.from_columns([0, 0], [1, 1], [10.0, 10.0])
    jobs = replace(jobs.with_models(np.full(2, model_id("alexnet_imagenet"))), cores_per_worker=np.full(2, 2))
    view = arrived(cluster, jobs, composite(1e9, 40e9)).view()
    greedy = [Target(job, 1, Allocation(job, cores_per_worker=3)) for job in range(2)]
    assert [found.cores_per_worker for found in apply_sizes(view, greedy, pack())] == [3]
    modest = [Target(0, 1, Allocation(0, cores_per_worker=2)), greedy[1]]
    assert [found.cores_per_worker for found in apply_sizes(view, modest, pack())] == [2, 2]


def test_elastic_jobs_take_the_whole_cluster():
    # 1 GPU x 80 s on 4 GPUs: 20 s
    for scheduler in (
        ElasticDP(pack()),
        AFSL(pack()),
        ElasticTiresias(pack()),
        Pollux(pack()),
        Gadget(pack()),
    ):
        assert ends(scheduler, elastic([1], [80.0])).tolist() == pytest.approx([20.0]), scheduler.name
    assert ends(Optimus(pack()), elastic([1], [80.0])).tolist() == pytest.approx([20.0])


class KnownIterations:
    """Stands for fitted loss curves: the iterations that are left, as given."""

    def __init__(self, left):
        self.left = np.array(left, dtype=np.float64)

    def iterations_left(self, view, jobs):
        return self.left[jobs]


def optimus_shapes(left, cluster, jobs, performance, **options):
    """{job: (GPUs, parameter servers)} that Optimus decides when so many iterations are left."""
    sim = arrived(cluster, jobs, performance)
    scheduler = Optimus(pack(), **options)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    scheduler._curves = KnownIterations(left)
    return {one.job: (len(one.gpu_ids), one.parameter_servers) for one in scheduler.decide(sim.view())}


@pytest.mark.parametrize(
    ("left", "gpus", "sizes"),
    [
        ([400.0, 100.0], 4, [3, 1]),  # 400 / 2, then 400 / 6, against 100 / 2
        ([400.0, 150.0], 4, [2, 2]),  # 150 / 2 is more than 400 / 6
        ([400.0, 100.0], 5, [3, 2]),  # 400 / 12 is less than 100 / 2
        ([400.0, 100.0], 8, [4, 4]),  # no job takes more than 4
        ([0.0, 100.0], 4, [1, 3]),  # nothing is gained by the first
    ],
)
def test_optimus_grows_the_job_that_saves_most_time(left, gpus, sizes):
    jobs = elastic([1, 1], [400.0, 100.0], high=4)
    found = optimus_shapes(left, Cluster.homogeneous(1, gpus), jobs, perfect())
    assert [found[job][0] for job in range(2)] == sizes


def test_optimus_counts_gains_per_share_of_the_scarcest_resource():
    # of 3 GPUs and 40 cores a worker of job 0 takes 16 cores: 55 / 0.4 s, against 50 / (1 / 3) s of job 1
    jobs = elastic([1, 1], [110.0, 100.0], high=4)
    for cores, sizes in (([16, 4], [1, 2]), ([4, 4], [2, 1])):
        cluster = Cluster.homogeneous(1, 3, cores_per_server=40)
        wanting = replace(jobs, cores_per_worker=np.array(cores))
        found = optimus_shapes([110.0, 100.0], cluster, wanting, perfect())
        assert [found[job][0] for job in range(2)] == sizes


def test_optimus_adds_servers_while_there_are_cores():
    servers = {}
    for cores, most in ((10, 10), (15, 10), (20, 10), (200, 3), (200, 10)):
        cluster = Cluster.homogeneous(1, 1, cores_per_server=cores)  # a worker and a server have 5 each
        jobs = replace(served(1), max_gpus=np.array([1]))
        found = optimus_shapes([1e6], cluster, jobs, composite(1e9, 40e9), max_servers=most)
        servers[cores, most] = found[0][1]
    assert servers[10, 10] == 1
    assert servers[15, 10] == 2
    assert servers[20, 10] == 3
    assert servers[200, 3] == 3
    assert 3 < servers[200, 10] <= 10


def test_drf_gives_equal_dominant_shares():
    # 2 GPUs each until 20, then all 4; as they ask (3, 2 and 1 of 4) the two smallest fit
    two = elastic([1, 1], [40.0, 60.0])
    assert ends(DominantResourceFairness(pack(), 10.0), two).tolist() == pytest.approx([20.0, 25.0])
    rigid = JobTable.from_columns([0, 0, 0], [3, 2, 1], [10.0, 20.0, 20.0])
    assert ends(DominantResourceFairness(pack(), 10.0, elastic=False), rigid).tolist() == [30.0, 20.0, 20.0]
    # one worker of job 1 holds half of all cores
    jobs = replace(JobTable.from_columns([0, 0], [2, 1], [10.0, 10.0]), cores_per_worker=np.array([1, 4]))
    cluster = Cluster.homogeneous(1, 2, cores_per_server=8)
    sim = simulated(DominantResourceFairness(pack(), 10.0, elastic=False), cluster, jobs, perfect())
    assert times_of(sim).start_seconds.tolist() == [10.0, 0.0]


def decided_sizes(scheduler, cluster, jobs, performance=None):
    """GPUs of each job after the first decision."""
    sim = arrived(cluster, jobs, performance or perfect())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    return [len(sim.view().gpus_of(job)) for job in range(len(jobs))]


def test_drf_grows_jobs_by_the_scarcer_of_gpus_and_cores():
    # a worker is a fourth of the GPUs, but one with 12 cores is half of the cores
    cluster = Cluster.homogeneous(1, 4, cores_per_server=24)
    for cores, sizes in (([1, 1], [2, 2]), ([1, 12], [3, 1]), ([12, 1], [1, 3])):
        jobs = replace(elastic([1, 1], [100.0, 100.0]), cores_per_worker=np.array(cores))
        assert decided_sizes(DominantResourceFairness(pack()), cluster, jobs) == sizes


def test_gadget_gives_no_job_more_gpus_than_its_work_left_is_worth():
    # one GPU ends the short job within the slot; the long one is hardly worth more, but takes the rest
    jobs = elastic([1, 1], [100_000.0, 100.0])
    assert decided_sizes(Gadget(pack(), slot_seconds=600.0), Cluster.homogeneous(1, 4), jobs) == [3, 1]


def test_pollux_shares_among_equals():
    # the harmonic mean of speed-ups is largest at 2 and 2 GPUs
    assert ends(Pollux(pack()), elastic([1, 1], [40.0, 40.0])).tolist() == pytest.approx([20.0, 20.0])


def test_afs_l_serves_the_short_job_then_gives_its_gpus_on():
    # perfect scaling: the shorter job's relative gain (1, 1/2, 1/3) always wins: 4 GPUs, then the other
    assert ends(AFSL(pack()), elastic([1, 1], [8.0, 80.0])).tolist() == pytest.approx(
        [8 / 3, 2 + 20.0], rel=0.2
    )


def test_e_tiresias_shrinks_running_jobs_for_a_crowd():
    jobs = elastic([4, 4, 4], [40.0, 40.0, 40.0])
    crowded = simulated(
        ElasticTiresias(pack(), max_waiting_jobs=0), Cluster.homogeneous(1, 4), jobs, perfect()
    )
    assert times_of(crowded).start_seconds.tolist() == [0.0, 0.0, 0.0]
    patient = simulated(
        ElasticTiresias(pack(), max_waiting_jobs=2), Cluster.homogeneous(1, 4), jobs, perfect()
    )
    assert times_of(patient).start_seconds.tolist() == [0.0, 40.0, 80.0]


def test_e_tiresias_takes_from_the_lowest_priority_just_enough():
    sim = arrived(Cluster.homogeneous(1, 8), elastic([4, 4, 4, 1], [40.0] * 4), perfect())
    for most, sizes in ((2, [4, 4]), (1, [4, 3, 1]), (0, [4, 2, 1, 1])):
        scheduler = ElasticTiresias(pack(), max_waiting_jobs=most)
        scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
        expected = dict(enumerate(sizes))
        found = scheduler.decide(sim.view())
        assert {one.job: len(one.gpu_ids) for one in found} == expected
        assert scheduler._shrunk(sim.view(), range(4)) == expected  # before free GPUs are granted


def test_e_tiresias_demotes_jobs_by_attained_service():
    # job 1 runs from 10 s on, and stays when both are demoted
    rigid = elastic([4, 4], [30.0, 30.0], low=4)
    for threshold, expected in ((40.0, [60.0, 40.0]), (200.0, [30.0, 60.0])):
        scheduler = ElasticTiresias(pack(), threshold_gpu_seconds=threshold, round_seconds=10.0)
        assert ends(scheduler, rigid).tolist() == pytest.approx(expected)


def test_ones_grows_jobs_and_their_batches():
    jobs = elastic([1], [400.0])
    jobs = replace(jobs, batch_size=np.array([8.0]), min_batch=np.array([8.0]), max_batch=np.array([32.0]))
    scheduler = Ones(pack(), epoch_seconds=5.0, round_seconds=5.0)
    sim = simulated(scheduler, Cluster.homogeneous(1, 4), jobs, perfect())
    # one GPU for an epoch, 2 GPUs for one, then 4: far from 400 s, not yet 100
    assert 100.0 < sim.metrics().mean_jct < 130.0
    assert sim.state.jobs["num_resizes"][0, 0] >= 2


@pytest.mark.parametrize(
    ("clock", "grown"), [("total", {1: 0, 2: 10, 4: 15}), ("since_change", {1: 0, 2: 10, 4: 20})]
)
def test_ones_waits_for_two_epochs_in_all_or_since_the_last_change(clock, grown):
    # an epoch takes 10 s on one GPU and 5 s on two; the validation before training is the first of all
    jobs = elastic([1], [400.0])
    jobs = replace(jobs, batch_size=np.array([8.0]), min_batch=np.array([8.0]), max_batch=np.array([32.0]))
    scheduler = Ones(pack(), epoch_seconds=10.0, round_seconds=5.0, growth_clock=clock)
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, perfect(), round_seconds=5.0)
    scheduler.reset(sim.cluster, jobs, np.random.default_rng(0))
    first = {}
    while sim.now < 30.0:
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
        first.setdefault(int(sim.view().num_gpus[0]), sim.now)
    assert first == grown


def test_beta_progress_learns_how_long_jobs_are():
    rng = np.random.default_rng(0)
    done = np.repeat(np.arange(1.0, 20.0), 20)
    features = np.stack(
        [np.full(len(done), 9.0), np.ones(len(done)), done, done / 20, rng.normal(0.5, 0.1, len(done))],
        axis=1,
    )
    predictor = BetaProgress(epochs=200)
    predictor.reset(rng)
    predictor.fit(features, done, done / 20)
    progress = done / (done + predictor.beta(features, done))
    naive = done / (done + BetaProgress().beta(features, done))
    assert np.abs(progress - done / 20).mean() < 0.5 * np.abs(naive - done / 20).mean()


@pytest.mark.parametrize(("most", "grown"), [(4, [2, 3, 4, 4]), (2, [2] * 5)])
def test_aiturbo_makes_single_unit_changes(most, grown):
    # alone on 4 GPUs: one GPU more each slot, as many as the job may hold
    jobs = elastic([1], [1000.0], high=most)
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, perfect(), round_seconds=100.0)
    scheduler = AITurbo(pack(), round_seconds=100.0)
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    sizes = []
    sim.advance()
    while not sim.done:
        sim.apply(scheduler.decide(sim.view()))
        sizes.append(int(sim.view().num_gpus[0]))
        sim.advance()
    assert sizes == grown  # with 4: 200 + 300 of 1000 s of work done at 200 s, the rest on 4


def test_aiturbo_shrinks_jobs_where_that_is_cheaper_and_all_do_not_fit():
    # VGG-11 on 3 workers and a server: 0.92 s x 50, on 2: 1.11 s x 35
    jobs = replace(served(2, workers=3, model="vgg11"), predictable_from=np.zeros(2))
    sim = arrived(Cluster.homogeneous(1, 4, cores_per_server=64), jobs, composite(1e9, 40e9))
    for predictor, sizes in (("workload", [2, 2]), ("none", [3])):
        scheduler = AITurbo(pack(), predictor=predictor)
        scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
        assert [len(one.gpu_ids) for one in scheduler.decide(sim.view())] == sizes


def test_gains_count_for_the_order_by_borda():
    # both ranks add up to 3, and the first job wins the tie; by service alone the second runs
    jobs = replace(served(2, workers=3, model="vgg11"), predictable_from=np.zeros(2))
    jobs = replace(jobs, duration_seconds=np.array([3000.0, 300.0]))
    sim = arrived(Cluster.homogeneous(1, 3, cores_per_server=64), jobs, composite(1e9, 40e9))
    for borda, first in ((True, 0), (False, 1)):
        scheduler = AITurbo(pack(), borda=borda)
        scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
        scheduler._service[0] = 1e6
        assert [one.job for one in scheduler.decide(sim.view())] == [first]


def test_a_running_job_that_finds_no_room_for_more_servers_grows_with_those_it_asked_for():
    sim = arrived(Cluster.homogeneous(1, 4, cores_per_server=32), served(1), composite(1e9, 40e9))
    sim.apply([Allocation(0, (0,), parameter_servers=2)])
    six = Target(0, 2, Allocation(0, cores_per_worker=5, parameter_servers=6))  # 40 cores
    sim.apply(apply_sizes(sim.view(), [six], pack()))
    held = sim.view().allocation_of(0)
    assert (len(held.gpu_ids), held.parameter_servers, held.cores_per_worker) == (2, 1, 5)


def test_aiturbo_predicts_from_loss_curves_what_the_workload_does_not():
    world = Cluster.homogeneous(1, 4, cores_per_server=40), served(2), composite(1e9, 40e9)
    resized = {}
    for predictor in ("workload", "loss_curve"):
        scheduler = AITurbo(pack(), round_seconds=100.0, predictor=predictor)
        assert (Observability.PREDICTIONS in scheduler.total_observability) == (predictor == "workload")
        sim = simulated(scheduler, *world)
        resized[predictor] = sim.state.jobs["num_resizes"][0, :2].tolist(), sim.metrics().mean_jct
    assert resized["workload"] == ([0, 0], pytest.approx(3000.0))
    assert min(resized["loss_curve"][0]) > 0
    assert resized["loss_curve"][1] < 2900


@pytest.mark.parametrize("scheduler", [AITurbo(pack()), Optimus(pack())])
def test_the_speed_model_errs_on_sizes_that_were_not_profiled(scheduler):
    errors = {}
    for deviation in (0.0, 0.12):
        performance = composite(1e9, 40e9, step_deviation=deviation)
        view = arrived(Cluster.homogeneous(1, 4, cores_per_server=64), served(1), performance).view()
        profiled = set(zip(*np.array(scheduler._points(view, 0)).tolist(), strict=True))
        sizes = [(w, p) for w in range(1, 5) for p in range(1, 11) if (w, p) not in profiled]
        workers, servers = np.array(sizes).T
        true = isolated_iteration_seconds(view, np.zeros(len(sizes), int), workers, parameter_servers=servers)
        models = StepModels(scheduler._points)
        errors[deviation] = np.abs([models.seconds(view, 0, *size) for size in sizes] / true - 1.0)
    assert errors[0.0].max() < 1e-6
    assert 0.05 < np.median(errors[0.12]) < 0.6  # 0.49 for the five points of AITurbo


def test_every_pod_of_the_follow_ons_list_has_five_cores():
    jobs = AITurboJobs().sample(Cluster.homogeneous(2, 2, cores_per_server=32), np.random.default_rng(0))
    assert set(jobs.cores_per_worker.tolist()) == set(jobs.cores_per_server_task.tolist()) == {5}
    assert (jobs.min_gpus == 1).all()
    assert (jobs.max_gpus == 4).all()


def test_elastic_dp_admits_jobs_while_the_fewest_gpus_of_all_fit():
    jobs = elastic([2, 2, 2], [40.0] * 3, low=2)
    assert decided_sizes(ElasticDP(pack()), Cluster.homogeneous(1, 4), jobs) == [2, 2, 0]


def test_of_equal_jobs_the_first_gets_the_gpu_that_is_left():
    equal, cluster = elastic([1, 1], [40.0, 40.0]), Cluster.homogeneous(1, 3)
    assert decided_sizes(ElasticTiresias(pack()), cluster, equal) == [2, 1]


def test_afs_l_weighs_gains_regardless_of_how_long_iterations_take():
    """The first job is the shorter one. It goes on growing until its next GPU gains less than half."""
    jobs = replace(elastic([1, 1], [10.0, 100.0]), compute_seconds=np.array([1.0, 0.01]))
    assert decided_sizes(AFSL(pack()), Cluster.homogeneous(1, 4), jobs) == [3, 1]


def test_gadget_counts_no_work_beyond_a_jobs_end():
    """One GPU ends the first job within the slot of 600 s, so that the second gets the others."""
    cluster = Cluster.homogeneous(1, 3)
    assert decided_sizes(Gadget(pack(), slot_seconds=600.0), cluster, elastic([1, 1], [600.0, 2000.0])) == [
        1,
        2,
    ]


def test_gadget_begins_with_the_job_that_gains_most():
    jobs = elastic([1, 1, 1], [100_000.0, 50_000.0, 600.0])
    assert decided_sizes(Gadget(pack(), slot_seconds=600.0), Cluster.homogeneous(1, 1), jobs) == [0, 0, 1]
