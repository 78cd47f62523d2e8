"""Hand-computed schedules."""

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError, PluginError, SchedulerError
from ringyard.placement import consolidate, pack
from ringyard.sim.metrics import job_times
from ringyard_baselines.classic.easy import EasyBackfilling
from ringyard_baselines.classic.preemptive import las, srsf, srtf
from ringyard_baselines.classic.start_only import fifo, fifo_backfill, sjf, smallest_work
from ringyard_baselines.papers.sjf_bco.scheduler import sjf_bco
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import Capabilities, Observability, run
from small_simulations import nowhere


def schedule(scheduler, submit, gpus, durations, servers=1, size=4):
    sim = Simulator(
        Cluster.homogeneous(servers, size),
        JobTable.from_columns(submit, gpus, durations),
        ideal(),
        round_seconds=scheduler.round_seconds,
    )
    run(sim, scheduler, np.random.default_rng(0))
    times = job_times(sim.state, 0, sim.jobs)
    return times.start_seconds.tolist(), times.end_seconds.tolist()


def test_fifo_skips_and_fifo_strict_blocks():
    jobs = ([0, 1, 2], [3, 4, 1], [10, 10, 5])
    assert schedule(fifo_backfill(pack()), *jobs)[0] == [0, 10, 2]
    assert schedule(fifo(pack()), *jobs)[0] == [0, 10, 20]


def test_sjf_and_smallest_work_order_the_queue():
    jobs = ([0, 1, 1, 1], [4, 4, 1, 2], [10, 3, 5, 4])
    assert schedule(sjf(pack()), *jobs)[0] == [0, 10, 13, 13]  # 3 s, then 4 s and 5 s together
    assert schedule(smallest_work(pack()), *jobs)[0] == [0, 15, 10, 10]  # 5 and 8 before 12 GPU seconds


def test_srtf_preempts_and_resumes():
    start, end = schedule(srtf(pack()), [0, 2], [4, 4], [10, 3])
    assert start == [0, 2]
    assert end == [13, 5]


def test_srsf_counts_gpus_as_well_as_seconds():
    # when job 1 comes, job 0 has 8 s on 4 GPUs left, job 1 20 s on one
    start, end = schedule(srsf(pack()), [0, 2], [4, 1], [10, 20])
    assert (start, end) == ([0, 2], [30, 22])
    assert schedule(srtf(pack()), [0, 2], [4, 1], [10, 20])[1] == [10, 30]
    # job 0 has 14 GPU seconds left: as many as a job that comes then, which waits; one of 12 does not
    assert schedule(srsf(pack()), [0, 1], [2, 4], [8, 3.5])[0] == [0, 8]
    assert schedule(srsf(pack()), [0, 1], [2, 4], [8, 3])[0] == [0, 1]


def test_easy_backfills_only_without_delay():
    # job 1 (4 GPUs) waits for job 0 until 10; job 2 (8 s) may overtake at 2, job 3 (9 s) may not
    start, _ = schedule(EasyBackfilling(pack()), [0, 1, 2, 2], [3, 4, 1, 1], [10, 10, 8, 9])
    assert start == [0, 10, 2, 20]


def test_easy_backfills_gpus_the_reservation_leaves():
    # at 10 the blocked job takes 3 of 4 GPUs: the spare one may be used for however long
    start, _ = schedule(EasyBackfilling(pack()), [0, 1, 2], [3, 3, 1], [10, 10, 100])
    assert start == [0, 10, 2]


def test_las_takes_turns():
    start, end = schedule(las(pack(), 10.0), [0, 0], [4, 4], [30, 30])
    assert start == [0, 10]
    assert end == [50, 60]


def test_tiresias_demotes_at_the_threshold():
    # 4 GPUs reach 40 GPU seconds after 10 s; then the newcomer of the first queue takes over
    scheduler = tiresias(pack(), [40.0], float("inf"))
    start, end = schedule(scheduler, [0, 5], [4, 4], [30, 6])
    assert start == [0, 10]
    assert end == [36, 16]


def test_tiresias_refuses_bad_thresholds():
    for thresholds in ([], [0.0], [5.0, 5.0], [5.0, 3.0]):
        with pytest.raises(ConfigurationError, match=r"ascending|in .0, inf"):
            tiresias(pack(), thresholds)


def test_sjf_bco_places_small_jobs_apart_and_large_ones_together():
    sim = Simulator(Cluster.homogeneous(2, 4), JobTable.from_columns([0] * 3, [1, 4, 2], [5, 5, 5]), ideal())
    scheduler = sjf_bco()
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    sim.advance()
    placed = {a.job: a.gpu_ids for a in scheduler.decide(sim.view())}
    assert set(placed) == {0, 1, 2}
    assert len({gpu // 4 for gpu in placed[1]}) == 1  # the 4-GPU job sits on one server
    assert scheduler.last_choice[2] == 5.0  # planned makespan: nobody waits


def test_sjf_bco_lowest_theta_balances_gpus():
    # eight 1-GPU jobs of 10 s on four GPUs: theta comes down to 20 s, two jobs a GPU
    sim = Simulator(Cluster.homogeneous(1, 4), JobTable.from_columns([0] * 8, [1] * 8, [10] * 8), ideal())
    scheduler = sjf_bco()
    run(sim, scheduler, np.random.default_rng(0))
    assert sim.metrics().makespan == 20.0
    assert 20.0 <= scheduler.last_choice[0] < 21.0


@pytest.mark.parametrize("scheduler", [fifo_backfill, srtf])
def test_a_rule_that_never_places_is_an_error_not_a_hang(scheduler):
    sim = Simulator(Cluster((4,)), JobTable.from_columns([0.0], [1], [5.0]), ideal())
    with pytest.raises(SchedulerError, match="split"):
        run(sim, scheduler(nowhere()), np.random.default_rng(0))


def test_a_scheduler_that_never_starts_is_an_error():
    class Idle:
        name, observability, round_seconds = "idle", Observability.NOTHING, None

        def reset(self, cluster, jobs, rng):
            pass

        def decide(self, view):
            return []

    sim = Simulator(Cluster((4,)), JobTable.from_columns([0.0], [1], [5.0]), ideal())
    with pytest.raises(PluginError, match=r"capabilities is None; expected Capabilities\.START"):
        run(sim, Idle(), np.random.default_rng(0))
    Idle.capabilities = Capabilities.START
    with pytest.raises(SchedulerError, match="start a waiting job"):
        run(sim, Idle(), np.random.default_rng(0))


@pytest.mark.parametrize("compiled", [True, False])
def test_gpus_of_a_job_without_a_place_stay_idle(compiled, rng):
    # two servers of 3, two GPUs of each taken: job 2 finds no server with two free ones
    jobs = JobTable.from_columns([0.0, 0.0, 1.0, 1.0], [2, 2, 2, 1], [10.0, 20.0, 5.0, 5.0])
    starts = {}
    for reserve_unplaced in (False, True):
        sim = Simulator(Cluster.homogeneous(2, 3), jobs, ideal())
        run(sim, fifo_backfill(consolidate(), reserve_unplaced), rng, compiled)
        starts[reserve_unplaced] = sim.state.jobs["first_start_seconds"][0, :4].tolist()
    assert starts == {False: [0.0, 0.0, 10.0, 1.0], True: [0.0, 0.0, 10.0, 10.0]}
    with pytest.raises(ConfigurationError, match="strict and reserve_unplaced"):
        sjf(consolidate(), strict=True, reserve_unplaced=True)
