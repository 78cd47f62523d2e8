"""Schedules of the schedulers that share out CPU cores, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.performance import composite
from ringyard.placement import consolidate, pack
from ringyard.profiles import model_id
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard.state.records import JobStatus
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.papers.coda import Coda, _CoreTuning
from ringyard_baselines.papers.synergy import SynergyTune
from small_simulations import arrived, simulated, times_of


def cpu_cluster(cores, jobs):
    cluster = Cluster.homogeneous(1, 1, "v100", cores, 100e9)
    return cluster, jobs, composite(1e9, 40e9)


def hungry(duration, cores):
    """One job whose input pipeline wants more cores than it asks for."""
    jobs = JobTable.from_columns([0], [1], [duration]).with_models(np.array([model_id("alexnet_imagenet")]))
    return replace(jobs, cores_per_worker=np.array([cores]))


def test_coda_finds_cores_by_feedback():
    simulation = cpu_cluster(16, hungry(4000.0, 1))
    sim = simulated(fifo_backfill(pack()), *simulation)
    plain = sim.metrics()
    record = sim.state.jobs[0, 0]  # its one core is always the bottleneck
    preparing = (
        record["base_batch"] / record["samples_per_core_second"] * (1 + record["loading_serial_share"])
    )
    assert times_of(sim).gpu_activity == pytest.approx(record["base_compute_seconds"] / preparing)
    tuned = simulated(Coda(pack(), cpu_array_share=0.0), *simulation).metrics()
    assert tuned.mean_jct < 0.4 * plain.mean_jct
    assert tuned.gpu_activity > 2 * plain.gpu_activity
    assert (
        simulated(Coda(pack(), cpu_array_share=1.0), *simulation).metrics().mean_jct >= 0.99 * plain.mean_jct
    )


def test_coda_asks_again_for_cores_it_was_refused():
    # until 500 s a CPU job has all other cores: one core fewer is tried, and hurts; then one more each window
    helper = JobTable.cpu_only([0.0], [6], [500.0], [1e6])
    cluster, jobs, performance = cpu_cluster(8, helper.merged(hungry(4000.0, 2)))
    scheduler = Coda(pack(), cpu_array_share=0.0)
    sim = Simulator(cluster, jobs, performance, round_seconds=scheduler.round_seconds)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    steps = {}
    while sim.now < 1300:
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
        steps.setdefault(int(sim.state.jobs["cores_per_worker"][0, 1]), []).append(sim.now)
    assert {cores: seen[0] for cores, seen in steps.items()} == {
        2: 0, 1: 90, 3: 500, 4: 630, 5: 720, 6: 810, 7: 900, 8: 990
    }  # fmt: skip
    assert steps[2] == [0, 180, 270, 360, 450]


def cores_over_time(scheduler, cluster, jobs, performance, until):
    """[decisions, jobs] CPU cores of each job's workers, 0 while it does not run."""
    sim = Simulator(cluster, jobs, performance, round_seconds=scheduler.round_seconds)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    held = []
    while not sim.done and sim.now < until:
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
        records = sim.state.jobs[0, : len(jobs)]
        held.append(np.where(records["status"] == JobStatus.RUNNING, records["cores_per_worker"], 0))
    return np.array(held)


def test_coda_starts_a_job_with_the_cores_at_which_its_model_settled():
    jobs = hungry(20_000.0, 1).merged(hungry(1000.0, 1))
    for adaptive in (True, False):
        scheduler = Coda(pack(), adaptive=adaptive, cpu_array_share=0.0)
        first, second = cores_over_time(scheduler, *cpu_cluster(16, jobs), until=1e9).T
        settled = first[first > 0][-1]
        assert second[second > 0][0] == settled
        assert (settled > 4) == adaptive


def test_coda_leaves_free_gpus_their_share_of_cores():
    most = []
    for gpus in (1, 2):
        cluster = Cluster.homogeneous(1, gpus, "v100", 16, 100e9)
        held = cores_over_time(
            Coda(pack(), cpu_array_share=0.0), cluster, hungry(6000.0, 1), composite(1e9, 40e9), 3000.0
        )
        most.append(held.max())
    assert most[0] > 8
    assert most[1] == 8


def test_coda_takes_fewer_cores_rather_than_gpus_of_two_servers():
    """Each server has 2 free GPUs and 4 free cores. The last job wants 2 GPUs and 4 cores for each."""
    jobs = JobTable.from_columns([0, 0, 0], [1, 1, 2], [1000.0] * 3)
    jobs = replace(jobs, cores_per_worker=np.array([8, 8, 4]))
    sim = arrived(Cluster.homogeneous(2, 3, cores_per_server=12), jobs, composite(1e9, 40e9))
    sim.apply([Allocation(0, (0,)), Allocation(1, (3,))])
    scheduler = Coda(pack(), adaptive=False, large_job_gpus=2)
    scheduler.reset(sim.cluster, jobs, np.random.default_rng(0))
    (found,) = scheduler.decide(sim.view())
    assert (found.job, found.gpu_ids, found.cores_per_worker) == (2, (4, 5), 1)


def test_coda_starts_the_group_with_the_least_share_first():
    # all GPUs are free at 50 s: a's oldest goes first, then b, who has none, then a has more than b
    jobs = JobTable.from_columns(
        [0, 1, 2, 3], [2, 1, 1, 1], [50.0, 100.0, 100.0, 100.0], vc=["", "a", "a", "b"]
    )
    cluster = Cluster.homogeneous(1, 2, cores_per_server=8)
    found = times_of(simulated(Coda(pack()), cluster, jobs))
    assert found.start_seconds.tolist() == [0, 50, 150, 50]
    alone = times_of(simulated(Coda(pack()), cluster, replace(jobs, vc=np.full(4, ""))))
    assert alone.start_seconds.tolist() == [0, 50, 50, 150]
    # of CPU-only jobs the share of cores decides
    helpers = JobTable.cpu_only([0, 1, 2, 3], [8, 5, 3, 3], [50.0, 100.0, 100.0, 100.0], np.zeros(4))
    found = times_of(simulated(Coda(pack()), cluster, replace(helpers, vc=jobs.vc)))
    assert found.start_seconds.tolist() == [0, 50, 150, 50]


def test_coda_evicts_borrowers_for_training_jobs():
    helper = JobTable.cpu_only([0.0], [4], [100.0], [1e6])
    training = replace(hungry(50.0, 2), submit_seconds=np.array([10.0]))
    cluster, jobs, performance = cpu_cluster(4, helper.merged(training))
    sim = simulated(Coda(pack(), cpu_array_share=0.0), cluster, jobs, performance)
    assert times_of(sim).start_seconds.tolist() == [0.0, 10.0]
    assert sim.state.jobs["num_preemptions"][0, 0] == 1
    kept = simulated(Coda(pack(), cpu_array_share=1.0), cluster, jobs, performance)
    assert times_of(kept).start_seconds.tolist() == [0.0, 100.0]


@pytest.mark.parametrize(
    ("array_share", "asked", "evicted"),
    [(0.25, 2, [0, 0, 1]), (0.25, 6, [0, 1, 1]), (0.75, 2, [0, 0, 1]), (0.75, 4, [0, 0, 0])],
)
def test_coda_evicts_what_was_started_last_and_leaves_the_cpu_array(array_share, asked, evicted):
    """Three CPU jobs hold 2, 4 and 2 of 8 cores. The array has 2 or 6: so many stay, whatever is asked."""
    helpers = JobTable.cpu_only([0.0, 1.0, 2.0], [2, 4, 2], [500.0] * 3, [1e6] * 3)
    training = replace(hungry(50.0, asked), submit_seconds=np.array([10.0]))
    cluster, jobs, performance = cpu_cluster(8, helpers.merged(training))
    scheduler = Coda(pack(), adaptive=False, cpu_array_share=array_share)
    sim = Simulator(cluster, jobs, performance)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    while sim.now < 10.0:
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
    records = sim.state.jobs[0]
    assert records["num_preemptions"][:3].tolist() == evicted
    assert (records["status"][3] == JobStatus.RUNNING) == (max(evicted) == 1)


def capped_over_time(scheduler, cluster, jobs, performance, until):
    """[decisions, jobs] cap of each job and the GPU activity of the first, until a time."""
    sim = Simulator(cluster, jobs, performance, round_seconds=scheduler.round_seconds)
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    caps, active = {}, {}
    while sim.now < until:
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
        caps[sim.now] = sim.state.jobs["memory_bandwidth_cap"][0, : len(jobs)].tolist()
        active[sim.now] = float(sim.view().gpu_activity[0])
    return caps, active


def test_coda_caps_cpu_jobs_that_starve_training_and_lifts_the_caps():
    """Training moves 24 GB/s of 100, from 200 s on CPU jobs 40 more, and 60 until one of them ends."""
    helpers = JobTable.cpu_only([200.0, 200.0], [4, 4], [4000.0, 500.0], [10e9, 15e9])
    training = replace(hungry(3000.0, 8), memory_bandwidth=np.array([3e9]))
    cluster, jobs, performance = cpu_cluster(16, training.merged(helpers))
    caps, active = capped_over_time(Coda(pack(), adaptive=False), cluster, jobs, performance, until=2500.0)
    seen = list(dict.fromkeys(tuple(one[1:]) for one in caps.values()))
    # 124 GB/s are asked; capped it is 74, and 94 or 104 if one cap went; without the second job it is 64
    assert seen == [(1.0, 1.0), (0.5, 0.5), (1.0, 0.5)]
    began = next(time for time, one in caps.items() if one[1] == 0.5)
    ended = next(time for time, one in caps.items() if time > began and one[1] == 1.0)
    times = list(active)
    assert began <= 290.0  # within a window
    assert active[times[times.index(began) - 1]] < 0.9 * active[began]
    assert active[ended] == active[began] == active[0.0]
    caps, slowed = capped_over_time(
        Coda(pack(), adaptive=False, bandwidth_limit=1e9), cluster, jobs, performance, until=600.0
    )
    assert all(one == [1.0, 1.0, 1.0] for one in caps.values())
    assert min(slowed.values()) < 0.9 * active[0.0]


def test_coda_leaves_cpu_jobs_alone_that_slow_no_training():
    """As much is asked of the memory, but the training job has cores to spare and computes as before."""
    helper = JobTable.cpu_only([200.0], [4], [2000.0], [30e9])
    training = replace(hungry(3000.0, 12), memory_bandwidth=np.array([0.0]))
    training = replace(training, samples_per_core_second=np.array([1e9]))
    cluster, jobs, performance = cpu_cluster(16, training.merged(helper))
    caps, _ = capped_over_time(Coda(pack(), adaptive=False), cluster, jobs, performance, until=1000.0)
    assert all(one == [1.0, 1.0] for one in caps.values())


def test_coda_keeps_small_and_large_jobs_apart():
    """The second server is for jobs of 4 GPUs and more. A job goes to the other one if its own is full."""
    jobs = JobTable.from_columns(np.arange(5.0), [4, 1, 2, 4, 2], [1000.0] * 5)
    cluster = Cluster.homogeneous(2, 8, cores_per_server=32)
    for servers, expected in ((0.5, [1, 0, 0, 1, 0]), (0.0, [0, 0, 0, 1, 1]), (1.0, [0, 0, 0, 1, 1])):
        sim = simulated_until(Coda(pack(), large_job_servers=servers), cluster, jobs, 4.0)
        assert sim.cluster.server_of_gpu[first_gpus(sim)].tolist() == expected, servers
    crowd = JobTable.from_columns(np.arange(4.0), [6, 2, 4, 1], [1000.0] * 4)
    sim = simulated_until(Coda(pack()), cluster, crowd, 3.0)
    assert sim.cluster.server_of_gpu[first_gpus(sim)].tolist() == [1, 0, 0, 0]


def simulated_until(scheduler, cluster, jobs, until):
    sim = Simulator(cluster, jobs, composite(1e9, 40e9))
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    while sim.now < until:
        sim.advance()
        sim.apply(scheduler.decide(sim.view()))
    return sim


def first_gpus(sim):
    view = sim.view()
    return [view.gpus_of(job)[0] for job in range(len(sim.jobs))]


def test_synergy_gives_and_takes_cores():
    cluster, jobs, performance = cpu_cluster(24, hungry(1000.0, 1))
    sim = arrived(cluster, jobs, performance)
    scheduler = SynergyTune(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    sim.apply(scheduler.decide(sim.view()))
    cores = int(sim.state.jobs["cores_per_worker"][0, 0])
    seconds = [
        isolated_iteration_seconds(sim.view(), np.array([0]), cores_per_worker=c)[0]
        for c in (cores - 1, cores, 24)
    ]
    assert seconds[1] <= seconds[2] / 0.95 < seconds[0]


def test_synergy_stops_nobody_for_a_job_that_finds_no_room():
    """Two free GPUs on two servers are none for a job that wants both on one."""
    jobs = JobTable.from_columns(np.zeros(4), [1, 1, 2, 1], [10.0, 20.0, 30.0, 100.0])
    sim = arrived(Cluster.homogeneous(2, 2, cores_per_server=8), jobs, composite(1e9, 40e9))
    sim.apply([Allocation(0, (0,)), Allocation(3, (1,)), Allocation(1, (2,))])
    decided = []
    for rule in (consolidate(), pack()):
        scheduler = SynergyTune(rule)
        scheduler.reset(sim.cluster, jobs, np.random.default_rng(0))
        decided.append([(one.job, one.gpu_ids) for one in scheduler.decide(sim.view())])
    assert decided == [[], [(3, ()), (2, (1, 3))]]


def test_drafts_give_back_once():
    jobs = hungry(50.0, 2).merged(JobTable.cpu_only([0.0], [3], [10.0], [1e6]))
    cluster, jobs, performance = cpu_cluster(8, jobs)
    sim = arrived(cluster, jobs, performance)
    draft = PlacementPlan(sim.view())
    for job, allocation in ((0, Allocation(0, (0,))), (1, Allocation(1, server=0))):
        before = int(draft.free_cores_per_server[0])
        assert draft.allocate(allocation)
        for _ in range(2):
            draft.release(job)
            assert draft.free_cores_per_server[0] == before


def test_coda_lets_a_job_wait_for_its_cores_or_starts_it_with_fewer():
    """The server has 2 free cores until 500 s, and the job asks for 4."""
    helper = JobTable.cpu_only([0.0], [6], [500.0], [1e6])
    cluster, jobs, performance = cpu_cluster(8, helper.merged(hungry(50.0, 4)))
    for fewer, start in ((True, 0.0), (False, 500.0)):
        scheduler = Coda(pack(), adaptive=False, cpu_array_share=1.0, fewer_cores=fewer)
        sim = Simulator(cluster, jobs, performance)
        scheduler.reset(cluster, jobs, np.random.default_rng(0))
        sim.advance()
        sim.apply([Allocation(0, server=0)])
        while not sim.done:
            sim.apply(scheduler.decide(sim.view()))
            sim.advance()
        assert times_of(sim).start_seconds.tolist() == [0.0, start]


@pytest.mark.parametrize(
    ("order", "ends"), [("fifo", [30, 50, 60]), ("srtf", [60, 31, 12]), ("las", [41, 60, 12])]
)
def test_synergy_keeps_the_order_of_jobs(order, ends):
    """On one GPU. When a job arrives it has less left, and has run for less time, than the others."""
    jobs = JobTable.from_columns([0, 1, 2], [1, 1, 1], [30.0, 20.0, 10.0])
    found = times_of(
        simulated(SynergyTune(pack(), order), Cluster.homogeneous(1, 1, cores_per_server=8), jobs)
    )
    assert found.end_seconds.tolist() == ends


def test_synergy_gives_a_third_of_the_fair_share_of_ram_to_a_job_that_reads_nothing():
    """12 GB for two GPUs. The cluster counts no cores, and the job gets none."""
    cluster = replace(Cluster.homogeneous(1, 2), ram_bytes_per_server=(12 * 10**9,))
    jobs = replace(JobTable.from_columns([0], [1], [10.0]), ram_per_worker=np.array([6e9]))
    scheduler = SynergyTune(pack())
    scheduler.reset(cluster, jobs, np.random.default_rng(0))
    (found,) = scheduler.decide(arrived(cluster, jobs, composite(1e9, 40e9)).view())
    assert (found.ram_per_worker, found.cores_per_worker) == (2 * 10**9, None)


def test_coda_learns_from_its_own_steps_only():
    """Utilisation has fallen since the last step, which was judged. Fewer cores are tried all the same."""
    tuning = _CoreTuning(step_seconds=0.0, first_cores=2, utilisation=0.9, more_helps=False)
    coda = Coda(pack())
    assert coda._steps(tuning, 0.5, 4) == [-1]
    tuning.last_step = -1  # that step did cost utilisation: a core more
    assert coda._steps(tuning, 0.4, 3) == [1]
    tuning = _CoreTuning(step_seconds=0.0, first_cores=2, utilisation=0.5, last_step=1)
    assert coda._steps(tuning, 0.5, 4) == [-1]  # the step up gained nothing
    tuning = _CoreTuning(step_seconds=0.0, first_cores=2, utilisation=0.5, last_step=1)
    assert coda._steps(tuning, 0.6, 4) == [1, -1]
