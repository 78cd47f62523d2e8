"""Windows of traces that begin with the jobs that ran at that moment."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from conftest import composed, random_action, shared
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.bounds import simulation_bounds
from ringyard.errors import ConfigurationError, ObservabilityError, WorkloadError
from ringyard.mdp.experiments import experiment
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.observability import Observability
from ringyard.placement import pack
from ringyard.restart import constant
from ringyard.sim.metrics import job_times
from ringyard.state.records import JobOutcome, JobStatus
from ringyard.workloads import ModelMix, Replay, read_helios
from ringyard_baselines import fifo, run, sjf, srsf, srtf

ENOUGH, FEW = Cluster.homogeneous(60, 4), Cluster.homogeneous(4, 4)


def trace(count=300):
    rng = np.random.default_rng(5)
    submit = np.cumsum(rng.exponential(20.0, count))
    gpus, durations = rng.integers(1, 5, count), rng.lognormal(6.0, 1.2, count)
    return ModelMix().assign(JobTable.from_columns(submit - submit[0], gpus, durations), rng)


def replay(jobs, first=150, **settings):
    start = float(jobs.submit_seconds[first])
    return Replay(jobs, ModelMix(), window_jobs=50, start_seconds=start, **settings)


def played(jobs, scheduler, cluster=ENOUGH):
    sim = Simulator(cluster, jobs, ideal(), constant(30.0))
    run(sim, scheduler, np.random.default_rng(0))
    return sim


def warm_pair(elapsed=(40.0, 0.0), submit=(0.0, 1.0), duration=(100.0, 10.0)):
    jobs = JobTable.from_columns(submit, [4, 4], duration)
    return replace(jobs, elapsed_seconds=np.array(elapsed))


def test_a_warm_window_equals_a_long_replay(rng):
    jobs, first = trace(), 150
    begin = jobs.submit_seconds[first]
    before = jobs.rows(slice(0, first + 50))
    window = replay(jobs, warm=True).sample(ENOUGH, rng)
    ends = before.submit_seconds + before.duration_seconds
    ran = np.flatnonzero((before.submit_seconds < begin) & (ends > begin))
    assert window.job_id.tolist() == [*ran.tolist(), *range(first, first + 50)]
    assert window.num_gpus[: len(ran)].sum() <= ENOUGH.num_gpus
    for scheduler in (fifo, srtf, srsf):
        long, warm = (played(one, scheduler(pack())) for one in (before, window))
        rows = np.concatenate([ran, np.arange(first, first + 50)])
        for column, shift in (("end_seconds", begin), ("attained_service", 0.0), ("run_seconds", 0.0)):
            expected = long.state.jobs[column][0, rows] - shift
            assert warm.state.jobs[column][0, :-1] == pytest.approx(expected, rel=1e-9, abs=1e-6)
        own = job_times(long.state, 0, long.jobs).jct[-50:]
        assert warm.metrics().mean_jct == pytest.approx(own.mean(), rel=1e-9)
        assert warm.metrics().num_finished == 50


def test_a_cold_window_is_the_own_part_of_a_warm_one():
    jobs = replace(trace(), model_ids=np.full(300, -1))
    for load in (None, 0.5):
        cold, warm = (
            replay(jobs, load=load, warm=one).sample(ENOUGH, np.random.default_rng(1))
            for one in (False, True)
        )
        assert cold.num_warm == 0 < warm.num_warm
        own = warm.rows(slice(warm.num_warm, None))
        for column in ("submit_seconds", "num_gpus", "duration_seconds", "model_ids", "elapsed_seconds"):
            assert getattr(own, column).tolist() == getattr(cold, column).tolist()
        assert warm.past is not None
        assert warm.past.run_seconds.tolist() == cold.past.run_seconds.tolist()


def test_with_a_load_the_whole_trace_is_stretched(rng):
    jobs, first = trace(), 150
    window = replay(jobs, load=0.3, warm=True).sample(ENOUGH, rng)
    own = window.submit_seconds[window.num_warm :]
    stretch = own[-1] / (jobs.submit_seconds[first + 49] - jobs.submit_seconds[first])
    ago = (jobs.submit_seconds[first] - jobs.submit_seconds[:first]) * stretch
    ran = np.flatnonzero(ago < jobs.duration_seconds[:first])
    assert stretch > 1
    assert window.job_id[: window.num_warm].tolist() == ran.tolist()
    assert window.elapsed_seconds[: window.num_warm] == pytest.approx(ago[ran])


def test_a_small_cluster_is_filled(rng):
    drawn = set()
    for _ in range(20):
        workload = replay(trace(), load=10.0, warm=True)
        window = workload.sample(FEW, rng)
        assert len(window) <= workload.num_jobs
        assert 16 - 4 < window.num_gpus[: window.num_warm].sum() <= 16
        drawn.add(tuple(window.job_id[: window.num_warm].tolist()))
        assert list(drawn)[-1] == tuple(sorted(list(drawn)[-1]))
    assert len(drawn) > 10
    assert replay(trace(), warm=False).num_jobs == 50


def test_warm_jobs_hold_gpus_before_the_first_decision():
    sim = Simulator(Cluster.homogeneous(1, 4), warm_pair(submit=(0.0, 0.0)), ideal())
    sim.advance()
    view = sim.view()
    assert (sim.now, view.running.tolist(), view.waiting.tolist()) == (0.0, [0], [1])
    assert view.attained_service.tolist() == [160.0, 0.0]
    sim = played(warm_pair(submit=(0.0, 0.0)), sjf(pack()), Cluster.homogeneous(1, 4))
    assert sim.state.jobs["end_seconds"][0, :-1].tolist() == [60.0, 70.0]
    assert sim.metrics().mean_jct == 70.0  # of the window's own job
    assert sim.metrics().makespan == 70.0
    assert sim.metrics((0.0, 1.0)).num_finished == 1
    assert job_times(sim.state, 0, sim.jobs).rows.tolist() == [1]
    assert simulation_bounds(sim).mean_jct == pytest.approx(10.0)
    assert simulation_bounds(sim).makespan == pytest.approx(70.0)
    alone = played(warm_pair().rows(slice(0, 1)), sjf(pack()), Cluster.homogeneous(1, 4))
    assert alone.metrics().num_finished == 0
    assert np.isnan(alone.metrics().mean_jct)


def test_warm_jobs_can_be_preempted_and_rejoin_with_what_is_left():
    sim = played(warm_pair(), srtf(pack()), Cluster.homogeneous(1, 4))
    assert sim.state.jobs["end_seconds"][0, :-1].tolist() == [100.0, 11.0]  # a restart of 30 s
    assert job_times(sim.state, 0, sim.jobs).outcome.tolist() == [JobOutcome.COMPLETED]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"elapsed": (0.0, 4.0)}, "0 except for the first jobs, at 0 s"),
        ({"elapsed": (4.0, 4.0)}, "0 except for the first jobs, at 0 s"),
        ({"elapsed": (100.0, 0.0)}, "less than its duration_seconds"),
        ({"elapsed": (4.0, 0.0), "duration": (np.nan, 1.0)}, "less than its duration_seconds"),
        ({"elapsed": (-1.0, 0.0)}, "elapsed_seconds -1.0"),
    ],
)
def test_jobs_that_cannot_have_run_are_refused(changes, said):
    durations = np.array(changes.get("duration", (100.0, 10.0)))
    jobs = replace(warm_pair(changes["elapsed"]), duration_seconds=durations)
    jobs = replace(jobs, iterations=np.where(np.isnan(durations), 5.0, np.nan))
    with pytest.raises(WorkloadError, match=said):
        jobs.check()


def test_a_trace_without_run_times_is_refused():
    jobs = replace(trace(4), duration_seconds=np.full(4, np.nan), iterations=np.full(4, 5.0))
    Replay(jobs, ModelMix())
    with pytest.raises(WorkloadError, match=r"workload.warm is true, .*workload.reader.end=NAME"):
        Replay(jobs, ModelMix(), warm=True)
    with pytest.raises(ConfigurationError, match=r"workload\.warm"):
        Replay(trace(4), ModelMix(), warm="yes")


def test_what_a_job_has_run_is_attained_service():
    with pytest.raises(ObservabilityError, match="elapsed_seconds is hidden"):
        warm_pair().restricted_to(Observability.DURATIONS).elapsed_seconds  # noqa: B018
    assert warm_pair().restricted_to(Observability.ATTAINED_SERVICE).elapsed_seconds[0] == 40.0


def test_windows_of_venus_are_warm(rng):
    assert composed("simulate", "workload=helios", "workload.path=x").workload.warm is False
    file = shared("data", "traces", "helios", "venus_gpu_jobs.csv.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jobs = read_helios(file)
        workload = Replay(jobs, ModelMix(), window_jobs=128, load=10.0, max_gpus=64, warm=True)
    cluster = Cluster.homogeneous(16, 4)
    held = []
    for _ in range(5):
        window = workload.sample(cluster, rng)
        window.check(cluster)
        assert window.num_warm + 128 == len(window) <= workload.num_jobs
        held.append(window.num_gpus[: window.num_warm].sum() / cluster.num_gpus)
    assert np.mean(held) > 0.8


@pytest.mark.parametrize("form", ["jobs", "weights", "queue"])
def test_environments_begin_with_jobs_that_run(form):
    setting = replace(experiment("contention", form=form), workload=replay(trace(), warm=True))
    vector = ClusterVectorEnv(2, setting, autoreset_mode="SameStep")
    vector.reset(seed=1)
    held = vector.unwrapped.batch.state.jobs["status"] == JobStatus.RUNNING
    assert (held.sum(axis=1) > 5).all()
    rng, ended = np.random.default_rng(0), 0
    for _ in range(3000):
        space = vector.single_action_space
        actions = np.stack([random_action(space, mask, rng) for mask in vector.action_masks()])
        _, reward, done, _, _ = vector.step(actions)
        ended += done.sum()
        assert (reward <= 0).all()
        if ended >= 2:
            break
    assert ended >= 2
