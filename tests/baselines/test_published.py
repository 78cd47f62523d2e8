"""Schedules of the published schedulers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError, PlacementError, SchedulerError
from ringyard.performance import composed, sensitivity_pressure
from ringyard.placement import lwf, pack, share
from ringyard.profiles import model_id
from ringyard.records import JobOutcome
from ringyard.sim.draft import Draft
from ringyard.sim.metrics import job_times
from ringyard.sim.solo import solo_seconds
from ringyard_agents.fit_interference import simulated_pairs, train_networks
from ringyard_agents.progress_predictor import BetaProgress
from ringyard_baselines.ada_srsf import AdaSrsf
from ringyard_baselines.afs_l import AFSL
from ringyard_baselines.aiturbo import AITurbo
from ringyard_baselines.burst_sharing import BurstSharing
from ringyard_baselines.coda import Coda
from ringyard_baselines.e_tiresias import ElasticTiresias
from ringyard_baselines.elastic_dp import ElasticDP
from ringyard_baselines.fifo import fifo
from ringyard_baselines.gadget import Gadget
from ringyard_baselines.gandiva import Gandiva
from ringyard_baselines.gavel import Gavel
from ringyard_baselines.gittins import GittinsTiresias
from ringyard_baselines.interference_aware import InterferenceAware
from ringyard_baselines.interference_networks import PARAMETERS, InterferenceNetworks
from ringyard_baselines.ones import Ones
from ringyard_baselines.ones_progress import SameAgain
from ringyard_baselines.optimus import Optimus
from ringyard_baselines.partitioning import Partitioning
from ringyard_baselines.pollux import Pollux
from ringyard_baselines.scheduler import run
from ringyard_baselines.sjf_bsbf import SjfBsbf
from ringyard_baselines.speeds import BatchRule, speed_table
from ringyard_baselines.synergy import SynergyTune
from ringyard_baselines.themis import Themis
from ringyard_baselines.transfers import JobMix, published_mix, simulate_transfers
from worlds import arrived, rings


def simulated(scheduler, cluster, jobs, performance=None):
    sim = Simulator(cluster, jobs, performance or ideal(), round_seconds=scheduler.round_seconds)
    run(sim, scheduler, np.random.default_rng(0))
    return sim


def times(scheduler, submit, gpus, durations, size=4):
    jobs = JobTable.from_columns(submit, gpus, durations)
    found = job_times(*_of(simulated(scheduler, Cluster.homogeneous(1, size), jobs)))
    return found.start_seconds.tolist(), found.end_seconds.tolist()


def _of(sim):
    return sim.state, 0, sim.jobs


def elastic(gpus, durations, low=1, high=4):
    """Jobs that halve their time on twice the GPUs, all at once, on one server."""
    jobs = JobTable.from_columns(np.zeros(len(gpus)), gpus, durations)
    count = len(gpus)
    return replace(jobs, min_gpus=np.full(count, low), max_gpus=np.full(count, high))


def perfect():
    """Computing is shared evenly, transfers take no time."""
    return rings(inter=np.inf, intra=np.inf, reduction=np.inf, xi_2=0.0)


def ends(scheduler, jobs, size=4):
    sim = simulated(scheduler, Cluster.homogeneous(1, size), jobs, perfect())
    return job_times(*_of(sim)).end_seconds


def test_solo_speed_is_the_isolated_one_and_scales():
    view = arrived(Cluster.homogeneous(2, 4), elastic([2, 4], [10.0, 20.0]), perfect()).view()
    isolated = view.column("isolated_iteration_seconds")[:2]
    assert solo_seconds(view, np.arange(2)).tolist() == isolated.tolist()
    assert solo_seconds(view, np.array([0]), 4)[0] == pytest.approx(isolated[0] / 2)
    table = speed_table(view, BatchRule.ASKED)
    assert table.speed[0].tolist() == pytest.approx([0, 0.5, 1.0, 1.5, 2.0])


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
    crowded = simulated(ElasticTiresias(pack(), crowd=0), Cluster.homogeneous(1, 4), jobs, perfect())
    assert job_times(*_of(crowded)).start_seconds.tolist() == [0.0, 0.0, 0.0]
    patient = simulated(ElasticTiresias(pack(), crowd=2), Cluster.homogeneous(1, 4), jobs, perfect())
    assert job_times(*_of(patient)).start_seconds.tolist() == [0.0, 40.0, 80.0]


def test_gandiva_slices_time():
    start, end = times(Gandiva(pack(), slice_seconds=10.0), [0, 0], [4, 4], [30.0, 30.0])
    assert start == [0, 10]
    assert end == [50, 60]


def test_gandiva_packs_while_it_pays():
    models = [model_id("resnet50_imagenet"), model_id("a3c_pong")]
    jobs = JobTable.from_columns([0, 0], [1, 1], [1000.0, 1000.0]).with_models(np.array(models))
    cluster = Cluster.homogeneous(1, 1, gpu_type="v100", jobs_per_gpu=2)
    performance = composed(1e9, 40e9, interference=sensitivity_pressure())
    together = simulated(Gandiva(pack(), 50.0), cluster, jobs, performance)
    in_turn = simulated(Gandiva(pack(), 50.0, threshold=2.0), cluster, jobs, performance)
    assert together.metrics().makespan < in_turn.metrics().makespan == pytest.approx(2000.0, rel=0.02)


def test_themis_leases_to_the_worst_off():
    # at 100 s: rho = (100 + 200) / (300 x 2) = 0.5 against (90 + 30) / (30 x 2) = 2
    start, end = times(Themis(pack(), lease_seconds=100.0), [0, 10], [4, 4], [300.0, 30.0])
    assert (start, end) == ([0, 100], [330, 130])


def test_gittins_prefers_who_may_end_soon():
    # of (1, 1, 100) GPU-quanta: fresh jobs first; the long one is stopped when its quantum is over
    start, end = times(GittinsTiresias(pack(), 10.0), [0, 1, 2], [1, 1, 1], [100.0, 10.0, 10.0], size=1)
    assert start == [0, 10, 20]
    assert end == [120, 20, 30]


def test_gavel_gives_equal_time():
    start, end = times(Gavel(pack(), round_seconds=10.0), [0, 0], [4, 4], [30.0, 30.0])
    assert start == [0, 10]
    assert end == [50, 60]


def test_gavel_serves_gangs_larger_than_any_type():
    cluster = Cluster.of_groups(
        [{"num_servers": 1, "gpus_per_server": 2, "gpu_type": kind} for kind in ("k80", "v100")]
    )
    jobs = JobTable.from_columns([0, 0, 0], [3, 1, 1], [500.0, 3000.0, 3000.0])
    jobs = jobs.with_models(np.full(3, model_id("resnet50_imagenet")))
    assert simulated(Gavel(pack(), 100.0), cluster, jobs, composed(1e9, 40e9)).done


def cpu_world(cores, jobs):
    cluster = Cluster.homogeneous(1, 1, "v100", cores, 100e9)
    return cluster, jobs, composed(1e9, 40e9)


def hungry(duration, cores):
    """One job whose input pipeline wants more cores than it asks for."""
    jobs = JobTable.from_columns([0], [1], [duration]).with_models(np.array([model_id("alexnet_imagenet")]))
    return replace(jobs, cores_per_worker=np.array([cores]))


def test_coda_finds_cores_by_feedback():
    world = cpu_world(16, hungry(4000.0, 1))
    plain = simulated(fifo(pack()), *world).metrics()
    tuned = simulated(Coda(pack(), cpu_array=0.0), *world).metrics()
    assert tuned.mean_jct < 0.4 * plain.mean_jct
    assert tuned.gpu_activity > 2 * plain.gpu_activity
    assert simulated(Coda(pack(), cpu_array=1.0), *world).metrics().mean_jct >= 0.99 * plain.mean_jct


def test_coda_evicts_borrowers_for_training_jobs():
    helper = JobTable.cpu_only([0.0], [4], [100.0], [1e6])
    training = replace(hungry(50.0, 2), submit_seconds=np.array([10.0]))
    cluster, jobs, performance = cpu_world(4, helper.merged(training))
    sim = simulated(Coda(pack(), cpu_array=0.0), cluster, jobs, performance)
    assert job_times(*_of(sim)).start_seconds.tolist() == [0.0, 10.0]
    assert sim.state.jobs["num_preemptions"][0, 0] == 1
    kept = simulated(Coda(pack(), cpu_array=1.0), cluster, jobs, performance)
    assert job_times(*_of(kept)).start_seconds.tolist() == [0.0, 100.0]


def test_coda_caps_cpu_jobs_that_starve_training():
    helper = JobTable.cpu_only([200.0], [4], [2000.0], [30e9])
    training = replace(hungry(3000.0, 8), memory_bandwidth=np.array([3e9]))
    cluster, jobs, performance = cpu_world(16, training.merged(helper))
    sim = Simulator(cluster, jobs, performance, round_seconds=90.0)
    scheduler = Coda(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    while sim.now < 400:
        sim.apply(scheduler.decide(sim.view()))
        sim.advance()
    assert sim.state.jobs["memory_bandwidth_cap"][0, 1] == 0.5


def test_synergy_gives_and_takes_cores():
    cluster, jobs, performance = cpu_world(24, hungry(1000.0, 1))
    sim = arrived(cluster, jobs, performance)
    scheduler = SynergyTune(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    cores = int(sim.state.jobs["cores_per_worker"][0, 0])
    seconds = [solo_seconds(sim.view(), np.array([0]), cores_per_worker=c)[0] for c in (cores - 1, cores, 24)]
    assert seconds[1] <= seconds[2] / 0.95 < seconds[0]


def neighbours(*names, gpus=1, durations=None):
    count = len(names)
    jobs = JobTable.from_columns(np.zeros(count), [gpus] * count, durations or [1000.0] * count)
    jobs = jobs.with_models(np.array([model_id(name) for name in names]))
    cluster = Cluster.homogeneous(1, gpus, gpu_type="v100", jobs_per_gpu=2)
    return cluster, jobs, composed(1e9, 40e9, interference=sensitivity_pressure())


def test_sjf_bsbf_shares_only_where_the_pair_gains():
    mild = neighbours("a3c_pong", "lstm_wikitext2")
    harsh = neighbours("resnet50_imagenet", "resnet50_imagenet")
    excess = arrived(*harsh).state.excess
    assert (
        excess[model_id("a3c_pong"), model_id("lstm_wikitext2")] < 0.9 < excess[harsh[1].model_ids[0]].max()
    )
    always = job_times(*_of(simulated(SjfBsbf(pack(), pair_test=False), *harsh)))
    assert always.start_seconds.tolist() == [0.0, 0.0]
    for world in (mild, harsh):
        a, b = world[1].model_ids
        slow = 1 + np.array([excess[a, b], excess[b, a]])
        first = 1000.0 * slow.min()
        both = (first + 1000.0 + first * (1 - 1 / slow.max())) / 2
        start = job_times(*_of(simulated(SjfBsbf(pack()), *world))).start_seconds
        assert (start[1] == 0.0) == (both < 1500.0)


def test_ada_srsf_gates_rings_on_shared_links():
    cluster = Cluster.homogeneous(3, 2)
    jobs = JobTable.from_columns([0, 0], [3, 3], [100.0, 100.0])
    for share_of_bytes, starts in ((0.3, [0.0, 0.0]), (0.5, [0.0, 100.0])):
        table = replace(jobs, gradient_bytes=np.array([1e3, share_of_bytes * 1e3]))
        table = replace(table, duration_seconds=np.array([100.0, 100.5]))
        found = job_times(*_of(simulated(AdaSrsf(lwf(1)), cluster, table)))
        assert found.start_seconds.tolist() == starts
    for most, starts in ((1, [0.0, 100.0]), (2, [0.0, 0.0])):
        found = job_times(*_of(simulated(AdaSrsf(lwf(1), False, most), cluster, jobs)))
        assert found.start_seconds.tolist() == starts


def mix(*rows):
    model, workers, iterations, arrival = (np.array(column) for column in zip(*rows, strict=True))
    return JobMix(model, workers, iterations, arrival.astype(float))


def test_transfers_by_hand():
    # VGG-16: 36 + 54 ms computing; across servers + 526.4 MB x 0.856 ms each iteration
    assert simulate_transfers(mix((0, 4, 10, 0))).jct.tolist() == pytest.approx([900.0])
    alone = simulate_transfers(mix((0, 5, 10, 0)), num_servers=2)
    assert alone.jct.tolist() == pytest.approx([10 * (90 + 526.4 * 0.856)])
    # two rings on the same two servers, one transfer at a time: the second waits for the first
    pair = mix((0, 8, 1, 0), (0, 8, 1, 0))
    result = simulate_transfers(pair, num_servers=2, adaptive=False, most_transfers=1)
    one = 526.4 * 0.856
    assert sorted(result.jct.tolist()) == pytest.approx([90 + one, max(90 + one, 180) + one])


def test_public_counting_error_makes_waiting_jobs_speed_up_transfers():
    # 100 MB or so: one asker doubles the rate of the transfer it waits for
    pair = mix((0, 8, 1, 0), (0, 8, 1, 0))
    honest = simulate_transfers(pair, num_servers=2)
    wrong = simulate_transfers(pair, num_servers=2, miscount=True)
    assert wrong.makespan < 0.85 * honest.makespan


def test_transfers_agree_with_runs_of_the_public_code():
    """Its own runs on 4 lists, mean JCT in ms; ours draw other lists from the same generator."""
    public = {
        (1, False, False): 18_610,
        (2, False, False): 19_452,
        (2, True, True): 11_728,
        (2, True, False): 18_321,
    }
    for (most, adaptive, miscount), reported in public.items():
        ours = [
            simulate_transfers(
                published_mix(np.random.default_rng(seed)), 1, most, adaptive, miscount
            ).jct.mean()
            for seed in range(8)
        ]
        assert np.mean(ours) == pytest.approx(reported, rel=0.3)


def test_burst_sharing_keeps_the_foreground_within_its_limit():
    for limit, start in ((1.0, 1000.0), (5.0, 0.0)):
        cluster, jobs, performance = neighbours("resnet50_imagenet", "a3c_pong", gpus=2)
        jobs = replace(jobs, num_gpus=np.array([2, 1]), min_gpus=np.array([2, 1]), max_gpus=np.array([2, 1]))
        found = job_times(
            *_of(simulated(BurstSharing(pack(), most_slowdown=limit), cluster, jobs, performance))
        )
        assert found.start_seconds[1] == pytest.approx(start)


def test_interference_networks_predict_pairs_of_unseen_jobs():
    unseen = simulated_pairs(np.random.default_rng(99), 60)
    networks = InterferenceNetworks.load()
    own, other = unseen.profiles[unseen.own], unseen.profiles[unseen.other]
    assert np.abs(networks.similarity(own, other) - unseen.similarity).mean() < 0.05
    assert np.abs(networks.performance(own, other, unseen.computing) - unseen.performance).mean() < 0.05
    few = train_networks(simulated_pairs(np.random.default_rng(1), 40), epochs=5)
    assert {name: array.shape for name, array in few.weights.items()} == dict(PARAMETERS)


def test_weights_are_checked(tmp_path):
    with pytest.raises(ConfigurationError, match="ringyard fit"):
        InterferenceNetworks.load(tmp_path / "none.npz")
    np.savez(tmp_path / "bad.npz", weight=np.zeros(3))
    with pytest.raises(ConfigurationError, match="train it anew"):
        InterferenceNetworks.load(tmp_path / "bad.npz")


def test_interference_aware_chooses_the_mildest_neighbour():
    names = ("resnet50_imagenet", "a3c_pong", "lstm_wikitext2")
    cluster, jobs, performance = neighbours(*names)
    cluster = Cluster.homogeneous(2, 1, gpu_type="v100", jobs_per_gpu=2)
    sim = arrived(cluster, jobs, performance)
    scheduler = InterferenceAware(share(), least_speed=0.0)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    excess = sim.state.excess
    a, b, c = jobs.model_ids
    harm = [excess[c, other] + excess[other, c] for other in (a, b)]
    assert sim.view().gpus_of(2) == sim.view().gpus_of(int(np.argmin(harm)))


def test_ones_grows_jobs_and_their_batches():
    jobs = elastic([1], [400.0])
    jobs = replace(jobs, batch_size=np.array([8.0]), min_batch=np.array([8.0]), max_batch=np.array([32.0]))
    scheduler = Ones(pack(), epoch_seconds=5.0, round_seconds=5.0)
    sim = simulated(scheduler, Cluster.homogeneous(1, 4), jobs, perfect())
    # one GPU for 2 epochs, 2 GPUs for 2, then 4: far from 400 s, not yet 100
    assert 100.0 < sim.metrics().mean_jct < 160.0
    assert sim.state.jobs["num_resizes"][0, 0] >= 2


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
    naive = done / (done + SameAgain().beta(features, done))
    assert np.abs(progress - done / 20).mean() < 0.5 * np.abs(naive - done / 20).mean()


def test_aiturbo_makes_single_unit_changes():
    # alone on 4 GPUs nobody needs: one GPU more each slot
    jobs = elastic([1], [1000.0])
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, perfect(), round_seconds=100.0)
    scheduler = AITurbo(pack(), round_seconds=100.0)
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    sizes = []
    sim.advance()
    while not sim.done:
        sim.apply(scheduler.decide(sim.view()))
        sizes.append(int(sim.view().num_gpus[0]))
        sim.advance()
    assert sizes == [2, 3, 4, 4]  # 200 + 300 of 1000 s of work done at 200 s, the rest on 4


def partitioned(beta):
    """Jobs of 100 s on one GPU, perfectly divisible, acceptable within beta x 100 s."""
    jobs = elastic([1] * len(beta), [100.0] * len(beta), high=16)
    return replace(jobs, acceptable_jct=100.0 * np.array(beta))


def outcomes(policy, beta, gpus=16):
    sim = simulated(Partitioning(pack(), policy), Cluster.homogeneous(1, gpus), partitioned(beta), perfect())
    found = job_times(*_of(sim))
    blocked = (found.outcome == JobOutcome.BLOCKED).tolist()
    return blocked, found.jct.tolist(), sim.metrics().blocking_rate


def test_degrees_of_partitioning():
    assert outcomes("para_max", [0.5, 0.5])[:2] == ([False, True], pytest.approx([100 / 16, 0.0]))
    assert outcomes("para_min", [0.3, 0.26])[:2] == ([False, False], pytest.approx([25.0, 25.0]))
    blocked, jct, rate = outcomes("sequential", [1.0, 0.9])
    assert blocked == [False, True]
    assert jct == pytest.approx([100.0, 0.0])  # as soon as it is clear that 100 s is too late
    assert rate == 0.5


def test_jobs_leave_when_their_acceptable_time_cannot_be_kept():
    jobs = replace(
        JobTable.from_columns([0, 0, 5], [4, 4, 4], [10.0, 10.0, 10.0]),
        acceptable_jct=np.array([10.0, 15.0, 100.0]),
    )
    sim = simulated(fifo(pack()), Cluster.homogeneous(1, 4), jobs)
    found = job_times(*_of(sim))
    # job 1 would end at 20 and leaves as it starts; job 2 takes its place
    assert found.end_seconds.tolist() == [10.0, 10.0, 20.0]
    assert found.outcome.tolist() == [JobOutcome.COMPLETED, JobOutcome.BLOCKED, JobOutcome.COMPLETED]


def test_rejected_jobs_leave_at_once():
    sim = arrived(Cluster.homogeneous(1, 4), JobTable.from_columns([0, 0], [4, 4], [10.0, 10.0]), ideal())
    sim.apply([Allocation(0, (0, 1, 2, 3)), Allocation(1, reject=True)])
    sim.advance()
    assert sim.done
    assert sim.metrics().blocking_rate == 0.5
    running = arrived(Cluster.homogeneous(1, 4), JobTable.from_columns([0], [4], [10.0]), ideal())
    running.apply([Allocation(0, (0, 1, 2, 3))])
    with pytest.raises(PlacementError, match="only waiting jobs are rejected"):
        running.apply([Allocation(0, reject=True)])


def test_partitioning_needs_acceptable_times():
    jobs = JobTable.from_columns([0], [1], [10.0])
    with pytest.raises(SchedulerError, match="acceptable"):
        simulated(Partitioning(pack()), Cluster.homogeneous(1, 1), jobs)


def test_drafts_give_back_once():
    jobs = hungry(50.0, 2).merged(JobTable.cpu_only([0.0], [3], [10.0], [1e6]))
    cluster, jobs, performance = cpu_world(8, jobs)
    sim = arrived(cluster, jobs, performance)
    draft = Draft(sim.view())
    for job, allocation in ((0, Allocation(0, (0,))), (1, Allocation(1, server=0))):
        before = int(draft.free_cores_per_server[0])
        assert draft.take(allocation)
        for _ in range(2):
            draft.release(job)
            assert draft.free_cores_per_server[0] == before
