"""Guaranteed and spot jobs, worked out by hand: quotas, evictions and the forecast of GFS."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator
from ringyard.failures import Failures
from ringyard.mdp.experiments import experiment
from ringyard.performance import ideal
from ringyard.placement import consolidate
from ringyard_baselines.papers.gfs import FixedQuota, Gfs
from ringyard_baselines.scheduler import run

PLACE = consolidate()


def jobs_of(submit, gpus, seconds, deadlines, users=()):
    """Jobs of which those with a finite deadline are guaranteed."""
    table = JobTable.from_columns(submit, gpus, seconds)
    users = np.array(users or [""] * len(table))
    return replace(table, deadline_seconds=np.array(deadlines, np.float64), user=users)


def played(scheduler, jobs, cluster=None, failures=None):
    """The job records at the end of a run without pauses. Evicted jobs keep nothing by default."""
    failures = failures or Failures(float("inf"), 1.0, 1e9, checkpoint_on_preemption=False)
    cluster = cluster or Cluster.homogeneous(2, 4)
    sim = Simulator(cluster, jobs, ideal(), None, scheduler.round_seconds, failures=failures)
    run(sim, scheduler, np.random.default_rng(0))
    return sim.state.jobs[0, : len(jobs)]


NONE = float("inf")


def test_a_guaranteed_job_evicts_the_youngest_spot_job_which_begins_again():
    jobs = jobs_of([0, 10, 20], [4, 4, 4], [100, 100, 50], [NONE, NONE, 60])
    records = played(FixedQuota(PLACE, 1.0), jobs)
    assert records["num_preemptions"].tolist() == [0, 1, 0]
    assert records["end_seconds"].tolist() == [100.0, 170.0, 70.0]
    kept = Failures(float("inf"), 1.0, 4.0, checkpoint_on_preemption=False)
    assert played(FixedQuota(PLACE, 1.0), jobs, failures=kept)["end_seconds"][1] == 162.0  # 8 s were kept


def test_spot_jobs_evict_none_and_guaranteed_ones_are_not_evicted():
    jobs = jobs_of([0, 0, 10, 20], [4, 4, 4, 4], [100, 100, 50, 50], [200, 200, NONE, 90])
    records = played(FixedQuota(PLACE, 1.0), jobs)
    assert not records["num_preemptions"].any()
    assert records["first_start_seconds"].tolist() == [0.0, 0.0, 100.0, 100.0]


def test_the_quota_holds_gpus_back_unless_the_cluster_is_idle():
    jobs = jobs_of([0, 0, 0], [2, 2, 2], [100, 100, 100], [NONE, NONE, NONE])
    starts = played(FixedQuota(PLACE, quota=0.5), jobs)["first_start_seconds"]
    assert starts.tolist() == [0.0, 0.0, 100.0]
    large = jobs_of([0, 0], [2, 8], [100, 100], [NONE, NONE])
    assert played(FixedQuota(PLACE, quota=0.5), large)["first_start_seconds"].tolist() == [0.0, 100.0]
    guaranteed = replace(jobs, deadline_seconds=np.full(3, 1000.0))
    assert not played(FixedQuota(PLACE, quota=0.0), guaranteed)["first_start_seconds"].any()


def test_each_user_has_a_quota():
    jobs = jobs_of([0, 0, 0], [2, 2, 2], [100, 100, 100], [NONE] * 3, ["a", "a", "b"])
    starts = played(FixedQuota(PLACE, quota=1.0, tenant_quota=0.25), jobs)["first_start_seconds"]
    assert starts.tolist() == [0.0, 100.0, 0.0]


def test_where_a_job_finds_no_place_smaller_ones_are_tried():
    jobs = jobs_of([0, 1, 2, 3], [4, 8, 4, 8], [100, 10, 10, 10], [NONE] * 4)
    assert played(FixedQuota(PLACE, 1.0), jobs)["first_start_seconds"].tolist() == [0.0, 100.0, 2.0, 110.0]


def test_gfs_evicts_where_the_fewest_jobs_lose_the_least():
    # one server has two spot jobs, the other one: this is evicted, though it is older
    jobs = jobs_of([0, 10, 10, 20], [4, 2, 2, 4], [1000, 1000, 1000, 50], [NONE, NONE, NONE, 90])
    records = played(Gfs(PLACE), jobs)
    assert records["num_preemptions"].tolist() == [1, 0, 0, 0]
    # of two servers with as many, the job that has run for less
    jobs = jobs_of([0, 10, 20], [4, 4, 4], [1000, 1000, 50], [NONE, NONE, 90])
    assert played(Gfs(PLACE), jobs)["num_preemptions"].tolist() == [0, 1, 0]
    # of the jobs of a server, the one that has run longest stays
    jobs = jobs_of([0, 10, 20], [2, 2, 2], [1000, 1000, 50], [NONE, NONE, 90])
    records = played(Gfs(PLACE), jobs, Cluster.homogeneous(1, 4))
    assert records["num_preemptions"].tolist() == [0, 1, 0]


def test_gfs_starts_jobs_with_more_gpus_first():
    jobs = jobs_of([0, 0, 0], [2, 4, 3], [100, 100, 100], [900, 900, 900])
    starts = played(Gfs(PLACE), jobs, Cluster.homogeneous(1, 4))["first_start_seconds"]
    assert starts.tolist() == [200.0, 0.0, 100.0]


def decided(scheduler, jobs, until):
    """The scheduler after it has decided for so many seconds on eight GPUs."""
    sim = Simulator(Cluster.homogeneous(2, 4), jobs, ideal(), None, scheduler.round_seconds)
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    while sim.now < until and not sim.done:
        sim.apply(scheduler.decide(sim.view(scheduler.observability)))
        sim.advance()
    return scheduler


def test_the_forecast_is_a_quantile_of_the_sum_of_users():
    users = ["a", "b", "c"]
    jobs = jobs_of([0, 3700, 8000], [2, 4, 1], [9000, 9000, 9000], [1e6, 1e6, NONE], users)
    scheduler = decided(Gfs(PLACE, history_hours=2), jobs, 7150.0)
    # hourly peaks of a: 2, 2; of b: 0, 4
    assert scheduler._needed == np.floor(2 + 2 + 1.2815515655446004 * 2)
    assert scheduler._quotas(_At(8), 8, 0)[0] == 2.0


class _At:
    """A view at which nothing happens."""

    def __init__(self, slots):
        self.now, self.slots = 7150.0, slots
        self.gpu_jobs = self.running = np.zeros(0, np.int64)
        self.waiting, self.num_gpus = self.gpu_jobs, np.zeros(3, np.int32)
        self.submit_seconds = np.zeros(3)

    def column(self, name):
        return np.full(3, {"deadline_seconds": np.inf}.get(name, 0.0))


@pytest.mark.parametrize(
    ("counts", "waits", "eta"),
    [
        ([(9, 1)], 4000.0, 1.0),  # as many evictions as wanted
        ([(8, 2)], 4000.0, 0.5),  # twice as many
        ([(10, 0)], 4000.0, 1.5),  # none
        ([(10, 0)], 100.0, 1.0),  # none, and no job has waited for long
        ([(39, 1)], 4000.0, 1.25),  # a quarter
        ([], 4000.0, 1.5),
    ],
)
def test_eta_follows_evictions_and_waits(counts, waits, eta):
    scheduler, view = Gfs(PLACE), _At(8)
    scheduler.reset(Cluster.homogeneous(2, 4), jobs_of([0], [1], [10], [NONE]), np.random.default_rng(0))
    view.waiting, view.submit_seconds = np.array([0]), np.full(3, view.now - waits)
    view.column = lambda name: np.full(3, {"deadline_seconds": np.inf}.get(name, np.nan))
    scheduler._counts.extend((0.0, *one) for one in counts)
    scheduler._set_eta(view)
    assert scheduler._eta == pytest.approx(eta)


def test_an_hour_and_an_end_of_a_spot_job_are_successes_and_evictions_failures():
    jobs = jobs_of([0, 0, 7300], [4, 4, 4], [20_000, 7250, 50], [NONE, NONE, 90])
    scheduler = decided(Gfs(PLACE), jobs, 7500.0)
    # two hours of both jobs, the end of one, and no eviction, since its GPUs are free
    assert np.sum([one[1:] for one in scheduler._counts], axis=0).tolist() == [5, 0]
    late = replace(jobs, submit_seconds=np.array([0.0, 0.0, 7240.0]))
    scheduler = decided(Gfs(PLACE), late, 7245.0)
    assert np.sum([one[1:] for one in scheduler._counts], axis=0).tolist() == [4, 1]


def late_share(seed, classes):
    """Share of late jobs among the guaranteed ones, if the scheduler sees `classes` or not."""
    setting = experiment("spot")
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(seed))
    shown = jobs if classes else replace(jobs, deadline_seconds=np.full(len(jobs), np.inf))
    parts = (setting.cluster, shown, setting.performance, setting.restart)
    sim = Simulator(*parts, seed=seed, failures=setting.failures)
    run(sim, FixedQuota(PLACE, 1.0), np.random.default_rng(0))
    records = sim.state.jobs[0, : len(jobs)]
    late = records["end_seconds"] - records["submit_seconds"] > jobs.deadline_seconds
    return late[np.isfinite(jobs.deadline_seconds)].mean()


def test_fewer_guaranteed_jobs_of_the_environment_are_late_than_without_classes():
    shares = np.array([[late_share(seed, classes) for classes in (True, False)] for seed in range(5)])
    assert 0 < shares[:, 0].mean() < shares[:, 1].mean()
